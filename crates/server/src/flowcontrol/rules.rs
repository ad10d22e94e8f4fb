//! The rules of a flow schema: who, and what of.

use capstan_api::{Map, Str, Value};

use crate::{
    authorization::{Attributes, UserInfo},
    validation::read,
};

/// Stands for all names.
const ALL: &str = "*";

/// Matches requests of one of the subjects that one of the other rules is about.
pub(super) struct Rule {
    subjects: Vec<Subject>,
    resources: Vec<ResourceRule>,
    paths: Vec<PathRule>,
}

enum Subject {
    User(Str),
    Group(Str),
    /// Namespace and name.
    ServiceAccount(Str, Str),
}

struct ResourceRule {
    verbs: Vec<Str>,
    groups: Vec<Str>,
    resources: Vec<Str>,
    namespaces: Vec<Str>,
    cluster_scope: bool,
}

struct PathRule {
    verbs: Vec<Str>,
    paths: Vec<Str>,
}

fn texts(map: &Map, key: &str) -> Vec<Str> {
    read::list(map, key).iter().filter_map(Value::as_str).map(Str::from).collect()
}

/// Whether a list has a text, or all of them.
fn has(list: &[Str], text: &str) -> bool {
    matches!(list, [one] if one == ALL) || list.iter().any(|own| own == text)
}

impl Rule {
    pub(super) fn read(rule: &Map) -> Self {
        let resources = read::objects(rule, "resourceRules").map(|(_, rule)| ResourceRule {
            verbs: texts(rule, "verbs"),
            groups: texts(rule, "apiGroups"),
            resources: texts(rule, "resources"),
            namespaces: texts(rule, "namespaces"),
            cluster_scope: read::flag(rule, "clusterScope"),
        });
        let paths = read::objects(rule, "nonResourceRules")
            .map(|(_, rule)| PathRule { verbs: texts(rule, "verbs"), paths: texts(rule, "nonResourceURLs") });
        Rule {
            subjects: read::objects(rule, "subjects").filter_map(|(_, subject)| Subject::read(subject)).collect(),
            resources: resources.collect(),
            paths: paths.collect(),
        }
    }

    pub(super) fn matches(&self, request: &Attributes<'_>) -> bool {
        self.subjects.iter().any(|subject| subject.matches(request.user))
            && if request.is_resource {
                self.resources.iter().any(|rule| rule.matches(request))
            } else {
                self.paths.iter().any(|rule| has(&rule.verbs, request.verb) && rule.has_path(request.path))
            }
    }
}

impl Subject {
    fn read(subject: &Map) -> Option<Self> {
        let text = |of: &Map, key: &str| Str::from(read::text(of, key));
        match read::text(subject, "kind") {
            "User" => Some(Subject::User(text(read::object(subject, "user")?, "name"))),
            "Group" => Some(Subject::Group(text(read::object(subject, "group")?, "name"))),
            "ServiceAccount" => {
                let account = read::object(subject, "serviceAccount")?;
                Some(Subject::ServiceAccount(text(account, "namespace"), text(account, "name")))
            }
            _ => None,
        }
    }

    fn matches(&self, user: &UserInfo) -> bool {
        match self {
            Subject::User(name) => name == ALL || *name == user.name,
            Subject::Group(name) => name == ALL || user.in_group(name),
            Subject::ServiceAccount(namespace, name) => {
                let rest = user.name.strip_prefix("system:serviceaccount:");
                let rest = rest.and_then(|rest| rest.strip_prefix(namespace.as_str())?.strip_prefix(':'));
                rest.is_some_and(|own| name == ALL || own == name)
            }
        }
    }
}

impl ResourceRule {
    fn matches(&self, request: &Attributes<'_>) -> bool {
        has(&self.verbs, request.verb)
            && self.has_resource(request.resource, request.subresource)
            && has(&self.groups, request.group)
            && if request.namespace.is_empty() { self.cluster_scope } else { has(&self.namespaces, request.namespace) }
    }

    fn has_resource(&self, resource: &str, subresource: &str) -> bool {
        if subresource.is_empty() {
            return has(&self.resources, resource);
        }
        let is = |own: &Str| own.strip_prefix(resource).and_then(|rest| rest.strip_prefix('/')) == Some(subresource);
        matches!(&self.resources[..], [one] if one == ALL) || self.resources.iter().any(is)
    }
}

impl PathRule {
    /// Whether a path is one of these or below one.
    fn has_path(&self, path: &str) -> bool {
        self.paths.iter().any(|own| {
            let prefix = own.strip_suffix('*').unwrap_or(own);
            let below = |rest: &str| prefix.ends_with('/') || rest.starts_with('/');
            own == ALL || own == path || path.strip_prefix(prefix).is_some_and(below)
        })
    }
}
