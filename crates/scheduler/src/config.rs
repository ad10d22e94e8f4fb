//! KubeSchedulerConfiguration: which plugins are asked, with which weights and arguments.

use std::{collections::HashMap, fmt, sync::Arc, time::Duration};

use capstan_client::Client;
use serde::Deserialize;
use serde_json::Value;

use crate::{
    extender::{Extender, ExtenderConfig, MAX_WEIGHT},
    plugin::{MAX_NODE_SCORE, Plugin, Point},
    plugins,
    pod_info::DEFAULT_SCHEDULER_NAME,
    profile::Profile,
    queue::{DEFAULT_POD_INITIAL_BACKOFF, DEFAULT_POD_MAX_BACKOFF},
};

const API_VERSION: &str = "kubescheduler.config.k8s.io/v1";
const KIND: &str = "KubeSchedulerConfiguration";

/// What is wrong with a configuration, all of it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ConfigError(pub Vec<String>);

impl fmt::Display for ConfigError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0.join("; "))
    }
}

impl std::error::Error for ConfigError {}

impl From<String> for ConfigError {
    fn from(message: String) -> Self {
        ConfigError(vec![message])
    }
}

/// Makes a plugin from its arguments, which are null when there are none.
pub type Factory = fn(&Value) -> Result<Arc<dyn Plugin>, String>;

/// The plugins that configurations can name.
#[derive(Clone, Debug)]
pub struct Registry(HashMap<String, Factory>);

impl Default for Registry {
    fn default() -> Self {
        let mut registry = Registry(HashMap::new());
        for (name, factory) in plugins::FACTORIES {
            registry.register(name, *factory);
        }
        registry
    }
}

impl Registry {
    /// One more plugin, or another one under a known name.
    pub fn register(&mut self, name: &str, factory: Factory) {
        self.0.insert(name.to_owned(), factory);
    }
}

/// All that a scheduler is told beforehand.
#[derive(Clone, Debug)]
pub struct SchedulerConfig {
    /// The profiles, one for each name that pods may ask for.
    pub profiles: Vec<Profile>,
    /// Others who have a say.
    pub extenders: Vec<Extender>,
    /// How long a refused pod waits at first.
    pub pod_initial_backoff: Duration,
    /// How long a refused pod waits at most.
    pub pod_max_backoff: Duration,
}

impl Default for SchedulerConfig {
    fn default() -> Self {
        SchedulerConfig {
            profiles: vec![Profile::default()],
            extenders: Vec::new(),
            pod_initial_backoff: DEFAULT_POD_INITIAL_BACKOFF,
            pod_max_backoff: DEFAULT_POD_MAX_BACKOFF,
        }
    }
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
struct Document {
    api_version: String,
    kind: String,
    #[serde(default)]
    parallelism: Option<i32>,
    #[serde(default)]
    percentage_of_nodes_to_score: Option<i32>,
    #[serde(default)]
    pod_initial_backoff_seconds: Option<i64>,
    #[serde(default)]
    pod_max_backoff_seconds: Option<i64>,
    #[serde(default)]
    profiles: Vec<ProfileDocument>,
    #[serde(default)]
    extenders: Vec<ExtenderConfig>,
    // What the composition root looks after.
    #[serde(default, rename = "leaderElection")]
    _leader_election: Value,
    #[serde(default, rename = "clientConnection")]
    _client_connection: Value,
    #[serde(default, rename = "enableProfiling")]
    _enable_profiling: Value,
    #[serde(default, rename = "enableContentionProfiling")]
    _enable_contention_profiling: Value,
    #[serde(default, rename = "delayCacheUntilActive")]
    _delay_cache_until_active: Value,
}

#[derive(Default, Deserialize)]
#[serde(default, rename_all = "camelCase", deny_unknown_fields)]
struct ProfileDocument {
    scheduler_name: Option<String>,
    percentage_of_nodes_to_score: Option<i32>,
    plugins: PluginsDocument,
    plugin_config: Vec<PluginConfig>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct PluginConfig {
    name: String,
    #[serde(default)]
    args: Value,
}

#[derive(Clone, Default, Deserialize)]
#[serde(default, deny_unknown_fields)]
struct PluginSet {
    enabled: Vec<Enabled>,
    disabled: Vec<Enabled>,
}

#[derive(Clone, Deserialize)]
#[serde(deny_unknown_fields)]
struct Enabled {
    name: String,
    #[serde(default)]
    weight: Option<i64>,
}

#[derive(Default, Deserialize)]
#[serde(default, rename_all = "camelCase", deny_unknown_fields)]
struct PluginsDocument {
    multi_point: PluginSet,
    pre_enqueue: PluginSet,
    queue_sort: PluginSet,
    pre_filter: PluginSet,
    filter: PluginSet,
    post_filter: PluginSet,
    pre_score: PluginSet,
    score: PluginSet,
    reserve: PluginSet,
    permit: PluginSet,
    pre_bind: PluginSet,
    bind: PluginSet,
    post_bind: PluginSet,
}

impl PluginsDocument {
    fn points(&self) -> [(Point, &PluginSet); 12] {
        [
            (Point::PreEnqueue, &self.pre_enqueue),
            (Point::QueueSort, &self.queue_sort),
            (Point::PreFilter, &self.pre_filter),
            (Point::Filter, &self.filter),
            (Point::PostFilter, &self.post_filter),
            (Point::PreScore, &self.pre_score),
            (Point::Score, &self.score),
            (Point::Reserve, &self.reserve),
            (Point::Permit, &self.permit),
            (Point::PreBind, &self.pre_bind),
            (Point::Bind, &self.bind),
            (Point::PostBind, &self.post_bind),
        ]
    }
}

impl PluginSet {
    fn disables(&self, name: &str) -> bool {
        self.disabled.iter().any(|disabled| disabled.name == name || disabled.name == "*")
    }
}

impl SchedulerConfig {
    /// Reads a configuration, as YAML or JSON. `connect` makes the way to an extender.
    ///
    /// # Errors
    /// Says all that is wrong with it.
    pub fn parse(
        text: &[u8],
        registry: &Registry,
        connect: impl Fn(&ExtenderConfig) -> Result<Client, String>,
    ) -> Result<Self, ConfigError> {
        let (value, strict) = capstan_api::yaml::parse_strict(text).map_err(|error| error.to_string())?;
        if !strict.is_empty() {
            return Err(strict.to_string().into());
        }
        let json = serde_json::to_value(&value).map_err(|error| error.to_string())?;
        let document: Document = serde_json::from_value(json).map_err(|error| error.to_string())?;
        if document.api_version != API_VERSION || document.kind != KIND {
            let (version, kind) = (&document.api_version, &document.kind);
            return Err(format!("no kind \"{kind}\" is registered for version \"{version}\"").into());
        }
        let mut errors = document.check();
        let mut config = SchedulerConfig { profiles: Vec::new(), ..SchedulerConfig::default() };
        let seconds = |value: Option<i64>, default| {
            value.and_then(|seconds| u64::try_from(seconds).ok()).map_or(default, Duration::from_secs)
        };
        config.pod_initial_backoff = seconds(document.pod_initial_backoff_seconds, DEFAULT_POD_INITIAL_BACKOFF);
        config.pod_max_backoff = seconds(document.pod_max_backoff_seconds, DEFAULT_POD_MAX_BACKOFF);
        let ignored: Vec<String> = document
            .extenders
            .iter()
            .flat_map(|extender| extender.managed_resources.iter().filter(|resource| resource.ignored_by_scheduler))
            .map(|resource| resource.name.clone())
            .collect();
        let mut profiles = document.profiles;
        if profiles.is_empty() {
            profiles.push(ProfileDocument::default());
        }
        for (at, profile) in profiles.into_iter().enumerate() {
            let percentage = profile.percentage_of_nodes_to_score.or(document.percentage_of_nodes_to_score);
            match profile.build(registry, percentage.unwrap_or(0), &ignored) {
                Ok(profile) => config.profiles.push(profile),
                Err(messages) => errors.extend(messages.into_iter().map(|e| format!("profiles[{at}]: {e}"))),
            }
        }
        for (at, extender) in document.extenders.into_iter().enumerate() {
            let client = connect(&extender);
            match client.and_then(|client| Extender::new(extender, client)) {
                Ok(extender) => config.extenders.push(extender),
                Err(message) => errors.push(format!("extenders[{at}]: {message}")),
            }
        }
        if errors.is_empty() { Ok(config) } else { Err(ConfigError(errors)) }
    }
}

impl Document {
    fn check(&self) -> Vec<String> {
        let mut errors = Vec::new();
        if self.parallelism.is_some_and(|parallelism| parallelism <= 0) {
            errors.push("parallelism: Invalid value: should be an integer value greater than zero".to_owned());
        }
        let mut percentage = |path: String, value: Option<i32>| {
            if value.is_some_and(|value| !(0..=100).contains(&value)) {
                errors
                    .push(format!("{path}: Invalid value: {}: not in valid range [0-100]", value.unwrap_or_default()));
            }
        };
        percentage("percentageOfNodesToScore".to_owned(), self.percentage_of_nodes_to_score);
        for (at, profile) in self.profiles.iter().enumerate() {
            percentage(format!("profiles[{at}].percentageOfNodesToScore"), profile.percentage_of_nodes_to_score);
        }
        let initial = self.pod_initial_backoff_seconds.unwrap_or(1);
        if initial <= 0 {
            errors.push(format!("podInitialBackoffSeconds: Invalid value: {initial}: must be greater than 0"));
        }
        if let Some(max) = self.pod_max_backoff_seconds
            && max < initial
        {
            let message = "must be greater than or equal to PodInitialBackoffSeconds";
            errors.push(format!("podMaxBackoffSeconds: Invalid value: {max}: {message}"));
        }
        let name = |profile: &ProfileDocument| {
            profile.scheduler_name.clone().unwrap_or_else(|| DEFAULT_SCHEDULER_NAME.to_owned())
        };
        for (at, profile) in self.profiles.iter().enumerate() {
            let path = format!("profiles[{at}].schedulerName");
            if name(profile).is_empty() || (self.profiles.len() > 1 && profile.scheduler_name.is_none()) {
                errors.push(format!("{path}: Required value"));
            } else if self.profiles[..at].iter().any(|other| name(other) == name(profile)) {
                errors.push(format!("{path}: Duplicate value: \"{}\"", name(profile)));
            }
        }
        let binders = self.extenders.iter().filter(|extender| !extender.bind_verb.is_empty()).count();
        if binders > 1 {
            errors.push(format!("found {binders} extenders implementing bind, only one is allowed"));
        }
        for (at, extender) in self.extenders.iter().enumerate() {
            if !extender.prioritize_verb.is_empty() && extender.weight <= 0 {
                let message = "must have a positive weight applied to it";
                errors.push(format!("extenders[{at}].weight: Invalid value: {}: {message}", extender.weight));
            }
            if extender.weight > MAX_WEIGHT {
                errors.push(format!("extenders[{at}].weight: Invalid value: {}: too large", extender.weight));
            }
            if extender.url_prefix.is_empty() {
                errors.push(format!("extenders[{at}].urlPrefix: Required value"));
            }
        }
        errors
    }
}

impl ProfileDocument {
    fn build(self, registry: &Registry, percentage: i32, ignored: &[String]) -> Result<Profile, Vec<String>> {
        let mut errors = Vec::new();
        let mut args: HashMap<&str, Value> = HashMap::new();
        for config in &self.plugin_config {
            if !registry.0.contains_key(&config.name) {
                errors.push(format!("pluginConfig: plugin \"{}\" does not exist", config.name));
            } else if args.insert(&config.name, config.args.clone()).is_some() {
                errors.push(format!("pluginConfig: repeated config for plugin {}", config.name));
            }
        }
        if !ignored.is_empty() {
            let fit = args.entry("NodeResourcesFit").or_insert_with(|| serde_json::json!({}));
            if let Some(list) = fit.as_object_mut() {
                let known = list.entry("ignoredResources").or_insert_with(|| serde_json::json!([]));
                known
                    .as_array_mut()
                    .into_iter()
                    .for_each(|known| known.extend(ignored.iter().map(|n| n.clone().into())));
            }
        }
        let mut made: HashMap<String, Arc<dyn Plugin>> = HashMap::new();
        let mut make = |point: &str, name: &str, errors: &mut Vec<String>| -> Option<Arc<dyn Plugin>> {
            if let Some(plugin) = made.get(name) {
                return Some(Arc::clone(plugin));
            }
            let Some(factory) = registry.0.get(name) else {
                errors.push(format!("{point} plugin \"{name}\" does not exist"));
                return None;
            };
            match factory(args.get(name).unwrap_or(&Value::Null)) {
                Ok(plugin) => {
                    made.insert(name.to_owned(), Arc::clone(&plugin));
                    Some(plugin)
                }
                Err(message) => {
                    errors.push(format!("initializing plugin \"{name}\": {message}"));
                    None
                }
            }
        };

        // Those for all phases: the defaults without what is disabled, what is named again in its place, then the rest.
        let custom = &self.plugins.multi_point;
        let mut multi: Vec<(String, i64)> = Vec::new();
        for (plugin, weight) in plugins::defaults() {
            let again = custom.enabled.iter().find(|enabled| enabled.name == plugin.name());
            if again.is_some() || !custom.disables(plugin.name()) {
                let weight = again.map_or(weight, |enabled| enabled.weight.unwrap_or(0));
                multi.push((plugin.name().to_owned(), weight));
            }
        }
        for enabled in &custom.enabled {
            if !multi.iter().any(|(name, _)| *name == enabled.name) {
                multi.push((enabled.name.clone(), enabled.weight.unwrap_or(0)));
            }
        }

        let name = self.scheduler_name.clone().unwrap_or_else(|| DEFAULT_SCHEDULER_NAME.to_owned());
        let mut profile = Profile::new(&name, []);
        profile.percentage_of_nodes_to_score = percentage;
        let mut total: i64 = 0;
        for (point, set) in self.plugins.points() {
            let mut chosen: Vec<(Arc<dyn Plugin>, i64)> = Vec::new();
            // First those of all phases that this phase names again, then the others of all phases, then its own.
            let named = |name: &str| set.enabled.iter().find(|enabled| enabled.name == name);
            for enabled in set.enabled.iter().filter(|enabled| multi.iter().any(|(name, _)| *name == enabled.name)) {
                let plugin = make(&format!("{point:?}"), &enabled.name, &mut errors);
                chosen.extend(plugin.map(|plugin| (plugin, enabled.weight.unwrap_or(0))));
            }
            for (name, weight) in multi.iter().filter(|(name, _)| named(name).is_none() && !set.disables(name)) {
                let plugin = make("MultiPoint", name, &mut errors);
                chosen.extend(plugin.filter(|plugin| plugin.points().contains(&point)).map(|plugin| (plugin, *weight)));
            }
            for enabled in set.enabled.iter().filter(|enabled| !multi.iter().any(|(name, _)| *name == enabled.name)) {
                let plugin = make(&format!("{point:?}"), &enabled.name, &mut errors);
                chosen.extend(plugin.map(|plugin| (plugin, enabled.weight.unwrap_or(0))));
            }
            for (plugin, weight) in chosen {
                if !plugin.points().contains(&point) {
                    errors.push(format!("plugin \"{}\" does not extend {point:?} plugin", plugin.name()));
                    continue;
                }
                let weight = if weight == 0 { 1 } else { weight };
                if point == Point::Score {
                    let sum = weight.checked_mul(MAX_NODE_SCORE).and_then(|most| total.checked_add(most));
                    match sum.filter(|_| (1..=i64::from(i32::MAX)).contains(&weight)) {
                        Some(sum) => total = sum,
                        None => {
                            let name = plugin.name();
                            errors.push(format!("score plugin \"{name}\": weight {weight} is out of range"));
                        }
                    }
                }
                profile.enable(point, plugin, weight);
            }
        }
        errors.dedup();
        if profile.at(Point::QueueSort).count() != 1 {
            errors.push(format!("one queue sort plugin required for profile with scheduler name \"{name}\""));
        }
        if profile.at(Point::Bind).next().is_none() {
            errors.push(format!("at least one bind plugin is needed for profile with scheduler name \"{name}\""));
        }
        if errors.is_empty() { Ok(profile) } else { Err(errors) }
    }
}

#[cfg(test)]
mod tests;
