//! What the engine is told of pods and containers, and what its answers mean.

use base64::{Engine as _, prelude::BASE64_STANDARD};

use super::{CONTAINER_NAME, POD_UID, wire};
use crate::{
    node::dns::Resolver,
    runtime::{
        CPU_PERIOD, ContainerConfig, ContainerRecord, Limits, Profile, Propagation, SandboxConfig, SeLinux, USER_IDS,
    },
};

/// What a container doesn't see of the kernel's files.
const MASKED_PATHS: [&str; 12] = [
    "/proc/asound",
    "/proc/acpi",
    "/proc/interrupts",
    "/proc/kcore",
    "/proc/keys",
    "/proc/latency_stats",
    "/proc/timer_list",
    "/proc/timer_stats",
    "/proc/sched_debug",
    "/proc/scsi",
    "/sys/firmware",
    "/sys/devices/virtual/powercap",
];
/// What it sees but can't write to.
const READONLY_PATHS: [&str; 5] = ["/proc/bus", "/proc/fs", "/proc/irq", "/proc/sys", "/proc/sysrq-trigger"];

/// How hot the machine is tells what others do.
fn masked_paths() -> Vec<String> {
    let processors = std::fs::read_dir("/sys/devices/system/cpu").into_iter().flatten().flatten();
    let heat = processors.map(|processor| processor.path().join("thermal_throttle")).filter(|path| path.exists());
    MASKED_PATHS.map(str::to_owned).into_iter().chain(heat.map(|path| path.display().to_string())).collect()
}

fn number(value: i64) -> wire::Int64Value {
    wire::Int64Value { value }
}

fn profile(profile: &Profile) -> wire::SecurityProfile {
    let (profile_type, localhost_ref) = match profile {
        Profile::RuntimeDefault => (0, String::new()),
        Profile::Unconfined => (1, String::new()),
        Profile::Localhost(name) => (2, name.clone()),
    };
    wire::SecurityProfile { profile_type, localhost_ref }
}

fn selinux(options: &SeLinux) -> wire::SeLinuxOption {
    let SeLinux { user, role, kind, level } = options.clone();
    wire::SeLinuxOption { user, role, kind, level }
}

/// How the users of a pod that has its own are the node's.
fn users(config: &SandboxConfig) -> Vec<wire::IdMapping> {
    config.users.map(|host_id| wire::IdMapping { host_id, container_id: 0, length: USER_IDS }).into_iter().collect()
}

/// Whether this machine has SELinux, so that files need labels.
fn has_selinux() -> bool {
    std::path::Path::new("/sys/fs/selinux/enforce").exists()
}

fn namespaces(config: &SandboxConfig) -> wire::NamespaceOption {
    let node = |yes: bool, otherwise: i32| if yes { wire::NODE } else { otherwise };
    let pid = if config.share_process_namespace { wire::POD } else { wire::CONTAINER };
    wire::NamespaceOption {
        network: node(config.host_network, wire::POD),
        pid: node(config.host_pid, pid),
        ipc: node(config.host_ipc, wire::POD),
        userns_options: Some(wire::UserNamespace {
            mode: node(config.users.is_none(), wire::POD),
            uids: users(config),
            gids: users(config),
        }),
    }
}

pub(super) fn sandbox_config(config: &SandboxConfig) -> wire::PodSandboxConfig {
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
        hostname: if config.host_network { String::new() } else { config.node_name() },
        log_directory: config.log_directory.display().to_string(),
        dns_config: dns,
        port_mappings: ports.collect(),
        labels,
        annotations: config.annotations.clone().into_iter().collect(),
        linux: Some(wire::LinuxPodSandboxConfig {
            security_context: Some(wire::LinuxSandboxSecurityContext {
                namespace_options: Some(namespaces(config)),
                run_as_user: config.user.map(number),
                supplemental_groups: config.groups.clone(),
                supplemental_groups_policy: i32::from(config.strict_groups),
                selinux_options: config.selinux.as_ref().map(selinux),
                privileged: config.privileged,
                run_as_group: config.group.map(number),
                // What a sandbox itself runs needs no more, whatever its containers are allowed.
                seccomp: Some(profile(&Profile::RuntimeDefault)),
            }),
            sysctls: config.sysctls.clone().into_iter().collect(),
        }),
    }
}

pub(super) fn resources(limits: &Limits) -> wire::LinuxContainerResources {
    wire::LinuxContainerResources {
        cpu_period: CPU_PERIOD,
        cpu_quota: limits.cpu_quota(),
        cpu_shares: limits.cpu_shares(),
        memory_limit_in_bytes: limits.memory_bytes,
        oom_score_adj: limits.oom_score_adj,
    }
}

/// A container of this node; nothing if it belongs to somebody else.
pub(super) fn record(mut container: wire::ContainerItem) -> Option<ContainerRecord> {
    Some(ContainerRecord {
        pod_uid: container.labels.remove(POD_UID)?,
        name: container.labels.remove(CONTAINER_NAME).unwrap_or_default(),
        attempt: container.metadata.unwrap_or_default().attempt,
        running: container.state == wire::RUNNING,
        id: container.id,
        image: container.image_ref,
    })
}

pub(super) fn container_config(pod: &SandboxConfig, config: &ContainerConfig) -> wire::ContainerMessage {
    let (limits, security) = (&config.limits, &config.security);
    let hidden = |paths: Vec<String>| if security.unmasked_proc { Vec::new() } else { paths };
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
                selinux_relabel: mount.relabel && has_selinux(),
                propagation: match mount.propagation {
                    Propagation::Private => 0,
                    Propagation::HostToContainer => 1,
                    Propagation::Bidirectional => 2,
                },
                uid_mappings: users(pod),
                gid_mappings: users(pod),
                recursive_read_only: mount.recursive_read_only,
                image: mount.image.as_ref().map(|image| wire::ImageSpec {
                    image: image.image_ref.clone(),
                    user_specified_image: image.image.clone(),
                }),
                image_sub_path: mount.image.as_ref().map(|image| image.sub_path.clone()).unwrap_or_default(),
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
                supplemental_groups_policy: i32::from(security.strict_groups),
                selinux_options: security.selinux.as_ref().map(selinux),
                no_new_privs: security.no_new_privileges,
                run_as_username: security.user_name.clone(),
                // The engine hides and protects what it is told to, and nothing else.
                masked_paths: hidden(masked_paths()),
                readonly_paths: hidden(READONLY_PATHS.map(str::to_owned).to_vec()),
                seccomp: Some(profile(&security.seccomp)),
                apparmor: security.apparmor.as_ref().map(profile),
            }),
        }),
    }
}

/// The name and password for an image's registry in one of several `.dockerconfigjson` documents.
pub(super) fn credentials(image: &str, secrets: &[Vec<u8>]) -> Option<wire::AuthConfig> {
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
