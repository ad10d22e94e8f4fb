//! Containers by a container engine that speaks the CRI: containerd, over its socket.

mod messages;
#[cfg(test)]
mod tests;
mod wire;

use std::{
    path::{Path, PathBuf},
    time::Duration,
};

use capstan_clock::{SharedClock, Timestamp};
use hyper_util::rt::TokioIo;
use messages::{container_config, credentials, record, resources, sandbox_config};
use tonic::{
    Code,
    client::Grpc,
    transport::{Channel, Endpoint},
};
use wire::Call;

use super::{
    Answer, ContainerConfig, ContainerRecord, ContainerStats, ExecConfig, Features, ImageRecord, ImageRequest,
    ImageUser, Images, LeftOver, Limits, Runtime, RuntimeError, Sandbox, SandboxConfig, Streaming,
};
use crate::lifecycle::Exit;

/// How often a container is looked at by who waits for its end.
const POLL: Duration = Duration::from_millis(500);
/// The largest answer that is read.
const MAX_ANSWER: usize = 16 << 20;
/// Labels by which this node knows its containers.
const POD_UID: &str = "io.kubernetes.pod.uid";
const CONTAINER_NAME: &str = "io.kubernetes.container.name";

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

    fn features<'a>(&'a self, handler: &'a str) -> Answer<'a, Features> {
        Box::pin(async move {
            let handlers = self.call(wire::StatusRequest { verbose: false }).await?.runtime_handlers;
            let found = handlers.into_iter().find(|one| one.name == handler).and_then(|one| one.features);
            let found = found.unwrap_or_default();
            Ok(Features {
                recursive_read_only: found.recursive_read_only_mounts,
                user_namespaces: found.user_namespaces,
            })
        })
    }

    fn image_status<'a>(&'a self, image: &'a ImageRequest) -> Answer<'a, Option<String>> {
        Box::pin(async move {
            let spec = wire::ImageSpec { image: image.image.clone(), user_specified_image: String::new() };
            let answer = self.call(wire::ImageStatusRequest { image: Some(spec) }).await?;
            Ok(answer.image.map(|image| image.id))
        })
    }

    fn image_user<'a>(&'a self, image_ref: &'a str) -> Answer<'a, Option<ImageUser>> {
        Box::pin(async move {
            let spec = wire::ImageSpec { image: image_ref.to_owned(), user_specified_image: String::new() };
            let image = self.call(wire::ImageStatusRequest { image: Some(spec) }).await?.image.unwrap_or_default();
            Ok(Some(match image.uid {
                None if !image.username.is_empty() => ImageUser::Name(image.username),
                uid => ImageUser::Id(uid.map_or(0, |uid| uid.value)),
            }))
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
                let status = match self.call(request).await {
                    Ok(answer) => answer.status.unwrap_or_default(),
                    Err(gone @ RuntimeError::NotFound(_)) => return Err(gone),
                    // An engine that doesn't answer, or is being restarted, says nothing about its containers.
                    Err(_) => wire::ContainerStatus::default(),
                };
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
                    // Nothing runs in it; that it can't be taken away must not keep the node from its work.
                    let _ = self.stop_sandbox(&sandbox.id).await;
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
                digests: image.repo_digests,
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
                        disk_bytes: value(usage.writable_layer.unwrap_or_default().used_bytes),
                        at,
                        ..ContainerStats::default()
                    })
                })
                .collect())
        })
    }
}
