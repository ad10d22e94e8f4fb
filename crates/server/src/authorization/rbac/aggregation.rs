//! ClusterRoles that are made of others, chosen by label.

use std::collections::BTreeSet;

use capstan_api::{Map, Value, selector::LabelSelector};

use super::{
    PolicyRule,
    policy::{items, string},
};

/// The role with the rules that its `aggregationRule` gathers from `all` ClusterRoles, or nothing if it has them
/// already or does not aggregate.
///
/// # Errors
/// Says what is wrong with a selector.
pub fn aggregate_rules<'a>(role: &Value, all: impl IntoIterator<Item = &'a Value>) -> Result<Option<Value>, String> {
    let Some(rule) = role.get("aggregationRule").filter(|rule| !rule.is_null()) else { return Ok(None) };
    let name = |role: &Value| string(role.get("metadata").unwrap_or(&Value::Null), "name");
    let own = name(role);
    let mut others: Vec<&Value> = all.into_iter().filter(|other| name(other) != own).collect();
    others.sort_by_cached_key(|other| name(other));

    let none = Map::new();
    let (mut gathered, mut seen) = (Vec::new(), BTreeSet::new());
    for selector in items(rule, "clusterRoleSelectors") {
        let selector = LabelSelector::from_map(selector.as_object().unwrap_or(&none)).to_selector()?;
        for other in &others {
            let labels = other.get("metadata").and_then(|metadata| metadata.get("labels")).and_then(Value::as_object);
            if !selector.matches(labels.unwrap_or(&none)) {
                continue;
            }
            gathered.extend(PolicyRule::list_of(other).into_iter().filter(|rule| seen.insert(rule.clone())));
        }
    }
    if gathered == PolicyRule::list_of(role) {
        return Ok(None);
    }
    let mut role = role.clone();
    if let Some(object) = role.as_object_mut() {
        object.insert("rules", gathered.iter().map(PolicyRule::to_value).collect::<Vec<_>>());
    }
    Ok(Some(role))
}
