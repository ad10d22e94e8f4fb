//! What a node looks after from time to time: numbers, pressure, logs that grow, images that nobody uses.

use std::{collections::BTreeSet, path::Path, sync::PoisonError, time::Duration};

use capstan_runtime::{EventType, ObjectReference};
use k8s_openapi::api::core::v1::Pod;

use super::{
    Node, PodHandle, Workers,
    eviction::{self, Candidate},
    images::{self, ImageGc},
    machine::{self, Signals},
    register::Health,
    storage::{self, Used},
};
use crate::logs;

/// How long a pod has that goes for what it has on the disk.
const IMMEDIATE_GRACE: Duration = Duration::from_secs(1);

impl Node {
    /// Asks the runtime what containers use.
    pub(super) async fn measure(&self) {
        if let Ok(mut stats) = self.shared.runtime.stats().await {
            stats.extend(machine::usage(self.shared.clock.now()));
            crate::metrics::keep(&self.shared, stats);
        }
    }

    /// How the machine is: what is left of it, of the disk that images are on too where there are any, or what those
    /// say who were named instead; whether it can run pods, and its images.
    pub(super) async fn look_at_machine(&self) -> (Signals, Health) {
        let runtime = &self.shared.runtime;
        let there = runtime.images().await.ok().flatten();
        let signals = match (&self.signals, &there) {
            (Some(source), _) => source(),
            (None, Some(there)) => machine::signals(&self.shared.root).with_images(&there.place),
            (None, None) => machine::signals(&self.shared.root),
        };
        let not_ready = runtime.ready().await.err().map(|error| format!("container runtime is down: {error}"));
        let images = there.map(|there| images::largest(there.images)).unwrap_or_default();
        let health = Health { images, ..eviction::health(&signals, &self.thresholds, not_ready) };
        (signals, health)
    }

    /// Ends one pod if the machine needs what it uses.
    pub(super) fn evict(&self, signals: &Signals, workers: &Workers) {
        let active = self.active(workers, "");
        let usage = self.shared.usage.lock().unwrap_or_else(PoisonError::into_inner).clone();
        let candidates = active.iter().map(|pod| {
            let uid = pod.metadata.uid.as_deref().unwrap_or_default();
            let own = usage.iter().filter(|stats| stats.pod_uid == uid);
            let memory = own.clone().map(|stats| (stats.name.clone(), stats.memory_bytes)).collect();
            Candidate { pod, memory, processes: own.map(|stats| stats.processes).sum() }
        });
        let pods: Vec<Candidate<'_>> = candidates.collect();
        let Some((victim, message)) = eviction::victim(signals, &self.thresholds, &pods) else { return };
        self.end(victim, message, Duration::ZERO, true, workers);
    }

    fn end(&self, pod: &Pod, message: String, grace: Duration, disruption: bool, workers: &Workers) {
        let uid = pod.metadata.uid.as_deref().unwrap_or_default();
        if let Some((desired, _)) = workers.get(uid) {
            self.shared.event(pod, None, true, "Evicted", message.clone());
            let fail = Some(("Evicted".to_owned(), message, Some(grace), disruption));
            desired.send_modify(|desired| desired.fail = fail);
        }
    }

    /// Ends the pods that have more on the disk than they may; whether there was one.
    pub(super) async fn evict_for_storage(&self, workers: &Workers) -> bool {
        let limited = |pod: &Pod| storage::is_limited(pod) && eviction::may_go(pod);
        let pods: Vec<Pod> = self.active(workers, "").into_iter().filter(limited).collect();
        let (shared, mut over) = (self.shared.clone(), Vec::new());
        if !pods.is_empty() {
            // There may be many files.
            let look = tokio::task::spawn_blocking(move || {
                let usage = shared.usage.lock().unwrap_or_else(PoisonError::into_inner).clone();
                let exceeded = |pod: Pod| {
                    let uid = pod.metadata.uid.as_deref().unwrap_or_default();
                    let own = usage.iter().filter(|stats| stats.pod_uid == uid);
                    let layers = own.map(|stats| (stats.name.clone(), stats.disk_bytes)).collect();
                    let used = Used::measure(&pod, &shared.pod_dir(uid), &shared.log_dir(&pod), layers);
                    Some((storage::exceeded(&pod, &used)?, pod))
                };
                pods.into_iter().filter_map(exceeded).collect()
            });
            over = look.await.unwrap_or_default();
        }
        for (message, pod) in &over {
            self.end(pod, message.clone(), IMMEDIATE_GRACE, false, workers);
        }
        !over.is_empty()
    }

    /// Begins logs anew that have grown too large, where the runtime does not do that itself.
    pub(super) async fn rotate_logs(&self) {
        let runtime = &self.shared.runtime;
        if runtime.rotates_logs() {
            return;
        }
        let handles: Vec<PodHandle> = self.shared.pods().values().cloned().collect();
        for handle in handles {
            for (name, container) in handle.containers.iter().filter(|(_, container)| container.running) {
                let path = handle.logs.join(name).join(format!("{}.log", container.attempt));
                if std::fs::metadata(&path).is_ok_and(|meta| meta.len() > logs::MAX_LOG_SIZE)
                    && let Err(error) = self.rotate(&path, &container.id).await
                {
                    self.shared.log(&format!("cannot rotate {}: {error}", path.display()));
                }
            }
        }
    }

    async fn rotate(&self, path: &Path, id: &str) -> Result<(), String> {
        let moved = logs::rotate(path, self.shared.clock.now()).map_err(|error| error.to_string())?;
        if let Err(error) = self.shared.runtime.reopen_log(id).await {
            // The engine still writes to the old file: it gets its name back.
            let _ = std::fs::rename(moved, path);
            return Err(error.to_string());
        }
        Ok(())
    }

    /// Deletes images that nobody uses when the disk that they are on is too full.
    pub(super) async fn collect_images(&self, known: &mut ImageGc, node: &ObjectReference) {
        let (runtime, now) = (&self.shared.runtime, self.shared.clock.now());
        let (Ok(Some(there)), Ok(containers)) = (runtime.images().await, runtime.containers().await) else { return };
        let used: BTreeSet<String> = containers.into_iter().map(|container| container.image).collect();
        known.observe(&there.images, &used, now);
        let signals = machine::signals(&there.place);
        let (capacity, available) = (signals.disk_capacity, signals.disk_available);
        let Some(wanted) = images::to_free(capacity, available) else { return };
        let mut freed = 0;
        for image in known.unused(&there.images, now) {
            if freed >= wanted {
                break;
            }
            match runtime.remove_image(&image.id).await {
                Ok(()) => freed += image.size,
                Err(error) => self.shared.log(&format!("cannot remove image {}: {error}", image.id)),
            }
        }
        if freed < wanted {
            let message = images::not_enough(capacity, available, freed);
            self.shared.recorder.event(node, EventType::Warning, "FreeDiskSpaceFailed", message);
        }
    }
}
