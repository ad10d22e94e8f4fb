//! The end of a definition: its instances go first.

use std::{sync::Arc, time::Duration};

use capstan_api::{Map, Status, Str, Time, Value, builtin};
use capstan_storage::{Op, limits::MAX_COMMIT_OPS};

use super::conditions::{self, Condition};
use crate::{
    cache::{ListQuery, Object, ReadAt, WatchQuery, WatchStart},
    registry::{
        Registry, Stored, encode,
        live::{Refused, cache_status, parse},
        paths,
    },
};

/// What holds a definition until its instances are gone.
pub(crate) const FINALIZER: &str = "customresourcecleanup.apiextensions.k8s.io";

/// How long instances have before the definition says that they are still there.
const PATIENCE: Duration = Duration::from_secs(60);

/// How often what is left is looked at when nothing seems to happen.
const LOOK: Duration = Duration::from_secs(5);

/// What the first delete of a definition makes of it: it stays until its instances are gone.
pub(crate) fn mark(crd: &mut Map, now: Time) {
    paths::set(crd, "metadata.deletionTimestamp", now.to_string());
    let mut finalizers = paths::items(crd, "metadata.finalizers").to_vec();
    if !finalizers.iter().any(|finalizer| finalizer.as_str() == Some(FINALIZER)) {
        finalizers.push(FINALIZER.into());
    }
    paths::set(crd, "metadata.finalizers", finalizers);
    let words = "CustomResourceDefinition marked for deletion; CustomResource deletion will begin soon";
    Condition::new("Terminating", "True", "InstanceDeletionPending", words).set(crd, now);
}

/// A definition that goes.
pub(super) struct Deletion {
    pub(super) registry: Arc<Registry>,
    pub(super) definitions: Arc<Stored>,
    pub(super) name: Str,
    pub(super) uid: Str,
    /// Its instances, if it was ever served.
    pub(super) instances: Option<Arc<Stored>>,
}

impl Deletion {
    /// Deletes the instances, waits until they are gone, and lets go of the definition. What goes wrong is tried again
    /// by whoever called.
    pub(super) async fn run(self) {
        drop(self.attempt().await);
    }

    async fn attempt(&self) -> Result<(), Status> {
        let words = "CustomResource deletion is in progress";
        let condition = Condition::new("Terminating", "True", "InstanceDeletionInProgress", words);
        let Some(crd) = self.write(&condition, false).await? else { return Ok(()) };
        let (group, plural) = (paths::text(&crd, "spec.group"), paths::text(&crd, "spec.names.plural"));
        let overlaps = builtin::kinds().any(|kind| kind.group_version.group == *group && kind.resource == *plural);
        let instances = self.instances.as_ref().filter(|_| conditions::is_true(&crd, "Established"));
        let done = match instances {
            _ if overlaps => Condition::new(
                "Terminating",
                "False",
                "OverlappingBuiltInResource",
                "instances overlap with built-in resources in storage",
            ),
            None => Condition::new("Terminating", "False", "NeverEstablished", "resource was never established"),
            Some(instances) => {
                self.delete_instances(instances).await?;
                Condition::new("Terminating", "False", "InstanceDeletionCompleted", "removed all instances")
            }
        };
        self.write(&done, true).await?;
        Ok(())
    }

    /// Writes a condition of the definition, and at the end lets go of it. Returns the definition, if it is still the
    /// one.
    async fn write(&self, condition: &Condition, release: bool) -> Result<Option<Map>, Status> {
        loop {
            let Some(object) = self.definitions.cache.peek("", &self.name) else { return Ok(None) };
            if object.uid != self.uid || !object.finalizers.iter().any(|finalizer| finalizer == FINALIZER) {
                return Ok(None);
            }
            let mut crd = parse(&object.json)?;
            condition.set(&mut crd, self.registry.now());
            paths::remove(&mut crd, "metadata.resourceVersion");
            let key = self.definitions.key("", &self.name);
            let mut op = Op::update(key.clone(), encode(&crd), object.revision);
            if release {
                let mut finalizers = paths::items(&crd, "metadata.finalizers").to_vec();
                finalizers.retain(|finalizer| finalizer.as_str() != Some(FINALIZER));
                op = if finalizers.is_empty() {
                    Op::delete(key).expecting(object.revision)
                } else {
                    paths::set(&mut crd, "metadata.finalizers", finalizers);
                    Op::update(key, encode(&crd), object.revision)
                };
            }
            match self.registry.commit(vec![op], &[&self.definitions]).await {
                Ok(_) => return Ok(Some(crd)),
                Err(Refused::Conflict(conflict)) => {
                    self.definitions.cache.catch_up(conflict.revision).await.map_err(cache_status)?;
                }
                Err(Refused::Status(status)) => return Err(status),
            }
        }
    }

    async fn delete_instances(&self, instances: &Stored) -> Result<(), Status> {
        instances.filled().await.map_err(cache_status)?;
        let clock = &self.registry.clock;
        let began = clock.monotonic();
        let mut told = false;
        loop {
            let query = ListQuery { at: ReadAt::Consistent, ..ListQuery::default() };
            let page = instances.cache.list(&query).await.map_err(cache_status)?;
            if page.items.is_empty() {
                return Ok(());
            }
            let start = WatchStart::After(page.revision);
            let mut watcher = instances.cache.watch(WatchQuery::all(start)).await.ok();
            let ops: Vec<Op> = page
                .items
                .iter()
                .filter_map(|object| self.op(instances, object).transpose())
                .collect::<Result<_, _>>()?;
            let waits = ops.is_empty();
            for chunk in ops.chunks(MAX_COMMIT_OPS) {
                match self.registry.commit(chunk.to_vec(), &[instances]).await {
                    // Who writes at the same time has made something else of it, which is deleted in the next round.
                    Ok(_) | Err(Refused::Conflict(_)) => {}
                    Err(Refused::Status(status)) => return Err(status),
                }
            }
            if !waits {
                continue;
            }
            if !told && clock.monotonic().since(began) >= PATIENCE {
                told = true;
                let words = "could not confirm zero CustomResources remaining: context deadline exceeded";
                let condition = Condition::new("Terminating", "True", "InstanceDeletionCheck", words);
                self.write(&condition, false).await?;
            }
            match &mut watcher {
                Some(watcher) => tokio::select! {
                    _ = watcher.next() => {}
                    () = clock.sleep(LOOK) => {}
                },
                None => clock.sleep(LOOK).await,
            }
        }
    }

    /// What deletes an instance, or asks those who hold it to let go.
    fn op(&self, instances: &Stored, object: &Object) -> Result<Option<Op>, Status> {
        let key = instances.key(object.namespace(), object.name());
        if object.finalizers.is_empty() {
            return Ok(Some(Op::delete(key).expecting(object.revision)));
        }
        if object.deletion_timestamp.is_some() {
            return Ok(None);
        }
        let mut instance = parse(&object.json)?;
        paths::remove(&mut instance, "metadata.resourceVersion");
        let generation = paths::get(&instance, "metadata.generation").and_then(Value::as_i64).unwrap_or_default();
        paths::set(&mut instance, "metadata.generation", generation.saturating_add(1));
        paths::set(&mut instance, "metadata.deletionTimestamp", self.registry.now().to_string());
        paths::set(&mut instance, "metadata.deletionGracePeriodSeconds", 0);
        Ok(Some(Op::update(key, encode(&instance), object.revision)))
    }
}
