//! A plugin of one's own: it ranks nodes by a label, so that pods go to the node with the largest number in it.
//!
//! `cargo run -p capstan-scheduler --example label_rank` decides for one pod and three nodes, without a server. To run
//! it on one, register the plugin, name it in a configuration and hand that to the scheduler.

use std::{error::Error, sync::Arc};

use capstan_clock::OsIds;
use capstan_scheduler::{
    Registry, SchedulerConfig,
    cache::Slot,
    core::{Core, Outcome},
    node_info::NodeInfo,
    plugin::{Cycle, Plugin, Point, Score, normalize_by_max},
    pod_info::PodInfo,
};
use k8s_openapi::api::core::v1::{Node, Pod};

/// Ranks nodes by the number in a label.
#[derive(Debug)]
struct LabelRank {
    label: String,
}

#[derive(Debug)]
struct Rank(String);

impl Score for Rank {
    fn score(&self, _cycle: Cycle<'_>, node: &NodeInfo) -> i64 {
        node.labels().get(&self.0).and_then(|value| value.parse().ok()).unwrap_or(0)
    }

    fn normalize(&self, _slots: &[Slot], scores: &mut [i64]) {
        normalize_by_max(scores, false);
    }
}

impl Plugin for LabelRank {
    fn name(&self) -> &'static str {
        "LabelRank"
    }

    fn points(&self) -> &'static [Point] {
        &[Point::PreScore, Point::Score]
    }

    // Nothing of the pod is looked at, so what is worked out for one holds for all.
    fn by_class(&self) -> bool {
        true
    }

    fn pre_score(&self, _cycle: Cycle<'_>) -> Option<Box<dyn Score>> {
        Some(Box::new(Rank(self.label.clone())))
    }
}

const CONFIG: &str = "
apiVersion: kubescheduler.config.k8s.io/v1
kind: KubeSchedulerConfiguration
profiles:
- plugins: {score: {disabled: [{name: '*'}], enabled: [{name: LabelRank, weight: 10}]}}
  pluginConfig: [{name: LabelRank, args: {label: example.com/rank}}]
";

fn main() -> Result<(), Box<dyn Error>> {
    let mut registry = Registry::default();
    registry.register("LabelRank", |args| {
        let label = args.get("label").and_then(|label| label.as_str()).ok_or("label is needed")?;
        Ok(Arc::new(LabelRank { label: label.to_owned() }))
    });
    let config = SchedulerConfig::parse(CONFIG.as_bytes(), &registry, |_| Err("no extenders here".to_owned()))?;

    let mut core = Core::new(Arc::new(OsIds));
    for (name, rank) in [("small", 1), ("large", 7), ("middling", 4)] {
        let node: Node = serde_json::from_value(serde_json::json!({
            "metadata": {"name": name, "labels": {"example.com/rank": rank.to_string()}},
            "status": {"allocatable": {"cpu": "4", "pods": "10"}},
        }))?;
        core.cache.put_node(Arc::new(node));
    }
    let pod = serde_json::json!({"metadata": {"name": "web"}, "spec": {"containers": [{"name": "web"}]}});
    let pod: Pod = serde_json::from_value(pod)?;
    let outcome = core.schedule(&config.profiles[0], &Arc::new(PodInfo::new(Arc::new(pod))));
    let Outcome::Placed { slot, .. } = outcome else { return Err(format!("{outcome:?}").into()) };
    assert_eq!(core.cache.node(slot).name(), "large");
    println!("web goes to {}", core.cache.node(slot).name());
    Ok(())
}
