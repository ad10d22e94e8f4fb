//! A set of plugins under a scheduler's name.

use std::sync::Arc;

use crate::{
    plugin::{Plugin, Point, PreemptionArgs},
    pod_info::DEFAULT_SCHEDULER_NAME,
};

/// Plugins, in the order in which they are asked, for pods that ask for a scheduler by name.
#[derive(Clone, Debug)]
pub struct Profile {
    /// The name that pods ask for.
    pub scheduler_name: String,
    /// How many of the nodes are ranked, in percent; 0 lets the size of the cluster decide.
    pub percentage_of_nodes_to_score: i32,
    plugins: Vec<(Point, Arc<dyn Plugin>, i64)>,
    by_class: bool,
}

impl Profile {
    /// From plugins that are asked in all their phases, with the weights of their scores.
    pub fn new(name: &str, plugins: impl IntoIterator<Item = (Arc<dyn Plugin>, i64)>) -> Self {
        let mut profile = Profile {
            scheduler_name: name.to_owned(),
            percentage_of_nodes_to_score: 0,
            plugins: Vec::new(),
            by_class: true,
        };
        for (plugin, weight) in plugins {
            for point in plugin.points() {
                profile.enable(*point, Arc::clone(&plugin), weight);
            }
        }
        profile
    }

    /// Asks a plugin in one more phase, after the others.
    pub fn enable(&mut self, point: Point, plugin: Arc<dyn Plugin>, weight: i64) {
        let decides = matches!(point, Point::PreFilter | Point::Filter | Point::PreScore | Point::Score);
        self.by_class &= !decides || plugin.by_class();
        self.plugins.push((point, plugin, weight));
    }

    /// The plugins of a phase, with their weights.
    pub fn at(&self, point: Point) -> impl Iterator<Item = (&Arc<dyn Plugin>, i64)> {
        self.plugins.iter().filter(move |(at, ..)| *at == point).map(|(_, plugin, weight)| (plugin, *weight))
    }

    /// The plugins that filter, once each.
    pub(crate) fn filters(&self) -> Vec<&Arc<dyn Plugin>> {
        let mut found: Vec<&Arc<dyn Plugin>> = Vec::new();
        for (point, plugin, _) in &self.plugins {
            let filters = matches!(point, Point::PreFilter | Point::Filter);
            if filters && !found.iter().any(|known| known.name() == plugin.name()) {
                found.push(plugin);
            }
        }
        found
    }

    /// Whether what is worked out for one pod can be kept for others of its class.
    pub(crate) fn by_class(&self) -> bool {
        self.by_class
    }

    /// How room is made, if it is.
    #[must_use]
    pub fn preemption(&self) -> Option<PreemptionArgs> {
        self.at(Point::PostFilter).find_map(|(plugin, _)| plugin.preemption())
    }

    /// A plugin by name.
    #[must_use]
    pub fn plugin(&self, name: &str) -> Option<&Arc<dyn Plugin>> {
        self.plugins.iter().find(|(_, plugin, _)| plugin.name() == name).map(|(_, plugin, _)| plugin)
    }
}

impl Default for Profile {
    fn default() -> Self {
        Profile::new(DEFAULT_SCHEDULER_NAME, crate::plugins::defaults())
    }
}
