//! Who the containers of a pod are and what they may do, as the runtime is told.

use std::path::Path;

use k8s_openapi::api::core::v1::{
    AppArmorProfile, Container, Pod, PodSecurityContext, PodSpec, SELinuxOptions, SeccompProfile, SecurityContext,
};

use crate::runtime::{ImageUser, Profile, SeLinux, Security};

/// What is said of each container of a pod, of whatever kind.
pub(super) fn containers(spec: &PodSpec) -> impl Iterator<Item = &SecurityContext> {
    let usual = spec.init_containers.iter().flatten().chain(&spec.containers);
    let ephemeral = spec.ephemeral_containers.iter().flatten().map(|container| &container.security_context);
    usual.map(|container| &container.security_context).chain(ephemeral).flatten()
}

pub(super) fn groups(of_pod: &PodSecurityContext) -> Vec<i64> {
    of_pod.fs_group.into_iter().chain(of_pod.supplemental_groups.iter().flatten().copied()).collect()
}

/// Who a container is; `user` is who its image says, `root` where the node's files are.
pub(super) fn security(
    pod: &Pod,
    container: &Container,
    user: Option<ImageUser>,
    root: &Path,
) -> Result<Security, String> {
    let own = container.security_context.clone().unwrap_or_default();
    let of_pod = pod.spec.as_ref().and_then(|spec| spec.security_context.clone()).unwrap_or_default();
    let wanted = own.run_as_user.or(of_pod.run_as_user);
    if own.run_as_non_root.or(of_pod.run_as_non_root).unwrap_or(false) {
        let text = |field: &Option<String>| field.clone().unwrap_or_default();
        let meta = &pod.metadata;
        let name = format!("{}_{}({})", text(&meta.name), text(&meta.namespace), text(&meta.uid));
        let why = match (wanted, &user) {
            (Some(0), _) => Some("container's runAsUser breaks non-root policy".to_owned()),
            (Some(_), _) => None,
            (None, Some(ImageUser::Name(name))) => Some(format!(
                "container has runAsNonRoot and image has non-numeric user ({name}), cannot verify user is non-root"
            )),
            (None, Some(ImageUser::Id(1..))) => None,
            (None, _) => Some("container has runAsNonRoot and image will run as root".to_owned()),
        };
        if let Some(why) = why {
            return Err(format!("{why} (pod: \"{name}\", container: {})", container.name));
        }
    }
    let (user, user_name) = match (wanted, user) {
        (None, Some(ImageUser::Id(id))) => (Some(id), String::new()),
        (None, Some(ImageUser::Name(name))) => (None, name),
        (wanted, _) => (wanted, String::new()),
    };
    let capabilities = own.capabilities.unwrap_or_default();
    let seccomp = own.seccomp_profile.or(of_pod.seccomp_profile.clone());
    let apparmor = own.app_armor_profile.or(of_pod.app_armor_profile.clone());
    Ok(Security {
        user,
        user_name,
        group: own.run_as_group.or(of_pod.run_as_group),
        groups: groups(&of_pod),
        strict_groups: of_pod.supplemental_groups_policy.as_deref() == Some("Strict"),
        selinux: own.se_linux_options.or(of_pod.se_linux_options).map(selinux),
        privileged: own.privileged.unwrap_or(false),
        read_only_root: own.read_only_root_filesystem.unwrap_or(false),
        no_new_privileges: own.allow_privilege_escalation == Some(false),
        add_capabilities: capabilities.add.unwrap_or_default(),
        drop_capabilities: capabilities.drop.unwrap_or_default(),
        unmasked_proc: own.proc_mount.as_deref() == Some("Unmasked"),
        seccomp: seccomp.map(|profile| seccomp_profile(profile, root)).transpose()?.unwrap_or_default(),
        apparmor: apparmor.map(apparmor_profile).transpose()?,
    })
}

pub(super) fn selinux(options: SELinuxOptions) -> SeLinux {
    let text = Option::unwrap_or_default;
    SeLinux {
        user: text(options.user),
        role: text(options.role),
        kind: text(options.type_),
        level: text(options.level),
    }
}

fn seccomp_profile(profile: SeccompProfile, root: &Path) -> Result<Profile, String> {
    let file = profile.localhost_profile.filter(|file| !file.is_empty());
    Ok(match (profile.type_.as_str(), file) {
        ("RuntimeDefault", _) => Profile::RuntimeDefault,
        ("Localhost", Some(file)) => Profile::Localhost(root.join("seccomp").join(file).display().to_string()),
        ("Localhost", None) => {
            return Err("localhostProfile must be set if seccompProfile type is Localhost.".to_owned());
        }
        _ => Profile::Unconfined,
    })
}

fn apparmor_profile(profile: AppArmorProfile) -> Result<Profile, String> {
    Ok(match (profile.type_.as_str(), profile.localhost_profile) {
        ("RuntimeDefault", _) => Profile::RuntimeDefault,
        ("Unconfined", _) => Profile::Unconfined,
        ("Localhost", Some(name)) => Profile::Localhost(name),
        ("Localhost", None) => return Err("missing localhost apparmor profile name".to_owned()),
        (other, _) => return Err(format!("unknown apparmor profile type: \"{other}\"")),
    })
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::*;

    fn of(of_pod: Value, own: Value, user: Option<ImageUser>) -> Result<Security, String> {
        let container = json!({"name": "c", "securityContext": own});
        let pod = json!({"metadata": {"name": "p", "namespace": "n", "uid": "u"},
            "spec": {"securityContext": of_pod, "containers": [container]}});
        let pod: Pod = serde_json::from_value(pod).unwrap();
        let container = pod.spec.as_ref().unwrap().containers[0].clone();
        security(&pod, &container, user, Path::new("/root-dir"))
    }

    #[test]
    fn who_may_not_be_root() {
        let must = json!({"runAsNonRoot": true});
        let fine = of(must.clone(), json!({}), Some(ImageUser::Id(1000))).unwrap();
        assert_eq!(fine.user, Some(1000));
        assert_eq!(of(must.clone(), json!({"runAsUser": 5}), Some(ImageUser::Id(0))).unwrap().user, Some(5));
        assert!(of(must.clone(), json!({"runAsNonRoot": false}), None).is_ok());
        for (own, user, why) in [
            (json!({"runAsUser": 0}), Some(ImageUser::Id(1000)), "container's runAsUser breaks non-root policy"),
            (json!({}), None, "container has runAsNonRoot and image will run as root"),
            (json!({}), Some(ImageUser::Id(0)), "container has runAsNonRoot and image will run as root"),
            (
                json!({}),
                Some(ImageUser::Name("www".into())),
                "container has runAsNonRoot and image has non-numeric user (www), cannot verify user is non-root",
            ),
        ] {
            let error = of(must.clone(), own, user).unwrap_err();
            assert_eq!(error, format!("{why} (pod: \"p_n(u)\", container: c)"));
        }
        assert_eq!(of(json!({}), json!({}), Some(ImageUser::Name("www".into()))).unwrap().user_name, "www");
    }

    #[test]
    fn profiles_of_the_container_or_of_the_pod() {
        let of_pod = json!({"seccompProfile": {"type": "RuntimeDefault"}, "appArmorProfile": {"type": "Unconfined"}});
        let inherited = of(of_pod.clone(), json!({}), None).unwrap();
        assert_eq!((inherited.seccomp, inherited.apparmor), (Profile::RuntimeDefault, Some(Profile::Unconfined)));
        let local = |name: &str| json!({"type": "Localhost", "localhostProfile": name});
        let own = json!({"seccompProfile": local("a/b.json"), "appArmorProfile": local("strict"),
                         "procMount": "Unmasked"});
        let own = of(of_pod, own, None).unwrap();
        assert_eq!(own.seccomp, Profile::Localhost("/root-dir/seccomp/a/b.json".into()));
        assert_eq!((own.apparmor, own.unmasked_proc), (Some(Profile::Localhost("strict".into())), true));
        let none = of(json!({}), json!({}), None).unwrap();
        assert_eq!((none.seccomp, none.apparmor, none.unmasked_proc), (Profile::Unconfined, None, false));
        of(json!({}), json!({"seccompProfile": {"type": "Localhost"}}), None).unwrap_err();
        let of_pod = json!({"seLinuxOptions": {"level": "s0"}, "supplementalGroupsPolicy": "Strict"});
        let inherited = of(of_pod.clone(), json!({}), None).unwrap();
        assert_eq!((inherited.selinux.unwrap().level.as_str(), inherited.strict_groups), ("s0", true));
        let own = of(of_pod, json!({"seLinuxOptions": {"type": "spc_t"}}), None).unwrap();
        assert_eq!(own.selinux, Some(SeLinux { kind: "spc_t".into(), ..SeLinux::default() }));
    }

    #[test]
    fn any_container_makes_a_pod_privileged() {
        let privileged = json!({"name": "c", "securityContext": {"privileged": true}});
        for kind in ["initContainers", "containers", "ephemeralContainers"] {
            let mut spec = json!({"containers": [{"name": "other"}]});
            spec[kind] = json!([privileged]);
            let spec: PodSpec = serde_json::from_value(spec).unwrap();
            assert!(containers(&spec).any(|security| security.privileged == Some(true)), "{kind}");
        }
    }
}
