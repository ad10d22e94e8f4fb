//! Plugins over a small world of stored objects: cases that the real server answered, and some that it cannot be asked.

mod chain;
mod golden;
mod units;

use std::sync::Arc;

use capstan_api::{
    GroupResource, GroupVersionKind, GroupVersionResource, Map, Scope, Status, Str, Time, Value, json,
    mapper::DefaultRESTMapper,
};
use capstan_clock::Ids;
use capstan_storage::Revision;

use super::{Chain, Operation, Parts, Request};
use crate::{
    authorization::{Attributes, Authorizer, Decision, SYSTEM_MASTERS, UserInfo},
    cache::{FieldPaths, Object},
    objects::Objects,
};

pub(super) fn parse(text: &str) -> Map {
    match json::parse(text.as_bytes()).unwrap() {
        Value::Object(map) => map,
        other => panic!("not an object: {other}"),
    }
}

/// What is stored.
#[derive(Clone, Default)]
pub(super) struct World(Vec<(GroupResource, Arc<Object>)>);

impl World {
    pub(super) fn add(&mut self, group: &str, resource: &str, namespace: &str, object: &Value) {
        let name = object.get("metadata").unwrap().get("name").unwrap().as_str().unwrap();
        let key = if namespace.is_empty() { name.to_owned() } else { format!("{namespace}/{name}") };
        let bytes = object.to_string();
        let object = Object::encode(key.as_bytes(), bytes.as_bytes(), Revision(1), &FieldPaths::default()).unwrap();
        self.0.push((GroupResource::new(group, resource), Arc::new(object)));
    }

    /// A world of `group/resource namespace json` each.
    pub(super) fn of(rows: &[(&str, &str, &str)]) -> Self {
        let mut world = World::default();
        for (resource, namespace, object) in rows {
            let (group, resource) = resource.rsplit_once('/').unwrap_or(("", resource));
            world.add(group, resource, namespace, &parse(object).into());
        }
        world
    }
}

impl Objects for World {
    fn get(&self, resource: &GroupResource, namespace: &str, name: &str) -> Option<Arc<Object>> {
        self.list(resource, namespace)
            .into_iter()
            .find(|object| (object.namespace(), object.name()) == (namespace, name))
    }

    fn list(&self, resource: &GroupResource, namespace: &str) -> Vec<Arc<Object>> {
        let is_here = |object: &Object| namespace.is_empty() || object.namespace() == namespace;
        self.0.iter().filter(|(other, object)| other == resource && is_here(object)).map(|(_, o)| o.clone()).collect()
    }
}

/// Allows superusers everything, and nothing to others.
struct Superusers;

impl Authorizer for Superusers {
    fn authorize(&self, attributes: &Attributes<'_>) -> Decision {
        match attributes.user.in_group(SYSTEM_MASTERS) {
            true => Decision::Allow(String::new()),
            false => Decision::NoOpinion(String::new()),
        }
    }
}

/// Always the same, so that all suffixes are `bbbbb`.
#[derive(Debug)]
struct Zeros;

impl Ids for Zeros {
    fn fill(&self, bytes: &mut [u8]) {
        bytes.fill(0);
    }
}

pub(super) fn parts() -> Parts {
    let mut mapper = DefaultRESTMapper::new(Vec::new());
    mapper.add(GroupVersionKind::new("apps", "v1", "Deployment"), Scope::Namespaced);
    Parts { authorizer: Arc::new(Superusers), mapper: Arc::new(mapper), ids: Arc::new(Zeros) }
}

pub(super) fn chain(enable: &[&str]) -> Chain {
    Chain::new(parts().plugins(), enable, &[]).unwrap()
}

/// A write.
#[derive(Clone)]
pub(super) struct Write<'a> {
    pub(super) operation: Operation,
    pub(super) kind: GroupVersionKind,
    pub(super) resource: GroupVersionResource,
    pub(super) subresource: &'a str,
    pub(super) namespace: &'a str,
    pub(super) name: &'a str,
    pub(super) user: UserInfo,
    pub(super) object: Option<Map>,
    pub(super) old: Option<Map>,
}

impl Write<'_> {
    /// What becomes of the new object.
    pub(super) fn run(&self, chain: &Chain, world: &World) -> Result<Map, Status> {
        let (mut object, mut warnings) = (self.object.clone(), Vec::new());
        let mut request = Request {
            operation: self.operation,
            kind: &self.kind,
            resource: &self.resource,
            subresource: self.subresource,
            namespace: self.namespace,
            name: self.name,
            user: &self.user,
            dry_run: false,
            now: Time::from_unix(0, 0),
            object: object.as_mut(),
            old_object: self.old.as_ref(),
            options: None,
            objects: world,
            warnings: &mut warnings,
            annotations: &mut Vec::new(),
        };
        chain.admit(&mut request)?;
        chain.validate(&mut request)?;
        Ok(object.unwrap_or_default())
    }
}

pub(super) fn user<'a>(mut names: impl Iterator<Item = &'a str>) -> UserInfo {
    let name = names.next().unwrap_or_default();
    UserInfo { name: Str::from(name), groups: names.map(Str::from).collect(), ..UserInfo::default() }
}
