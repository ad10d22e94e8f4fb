//! Starting one container: its image, its environment, its mounts, and then the container itself.

use std::{collections::BTreeMap, path::PathBuf, sync::Arc};

use capstan_client::Api;
use k8s_openapi::api::core::v1::{ConfigMap, Container, Pod, Secret, VolumeMount};
use tokio::sync::watch;

use super::{security::security, shared::Shared};
use crate::{
    env::{self, Ingredients},
    lifecycle::{Role, StartFailure, since},
    qos::{qos_class, quantity, requested_milli},
    runtime::{ContainerConfig, Features, ImageRequest, Limits, Mount, RuntimeError, SandboxConfig},
    volumes::{self, Prepared},
};

/// Where a container leaves its last words when it doesn't say.
const TERMINATION_LOG: &str = "/dev/termination-log";

/// What is needed to start a container.
pub(super) struct Start {
    pub(super) shared: Arc<Shared>,
    pub(super) pod: Arc<Pod>,
    pub(super) container: Arc<Container>,
    pub(super) role: Role,
    pub(super) attempt: u32,
    pub(super) sandbox: (String, SandboxConfig),
    pub(super) ips: Vec<String>,
    pub(super) volumes: BTreeMap<String, Prepared>,
    /// Whether the pod is being ended.
    pub(super) ending: watch::Receiver<bool>,
}

/// A container that was started.
pub(super) struct Started {
    pub(super) id: String,
    pub(super) image_id: String,
    /// Where its last words are.
    pub(super) message_file: PathBuf,
}

impl Start {
    fn event(&self, warning: bool, reason: &str, message: String) {
        self.shared.event(&self.pod, Some((self.role, &self.container.name)), warning, reason, message);
    }

    fn failed(&self, failure: StartFailure) -> StartFailure {
        let word = match &failure {
            StartFailure::InvalidImageName(_) => "InvalidImageName",
            StartFailure::NeverPull(_) => "ErrImageNeverPull",
            StartFailure::Inspect(_) => "ImageInspectError",
            StartFailure::Pull(_) => "ErrImagePull",
            StartFailure::Config(text) | StartFailure::Create(text) | StartFailure::Run(text) => text,
        };
        self.event(true, "Failed", format!("Error: {word}"));
        failure
    }

    /// Does it all, telling each step.
    pub(super) async fn run(mut self) -> Result<Started, StartFailure> {
        let image_id = self.images().await.map_err(|failure| self.failed(failure))?;
        let (config, message_file) =
            self.config(&image_id).await.map_err(|text| self.failed(StartFailure::Config(text)))?;
        let runtime = &self.shared.runtime;
        let (sandbox, pod) = &self.sandbox;
        let text = |error: RuntimeError| error.to_string();
        let created = runtime.create_container(sandbox, pod, &config).await.map_err(text);
        let id = created.map_err(|text| self.failed(StartFailure::Create(text)))?;
        self.event(false, "Created", "Container created".to_owned());
        let started = runtime.start_container(&id).await.map_err(text);
        if let Err(text) = started {
            let _ = runtime.remove_container(&id).await;
            return Err(self.failed(StartFailure::Run(text)));
        }
        self.event(false, "Started", "Container started".to_owned());
        Ok(Started { id, image_id, message_file })
    }

    /// Has the image of the container at hand, and those whose files are among its volumes.
    async fn images(&mut self) -> Result<String, StartFailure> {
        let container = self.container.clone();
        let has_command = container.command.iter().chain(&container.args).any(|list| !list.is_empty());
        let own = container.image.as_deref().unwrap_or_default();
        let id = self.image(own, container.image_pull_policy.as_deref(), has_command).await?;
        for mount in container.volume_mounts.iter().flatten() {
            let volume = self.volumes.get(&mount.name).and_then(|volume| volume.image.clone());
            let Some((mut image, policy)) = volume else { continue };
            image.image_ref = self.image(&image.image, policy.as_deref(), true).await?;
            self.volumes.entry(mount.name.clone()).or_default().image = Some((image, policy));
        }
        Ok(id)
    }

    async fn image(&self, image: &str, policy: Option<&str>, has_command: bool) -> Result<String, StartFailure> {
        if !is_reference(image) {
            let text = format!(
                "Failed to apply default image tag \"{image}\": couldn't parse image name \"{image}\": invalid \
                 reference format"
            );
            self.event(true, "InspectFailed", text.clone());
            return Err(StartFailure::InvalidImageName(text));
        }
        let mut request = ImageRequest { image: image.to_owned(), has_command, pull_secrets: Vec::new() };
        let present = self.shared.runtime.image_status(&request).await;
        let present = present.map_err(|error| StartFailure::Inspect(error.to_string()))?;
        let latest = !image.contains('@') && image_tag(image).is_none_or(|tag| tag == "latest");
        let default = if latest { "Always" } else { "IfNotPresent" };
        match (policy.unwrap_or(default), present) {
            ("IfNotPresent" | "Never", Some(id)) => {
                self.event(false, "Pulled", format!("Container image \"{image}\" already present on machine"));
                return Ok(id);
            }
            ("Never", None) => {
                let text = format!("Container image \"{image}\" is not present with pull policy of Never");
                self.event(true, "ErrImageNeverPull", text.clone());
                return Err(StartFailure::NeverPull(text));
            }
            _ => {}
        }
        request.pull_secrets = self.pull_secrets().await;
        self.event(false, "Pulling", format!("Pulling image \"{image}\""));
        let began = self.shared.clock.now();
        let mut ending = self.ending.clone();
        let pulled = tokio::select! {
            pulled = self.shared.runtime.pull(&request) => pulled,
            _ = ending.wait_for(|ending| *ending) => Err(RuntimeError::Failed("context canceled".to_owned())),
        };
        match pulled {
            Ok(id) => {
                let took = since(self.shared.clock.now(), began).as_millis();
                let took = capstan_api::Duration(i64::try_from(took).unwrap_or(0) * 1_000_000);
                self.event(
                    false,
                    "Pulled",
                    format!("Successfully pulled image \"{image}\" in {took} ({took} including waiting)."),
                );
                Ok(id)
            }
            Err(error) => {
                self.event(true, "Failed", format!("Failed to pull image \"{image}\": {error}"));
                Err(StartFailure::Pull(error.to_string()))
            }
        }
    }

    async fn pull_secrets(&self) -> Vec<Vec<u8>> {
        let namespace = self.pod.metadata.namespace.as_deref().unwrap_or_default();
        let secrets = Api::<Secret>::namespaced(&self.shared.client, namespace);
        let (mut found, mut missing) = (Vec::new(), Vec::new());
        for reference in self.pod.spec.iter().flat_map(|spec| spec.image_pull_secrets.iter().flatten()) {
            let data = match secrets.get_opt(&reference.name).await {
                Ok(Some(secret)) => secret.data.and_then(|mut data| data.remove(".dockerconfigjson")),
                _ => None,
            };
            match data {
                Some(data) => found.push(data.0),
                None => missing.push(reference.name.clone()),
            }
        }
        if !missing.is_empty() {
            let message = format!(
                "Unable to retrieve some image pull secrets ({}); attempting to pull the image may not succeed.",
                missing.join(", ")
            );
            self.shared.event(&self.pod, None, true, "FailedToRetrieveImagePullSecret", message);
        }
        found
    }

    async fn ingredients(&self) -> Result<Ingredients, String> {
        let namespace = self.pod.metadata.namespace.as_deref().unwrap_or_default();
        let (maps, secrets) = env::needs(&self.container);
        let mut all = Ingredients::default();
        for name in maps {
            let found = Api::<ConfigMap>::namespaced(&self.shared.client, namespace).get_opt(&name).await;
            all.config_maps.insert(name, found.map_err(|error| error.to_string())?);
        }
        for name in secrets {
            let found = Api::<Secret>::namespaced(&self.shared.client, namespace).get_opt(&name).await;
            all.secrets.insert(name, found.map_err(|error| error.to_string())?);
        }
        all.services = self.shared.services_for_pods(self.sandbox.1.host_network);
        all.volumes = self.volumes.iter().map(|(name, volume)| (name.clone(), volume.path.clone())).collect();
        Ok(all)
    }

    async fn config(&self, image_ref: &str) -> Result<(ContainerConfig, PathBuf), String> {
        let (pod, container, shared) = (&*self.pod, &*self.container, &*self.shared);
        let facts = shared.facts(&self.ips);
        let env = env::environment(pod, container, &facts, &self.ingredients().await?)?;
        let lookup = |name: &str| env.iter().rev().find(|(known, _)| known == name).map(|(_, value)| value.clone());
        let expand = |list: &Option<Vec<String>>| -> Vec<String> {
            list.iter().flatten().map(|text| env::expand(text, lookup)).collect()
        };
        let user = shared.runtime.image_user(image_ref).await.map_err(|error| error.to_string())?;
        let asks = |mount: &VolumeMount| mount.recursive_read_only.as_deref().is_some_and(|mode| mode != "Disabled");
        let recursive = match container.volume_mounts.iter().flatten().any(asks) {
            true => shared.runtime.features(&self.sandbox.1.handler).await.map_err(|e| e.to_string())?,
            false => Features::default(),
        };
        let mut mounts = volumes::mounts(container, &self.volumes, &env, recursive.recursive_read_only)?;
        let uid = pod.metadata.uid.as_deref().unwrap_or_default();
        let own = shared.pod_dir(uid).join("containers").join(&container.name);
        std::fs::create_dir_all(&own).map_err(|error| error.to_string())?;
        let message_file = message_file(shared, uid, &container.name, self.attempt);
        std::fs::write(&message_file, "").map_err(|error| error.to_string())?;
        let open = std::os::unix::fs::PermissionsExt::from_mode(0o666);
        std::fs::set_permissions(&message_file, open).map_err(|error| error.to_string())?;
        let message_path = container.termination_message_path.as_deref().filter(|path| !path.is_empty());
        mounts.push(Mount {
            container_path: message_path.unwrap_or(TERMINATION_LOG).into(),
            host_path: message_file.clone(),
            ..Mount::default()
        });
        if !mounts.iter().any(|mount| mount.container_path.as_os_str() == "/etc/hosts") {
            let hosts = shared.pod_dir(uid).join("etc-hosts");
            std::fs::write(&hosts, hosts_file(pod, &self.ips, &self.sandbox.1)).map_err(|error| error.to_string())?;
            mounts.push(Mount { container_path: "/etc/hosts".into(), host_path: hosts, ..Mount::default() });
        }
        // An engine makes this file itself.
        if !shared.runtime.writes_resolv_conf() {
            let file = shared.pod_dir(uid).join("resolv.conf");
            std::fs::write(&file, self.sandbox.1.dns.text()).map_err(|error| error.to_string())?;
            mounts.push(Mount { container_path: "/etc/resolv.conf".into(), host_path: file, ..Mount::default() });
        }
        // What is the node's own is for this pod alone, and labelled so.
        for mount in &mut mounts {
            mount.relabel = mount.host_path.starts_with(&shared.root);
        }
        let config = ContainerConfig {
            name: container.name.clone(),
            attempt: self.attempt,
            image: container.image.clone().unwrap_or_default(),
            image_ref: image_ref.to_owned(),
            command: expand(&container.command),
            args: expand(&container.args),
            working_dir: container.working_dir.clone().unwrap_or_default(),
            env,
            mounts,
            log_path: PathBuf::from(&container.name).join(format!("{}.log", self.attempt)),
            stdin: container.stdin.unwrap_or(false),
            stdin_once: container.stdin_once.unwrap_or(false),
            tty: container.tty.unwrap_or(false),
            security: security(pod, container, user, &shared.root)?,
            limits: limits(shared, pod, container),
            stop_signal: container.lifecycle.as_ref().and_then(|l| l.stop_signal.clone()).unwrap_or_default(),
            labels: BTreeMap::from([
                ("io.kubernetes.container.name".to_owned(), container.name.clone()),
                ("io.kubernetes.pod.name".to_owned(), pod.metadata.name.clone().unwrap_or_default()),
                ("io.kubernetes.pod.namespace".to_owned(), pod.metadata.namespace.clone().unwrap_or_default()),
                ("io.kubernetes.pod.uid".to_owned(), uid.to_owned()),
            ]),
        };
        Ok((config, message_file))
    }
}

/// Where a container leaves its last words.
pub(super) fn message_file(shared: &Shared, uid: &str, container: &str, attempt: u32) -> PathBuf {
    shared.pod_dir(uid).join("containers").join(container).join(format!("{attempt}.termination"))
}

/// What a container may use.
pub(super) fn limits(shared: &Shared, pod: &Pod, container: &Container) -> Limits {
    let resources = container.resources.as_ref();
    let of = |map: Option<&BTreeMap<String, _>>, name: &str| map.and_then(|map| map.get(name)).map(quantity);
    let (requests, limits) = (resources.and_then(|r| r.requests.as_ref()), resources.and_then(|r| r.limits.as_ref()));
    let cpu_limit = of(limits, "cpu").map_or(0, |q| q.milli_value());
    let memory_request = of(requests, "memory").map_or(0, |q| q.value());
    Limits {
        cpu_request_milli: of(requests, "cpu").map_or(cpu_limit, |q| q.milli_value()),
        cpu_limit_milli: cpu_limit,
        memory_bytes: of(limits, "memory").map_or(0, |q| q.value()),
        oom_score_adj: match pod.spec.as_ref().map_or("BestEffort", qos_class) {
            "Guaranteed" => -997,
            "BestEffort" => 1000,
            // The less of the node it asked for, the earlier it goes; but after the best-effort ones.
            _ => (1000 - 1000 * memory_request / shared.allocatable.1.max(1)).clamp(3, 999),
        },
    }
}

/// What a pod asks for in all of memory, in bytes: for who must go first.
pub(super) fn memory_request(pod: &Pod) -> i64 {
    pod.spec.as_ref().map_or(0, |spec| requested_milli(spec, "memory") / 1000)
}

/// The names that a pod knows without asking anybody.
fn hosts_file(pod: &Pod, ips: &[String], sandbox: &SandboxConfig) -> String {
    let spec = pod.spec.clone().unwrap_or_default();
    let mut text = if sandbox.host_network {
        let node = std::fs::read_to_string("/etc/hosts").unwrap_or_default();
        format!("# Kubernetes-managed hosts file (host network).\n{node}")
    } else {
        let mut text = "# Kubernetes-managed hosts file.\n127.0.0.1\tlocalhost\n::1\tlocalhost ip6-localhost \
             ip6-loopback\nfe00::0\tip6-localnet\nfe00::0\tip6-mcastprefix\nfe00::1\tip6-allnodes\nfe00::2\t\
             ip6-allrouters\n"
            .to_owned();
        for ip in ips {
            let name = &sandbox.hostname;
            match sandbox.domain.as_str() {
                "" => text.push_str(&format!("{ip}\t{name}\n")),
                domain => text.push_str(&format!("{ip}\t{name}.{domain}\t{name}\n")),
            }
        }
        text
    };
    let aliases = spec.host_aliases.unwrap_or_default();
    if !aliases.is_empty() {
        text.push_str("\n# Entries added by HostAliases.\n");
        for alias in aliases {
            text.push_str(&format!("{}\t{}\n", alias.ip, alias.hostnames.unwrap_or_default().join("\t")));
        }
    }
    text
}

/// The tag of an image's name.
fn image_tag(image: &str) -> Option<&str> {
    image.rsplit('/').next()?.split_once(':').map(|(_, tag)| tag)
}

/// Whether a name can be an image's: lower-case parts between slashes, perhaps a registry, a tag, a digest.
fn is_reference(image: &str) -> bool {
    let name = image.split('@').next().unwrap_or_default();
    let parts: Vec<&str> = name.split('/').collect();
    let count = parts.len();
    !name.is_empty()
        && parts.iter().enumerate().all(|(index, part)| {
            let (part, rest) = part.split_once(':').unwrap_or((part, "x"));
            let registry = index == 0 && count > 1;
            let fine = |c: char| {
                c.is_ascii_lowercase()
                    || c.is_ascii_digit()
                    || "._-".contains(c)
                    || (registry && c.is_ascii_uppercase())
            };
            let ends = |c: Option<char>| c.is_some_and(|c| c.is_ascii_alphanumeric());
            let tag = |c: char| c.is_ascii_alphanumeric() || "._-".contains(c);
            !rest.is_empty()
                && rest.chars().all(tag)
                && ends(part.chars().next())
                && ends(part.chars().last())
                && part.chars().all(fine)
        })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_of_images() {
        for good in
            ["busybox", "busybox:1.36", "reg.io:5000/a/b-c:v1", "a@sha256:00", "localhost/x", "k8s.gcr.io/pause:3"]
        {
            assert!(is_reference(good), "{good}");
        }
        for bad in ["", "Upper", "a b", "a:", "-a", "a//b", "a:b:c/d", "http://x/y"] {
            assert!(!is_reference(bad), "{bad}");
        }
    }
}
