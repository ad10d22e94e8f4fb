//! `clusterrole-aggregation-controller`: roles that are made of others have their rules.
//!
//! Capstan's server does the same as part of a write, by the same rule and in the same order, so there is nothing to do
//! here then.

use std::sync::Arc;

use capstan_api::selector::{LabelSelector, Selector};
use capstan_client::{Api, BoxFuture, Client, HandlerFuncs, Key, Lister};
use capstan_runtime::{Action, Controller, ReconcileError, Reconciler};
use k8s_openapi::api::rbac::v1::{ClusterRole, PolicyRule};
use serde_json::json;

use crate::{
    ControllerContext,
    drive::{drive, filled},
};

const MANAGER: &str = "clusterrole-aggregation-controller";
const WORKERS: usize = 5;

pub(crate) fn run(context: &ControllerContext) -> BoxFuture<'static, ()> {
    let roles = context.informers.informer::<ClusterRole>();
    let aggregator = Aggregator { client: context.client.clone(), roles: roles.lister() };
    let controller = Controller::new(aggregator, Arc::clone(&context.clock)).max_concurrent_reconciles(WORKERS);
    let (queue, lister) = (controller.queue().clone(), roles.lister());
    // Any role may be part of any other.
    let all = move || {
        for role in lister.list(&Selector::default()) {
            if role.aggregation_rule.is_some() {
                queue.add(Key::of(&*role));
            }
        }
    };
    let (update, delete) = (all.clone(), all.clone());
    roles.add_event_handler(
        HandlerFuncs::<ClusterRole>::new()
            .on_add(move |_, _| all())
            .on_update(move |old, new| {
                if (&old.rules, &old.aggregation_rule, &old.metadata.labels)
                    != (&new.rules, &new.aggregation_rule, &new.metadata.labels)
                {
                    update();
                }
            })
            .on_delete(move |_| delete()),
    );
    drive(context, "ClusterRoleAggregator", vec![filled(&roles)], controller)
}

/// Lists that are empty and those that are not there are the same.
fn normal(rule: &PolicyRule) -> PolicyRule {
    let list = |list: &Option<Vec<String>>| list.clone().filter(|list| !list.is_empty());
    PolicyRule {
        api_groups: list(&rule.api_groups),
        non_resource_urls: list(&rule.non_resource_urls),
        resource_names: list(&rule.resource_names),
        resources: list(&rule.resources),
        verbs: rule.verbs.clone(),
    }
}

/// The rules of a role that is made of others, each once, by selector and name.
fn rules(role: &ClusterRole, all: &[Arc<ClusterRole>]) -> Result<Vec<PolicyRule>, String> {
    let selectors = role.aggregation_rule.iter().flat_map(|rule| rule.cluster_role_selectors.iter().flatten());
    let mut rules: Vec<PolicyRule> = Vec::new();
    for selector in selectors {
        let selector = serde_json::to_value(selector).and_then(serde_json::from_value::<LabelSelector>);
        let selector = selector.map_err(|error| error.to_string())?.to_selector()?;
        for part in all.iter().filter(|part| part.metadata.name != role.metadata.name) {
            if !selector.matches(&part.metadata.labels.clone().unwrap_or_default()) {
                continue;
            }
            for rule in part.rules.iter().flatten().map(normal) {
                if !rules.contains(&rule) {
                    rules.push(rule);
                }
            }
        }
    }
    Ok(rules)
}

struct Aggregator {
    client: Client,
    roles: Lister<ClusterRole>,
}

impl Reconciler for Aggregator {
    async fn reconcile(&self, key: Key) -> Result<Action, ReconcileError> {
        let Some(role) = self.roles.get(&key).filter(|role| role.aggregation_rule.is_some()) else {
            return Ok(Action::Done);
        };
        let wanted = rules(&role, &self.roles.list(&Selector::default())).map_err(ReconcileError::Terminal)?;
        let own: Vec<_> = role.rules.iter().flatten().map(normal).collect();
        if own == wanted {
            return Ok(Action::Done);
        }
        let role = json!({
            "apiVersion": "rbac.authorization.k8s.io/v1", "kind": "ClusterRole",
            "metadata": {"name": key.name()}, "rules": wanted,
        });
        Api::<ClusterRole>::all(&self.client).apply(key.name(), MANAGER, true, &role).await?;
        Ok(Action::Done)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn parts() {
        let role = |name: &str, label: &str, verbs: &[&str]| -> Arc<ClusterRole> {
            let rules: Vec<_> = verbs.iter().map(|verb| json!({"verbs": [verb], "resources": []})).collect();
            let role = json!({"metadata": {"name": name, "labels": {label: "true"}}, "rules": rules});
            Arc::new(serde_json::from_value(role).unwrap())
        };
        let all = [role("a", "x", &["get", "list"]), role("b", "x", &["list", "watch"]), role("c", "y", &["delete"])];
        let selector = |label: &str| json!({"matchLabels": {label: "true"}});
        let whole = json!({"metadata": {"name": "a"}, "aggregationRule": {"clusterRoleSelectors": [selector("y"), selector("x")]}});
        let whole: ClusterRole = serde_json::from_value(whole).unwrap();
        let verbs: Vec<_> = rules(&whole, &all).unwrap().iter().map(|rule| rule.verbs.join(",")).collect();
        assert_eq!(verbs, ["delete", "list", "watch"], "not of itself");
        let mut other = whole;
        other.metadata.name = Some("z".to_owned());
        let verbs: Vec<_> = rules(&other, &all).unwrap().iter().map(|rule| rule.verbs.join(",")).collect();
        assert_eq!(verbs, ["delete", "get", "list", "watch"]);
    }
}
