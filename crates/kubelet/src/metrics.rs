//! What pods and nodes use: the data of metrics.k8s.io, of `/stats/summary` and of `/metrics/resource`.

use std::{collections::BTreeMap, fmt::Write as _, sync::PoisonError};

use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;
use serde_json::{Value, json};

use crate::{
    lifecycle::since,
    node::{PodHandle, Shared},
    runtime::ContainerStats,
};

/// What a container uses now.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Usage {
    /// Its name.
    pub name: String,
    /// Thousand-millionths of a processor.
    pub cpu_nano_cores: u64,
    /// Memory in bytes.
    pub memory_bytes: u64,
}

/// Keeps the newest measurement; what is needed of the one before goes into a rate.
pub(crate) fn keep(shared: &Shared, mut stats: Vec<ContainerStats>) {
    let mut kept = shared.usage.lock().unwrap_or_else(PoisonError::into_inner);
    for new in &mut stats {
        let before = kept.iter().find(|old| old.pod_uid == new.pod_uid && old.name == new.name);
        new.cpu_nano_cores = before
            .and_then(|old| {
                let seconds = since(new.at?, old.at?).as_secs_f64();
                let spent = new.cpu_nanos.checked_sub(old.cpu_nanos)?;
                #[expect(
                    clippy::cast_precision_loss,
                    clippy::cast_possible_truncation,
                    clippy::cast_sign_loss,
                    reason = "a rate is an estimate"
                )]
                (seconds > 0.0).then(|| (spent as f64 / seconds) as u64)
            })
            .unwrap_or(new.cpu_nano_cores);
    }
    *kept = stats;
}

impl Shared {
    /// What each container of a pod uses, by the last measurement.
    #[must_use]
    pub fn pod_usage(&self, uid: &str) -> Vec<Usage> {
        let kept = self.usage.lock().unwrap_or_else(PoisonError::into_inner);
        kept.iter()
            .filter(|stats| stats.pod_uid == uid)
            .map(|stats| Usage {
                name: stats.name.clone(),
                cpu_nano_cores: stats.cpu_nano_cores,
                memory_bytes: stats.memory_bytes,
            })
            .collect()
    }

    /// What all pods of the node use together.
    #[must_use]
    pub fn node_usage(&self) -> Usage {
        let kept = self.usage.lock().unwrap_or_else(PoisonError::into_inner);
        let sum = |of: fn(&ContainerStats) -> u64| kept.iter().map(of).sum();
        let (cpu_nano_cores, memory_bytes) = (sum(|stats| stats.cpu_nano_cores), sum(|stats| stats.memory_bytes));
        Usage { name: self.name().to_owned(), cpu_nano_cores, memory_bytes }
    }

    /// `PodMetrics` of metrics.k8s.io for every pod that was measured.
    #[must_use]
    pub fn pod_metrics(&self) -> Vec<Value> {
        let handles: Vec<PodHandle> = self.pods().values().cloned().collect();
        let now = Time(self.clock.now());
        handles
            .iter()
            .filter_map(|handle| {
                let meta = &handle.pod.metadata;
                let usage = self.pod_usage(meta.uid.as_deref()?);
                let containers: Vec<Value> =
                    usage.iter().map(|u| json!({"name": u.name, "usage": resources(u)})).collect();
                (!containers.is_empty()).then(|| {
                    json!({
                        "apiVersion": "metrics.k8s.io/v1beta1", "kind": "PodMetrics",
                        "metadata": {"name": meta.name, "namespace": meta.namespace, "labels": meta.labels,
                                     "creationTimestamp": now},
                        "timestamp": now, "window": "10s", "containers": containers,
                    })
                })
            })
            .collect()
    }

    /// `NodeMetrics` of metrics.k8s.io.
    #[must_use]
    pub fn node_metrics(&self) -> Value {
        let now = Time(self.clock.now());
        json!({
            "apiVersion": "metrics.k8s.io/v1beta1", "kind": "NodeMetrics",
            "metadata": {"name": self.name(), "creationTimestamp": now},
            "timestamp": now, "window": "10s", "usage": resources(&self.node_usage()),
        })
    }

    /// The document of `/stats/summary`.
    #[must_use]
    pub fn summary(&self) -> Value {
        let now = Time(self.clock.now());
        let of = |u: &Usage| {
            json!({
                "cpu": {"time": now, "usageNanoCores": u.cpu_nano_cores},
                "memory": {"time": now, "usageBytes": u.memory_bytes, "workingSetBytes": u.memory_bytes},
            })
        };
        let with_name = |u: &Usage| {
            let mut value = of(u);
            value["name"] = json!(u.name);
            value
        };
        let handles: Vec<PodHandle> = self.pods().values().cloned().collect();
        let pods: Vec<Value> = handles
            .iter()
            .map(|handle| {
                let meta = &handle.pod.metadata;
                let usage = self.pod_usage(meta.uid.as_deref().unwrap_or_default());
                let containers: Vec<Value> = usage.iter().map(with_name).collect();
                json!({"podRef": {"name": meta.name, "namespace": meta.namespace, "uid": meta.uid},
                       "startTime": handle.status.start_time, "containers": containers})
            })
            .collect();
        let mut node = of(&self.node_usage());
        node["nodeName"] = json!(self.name());
        json!({"node": node, "pods": pods})
    }

    /// The text of `/metrics/resource`.
    #[must_use]
    pub fn resource_metrics(&self) -> String {
        let kept = self.usage.lock().unwrap_or_else(PoisonError::into_inner).clone();
        let names: BTreeMap<String, (String, String)> = self
            .pods()
            .iter()
            .map(|(uid, handle)| {
                let meta = &handle.pod.metadata;
                let text = |field: &Option<String>| field.clone().unwrap_or_default();
                (uid.clone(), (text(&meta.namespace), text(&meta.name)))
            })
            .collect();
        let mut text = String::new();
        let mut family = |name: &str, kind: &str, of: &dyn Fn(&ContainerStats) -> String| {
            let _ = writeln!(text, "# TYPE {name} {kind}");
            for stats in &kept {
                if let Some((namespace, pod)) = names.get(&stats.pod_uid) {
                    let container = &stats.name;
                    let labels = format!("container=\"{container}\",namespace=\"{namespace}\",pod=\"{pod}\"");
                    let _ = writeln!(text, "{name}{{{labels}}} {}", of(stats));
                }
            }
        };
        #[expect(clippy::cast_precision_loss, reason = "seconds are told as floating point")]
        let seconds = |stats: &ContainerStats| (stats.cpu_nanos as f64 / 1e9).to_string();
        family("container_cpu_usage_seconds_total", "counter", &seconds);
        family("container_memory_working_set_bytes", "gauge", &|stats| stats.memory_bytes.to_string());
        let usage = self.node_usage();
        let _ = writeln!(
            text,
            "# TYPE node_memory_working_set_bytes gauge\nnode_memory_working_set_bytes {}",
            usage.memory_bytes
        );
        text
    }
}

/// Quantities as metrics.k8s.io has them.
fn resources(usage: &Usage) -> Value {
    json!({"cpu": format!("{}n", usage.cpu_nano_cores), "memory": format!("{}Ki", usage.memory_bytes / 1024)})
}
