//! What each kind of object uses of a quota.

use capstan_api::{GroupResource, Map, Str, Time};

use super::{
    super::{Operation, Request, resources::ResourceList},
    count::{self, CLAIM_RESOURCES, STORAGE_CLASS_INFIX, count_name, number},
    devices, pods,
    scopes::Selector,
};
use crate::objects::Objects;

/// What is there beside the object.
pub(super) struct Context<'a> {
    pub(super) objects: &'a dyn Objects,
    pub(super) namespace: &'a str,
    pub(super) now: Time,
}

/// How the objects of one resource are counted.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Evaluator {
    Pods,
    Services,
    PersistentVolumeClaims,
    ResourceClaims,
    /// Only their number, under these names.
    Count(Vec<Str>),
}

/// What is not counted at all.
const IGNORED: [(&str, &str); 10] = [
    ("", "bindings"),
    ("", "componentstatuses"),
    ("", "events"),
    ("authentication.k8s.io", "selfsubjectreviews"),
    ("authentication.k8s.io", "tokenreviews"),
    ("authorization.k8s.io", "localsubjectaccessreviews"),
    ("authorization.k8s.io", "selfsubjectaccessreviews"),
    ("authorization.k8s.io", "selfsubjectrulesreviews"),
    ("authorization.k8s.io", "subjectaccessreviews"),
    ("events.k8s.io", "events"),
];

/// What is also counted under its plain name.
pub(super) const ALIASED: [&str; 4] = ["configmaps", "replicationcontrollers", "resourcequotas", "secrets"];

impl Evaluator {
    pub(super) fn of(resource: &GroupResource) -> Option<Self> {
        let named = (&*resource.group, &*resource.resource);
        Some(match named {
            _ if IGNORED.contains(&named) => return None,
            ("", "pods") => Evaluator::Pods,
            ("", "services") => Evaluator::Services,
            ("", "persistentvolumeclaims") => Evaluator::PersistentVolumeClaims,
            ("resource.k8s.io", "resourceclaims") => Evaluator::ResourceClaims,
            (group, name) => {
                let alias = (group.is_empty() && ALIASED.contains(&name)).then(|| Str::from(name));
                Evaluator::Count([count_name(resource)].into_iter().chain(alias).collect())
            }
        })
    }

    /// Whether the request can change what is used.
    pub(super) fn handles(&self, request: &Request<'_>) -> bool {
        let (create, update) = (request.operation == Operation::Create, request.operation == Operation::Update);
        match (self, request.subresource) {
            (Evaluator::Pods, "resize") => update,
            (Evaluator::Pods, "") => {
                let terminates = |pod: Option<&Map>| pod.is_some_and(pods::is_terminating);
                create || (update && terminates(request.object.as_deref()) != terminates(request.old_object))
            }
            (Evaluator::PersistentVolumeClaims, "status") => update,
            (Evaluator::Count(_), "") => create,
            (Evaluator::Services | Evaluator::PersistentVolumeClaims | Evaluator::ResourceClaims, "") => {
                create || update
            }
            _ => false,
        }
    }

    /// The names among these that objects of this kind use.
    pub(super) fn matching<'a>(&self, context: &Context<'_>, names: impl Iterator<Item = &'a Str>) -> Vec<Str> {
        let is_claim = |name: &str| {
            let plain = name.split_once(STORAGE_CLASS_INFIX).map_or(name, |(_, plain)| plain);
            name == "count/persistentvolumeclaims" || CLAIM_RESOURCES.contains(&plain)
        };
        match self {
            Evaluator::Pods => names.filter(|name| pods::is_resource(name)).cloned().collect(),
            Evaluator::Services => {
                let known = count::service(&Map::new());
                names.filter(|name| known.contains_key(*name)).cloned().collect()
            }
            Evaluator::PersistentVolumeClaims => names.filter(|name| is_claim(name)).cloned().collect(),
            Evaluator::ResourceClaims => devices::matching(context, names),
            Evaluator::Count(own) => names.filter(|name| own.contains(name)).cloned().collect(),
        }
    }

    pub(super) fn matches_scope(&self, selector: &Selector<'_>, object: &Map) -> bool {
        match self {
            Evaluator::Pods => pods::matches_scope(selector, object),
            Evaluator::PersistentVolumeClaims => count::claim_matches(selector, object),
            _ => false,
        }
    }

    /// What the object must say but does not, when there is a quota for these.
    pub(super) fn missing(&self, restricted: &[Str], object: &Map) -> Option<String> {
        if *self == Evaluator::Pods { pods::missing(restricted, object) } else { None }
    }

    pub(super) fn usage(&self, context: &Context<'_>, object: &Map) -> ResourceList {
        match self {
            Evaluator::Pods => pods::usage(object, context.now),
            Evaluator::Services => count::service(object),
            Evaluator::PersistentVolumeClaims => count::claim(object),
            Evaluator::ResourceClaims => devices::usage(context, object),
            Evaluator::Count(names) => names.iter().map(|name| (name.clone(), number(1))).collect(),
        }
    }
}
