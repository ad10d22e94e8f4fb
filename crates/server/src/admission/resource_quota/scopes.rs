//! Which objects a quota is about, beyond their kind.

use capstan_api::{Map, Value};

use crate::validation::read::{at, list, objects, text};

/// One scope that an object must be in.
pub(super) struct Selector<'a> {
    pub(super) scope: &'a str,
    operator: &'a str,
    values: Vec<&'a str>,
}

/// The scopes of a quota, of both fields that have some.
pub(super) fn of_quota(quota: &Map) -> Vec<Selector<'_>> {
    let spec = at(quota, "spec");
    let plain = list(spec, "scopes").iter().filter_map(Value::as_str);
    let plain = plain.map(|scope| Selector { scope, operator: "Exists", values: Vec::new() });
    let expressions = objects(at(spec, "scopeSelector"), "matchExpressions").map(|(_, expression)| Selector {
        scope: text(expression, "scopeName"),
        operator: text(expression, "operator"),
        values: list(expression, "values").iter().filter_map(Value::as_str).collect(),
    });
    plain.chain(expressions).collect()
}

impl Selector<'_> {
    /// Whether a value, or that there is none, is what the selector asks for.
    pub(super) fn admits(&self, value: Option<&str>) -> bool {
        let is_in = || value.is_some_and(|value| self.values.contains(&value));
        match self.operator {
            "Exists" => value.is_some(),
            "DoesNotExist" => value.is_none(),
            "In" => is_in(),
            "NotIn" => !is_in(),
            _ => false,
        }
    }
}
