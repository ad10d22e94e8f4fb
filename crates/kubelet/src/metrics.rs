//! What containers, pods and the machine use: the documents of `/stats/summary`, `/metrics/resource` and
//! `/metrics/cadvisor`.

use std::{collections::BTreeMap, fmt::Write as _, sync::PoisonError};

use capstan_clock::Timestamp;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;
use serde_json::{Value, json};

use crate::{
    lifecycle::since,
    node::{
        PodHandle, Shared,
        machine::{self, MACHINE},
    },
    runtime::ContainerStats,
};

/// Keeps the newest measurement; what is needed of the one before goes into a rate.
pub(crate) fn keep(shared: &Shared, mut stats: Vec<ContainerStats>) {
    let mut kept = shared.usage.lock().unwrap_or_else(PoisonError::into_inner);
    for new in &mut stats {
        let before = kept.iter().find(|old| old.pod_uid == new.pod_uid && old.name == new.name);
        new.cpu_nano_cores = before.and_then(|old| rate(old, new)).or(new.cpu_nano_cores);
    }
    *kept = stats;
}

/// Thousand-millionths of a processor between two measurements; nothing when the counter was begun anew.
fn rate(old: &ContainerStats, new: &ContainerStats) -> Option<u64> {
    let seconds = since(new.at?, old.at?).as_secs_f64();
    let spent = new.cpu_nanos.checked_sub(old.cpu_nanos)?;
    #[expect(
        clippy::cast_precision_loss,
        clippy::cast_possible_truncation,
        clippy::cast_sign_loss,
        reason = "a rate is an estimate"
    )]
    (seconds > 0.0).then(|| (spent as f64 / seconds) as u64)
}

/// One container with what was measured of it.
struct Measured<'a> {
    stats: &'a ContainerStats,
    pod: &'a PodHandle,
}

impl Measured<'_> {
    fn started(&self) -> Option<Timestamp> {
        let status = &self.pod.status;
        let all = [&status.init_container_statuses, &status.container_statuses, &status.ephemeral_container_statuses];
        let mut all = all.into_iter().flatten().flatten();
        let status = all.find(|status| status.name == self.stats.name)?;
        Some(status.state.as_ref()?.running.as_ref()?.started_at.as_ref()?.0)
    }

    fn labels(&self) -> String {
        format!("container=\"{}\",{}", self.stats.name, pod_labels(self.pod))
    }
}

fn pod_labels(pod: &PodHandle) -> String {
    let meta = &pod.pod.metadata;
    let text = |field: &Option<String>| field.clone().unwrap_or_default();
    format!("namespace=\"{}\",pod=\"{}\"", text(&meta.namespace), text(&meta.name))
}

/// What `/stats/summary` says of one measurement.
fn numbers(stats: &ContainerStats) -> Value {
    let at = stats.at.map(Time);
    let mut cpu = json!({"time": at, "usageCoreNanoSeconds": stats.cpu_nanos});
    if let Some(cores) = stats.cpu_nano_cores {
        cpu["usageNanoCores"] = json!(cores);
    }
    json!({"cpu": cpu,
           "memory": {"time": at, "usageBytes": stats.memory_bytes, "workingSetBytes": stats.memory_bytes}})
}

/// All containers of a pod together.
fn sum(of: &[&ContainerStats]) -> ContainerStats {
    ContainerStats {
        cpu_nanos: of.iter().map(|stats| stats.cpu_nanos).sum(),
        cpu_nano_cores: of.iter().map(|stats| stats.cpu_nano_cores).sum(),
        memory_bytes: of.iter().map(|stats| stats.memory_bytes).sum(),
        processes: of.iter().map(|stats| stats.processes).sum(),
        at: of.iter().filter_map(|stats| stats.at).max(),
        ..ContainerStats::default()
    }
}

impl Shared {
    fn measured(&self) -> (Vec<ContainerStats>, BTreeMap<String, PodHandle>) {
        let kept = self.usage.lock().unwrap_or_else(PoisonError::into_inner).clone();
        (kept, self.pods().clone())
    }

    /// The document of `/stats/summary`.
    #[must_use]
    pub fn summary(&self) -> Value {
        let (kept, handles) = self.measured();
        let pods = handles.iter().map(|(uid, handle)| {
            let of: Vec<&ContainerStats> = kept.iter().filter(|stats| stats.pod_uid == *uid).collect();
            let containers = of.iter().map(|stats| {
                let mut value = numbers(stats);
                value["name"] = json!(stats.name);
                value["startTime"] = json!(Measured { stats, pod: handle }.started().map(Time));
                value
            });
            let meta = &handle.pod.metadata;
            let containers: Vec<Value> = containers.collect();
            let total = sum(&of);
            let mut pod = numbers(&total);
            pod["process_stats"] = json!({"process_count": total.processes});
            pod["podRef"] = json!({"name": meta.name, "namespace": meta.namespace, "uid": meta.uid});
            pod["startTime"] = json!(handle.status.start_time);
            pod["containers"] = json!(containers);
            pod
        });
        let pods: Vec<Value> = pods.collect();
        let machine = kept.iter().find(|stats| stats.pod_uid == MACHINE).cloned().unwrap_or_default();
        let signals = machine::signals(&self.root);
        let mut node = numbers(&machine);
        node["nodeName"] = json!(self.name());
        node["memory"]["availableBytes"] = json!(signals.memory_available);
        node["fs"] = json!({"time": machine.at.map(Time), "availableBytes": signals.disk_available,
            "capacityBytes": signals.disk_capacity,
            "usedBytes": signals.disk_capacity.saturating_sub(signals.disk_available)});
        json!({"node": node, "pods": pods})
    }

    /// The text of `/metrics/resource`.
    #[must_use]
    pub fn resource_metrics(&self) -> String {
        let (kept, handles) = self.measured();
        let mut text = Text::default();
        let containers: Vec<Measured<'_>> =
            kept.iter().filter_map(|stats| Some(Measured { stats, pod: handles.get(&stats.pod_uid)? })).collect();
        text.family("container_cpu_usage_seconds_total", "counter");
        for c in &containers {
            text.sample(&c.labels(), seconds(c.stats.cpu_nanos), c.stats.at);
        }
        text.family("container_memory_working_set_bytes", "gauge");
        for c in &containers {
            text.sample(&c.labels(), c.stats.memory_bytes, c.stats.at);
        }
        text.family("container_start_time_seconds", "gauge");
        for c in &containers {
            if let Some(started) = c.started() {
                text.sample(&c.labels(), started.as_second(), None);
            }
        }
        let machine = kept.iter().find(|stats| stats.pod_uid == MACHINE);
        text.family("node_cpu_usage_seconds_total", "counter");
        if let Some(stats) = machine {
            text.sample("", seconds(stats.cpu_nanos), stats.at);
        }
        text.family("node_memory_working_set_bytes", "gauge");
        if let Some(stats) = machine {
            text.sample("", stats.memory_bytes, stats.at);
        }
        let pods: Vec<(&PodHandle, ContainerStats)> = handles
            .iter()
            .map(|(uid, handle)| {
                let of: Vec<&ContainerStats> = kept.iter().filter(|stats| stats.pod_uid == *uid).collect();
                (handle, sum(&of))
            })
            .filter(|(_, stats)| stats.at.is_some())
            .collect();
        text.family("pod_cpu_usage_seconds_total", "counter");
        for (handle, stats) in &pods {
            text.sample(&pod_labels(handle), seconds(stats.cpu_nanos), stats.at);
        }
        text.family("pod_memory_working_set_bytes", "gauge");
        for (handle, stats) in &pods {
            text.sample(&pod_labels(handle), stats.memory_bytes, stats.at);
        }
        text.family("resource_scrape_error", "gauge");
        text.sample("", 0, None);
        text.out
    }

    /// The text of `/metrics/cadvisor`: what is asked of it most.
    #[must_use]
    pub fn cadvisor_metrics(&self) -> String {
        let (kept, handles) = self.measured();
        let mut text = Text::default();
        let containers = || kept.iter().filter_map(|stats| Some(Measured { stats, pod: handles.get(&stats.pod_uid)? }));
        let labels = |c: &Measured<'_>| {
            let id = c.pod.containers.get(&c.stats.name).map_or("", |container| container.id.as_str());
            format!("container=\"{}\",id=\"/{id}\",name=\"{id}\",{}", c.stats.name, pod_labels(c.pod))
        };
        text.family("container_cpu_usage_seconds_total", "counter");
        for c in containers() {
            text.sample(&labels(&c), seconds(c.stats.cpu_nanos), c.stats.at);
        }
        for name in ["container_memory_usage_bytes", "container_memory_working_set_bytes"] {
            text.family(name, "gauge");
            for c in containers() {
                text.sample(&labels(&c), c.stats.memory_bytes, c.stats.at);
            }
        }
        text.family("machine_memory_bytes", "gauge");
        text.sample("", machine::signals(&self.root).memory_capacity, None);
        text.out
    }
}

/// Seconds are told as floating point.
fn seconds(nanos: u64) -> f64 {
    #[expect(clippy::cast_precision_loss, reason = "what is lost is below what was measured")]
    let nanos = nanos as f64;
    nanos / 1e9
}

/// Prometheus' text.
#[derive(Default)]
struct Text {
    out: String,
    name: &'static str,
}

impl Text {
    fn family(&mut self, name: &'static str, kind: &str) {
        self.name = name;
        // Writing into memory does not fail.
        let _ = writeln!(self.out, "# TYPE {name} {kind}");
    }

    fn sample(&mut self, labels: &str, value: impl std::fmt::Display, at: Option<Timestamp>) {
        let labels = if labels.is_empty() { String::new() } else { format!("{{{labels}}}") };
        let at = at.map_or_else(String::new, |at| format!(" {}", at.as_millisecond()));
        let _ = writeln!(self.out, "{}{labels} {value}{at}", self.name);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rates_need_two_measurements_of_one_counter() {
        let at = |second, cpu_nanos| ContainerStats {
            cpu_nanos,
            at: Timestamp::from_second(second).ok(),
            ..ContainerStats::default()
        };
        assert_eq!(rate(&at(10, 1_000_000_000), &at(20, 6_000_000_000)), Some(500_000_000));
        assert_eq!(rate(&at(10, 6_000_000_000), &at(20, 1_000_000_000)), None, "it was restarted");
        assert_eq!(rate(&at(10, 0), &at(10, 5)), None, "no time has passed");
    }
}
