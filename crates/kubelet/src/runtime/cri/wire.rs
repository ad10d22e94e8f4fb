//! The part of the CRI's gRPC interface that the node uses: messages by their field numbers, calls by their paths.
//!
//! Written by hand so that nothing has to be generated: fields that the node does not look at are left out, and skipped
//! when they arrive.

use std::collections::HashMap;

use prost::Message;

/// A call with one answer.
pub(super) trait Call: Message + 'static {
    type Answer: Message + Default + 'static;
    const PATH: &'static str;
}

macro_rules! calls {
    ($($service:literal { $($call:literal: $request:ident => $answer:ident;)* })*) => {
        $($(impl Call for $request {
            type Answer = $answer;
            const PATH: &'static str = concat!("/runtime.v1.", $service, "/", $call);
        })*)*
    };
}

calls! {
    "RuntimeService" {
        "Version": VersionRequest => VersionResponse;
        "Status": StatusRequest => StatusResponse;
        "RunPodSandbox": RunPodSandboxRequest => RunPodSandboxResponse;
        "PodSandboxStatus": PodSandboxStatusRequest => PodSandboxStatusResponse;
        "ListPodSandbox": ListPodSandboxRequest => ListPodSandboxResponse;
        "StopPodSandbox": StopPodSandboxRequest => Nothing;
        "RemovePodSandbox": RemovePodSandboxRequest => Nothing;
        "CreateContainer": CreateContainerRequest => CreateContainerResponse;
        "StartContainer": StartContainerRequest => Nothing;
        "StopContainer": StopContainerRequest => Nothing;
        "RemoveContainer": RemoveContainerRequest => Nothing;
        "ListContainers": ListContainersRequest => ListContainersResponse;
        "ContainerStatus": ContainerStatusRequest => ContainerStatusResponse;
        "UpdateContainerResources": UpdateContainerResourcesRequest => Nothing;
        "ReopenContainerLog": ReopenContainerLogRequest => Nothing;
        "ExecSync": ExecSyncRequest => ExecSyncResponse;
        "Exec": ExecRequest => UrlResponse;
        "Attach": AttachRequest => UrlResponse;
        "PortForward": PortForwardRequest => UrlResponse;
        "ListContainerStats": ListContainerStatsRequest => ListContainerStatsResponse;
    }
    "ImageService" {
        "ImageStatus": ImageStatusRequest => ImageStatusResponse;
        "PullImage": PullImageRequest => PullImageResponse;
        "ListImages": ListImagesRequest => ListImagesResponse;
        "RemoveImage": RemoveImageRequest => Nothing;
        "ImageFsInfo": ImageFsInfoRequest => ImageFsInfoResponse;
    }
}

/// Messages: each field by its type and number.
macro_rules! messages {
    ($($(#[$doc:meta])* $name:ident { $($(#[$field:meta])* $ident:ident: $type:ty,)* })*) => {
        $($(#[$doc])*
        #[derive(Clone, PartialEq, Message)]
        pub(super) struct $name { $($(#[$field])* pub(super) $ident: $type,)* })*
    };
}

messages! {
    Nothing {}
    VersionRequest { #[prost(string, tag = "1")] version: String, }
    VersionResponse {
        #[prost(string, tag = "2")] runtime_name: String,
        #[prost(string, tag = "3")] runtime_version: String,
    }
    StatusRequest { #[prost(bool, tag = "1")] verbose: bool, }
    RuntimeCondition {
        #[prost(string, tag = "1")] kind: String,
        #[prost(bool, tag = "2")] status: bool,
        #[prost(string, tag = "3")] reason: String,
        #[prost(string, tag = "4")] message: String,
    }
    RuntimeStatus { #[prost(message, repeated, tag = "1")] conditions: Vec<RuntimeCondition>, }
    RuntimeHandlerFeatures {
        #[prost(bool, tag = "1")] recursive_read_only_mounts: bool,
        #[prost(bool, tag = "2")] user_namespaces: bool,
    }
    RuntimeHandler {
        #[prost(string, tag = "1")] name: String,
        #[prost(message, optional, tag = "2")] features: Option<RuntimeHandlerFeatures>,
    }
    StatusResponse {
        #[prost(message, optional, tag = "1")] status: Option<RuntimeStatus>,
        #[prost(message, repeated, tag = "3")] runtime_handlers: Vec<RuntimeHandler>,
    }
    PodSandboxMetadata {
        #[prost(string, tag = "1")] name: String,
        #[prost(string, tag = "2")] uid: String,
        #[prost(string, tag = "3")] namespace: String,
        #[prost(uint32, tag = "4")] attempt: u32,
    }
    DnsConfig {
        #[prost(string, repeated, tag = "1")] servers: Vec<String>,
        #[prost(string, repeated, tag = "2")] searches: Vec<String>,
        #[prost(string, repeated, tag = "3")] options: Vec<String>,
    }
    PortMapping {
        #[prost(int32, tag = "1")] protocol: i32,
        #[prost(int32, tag = "2")] container_port: i32,
        #[prost(int32, tag = "3")] host_port: i32,
        #[prost(string, tag = "4")] host_ip: String,
    }
    NamespaceOption {
        #[prost(int32, tag = "1")] network: i32,
        #[prost(int32, tag = "2")] pid: i32,
        #[prost(int32, tag = "3")] ipc: i32,
        #[prost(message, optional, tag = "5")] userns_options: Option<UserNamespace>,
    }
    UserNamespace {
        #[prost(int32, tag = "1")] mode: i32,
        #[prost(message, repeated, tag = "2")] uids: Vec<IdMapping>,
        #[prost(message, repeated, tag = "3")] gids: Vec<IdMapping>,
    }
    IdMapping {
        #[prost(uint32, tag = "1")] host_id: u32,
        #[prost(uint32, tag = "2")] container_id: u32,
        #[prost(uint32, tag = "3")] length: u32,
    }
    SeLinuxOption {
        #[prost(string, tag = "1")] user: String,
        #[prost(string, tag = "2")] role: String,
        #[prost(string, tag = "3")] kind: String,
        #[prost(string, tag = "4")] level: String,
    }
    LinuxSandboxSecurityContext {
        #[prost(message, optional, tag = "1")] namespace_options: Option<NamespaceOption>,
        #[prost(message, optional, tag = "2")] selinux_options: Option<SeLinuxOption>,
        #[prost(message, optional, tag = "3")] run_as_user: Option<Int64Value>,
        #[prost(int64, repeated, tag = "5")] supplemental_groups: Vec<i64>,
        #[prost(bool, tag = "6")] privileged: bool,
        #[prost(message, optional, tag = "8")] run_as_group: Option<Int64Value>,
        #[prost(message, optional, tag = "9")] seccomp: Option<SecurityProfile>,
        #[prost(int32, tag = "11")] supplemental_groups_policy: i32,
    }
    SecurityProfile {
        #[prost(int32, tag = "1")] profile_type: i32,
        #[prost(string, tag = "2")] localhost_ref: String,
    }
    LinuxPodSandboxConfig {
        #[prost(message, optional, tag = "2")] security_context: Option<LinuxSandboxSecurityContext>,
        #[prost(map = "string, string", tag = "3")] sysctls: HashMap<String, String>,
    }
    PodSandboxConfig {
        #[prost(message, optional, tag = "1")] metadata: Option<PodSandboxMetadata>,
        #[prost(string, tag = "2")] hostname: String,
        #[prost(string, tag = "3")] log_directory: String,
        #[prost(message, optional, tag = "4")] dns_config: Option<DnsConfig>,
        #[prost(message, repeated, tag = "5")] port_mappings: Vec<PortMapping>,
        #[prost(map = "string, string", tag = "6")] labels: HashMap<String, String>,
        #[prost(map = "string, string", tag = "7")] annotations: HashMap<String, String>,
        #[prost(message, optional, tag = "8")] linux: Option<LinuxPodSandboxConfig>,
    }
    RunPodSandboxRequest {
        #[prost(message, optional, tag = "1")] config: Option<PodSandboxConfig>,
        #[prost(string, tag = "2")] runtime_handler: String,
    }
    RunPodSandboxResponse { #[prost(string, tag = "1")] pod_sandbox_id: String, }
    PodSandboxStatusRequest { #[prost(string, tag = "1")] pod_sandbox_id: String, }
    PodIp { #[prost(string, tag = "1")] ip: String, }
    PodSandboxNetworkStatus {
        #[prost(string, tag = "1")] ip: String,
        #[prost(message, repeated, tag = "2")] additional_ips: Vec<PodIp>,
    }
    PodSandboxStatus {
        #[prost(string, tag = "1")] id: String,
        #[prost(int32, tag = "3")] state: i32,
        #[prost(message, optional, tag = "5")] network: Option<PodSandboxNetworkStatus>,
    }
    PodSandboxStatusResponse { #[prost(message, optional, tag = "1")] status: Option<PodSandboxStatus>, }
    ListPodSandboxRequest {}
    PodSandbox {
        #[prost(string, tag = "1")] id: String,
        #[prost(message, optional, tag = "2")] metadata: Option<PodSandboxMetadata>,
        #[prost(int32, tag = "3")] state: i32,
        #[prost(map = "string, string", tag = "5")] labels: HashMap<String, String>,
    }
    ListPodSandboxResponse { #[prost(message, repeated, tag = "1")] items: Vec<PodSandbox>, }
    StopPodSandboxRequest { #[prost(string, tag = "1")] pod_sandbox_id: String, }
    RemovePodSandboxRequest { #[prost(string, tag = "1")] pod_sandbox_id: String, }
    ImageSpec {
        #[prost(string, tag = "1")] image: String,
        #[prost(string, tag = "18")] user_specified_image: String,
    }
    KeyValue {
        #[prost(string, tag = "1")] key: String,
        #[prost(bytes = "vec", tag = "2")] value: Vec<u8>,
    }
    Int64Value { #[prost(int64, tag = "1")] value: i64, }
    UInt64Value { #[prost(uint64, tag = "1")] value: u64, }
    LinuxContainerResources {
        #[prost(int64, tag = "1")] cpu_period: i64,
        #[prost(int64, tag = "2")] cpu_quota: i64,
        #[prost(int64, tag = "3")] cpu_shares: i64,
        #[prost(int64, tag = "4")] memory_limit_in_bytes: i64,
        #[prost(int64, tag = "5")] oom_score_adj: i64,
    }
    Capability {
        #[prost(string, repeated, tag = "1")] add_capabilities: Vec<String>,
        #[prost(string, repeated, tag = "2")] drop_capabilities: Vec<String>,
    }
    LinuxContainerSecurityContext {
        #[prost(message, optional, tag = "1")] capabilities: Option<Capability>,
        #[prost(bool, tag = "2")] privileged: bool,
        #[prost(message, optional, tag = "3")] namespace_options: Option<NamespaceOption>,
        #[prost(message, optional, tag = "4")] selinux_options: Option<SeLinuxOption>,
        #[prost(message, optional, tag = "5")] run_as_user: Option<Int64Value>,
        #[prost(string, tag = "6")] run_as_username: String,
        #[prost(bool, tag = "7")] readonly_rootfs: bool,
        #[prost(int64, repeated, tag = "8")] supplemental_groups: Vec<i64>,
        #[prost(bool, tag = "11")] no_new_privs: bool,
        #[prost(message, optional, tag = "12")] run_as_group: Option<Int64Value>,
        #[prost(string, repeated, tag = "13")] masked_paths: Vec<String>,
        #[prost(string, repeated, tag = "14")] readonly_paths: Vec<String>,
        #[prost(message, optional, tag = "15")] seccomp: Option<SecurityProfile>,
        #[prost(message, optional, tag = "16")] apparmor: Option<SecurityProfile>,
        #[prost(int32, tag = "17")] supplemental_groups_policy: i32,
    }
    LinuxContainerConfig {
        #[prost(message, optional, tag = "1")] resources: Option<LinuxContainerResources>,
        #[prost(message, optional, tag = "2")] security_context: Option<LinuxContainerSecurityContext>,
    }
    ContainerMetadata {
        #[prost(string, tag = "1")] name: String,
        #[prost(uint32, tag = "2")] attempt: u32,
    }
    MountMessage {
        #[prost(string, tag = "1")] container_path: String,
        #[prost(string, tag = "2")] host_path: String,
        #[prost(bool, tag = "3")] readonly: bool,
        #[prost(bool, tag = "4")] selinux_relabel: bool,
        #[prost(int32, tag = "5")] propagation: i32,
        #[prost(message, repeated, tag = "6")] uid_mappings: Vec<IdMapping>,
        #[prost(message, repeated, tag = "7")] gid_mappings: Vec<IdMapping>,
        #[prost(bool, tag = "8")] recursive_read_only: bool,
        #[prost(message, optional, tag = "9")] image: Option<ImageSpec>,
        #[prost(string, tag = "10")] image_sub_path: String,
    }
    ContainerMessage {
        #[prost(message, optional, tag = "1")] metadata: Option<ContainerMetadata>,
        #[prost(message, optional, tag = "2")] image: Option<ImageSpec>,
        #[prost(string, repeated, tag = "3")] command: Vec<String>,
        #[prost(string, repeated, tag = "4")] args: Vec<String>,
        #[prost(string, tag = "5")] working_dir: String,
        #[prost(message, repeated, tag = "6")] envs: Vec<KeyValue>,
        #[prost(message, repeated, tag = "7")] mounts: Vec<MountMessage>,
        #[prost(map = "string, string", tag = "9")] labels: HashMap<String, String>,
        #[prost(string, tag = "11")] log_path: String,
        #[prost(bool, tag = "12")] stdin: bool,
        #[prost(bool, tag = "13")] stdin_once: bool,
        #[prost(bool, tag = "14")] tty: bool,
        #[prost(message, optional, tag = "15")] linux: Option<LinuxContainerConfig>,
    }
    CreateContainerRequest {
        #[prost(string, tag = "1")] pod_sandbox_id: String,
        #[prost(message, optional, tag = "2")] config: Option<ContainerMessage>,
        #[prost(message, optional, tag = "3")] sandbox_config: Option<PodSandboxConfig>,
    }
    CreateContainerResponse { #[prost(string, tag = "1")] container_id: String, }
    StartContainerRequest { #[prost(string, tag = "1")] container_id: String, }
    StopContainerRequest {
        #[prost(string, tag = "1")] container_id: String,
        #[prost(int64, tag = "2")] timeout: i64,
    }
    RemoveContainerRequest { #[prost(string, tag = "1")] container_id: String, }
    ReopenContainerLogRequest { #[prost(string, tag = "1")] container_id: String, }
    ListContainersRequest {}
    UpdateContainerResourcesRequest {
        #[prost(string, tag = "1")] container_id: String,
        #[prost(message, optional, tag = "2")] linux: Option<LinuxContainerResources>,
    }
    ContainerItem {
        #[prost(string, tag = "1")] id: String,
        #[prost(string, tag = "2")] pod_sandbox_id: String,
        #[prost(message, optional, tag = "3")] metadata: Option<ContainerMetadata>,
        #[prost(string, tag = "5")] image_ref: String,
        #[prost(int32, tag = "6")] state: i32,
        #[prost(map = "string, string", tag = "8")] labels: HashMap<String, String>,
    }
    ListContainersResponse { #[prost(message, repeated, tag = "1")] containers: Vec<ContainerItem>, }
    ContainerStatusRequest { #[prost(string, tag = "1")] container_id: String, }
    ContainerStatus {
        #[prost(int32, tag = "3")] state: i32,
        #[prost(int64, tag = "6")] finished_at: i64,
        #[prost(int32, tag = "7")] exit_code: i32,
        #[prost(string, tag = "10")] reason: String,
        #[prost(string, tag = "11")] message: String,
    }
    ContainerStatusResponse { #[prost(message, optional, tag = "1")] status: Option<ContainerStatus>, }
    ExecSyncRequest {
        #[prost(string, tag = "1")] container_id: String,
        #[prost(string, repeated, tag = "2")] cmd: Vec<String>,
        #[prost(int64, tag = "3")] timeout: i64,
    }
    ExecSyncResponse {
        #[prost(bytes = "vec", tag = "1")] stdout: Vec<u8>,
        #[prost(bytes = "vec", tag = "2")] stderr: Vec<u8>,
        #[prost(int32, tag = "3")] exit_code: i32,
    }
    ExecRequest {
        #[prost(string, tag = "1")] container_id: String,
        #[prost(string, repeated, tag = "2")] cmd: Vec<String>,
        #[prost(bool, tag = "3")] tty: bool,
        #[prost(bool, tag = "4")] stdin: bool,
        #[prost(bool, tag = "5")] stdout: bool,
        #[prost(bool, tag = "6")] stderr: bool,
    }
    AttachRequest {
        #[prost(string, tag = "1")] container_id: String,
        #[prost(bool, tag = "2")] stdin: bool,
        #[prost(bool, tag = "3")] tty: bool,
        #[prost(bool, tag = "4")] stdout: bool,
        #[prost(bool, tag = "5")] stderr: bool,
    }
    PortForwardRequest {
        #[prost(string, tag = "1")] pod_sandbox_id: String,
        #[prost(int32, repeated, tag = "2")] port: Vec<i32>,
    }
    UrlResponse { #[prost(string, tag = "1")] url: String, }
    ImageStatusRequest { #[prost(message, optional, tag = "1")] image: Option<ImageSpec>, }
    Image {
        #[prost(string, tag = "1")] id: String,
        #[prost(string, repeated, tag = "2")] repo_tags: Vec<String>,
        #[prost(string, repeated, tag = "3")] repo_digests: Vec<String>,
        #[prost(uint64, tag = "4")] size: u64,
        #[prost(message, optional, tag = "5")] uid: Option<Int64Value>,
        #[prost(string, tag = "6")] username: String,
        #[prost(bool, tag = "8")] pinned: bool,
    }
    ListImagesRequest {}
    ListImagesResponse { #[prost(message, repeated, tag = "1")] images: Vec<Image>, }
    RemoveImageRequest { #[prost(message, optional, tag = "1")] image: Option<ImageSpec>, }
    ImageFsInfoRequest {}
    FilesystemIdentifier { #[prost(string, tag = "1")] mountpoint: String, }
    FilesystemUsage {
        #[prost(message, optional, tag = "2")] fs_id: Option<FilesystemIdentifier>,
        #[prost(message, optional, tag = "3")] used_bytes: Option<UInt64Value>,
    }
    ImageFsInfoResponse { #[prost(message, repeated, tag = "1")] image_filesystems: Vec<FilesystemUsage>, }
    ImageStatusResponse { #[prost(message, optional, tag = "1")] image: Option<Image>, }
    AuthConfig {
        #[prost(string, tag = "1")] username: String,
        #[prost(string, tag = "2")] password: String,
        #[prost(string, tag = "3")] auth: String,
        #[prost(string, tag = "4")] server_address: String,
    }
    PullImageRequest {
        #[prost(message, optional, tag = "1")] image: Option<ImageSpec>,
        #[prost(message, optional, tag = "2")] auth: Option<AuthConfig>,
    }
    PullImageResponse { #[prost(string, tag = "1")] image_ref: String, }
    ListContainerStatsRequest {}
    ContainerAttributes {
        #[prost(string, tag = "1")] id: String,
        #[prost(map = "string, string", tag = "3")] labels: HashMap<String, String>,
    }
    CpuUsage {
        #[prost(message, optional, tag = "2")] usage_core_nano_seconds: Option<UInt64Value>,
        #[prost(message, optional, tag = "3")] usage_nano_cores: Option<UInt64Value>,
    }
    MemoryUsage { #[prost(message, optional, tag = "2")] working_set_bytes: Option<UInt64Value>, }
    ContainerUsage {
        #[prost(message, optional, tag = "1")] attributes: Option<ContainerAttributes>,
        #[prost(message, optional, tag = "2")] cpu: Option<CpuUsage>,
        #[prost(message, optional, tag = "3")] memory: Option<MemoryUsage>,
        #[prost(message, optional, tag = "4")] writable_layer: Option<FilesystemUsage>,
    }
    ListContainerStatsResponse { #[prost(message, repeated, tag = "1")] stats: Vec<ContainerUsage>, }
}

/// `NamespaceMode`: with the pod, the container alone, the node.
pub(super) const POD: i32 = 0;
pub(super) const CONTAINER: i32 = 1;
pub(super) const NODE: i32 = 2;
/// `PodSandboxState`.
pub(super) const READY: i32 = 0;
/// `ContainerState`.
pub(super) const RUNNING: i32 = 1;
pub(super) const EXITED: i32 = 2;
