//! Roles and bindings, decoded from the objects of `rbac.authorization.k8s.io/v1`.
//!
//! The objects were validated before they were stored, so what is of the wrong type here counts as not there: that can
//! only take permissions away.

use capstan_api::{Array, Map, Str, Value, go};

/// The API group of roles and bindings.
pub const GROUP: &str = "rbac.authorization.k8s.io";

/// Permissions: the verbs, on resources or on paths.
#[derive(Clone, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub struct PolicyRule {
    /// The verbs; `*` is all of them.
    pub verbs: Vec<Str>,
    /// The groups of the resources; `*` is all of them.
    pub api_groups: Vec<Str>,
    /// The resources: `pods`, `pods/log`, `*/log`, or `*` for all with their parts.
    pub resources: Vec<Str>,
    /// The names that the rule is limited to; none is no limit.
    pub resource_names: Vec<Str>,
    /// Paths that are no resource's; `*` at the end stands for anything.
    pub non_resource_urls: Vec<Str>,
}

/// The fields of a rule by name, in the order in which messages show them.
type Field = (&'static str, &'static str, fn(&PolicyRule) -> &Vec<Str>);
const FIELDS: [Field; 5] = [
    ("apiGroups", "APIGroups", |rule| &rule.api_groups),
    ("resources", "Resources", |rule| &rule.resources),
    ("nonResourceURLs", "NonResourceURLs", |rule| &rule.non_resource_urls),
    ("resourceNames", "ResourceNames", |rule| &rule.resource_names),
    ("verbs", "Verbs", |rule| &rule.verbs),
];

impl PolicyRule {
    /// Reads one rule.
    #[must_use]
    pub fn from_value(value: &Value) -> Self {
        PolicyRule {
            verbs: strings(value, "verbs"),
            api_groups: strings(value, "apiGroups"),
            resources: strings(value, "resources"),
            resource_names: strings(value, "resourceNames"),
            non_resource_urls: strings(value, "nonResourceURLs"),
        }
    }

    /// Reads the `rules` of a Role or ClusterRole.
    #[must_use]
    pub fn list_of(role: &Value) -> Vec<Self> {
        items(role, "rules").map(Self::from_value).collect()
    }

    /// The rule as objects carry it: empty fields left out, the verbs always there.
    #[must_use]
    pub fn to_value(&self) -> Value {
        let mut map = Map::new();
        for (name, _, of) in FIELDS {
            let texts = of(self);
            if !texts.is_empty() || name == "verbs" {
                map.insert(name, texts.iter().map(|text| Value::from(text.clone())).collect::<Array>());
            }
        }
        map.into()
    }

    /// The rule as messages show it: `{APIGroups:[""], Resources:["pods"], Verbs:["get"]}`.
    #[must_use]
    pub fn compact_string(&self) -> String {
        let parts = FIELDS.map(|(_, name, of)| match &of(self)[..] {
            [] => String::new(),
            texts => format!("{name}:{}", quoted(texts)),
        });
        let parts: Vec<&str> = parts.iter().map(String::as_str).filter(|part| !part.is_empty()).collect();
        format!("{{{}}}", parts.join(", "))
    }
}

/// A list of strings as Go's `%q` prints it.
pub(super) fn quoted(texts: &[Str]) -> String {
    let texts: Vec<String> = texts.iter().map(|text| go::quote(text)).collect();
    format!("[{}]", texts.join(" "))
}

/// The role that a binding grants.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct RoleRef {
    /// The API group of the role.
    pub api_group: Str,
    /// `Role` or `ClusterRole`.
    pub kind: Str,
    /// The role's name.
    pub name: Str,
}

impl RoleRef {
    /// Reads the `roleRef` of a binding.
    #[must_use]
    pub fn of(binding: &Value) -> Self {
        let text = |field| binding.get("roleRef").map_or_else(Str::default, |role_ref| string(role_ref, field));
        RoleRef { api_group: text("apiGroup"), kind: text("kind"), name: text("name") }
    }
}

/// To whom a binding grants its role.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Subject {
    /// `User`, `Group` or `ServiceAccount`.
    pub kind: Str,
    /// The API group of the kind.
    pub api_group: Str,
    /// The name.
    pub name: Str,
    /// The namespace of a service account; if empty, that of the binding.
    pub namespace: Str,
}

impl Subject {
    /// Reads one subject.
    #[must_use]
    pub fn from_value(value: &Value) -> Self {
        let text = |field| string(value, field);
        Subject { kind: text("kind"), api_group: text("apiGroup"), name: text("name"), namespace: text("namespace") }
    }
}

/// A RoleBinding, or with an empty namespace a ClusterRoleBinding.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Binding {
    /// The namespace, empty for a ClusterRoleBinding.
    pub namespace: Str,
    /// The name.
    pub name: Str,
    /// The role that it grants.
    pub role_ref: RoleRef,
    /// To whom.
    pub subjects: Vec<Subject>,
}

impl Binding {
    /// Reads a binding.
    #[must_use]
    pub fn from_value(value: &Value) -> Self {
        let metadata = value.get("metadata").unwrap_or(&Value::Null);
        Binding {
            namespace: string(metadata, "namespace"),
            name: string(metadata, "name"),
            role_ref: RoleRef::of(value),
            subjects: items(value, "subjects").map(Subject::from_value).collect(),
        }
    }
}

pub(super) fn string(value: &Value, field: &str) -> Str {
    value.get(field).and_then(Value::as_str).map_or_else(Str::default, Str::from)
}

pub(super) fn items<'a>(value: &'a Value, field: &str) -> impl Iterator<Item = &'a Value> {
    value.get(field).and_then(Value::as_array).into_iter().flatten()
}

fn strings(value: &Value, field: &str) -> Vec<Str> {
    items(value, field).filter_map(Value::as_str).map(Str::from).collect()
}
