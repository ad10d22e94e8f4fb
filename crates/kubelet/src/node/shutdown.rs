//! The end of the node: containers end as they do when their pods are deleted, but the pods stay bound to it.

use std::{sync::Arc, time::Duration};

use futures_util::future::join_all;
use k8s_openapi::api::core::v1::{Container, Pod};

use super::{
    probe::Target,
    shared::{ContainerHandle, PodHandle, Shared},
    worker::pre_stop,
};
use crate::lifecycle::{MINIMUM_GRACE, Role};

/// The longest that the end of a node waits for its pods, whatever grace periods they have.
pub const SHUTDOWN_GRACE_PERIOD: Duration = Duration::from_secs(120);

/// Ends all that runs, the pods at once and each within its own grace period, but none later than `most`.
pub(super) async fn end(shared: &Arc<Shared>, most: Duration) {
    let handles: Vec<PodHandle> = shared.pods().values().cloned().collect();
    join_all(handles.into_iter().map(|handle| end_pod(shared, handle, most))).await;
}

async fn end_pod(shared: &Arc<Shared>, handle: PodHandle, most: Duration) {
    let seconds = handle.pod.spec.as_ref().and_then(|spec| spec.termination_grace_period_seconds).unwrap_or(30);
    let grace = Duration::from_secs(u64::try_from(seconds).unwrap_or(0)).min(most);
    let began = shared.clock.monotonic();
    let (sidecars, others): (Vec<_>, Vec<_>) =
        running(&handle).into_iter().partition(|(container, _)| container.role == Role::Sidecar);
    let end = |container, spec| end_container(shared, &handle, container, spec, grace);
    join_all(others.into_iter().map(|(container, spec)| end(container, spec))).await;
    // Those that serve the others go after them, the last to come first; what is left of the time is theirs.
    for (container, spec) in sidecars.into_iter().rev() {
        let left = grace.saturating_sub(shared.clock.monotonic().since(began));
        let left = if grace.is_zero() { grace } else { left.max(MINIMUM_GRACE) };
        end_container(shared, &handle, container, spec, left).await;
    }
    if let Some(sandbox) = &handle.sandbox {
        let _ = shared.runtime.stop_sandbox(sandbox).await;
    }
}

/// The containers that run, in the order of the spec.
fn running(handle: &PodHandle) -> Vec<(&ContainerHandle, Container)> {
    let Some(spec) = &handle.pod.spec else { return Vec::new() };
    // All that is asked of an ephemeral container here is its name.
    let ephemeral = spec.ephemeral_containers.iter().flatten();
    let ephemeral = ephemeral.map(|one| Container { name: one.name.clone(), ..Container::default() });
    let all = spec.init_containers.iter().flatten().chain(&spec.containers).cloned().chain(ephemeral);
    let found = |spec: Container| Some((handle.containers.get(&spec.name)?, spec));
    all.filter_map(found).filter(|(container, _)| container.running).collect()
}

async fn end_container(
    shared: &Arc<Shared>,
    handle: &PodHandle,
    container: &ContainerHandle,
    spec: Container,
    grace: Duration,
) {
    let (runtime, clock, pod) = (&shared.runtime, &shared.clock, &*handle.pod);
    let began = clock.monotonic();
    if is_ending(pod) {
        // It has been asked to, by a hook perhaps, and its time runs.
        tokio::select! {
            _ = runtime.wait(&container.id) => {}
            () = clock.sleep(grace) => {}
        }
    } else {
        let message = format!("Stopping container {}", spec.name);
        shared.event(pod, Some((container.role, &spec.name)), false, "Killing", message);
        let hook = spec.lifecycle.as_ref().and_then(|lifecycle| lifecycle.pre_stop.clone());
        if let Some(hook) = hook.filter(|_| !grace.is_zero()) {
            let ip = handle.status.pod_ip.clone().or_else(|| shared.host_ips.first().cloned()).unwrap_or_default();
            let target = Target { shared: shared.clone(), container: Arc::new(spec), id: container.id.clone(), ip };
            pre_stop(&target, pod, container.role, &hook, grace).await;
        }
    }
    let left = grace.saturating_sub(clock.monotonic().since(began));
    let left = if grace.is_zero() { grace } else { left.max(MINIMUM_GRACE) };
    let _ = runtime.stop_container(&container.id, left).await;
    let _ = runtime.remove_container(&container.id).await;
}

fn is_ending(pod: &Pod) -> bool {
    pod.metadata.deletion_timestamp.is_some()
}
