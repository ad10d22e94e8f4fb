//! What goes over the wire, and what becomes of an engine that fails for a while.

use std::{
    convert::Infallible,
    sync::{
        Arc,
        atomic::{AtomicUsize, Ordering},
    },
};

use base64::{Engine as _, prelude::BASE64_STANDARD};
use bytes::Bytes;
use capstan_clock::ManualClock;
use http::{HeaderMap, HeaderValue, Request, Response};
use http_body_util::{BodyExt as _, Full};
use hyper::{body::Incoming, service::service_fn};
use hyper_util::rt::TokioExecutor;
use prost::Message as _;
use tokio::net::UnixListener;

use super::*;
use crate::{
    runtime::{Mount, MountImage, Profile, Propagation, SeLinux, Security},
    testing::temporary,
};

/// An engine whose answers are given: by the call's name and how many have been asked of it, a message or a code.
fn engine<F>(socket: &Path, answers: F)
where
    F: Fn(&str, usize) -> Result<Vec<u8>, &'static str> + Send + Sync + 'static,
{
    let listener = UnixListener::bind(socket).unwrap();
    let (answers, count) = (Arc::new(answers), Arc::new(AtomicUsize::new(0)));
    tokio::spawn(async move {
        while let Ok((stream, _)) = listener.accept().await {
            let (answers, count) = (answers.clone(), count.clone());
            let service = service_fn(move |request: Request<Incoming>| {
                let call = request.uri().path().rsplit('/').next().unwrap_or_default().to_owned();
                let answer = answers(&call, count.fetch_add(1, Ordering::SeqCst));
                async move {
                    let (body, code) = match answer {
                        Ok(message) => ([&[0, 0, 0, 0, u8::try_from(message.len()).unwrap()], &*message].concat(), "0"),
                        Err(code) => (Vec::new(), code),
                    };
                    let mut trailers = HeaderMap::new();
                    trailers.insert("grpc-status", HeaderValue::from_static(code));
                    let body = Full::new(Bytes::from(body)).with_trailers(async move { Some(Ok(trailers)) });
                    let response = Response::builder().header("content-type", "application/grpc").body(body);
                    Ok::<_, Infallible>(response.unwrap())
                }
            });
            let http = hyper::server::conn::http2::Builder::new(TokioExecutor::new());
            tokio::spawn(http.serve_connection(TokioIo::new(stream), service));
        }
    });
}

/// Of an engine that is restarted nothing is heard for a while; its containers run all the same.
#[tokio::test]
async fn who_waits_for_a_container_outlasts_an_engine_that_fails() {
    let dir = temporary("engine");
    let socket = dir.join("engine.sock");
    let status = |state, exit_code| {
        let status = wire::ContainerStatus { state, exit_code, ..wire::ContainerStatus::default() };
        Ok(wire::ContainerStatusResponse { status: Some(status) }.encode_to_vec())
    };
    engine(&socket, move |call, asked| match (call, asked) {
        ("Version", _) => Ok(Vec::new()),
        // Unavailable, then a deadline, then as ever; and then there is no such container.
        (_, 1) => Err("14"),
        (_, 2) => Err("4"),
        (_, 3) => status(wire::RUNNING, 0),
        (_, 4) => status(wire::EXITED, 3),
        _ => Err("5"),
    });
    let clock = Arc::new(ManualClock::at(Timestamp::UNIX_EPOCH));
    let cri = Cri::connect(&socket, clock.clone()).await.unwrap();
    let waiting = tokio::spawn({
        let cri = cri.clone();
        async move { cri.wait("c").await }
    });
    while !waiting.is_finished() {
        clock.advance(POLL);
        tokio::task::yield_now().await;
    }
    assert_eq!(waiting.await.unwrap().unwrap().code, 3);
    assert!(matches!(cri.wait("c").await, Err(RuntimeError::NotFound(_))));
}

#[tokio::test]
async fn who_an_image_runs_as() {
    let dir = temporary("users");
    let socket = dir.join("engine.sock");
    engine(&socket, |call, asked| {
        let (uid, username) = match (call, asked) {
            ("Version", _) => return Ok(Vec::new()),
            (_, 1) => (Some(wire::Int64Value { value: 1000 }), ""),
            (_, 2) => (None, "nobody"),
            _ => (None, ""),
        };
        let image = wire::Image { id: "i".into(), uid, username: username.into(), ..wire::Image::default() };
        Ok(wire::ImageStatusResponse { image: Some(image) }.encode_to_vec())
    });
    let cri = Cri::connect(&socket, Arc::new(ManualClock::at(Timestamp::UNIX_EPOCH))).await.unwrap();
    for expected in [ImageUser::Id(1000), ImageUser::Name("nobody".into()), ImageUser::Id(0)] {
        assert_eq!(cri.image_user("i").await.unwrap(), Some(expected));
    }
}

#[test]
fn what_a_container_may_do() {
    let of = |security: Security| {
        let config = ContainerConfig { security, ..ContainerConfig::default() };
        container_config(&SandboxConfig::default(), &config).linux.unwrap().security_context.unwrap()
    };
    let usual = of(Security::default());
    assert!(usual.masked_paths.iter().any(|path| path == "/proc/kcore"), "{usual:?}");
    assert!(usual.readonly_paths.iter().any(|path| path == "/proc/sys"), "{usual:?}");
    assert_eq!((usual.seccomp.unwrap().profile_type, usual.apparmor), (1, None));
    let own = of(Security {
        user_name: "nobody".into(),
        unmasked_proc: true,
        seccomp: Profile::RuntimeDefault,
        apparmor: Some(Profile::Localhost("strict".into())),
        ..Security::default()
    });
    assert!(own.masked_paths.is_empty() && own.readonly_paths.is_empty());
    assert_eq!((own.run_as_username.as_str(), own.seccomp.unwrap().profile_type), ("nobody", 0));
    assert_eq!(own.apparmor, Some(wire::SecurityProfile { profile_type: 2, localhost_ref: "strict".into() }));
}

#[test]
fn files_of_an_image() {
    let image = MountImage { image: "i:v1".into(), image_ref: "sha256:1".into(), sub_path: "a".into() };
    let mounts = vec![Mount { container_path: "/i".into(), read_only: true, image: Some(image), ..Mount::default() }];
    let config = ContainerConfig { mounts, ..ContainerConfig::default() };
    let mount = container_config(&SandboxConfig::default(), &config).mounts.remove(0);
    let spec = wire::ImageSpec { image: "sha256:1".into(), user_specified_image: "i:v1".into() };
    assert_eq!((mount.image, mount.image_sub_path.as_str(), mount.host_path.as_str()), (Some(spec), "a", ""));
}

#[test]
fn what_a_sandbox_may_do() {
    let sysctls = [("net.core.somaxconn".to_owned(), "512".to_owned())];
    let config = SandboxConfig {
        privileged: true,
        user: Some(7),
        groups: vec![8],
        sysctls: sysctls.clone().into(),
        ..SandboxConfig::default()
    };
    let linux = sandbox_config(&config).linux.unwrap();
    let security = linux.security_context.unwrap();
    assert!(security.privileged);
    assert_eq!((security.run_as_user.unwrap().value, security.supplemental_groups), (7, vec![8]));
    assert_eq!(security.seccomp.unwrap().profile_type, 0, "whatever its containers may do");
    assert_eq!(linux.sysctls, sysctls.into());
}

#[test]
fn users_groups_labels_and_mounts() {
    let selinux = Some(SeLinux { kind: "spc_t".into(), level: "s0:c1".into(), ..SeLinux::default() });
    let pod = SandboxConfig {
        hostname: "h".into(),
        domain: "sub.ns.svc.cluster.local".into(),
        fqdn_as_hostname: true,
        users: Some(131_072),
        strict_groups: true,
        selinux: selinux.clone(),
        ..SandboxConfig::default()
    };
    let mount = Mount {
        propagation: Propagation::HostToContainer,
        read_only: true,
        recursive_read_only: true,
        ..Mount::default()
    };
    let both = Mount { propagation: Propagation::Bidirectional, ..Mount::default() };
    let security = Security { strict_groups: true, selinux, ..Security::default() };
    let config = ContainerConfig { security, mounts: vec![mount, both], ..ContainerConfig::default() };
    let mapping = wire::IdMapping { host_id: 131_072, container_id: 0, length: 65_536 };
    let users = wire::UserNamespace { mode: wire::POD, uids: vec![mapping.clone()], gids: vec![mapping.clone()] };
    let label = wire::SeLinuxOption { kind: "spc_t".into(), level: "s0:c1".into(), ..wire::SeLinuxOption::default() };

    let sandbox = sandbox_config(&pod);
    assert_eq!(sandbox.hostname, "h.sub.ns.svc.cluster.local");
    let of_sandbox = sandbox.linux.unwrap().security_context.unwrap();
    assert_eq!(of_sandbox.namespace_options.unwrap().userns_options, Some(users.clone()));
    assert_eq!((of_sandbox.supplemental_groups_policy, of_sandbox.selinux_options), (1, Some(label.clone())));
    let container = container_config(&pod, &config);
    let propagations: Vec<_> = container.mounts.iter().map(|m| (m.propagation, m.recursive_read_only)).collect();
    assert_eq!(propagations, [(1, true), (2, false)]);
    assert!(container.mounts.iter().all(|m| m.uid_mappings == [mapping.clone()] && m.gid_mappings == m.uid_mappings));
    let of_container = container.linux.unwrap().security_context.unwrap();
    assert_eq!(of_container.namespace_options.unwrap().userns_options, Some(users));
    assert_eq!((of_container.supplemental_groups_policy, of_container.selinux_options), (1, Some(label)));

    let usual = container_config(&SandboxConfig::default(), &ContainerConfig::default()).linux.unwrap();
    let namespaces = usual.security_context.unwrap().namespace_options.unwrap();
    assert_eq!(namespaces.userns_options, Some(wire::UserNamespace { mode: wire::NODE, ..Default::default() }));
}

#[tokio::test]
async fn what_a_handler_can_do() {
    let dir = temporary("handlers");
    let socket = dir.join("engine.sock");
    engine(&socket, |_, _| {
        let features = wire::RuntimeHandlerFeatures { recursive_read_only_mounts: true, user_namespaces: false };
        let runtime_handlers = vec![wire::RuntimeHandler { name: "kata".into(), features: Some(features) }];
        Ok(wire::StatusResponse { status: None, runtime_handlers }.encode_to_vec())
    });
    let cri = Cri::connect(&socket, Arc::new(ManualClock::at(Timestamp::UNIX_EPOCH))).await.unwrap();
    let kata = Features { recursive_read_only: true, user_namespaces: false };
    assert_eq!(cri.features("kata").await.unwrap(), kata);
    assert_eq!(cri.features("").await.unwrap(), Features::default());
}

#[test]
fn the_kernel_takes_no_quota_under_a_millisecond() {
    let quota = |cpu_limit_milli| resources(&Limits { cpu_limit_milli, ..Limits::default() }).cpu_quota;
    assert_eq!([0, 1, 9, 10, 11, 1500].map(quota), [0, 1000, 1000, 1000, 1100, 150_000]);
}

#[test]
fn names_and_passwords_of_registries() {
    let auth = BASE64_STANDARD.encode("me:secret");
    let document = serde_json::json!({"auths": {"https://index.docker.io/v1/": {"auth": auth},
        "reg.example:5000": {"username": "you", "password": "p"}}});
    let secrets = [document.to_string().into_bytes()];
    let of = |image: &str| credentials(image, &secrets).map(|auth| (auth.username, auth.password));
    assert_eq!(of("busybox"), Some(("me".into(), "secret".into())));
    assert_eq!(of("reg.example:5000/a/b:v1"), Some(("you".into(), "p".into())));
    assert_eq!(of("other.example/a"), None);
}
