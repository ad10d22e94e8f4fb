//! Revisions of templates, kept as ControllerRevisions.

use std::sync::Arc;

use capstan_api::{Resource, object::Object, options::DeleteOptions, selector::Selector};
use capstan_client::{Api, Client, Error, Key, SharedIndexInformer};
use capstan_runtime::ReconcileError;
use k8s_openapi::{
    api::{apps::v1::ControllerRevision, core::v1::PodTemplateSpec},
    apimachinery::pkg::{apis::meta::v1::ObjectMeta, runtime::RawExtension},
};
use serde_json::{Value, json};

use crate::{
    ControllerContext,
    controller_ref::{ControllerRefManager, reference_to},
    hash::{fnv32, safe_encode},
    pods::{expectations::Expectations, template_labels},
    workload::{candidates, index_by_controller},
};

/// The label of pods and revisions that says which revision they are of.
pub(crate) const REVISION_HASH: &str = "controller-revision-hash";
/// The label of revisions that says what hash their data has.
pub(crate) const DATA_HASH: &str = "controller.kubernetes.io/hash";
/// The longest prefix of a name of a revision.
const MAX_PREFIX: usize = 223;

/// The data of a revision: a patch that puts the template in its place.
pub(crate) fn data(template: &PodTemplateSpec) -> Value {
    let mut template = serde_json::to_value(template).unwrap_or_default();
    template["$patch"] = json!("replace");
    // What Go writes even if it is empty.
    if template.get("metadata").is_none() {
        template["metadata"] = json!({});
    }
    for list in ["containers", "initContainers", "ephemeralContainers"] {
        for container in template["spec"][list].as_array_mut().into_iter().flatten() {
            if container.get("resources").is_none() {
                container["resources"] = json!({});
            }
        }
    }
    if let Some(spec) = template["spec"].as_object_mut() {
        spec.retain(|_, value| !value.is_null());
    }
    json!({"spec": {"template": template}})
}

/// The template that a revision has.
pub(crate) fn template(revision: &ControllerRevision) -> Option<PodTemplateSpec> {
    let mut template = revision.data.as_ref()?.0.get("spec")?.get("template")?.clone();
    template.as_object_mut()?.remove("$patch");
    serde_json::from_value(template).ok()
}

/// The hash of the data; `collisions` makes another one of it when the name is taken.
pub(crate) fn hash(data: &Value, collisions: i32) -> String {
    // Go writes these characters escaped.
    let escaped = data.to_string().replace('<', "\\u003c").replace('>', "\\u003e").replace('&', "\\u0026");
    safe_encode(fnv32(&[escaped.as_bytes(), collisions.to_string().as_bytes()]))
}

/// The name of a revision.
pub(crate) fn name(prefix: &str, hash: &str) -> String {
    format!("{}-{hash}", &prefix[..prefix.len().min(MAX_PREFIX)])
}

/// Oldest first.
pub(crate) fn sort(revisions: &mut [ControllerRevision]) {
    revisions.sort_by(|a, b| {
        let key = |r: &ControllerRevision| {
            (r.revision, r.metadata.creation_timestamp.clone().map(|time| time.0), r.metadata.name.clone())
        };
        key(a).cmp(&key(b))
    });
}

/// The next number.
pub(crate) fn next_revision(revisions: &[ControllerRevision]) -> i64 {
    revisions.iter().map(|revision| revision.revision).max().unwrap_or_default() + 1
}

/// A new revision of an owner's template.
pub(crate) fn new<O: Resource + Object>(
    owner: &O,
    template: &PodTemplateSpec,
    number: i64,
    collisions: i32,
) -> ControllerRevision {
    let data = data(template);
    let hash = hash(&data, collisions);
    let mut labels = template_labels(template).clone();
    labels.insert(DATA_HASH.to_owned(), hash.clone());
    ControllerRevision {
        metadata: ObjectMeta {
            name: Some(name(owner.identity().name, &hash)),
            namespace: Some(owner.identity().namespace.to_owned()),
            labels: Some(labels),
            annotations: Some(owner.annotations().clone()).filter(|annotations| !annotations.is_empty()),
            owner_references: Some(vec![reference_to(owner)]),
            ..ObjectMeta::default()
        },
        data: Some(RawExtension(data)),
        revision: number,
    }
}

/// The revisions of owners of one kind: read from the cache, written through the API, and noted.
pub(crate) struct Revisions {
    client: Client,
    cache: SharedIndexInformer<ControllerRevision>,
    expectations: Arc<Expectations>,
}

impl Revisions {
    pub(crate) fn new(context: &ControllerContext, expectations: &Arc<Expectations>) -> Self {
        let cache = context.informers.informer::<ControllerRevision>();
        index_by_controller(&cache);
        Revisions { client: context.client.clone(), cache, expectations: Arc::clone(expectations) }
    }

    pub(crate) fn cache(&self) -> &SharedIndexInformer<ControllerRevision> {
        &self.cache
    }

    pub(crate) fn api(&self, key: &Key) -> Api<ControllerRevision> {
        Api::namespaced(&self.client, key.namespace())
    }

    /// Those of an owner, oldest first; strays that fit are adopted.
    pub(crate) async fn claim<O: Resource + Object>(
        &self,
        owner: &O,
        selector: &Selector,
    ) -> Result<Vec<ControllerRevision>, ReconcileError> {
        let found = candidates(self.cache.indexer(), owner, selector);
        let manager = ControllerRefManager::<O, ControllerRevision>::new(&self.client, owner);
        let found = manager.claim(found, |revision| revision.is_selected(selector)).await?;
        let mut revisions: Vec<ControllerRevision> = found.iter().map(|revision| (**revision).clone()).collect();
        sort(&mut revisions);
        Ok(revisions)
    }

    /// Makes the revision of this template the last, if there is one. Else it has to be made.
    pub(crate) async fn raise(
        &self,
        key: &Key,
        revisions: &mut Vec<ControllerRevision>,
        template: &PodTemplateSpec,
    ) -> Result<bool, Error> {
        let data = data(template);
        let equal = |revision: &ControllerRevision| revision.data.as_ref().is_some_and(|known| known.0 == data);
        let Some(found) = revisions.iter().rposition(equal) else { return Ok(false) };
        if found + 1 < revisions.len() {
            let number = next_revision(revisions);
            let again = ControllerRevision { revision: number, ..revisions.remove(found) };
            revisions.push(self.wrote(key, self.api(key).update(&again).await?));
        }
        Ok(true)
    }

    /// Notes what was written.
    pub(crate) fn wrote(&self, key: &Key, written: ControllerRevision) -> ControllerRevision {
        self.expectations.created(key, &written);
        written
    }

    /// Deletes the first of these.
    pub(crate) async fn delete(&self, key: &Key, dead: &[&ControllerRevision], count: usize) -> Result<(), Error> {
        for revision in dead.iter().take(count) {
            match self.api(key).delete(revision.identity().name, &DeleteOptions::default()).await {
                Err(error) if !error.is_not_found() => return Err(error),
                _ => self.expectations.deleted(key, *revision),
            }
        }
        Ok(())
    }
}

/// Makes a revision, under another name as long as the name is taken by other data. Counts how often that was so.
pub(crate) async fn create(
    api: &Api<ControllerRevision>,
    owner: &str,
    mut revision: ControllerRevision,
    collisions: &mut i32,
) -> Result<ControllerRevision, Error> {
    loop {
        let data = revision.data.clone().map(|data| data.0).unwrap_or_default();
        let new_name = name(owner, &hash(&data, *collisions));
        revision.metadata.name = Some(new_name.clone());
        match api.create(&revision).await {
            Err(error) if error.is_already_exists() => {
                let there = api.get(&new_name).await?;
                if there.data == revision.data {
                    return Ok(there);
                }
                *collisions += 1;
            }
            other => return other,
        }
    }
}
