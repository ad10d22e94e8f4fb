//! Containers by a container engine that speaks the CRI: containerd, over its socket.

mod wire;

use std::{
    path::{Path, PathBuf},
    time::Duration,
};

use base64::{Engine as _, prelude::BASE64_STANDARD};
use capstan_clock::{SharedClock, Timestamp};
use hyper_util::rt::TokioIo;
use tonic::{
    Code,
    client::Grpc,
    transport::{Channel, Endpoint},
};
use wire::Call;

use super::{
    Answer, ContainerConfig, ContainerRecord, ContainerStats, ExecConfig, ImageRecord, ImageRequest, Images, LeftOver,
    Limits, Runtime, RuntimeError, Sandbox, SandboxConfig, Streaming,
};
use crate::{lifecycle::Exit, node::dns::Resolver};

/// How often a container is looked at by who waits for its end.
const POLL: Duration = Duration::from_millis(500);
/// The largest answer that is read.
const MAX_ANSWER: usize = 16 << 20;
/// Labels by which this node knows its containers.
const POD_UID: &str = "io.kubernetes.pod.uid";
const CONTAINER_NAME: &str = "io.kubernetes.container.name";
/// The period of processor quotas, in microseconds.
const PERIOD: i64 = 100_000;

/// A container engine behind a socket.
#[derive(Clone, Debug)]
pub struct Cri {
    channel: Channel,
    version: String,
    clock: SharedClock,
}

impl Cri {
    /// Connects to the engine at a socket (`/run/containerd/containerd.sock`).
    ///
    /// # Errors
    /// There is none, or it doesn't speak the CRI.
    pub async fn connect(socket: &Path, clock: SharedClock) -> Result<Self, RuntimeError> {
        let socket: PathBuf = socket.to_owned();
        let failed = |error: &dyn std::fmt::Display| RuntimeError::Failed(error.to_string());
        // The address is for the protocol's sake; the connection goes to the socket.
        let connector = tower_service_fn(move |_| {
            let socket = socket.clone();
            async move { Ok::<_, std::io::Error>(TokioIo::new(tokio::net::UnixStream::connect(socket).await?)) }
        });
        let endpoint = Endpoint::from_static("http://localhost");
        let channel = endpoint.connect_with_connector(connector).await.map_err(|error| failed(&error))?;
        let mut cri = Cri { channel, version: String::new(), clock };
        let version = cri.call(wire::VersionRequest { version: "v1".to_owned() }).await?;
        cri.version = version.runtime_version;
        Ok(cri)
    }

    async fn call<C: Call>(&self, request: C) -> Result<C::Answer, RuntimeError> {
        let mut client = Grpc::new(self.channel.clone()).max_decoding_message_size(MAX_ANSWER);
        client.ready().await.map_err(|error| RuntimeError::Failed(error.to_string()))?;
        let path = http::uri::PathAndQuery::from_static(C::PATH);
        let codec = tonic_prost::ProstCodec::<C, C::Answer>::default();
        match client.unary(tonic::Request::new(request), path, codec).await {
            Ok(answer) => Ok(answer.into_inner()),
            Err(status) => {
                let text = format!("rpc error: code = {:?} desc = {}", status.code(), status.message());
                Err(if status.code() == Code::NotFound {
                    RuntimeError::NotFound(text)
                } else {
                    RuntimeError::Failed(text)
                })
            }
        }
    }

    /// The addresses of a sandbox, the primary one first.
    async fn addresses(&self, sandbox: &str) -> Result<Vec<String>, RuntimeError> {
        let status = self.call(wire::PodSandboxStatusRequest { pod_sandbox_id: sandbox.to_owned() }).await?;
        let network = status.status.and_then(|status| status.network).unwrap_or_default();
        let mut ips = vec![network.ip];
        ips.extend(network.additional_ips.into_iter().map(|ip| ip.ip));
        ips.retain(|ip| !ip.is_empty());
        Ok(ips)
    }
}

/// A connector from a function.
fn tower_service_fn<F>(function: F) -> Connector<F> {
    Connector(function)
}

#[derive(Clone)]
struct Connector<F>(F);

impl<F, U> tower_service::Service<http::Uri> for Connector<F>
where
    F: FnMut(http::Uri) -> U,
    U: Future<Output = std::io::Result<TokioIo<tokio::net::UnixStream>>>,
{
    type Response = TokioIo<tokio::net::UnixStream>;
    type Error = std::io::Error;
    type Future = U;

    fn poll_ready(&mut self, _: &mut std::task::Context<'_>) -> std::task::Poll<std::io::Result<()>> {
        std::task::Poll::Ready(Ok(()))
    }

    fn call(&mut self, uri: http::Uri) -> U {
        (self.0)(uri)
    }
}

fn namespaces(config: &SandboxConfig) -> wire::NamespaceOption {
    let node = |yes: bool, otherwise: i32| if yes { wire::NODE } else { otherwise };
    let pid = if config.share_process_namespace { wire::POD } else { wire::CONTAINER };
    wire::NamespaceOption {
        network: node(config.host_network, wire::POD),
        pid: node(config.host_pid, pid),
        ipc: node(config.host_ipc, wire::POD),
    }
}

fn sandbox_config(config: &SandboxConfig) -> wire::PodSandboxConfig {
    let mut labels: std::collections::HashMap<_, _> = config.labels.clone().into_iter().collect();
    labels.insert(POD_UID.to_owned(), config.uid.clone());
    labels.insert("io.kubernetes.pod.name".to_owned(), config.name.clone());
    labels.insert("io.kubernetes.pod.namespace".to_owned(), config.namespace.clone());
    let Resolver { servers, searches, options } = config.dns.clone();
    let dns = (config.dns != Resolver::default()).then_some(wire::DnsConfig { servers, searches, options });
    let ports = config.ports.iter().map(|(protocol, container, host, ip)| wire::PortMapping {
        protocol: match protocol.as_str() {
            "UDP" => 1,
            "SCTP" => 2,
            _ => 0,
        },
        container_port: i32::from(*container),
        host_port: i32::from(*host),
        host_ip: ip.clone(),
    });
    wire::PodSandboxConfig {
        metadata: Some(wire::PodSandboxMetadata {
            name: config.name.clone(),
            uid: config.uid.clone(),
            namespace: config.namespace.clone(),
            attempt: config.attempt,
        }),
        hostname: if config.host_network { String::new() } else { config.hostname.clone() },
        log_directory: config.log_directory.display().to_string(),
        dns_config: dns,
        port_mappings: ports.collect(),
        labels,
        annotations: config.annotations.clone().into_iter().collect(),
        linux: Some(wire::LinuxPodSandboxConfig {
            security_context: Some(wire::LinuxSandboxSecurityContext {
                namespace_options: Some(namespaces(config)),
                privileged: false,
            }),
        }),
    }
}

fn resources(limits: &Limits) -> wire::LinuxContainerResources {
    wire::LinuxContainerResources {
        cpu_period: PERIOD,
        cpu_quota: limits.cpu_limit_milli * PERIOD / 1000,
        cpu_shares: (limits.cpu_request_milli * 1024 / 1000).max(2),
        memory_limit_in_bytes: limits.memory_bytes,
        oom_score_adj: limits.oom_score_adj,
    }
}

/// A container of this node; nothing if it belongs to somebody else.
fn record(mut container: wire::ContainerItem) -> Option<ContainerRecord> {
    Some(ContainerRecord {
        pod_uid: container.labels.remove(POD_UID)?,
        name: container.labels.remove(CONTAINER_NAME).unwrap_or_default(),
        attempt: container.metadata.unwrap_or_default().attempt,
        running: container.state == wire::RUNNING,
        id: container.id,
        image: container.image_ref,
    })
}

fn container_config(pod: &SandboxConfig, config: &ContainerConfig) -> wire::ContainerMessage {
    let (limits, security) = (&config.limits, &config.security);
    let number = |value: i64| wire::Int64Value { value };
    wire::ContainerMessage {
        metadata: Some(wire::ContainerMetadata { name: config.name.clone(), attempt: config.attempt }),
        image: Some(wire::ImageSpec { image: config.image_ref.clone(), user_specified_image: config.image.clone() }),
        command: config.command.clone(),
        args: config.args.clone(),
        working_dir: config.working_dir.clone(),
        envs: config
            .env
            .iter()
            .map(|(key, value)| wire::KeyValue { key: key.clone(), value: value.clone().into_bytes() })
            .collect(),
        mounts: config
            .mounts
            .iter()
            .map(|mount| wire::MountMessage {
                container_path: mount.container_path.display().to_string(),
                host_path: mount.host_path.display().to_string(),
                readonly: mount.read_only,
            })
            .collect(),
        labels: config.labels.clone().into_iter().collect(),
        log_path: config.log_path.display().to_string(),
        stdin: config.stdin,
        stdin_once: config.stdin_once,
        tty: config.tty,
        linux: Some(wire::LinuxContainerConfig {
            resources: Some(resources(limits)),
            security_context: Some(wire::LinuxContainerSecurityContext {
                capabilities: Some(wire::Capability {
                    add_capabilities: security.add_capabilities.clone(),
                    drop_capabilities: security.drop_capabilities.clone(),
                }),
                privileged: security.privileged,
                namespace_options: Some(namespaces(pod)),
                run_as_user: security.user.map(number),
                run_as_group: security.group.map(number),
                readonly_rootfs: security.read_only_root,
                supplemental_groups: security.groups.clone(),
                no_new_privs: security.no_new_privileges,
            }),
        }),
    }
}

/// The name and password for an image's registry in one of several `.dockerconfigjson` documents.
fn credentials(image: &str, secrets: &[Vec<u8>]) -> Option<wire::AuthConfig> {
    let registry = match image.split_once('/') {
        Some((first, _)) if first.contains(['.', ':']) || first == "localhost" => first,
        _ => "docker.io",
    };
    secrets.iter().find_map(|secret| {
        let document: serde_json::Value = serde_json::from_slice(secret).ok()?;
        let auths = document.get("auths")?.as_object()?;
        let (server, entry) = auths.iter().find(|(server, _)| {
            let server = server.trim_start_matches("https://").trim_start_matches("http://");
            let host = server.split('/').next().unwrap_or(server);
            host == registry || (registry == "docker.io" && host.ends_with("docker.io"))
        })?;
        let text = |name: &str| entry.get(name).and_then(|value| value.as_str()).unwrap_or_default().to_owned();
        let (mut username, mut password) = (text("username"), text("password"));
        if let Ok(decoded) = BASE64_STANDARD.decode(text("auth"))
            && let Some((name, secret)) = String::from_utf8_lossy(&decoded).split_once(':')
        {
            (username, password) = (name.to_owned(), secret.to_owned());
        }
        Some(wire::AuthConfig { username, password, auth: String::new(), server_address: server.clone() })
    })
}

impl Runtime for Cri {
    fn name(&self) -> &'static str {
        "containerd"
    }

    fn version(&self) -> String {
        self.version.clone()
    }

    fn ready(&self) -> Answer<'_, ()> {
        Box::pin(async move {
            let status = self.call(wire::StatusRequest { verbose: false }).await?;
            let conditions = status.status.unwrap_or_default().conditions;
            // A network that isn't configured keeps only pods from running that want one of their own.
            match conditions.iter().find(|condition| condition.kind == "RuntimeReady" && !condition.status) {
                Some(condition) => Err(RuntimeError::Failed(format!("{}: {}", condition.reason, condition.message))),
                None => Ok(()),
            }
        })
    }

    fn image_status<'a>(&'a self, image: &'a ImageRequest) -> Answer<'a, Option<String>> {
        Box::pin(async move {
            let spec = wire::ImageSpec { image: image.image.clone(), user_specified_image: String::new() };
            let answer = self.call(wire::ImageStatusRequest { image: Some(spec) }).await?;
            Ok(answer.image.map(|image| image.id))
        })
    }

    fn pull<'a>(&'a self, image: &'a ImageRequest) -> Answer<'a, String> {
        Box::pin(async move {
            let spec = wire::ImageSpec { image: image.image.clone(), user_specified_image: String::new() };
            let auth = credentials(&image.image, &image.pull_secrets);
            Ok(self.call(wire::PullImageRequest { image: Some(spec), auth }).await?.image_ref)
        })
    }

    fn run_sandbox<'a>(&'a self, config: &'a SandboxConfig) -> Answer<'a, Sandbox> {
        Box::pin(async move {
            std::fs::create_dir_all(&config.log_directory)?;
            let request = wire::RunPodSandboxRequest {
                config: Some(sandbox_config(config)),
                runtime_handler: config.handler.clone(),
            };
            let id = self.call(request).await?.pod_sandbox_id;
            Ok(Sandbox { ips: self.addresses(&id).await?, id })
        })
    }

    fn stop_sandbox<'a>(&'a self, sandbox: &'a str) -> Answer<'a, ()> {
        Box::pin(async move {
            self.call(wire::StopPodSandboxRequest { pod_sandbox_id: sandbox.to_owned() }).await?;
            self.call(wire::RemovePodSandboxRequest { pod_sandbox_id: sandbox.to_owned() }).await?;
            Ok(())
        })
    }

    fn create_container<'a>(
        &'a self,
        sandbox: &'a str,
        pod: &'a SandboxConfig,
        config: &'a ContainerConfig,
    ) -> Answer<'a, String> {
        Box::pin(async move {
            std::fs::create_dir_all(pod.log_directory.join(&config.name))?;
            let request = wire::CreateContainerRequest {
                pod_sandbox_id: sandbox.to_owned(),
                config: Some(container_config(pod, config)),
                sandbox_config: Some(sandbox_config(pod)),
            };
            Ok(self.call(request).await?.container_id)
        })
    }

    fn start_container<'a>(&'a self, id: &'a str) -> Answer<'a, ()> {
        Box::pin(async move {
            self.call(wire::StartContainerRequest { container_id: id.to_owned() }).await?;
            Ok(())
        })
    }

    fn stop_container<'a>(&'a self, id: &'a str, grace: Duration) -> Answer<'a, ()> {
        Box::pin(async move {
            let timeout = i64::try_from(grace.as_secs()).unwrap_or(i64::MAX);
            self.call(wire::StopContainerRequest { container_id: id.to_owned(), timeout }).await?;
            Ok(())
        })
    }

    fn remove_container<'a>(&'a self, id: &'a str) -> Answer<'a, ()> {
        Box::pin(async move {
            self.call(wire::RemoveContainerRequest { container_id: id.to_owned() }).await?;
            Ok(())
        })
    }

    fn wait<'a>(&'a self, id: &'a str) -> Answer<'a, Exit> {
        Box::pin(async move {
            loop {
                let request = wire::ContainerStatusRequest { container_id: id.to_owned() };
                let status = self.call(request).await?.status.unwrap_or_default();
                if status.state == wire::EXITED {
                    return Ok(Exit {
                        code: status.exit_code,
                        signal: None,
                        oom_killed: status.reason == "OOMKilled",
                        message: status.message,
                        at: Timestamp::from_nanosecond(i128::from(status.finished_at)).ok(),
                    });
                }
                self.clock.sleep(POLL).await;
            }
        })
    }

    fn containers(&self) -> Answer<'_, Vec<ContainerRecord>> {
        Box::pin(async move {
            let all = self.call(wire::ListContainersRequest {}).await?.containers;
            Ok(all.into_iter().filter_map(record).collect())
        })
    }

    fn update_limits<'a>(&'a self, id: &'a str, limits: &'a Limits) -> Answer<'a, ()> {
        Box::pin(async move {
            let mut linux = resources(limits);
            // Nothing said would leave a limit as it was.
            if linux.cpu_quota == 0 {
                linux.cpu_quota = -1;
            }
            if linux.memory_limit_in_bytes == 0 {
                linux.memory_limit_in_bytes = -1;
            }
            let container_id = id.to_owned();
            self.call(wire::UpdateContainerResourcesRequest { container_id, linux: Some(linux) }).await?;
            Ok(())
        })
    }

    fn left_over(&self) -> Answer<'_, Vec<LeftOver>> {
        Box::pin(async move {
            let mut containers = self.call(wire::ListContainersRequest {}).await?.containers;
            let mut all = Vec::new();
            for mut sandbox in self.call(wire::ListPodSandboxRequest {}).await?.items {
                let Some(pod_uid) = sandbox.labels.remove(POD_UID) else { continue };
                if sandbox.state != wire::READY {
                    self.stop_sandbox(&sandbox.id).await?;
                    continue;
                }
                let (own, others): (Vec<_>, Vec<_>) =
                    containers.into_iter().partition(|container| container.pod_sandbox_id == sandbox.id);
                containers = others;
                all.push(LeftOver {
                    pod_uid,
                    attempt: sandbox.metadata.unwrap_or_default().attempt,
                    sandbox: Sandbox { ips: self.addresses(&sandbox.id).await?, id: sandbox.id },
                    containers: own.into_iter().filter_map(record).collect(),
                });
            }
            Ok(all)
        })
    }

    fn images(&self) -> Answer<'_, Option<Images>> {
        Box::pin(async move {
            let images = self.call(wire::ListImagesRequest {}).await?.images.into_iter();
            let images = images.map(|image| ImageRecord {
                id: image.id,
                names: image.repo_tags,
                size: image.size,
                pinned: image.pinned,
            });
            let images = images.collect();
            let places = self.call(wire::ImageFsInfoRequest {}).await?.image_filesystems;
            let place = places.into_iter().find_map(|place| Some(place.fs_id?.mountpoint));
            Ok(place.map(|place| Images { place: place.into(), images }))
        })
    }

    fn remove_image<'a>(&'a self, id: &'a str) -> Answer<'a, ()> {
        Box::pin(async move {
            let image = wire::ImageSpec { image: id.to_owned(), user_specified_image: String::new() };
            self.call(wire::RemoveImageRequest { image: Some(image) }).await?;
            Ok(())
        })
    }

    fn reopen_log<'a>(&'a self, id: &'a str) -> Answer<'a, ()> {
        Box::pin(async move {
            self.call(wire::ReopenContainerLogRequest { container_id: id.to_owned() }).await?;
            Ok(())
        })
    }

    fn exec<'a>(&'a self, id: &'a str, config: &'a ExecConfig) -> Answer<'a, Streaming> {
        Box::pin(async move {
            let request = wire::ExecRequest {
                container_id: id.to_owned(),
                cmd: config.command.clone(),
                tty: config.tty,
                stdin: config.stdin,
                stdout: config.stdout,
                stderr: config.stderr,
            };
            Ok(Streaming::Redirect(self.call(request).await?.url))
        })
    }

    fn exec_sync<'a>(&'a self, id: &'a str, command: &'a [String], timeout: Duration) -> Answer<'a, (Exit, Vec<u8>)> {
        Box::pin(async move {
            let request = wire::ExecSyncRequest {
                container_id: id.to_owned(),
                cmd: command.to_vec(),
                timeout: i64::try_from(timeout.as_secs()).unwrap_or(0),
            };
            let answer = match self.call(request).await {
                Err(RuntimeError::Failed(text)) if text.contains("DeadlineExceeded") => {
                    let seconds = timeout.as_secs();
                    return Err(RuntimeError::Failed(format!(
                        "command timed out: {command:?} timed out after {seconds}s"
                    )));
                }
                answer => answer?,
            };
            let output = [answer.stdout, answer.stderr].concat();
            Ok((Exit { code: answer.exit_code, ..Exit::default() }, output))
        })
    }

    fn attach<'a>(&'a self, id: &'a str, config: &'a ExecConfig) -> Answer<'a, Streaming> {
        Box::pin(async move {
            let request = wire::AttachRequest {
                container_id: id.to_owned(),
                stdin: config.stdin,
                tty: config.tty,
                stdout: config.stdout,
                stderr: config.stderr,
            };
            Ok(Streaming::Redirect(self.call(request).await?.url))
        })
    }

    fn port_forward<'a>(&'a self, _: &'a str, _: u16) -> Answer<'a, tokio::net::TcpStream> {
        Box::pin(async { Err(RuntimeError::Unsupported("the engine forwards ports itself".to_owned())) })
    }

    fn port_forward_url<'a>(&'a self, sandbox: &'a str, ports: &'a [u16]) -> Answer<'a, Option<String>> {
        Box::pin(async move {
            let port = ports.iter().map(|port| i32::from(*port)).collect();
            let request = wire::PortForwardRequest { pod_sandbox_id: sandbox.to_owned(), port };
            Ok(Some(self.call(request).await?.url))
        })
    }

    fn stats(&self) -> Answer<'_, Vec<ContainerStats>> {
        Box::pin(async move {
            let at = Some(self.clock.now());
            let all = self.call(wire::ListContainerStatsRequest {}).await?.stats;
            let value = |value: Option<wire::UInt64Value>| value.map_or(0, |value| value.value);
            Ok(all
                .into_iter()
                .filter_map(|usage| {
                    let mut labels = usage.attributes?.labels;
                    let cpu = usage.cpu.unwrap_or_default();
                    Some(ContainerStats {
                        pod_uid: labels.remove(POD_UID)?,
                        name: labels.remove(CONTAINER_NAME)?,
                        cpu_nanos: value(cpu.usage_core_nano_seconds),
                        cpu_nano_cores: cpu.usage_nano_cores.map(|cores| cores.value),
                        memory_bytes: value(usage.memory.unwrap_or_default().working_set_bytes),
                        at,
                        ..ContainerStats::default()
                    })
                })
                .collect())
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

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
}
