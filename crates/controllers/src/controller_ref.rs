//! Who controls what: selectors, adoption and release.

use capstan_api::{
    Resource,
    object::{Object, OwnerReference, controller_of},
    selector::{LabelSelector, LabelSelectorRequirement, Selector},
};
use capstan_client::{Api, Client, Error, Patch};
use capstan_runtime::ReconcileError;
use k8s_openapi::apimachinery::pkg::apis::meta::v1 as meta;
use serde_json::json;

/// The selector that an object spells out; none if it makes no sense.
pub(crate) fn selector_of(selector: &meta::LabelSelector) -> Option<Selector> {
    let labels = selector.match_labels.iter().flatten();
    let expressions = selector.match_expressions.iter().flatten();
    let ours = LabelSelector {
        match_labels: labels.map(|(key, value)| (key.as_str().into(), value.as_str().into())).collect(),
        match_expressions: expressions
            .map(|expression| LabelSelectorRequirement {
                key: expression.key.as_str().into(),
                operator: expression.operator.as_str().into(),
                values: expression.values.iter().flatten().map(|value| value.as_str().into()).collect(),
            })
            .collect(),
    };
    ours.to_selector().ok()
}

/// Whether nothing is asked of labels, so that all are selected.
pub(crate) fn selects_all(selector: &meta::LabelSelector) -> bool {
    selector.match_labels.iter().flatten().next().is_none()
        && selector.match_expressions.iter().flatten().next().is_none()
}

/// The reference to whom an object is controlled by, as objects carry it.
pub(crate) fn reference_to<O: Resource>(owner: &O) -> meta::OwnerReference {
    let ours = OwnerReference::controller(owner);
    meta::OwnerReference {
        api_version: ours.api_version,
        kind: ours.kind,
        name: ours.name,
        uid: ours.uid,
        controller: Some(true),
        block_owner_deletion: Some(true),
    }
}

/// The uid of whom an object is controlled by; empty if by nobody.
pub(crate) fn controller_uid<K: Object>(object: &K) -> String {
    controller_of(&object.owners()).map(|reference| reference.uid.clone()).unwrap_or_default()
}

/// What becomes of an object that an owner looks at.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Claim {
    /// It is the owner's already.
    Owned,
    /// It belongs to nobody and fits.
    Adopt,
    /// It is the owner's and does not fit any more.
    Release,
    /// It is none of the owner's business.
    Ignore,
}

/// What an owner that is deleted or not does about an object. Neither adopts or releases while it goes away.
pub(crate) fn claim(controller: &str, owner: &str, fits: bool, owner_deleted: bool, deleted: bool) -> Claim {
    match (controller.is_empty(), controller == owner) {
        (false, true) if fits => Claim::Owned,
        (false, true) if !owner_deleted => Claim::Release,
        (true, _) if fits && !owner_deleted && !deleted => Claim::Adopt,
        _ => Claim::Ignore,
    }
}

/// Adopts and releases objects of one kind for one owner.
pub(crate) struct ControllerRefManager<'a, O, K> {
    /// Whose objects they are.
    owner: &'a O,
    /// Where the owner is.
    owners: Api<O>,
    /// Where the objects are.
    objects: Api<K>,
    /// The finalizers that come and go with the owner.
    finalizers: &'a [&'a str],
}

impl<'a, O: Resource + Object, K: Resource + Object> ControllerRefManager<'a, O, K> {
    /// The usual: objects in the namespace of the owner, without finalizers.
    pub(crate) fn new(client: &Client, owner: &'a O) -> Self {
        let namespace = owner.identity().namespace;
        let (owners, objects) = (Api::namespaced(client, namespace), Api::namespaced(client, namespace));
        ControllerRefManager { owner, owners, objects, finalizers: &[] }
    }

    /// The same, with finalizers that come and go with the owner.
    pub(crate) fn with_finalizers(self, finalizers: &'a [&'a str]) -> Self {
        ControllerRefManager { finalizers, ..self }
    }

    /// The objects that are the owner's, after adopting and releasing what must be.
    ///
    /// # Errors
    /// The first that failed; all are tried.
    pub(crate) async fn claim<T: std::ops::Deref<Target = K>>(
        &self,
        objects: Vec<T>,
        fits: impl Fn(&K) -> bool,
    ) -> Result<Vec<T>, ReconcileError> {
        use capstan_api::object::Metadata as _;
        let owner = self.owner.identity().uid.to_owned();
        let owner_deleted = self.owner.meta().deletion_timestamp().is_some();
        let (mut claimed, mut may_adopt, mut failed) = (Vec::with_capacity(objects.len()), None, None);
        for object in objects {
            let deleted = object.meta().deletion_timestamp().is_some();
            let outcome = match claim(&controller_uid(&*object), &owner, fits(&object), owner_deleted, deleted) {
                Claim::Owned => Ok(true),
                Claim::Ignore => Ok(false),
                Claim::Release => self.release(&object).await.map(|()| false),
                Claim::Adopt => {
                    if may_adopt.is_none() {
                        may_adopt = Some(self.recheck().await);
                    }
                    match may_adopt.as_ref() {
                        Some(Err(error)) => Err(self.cannot_adopt(&object, error)),
                        _ => self.adopt(&object).await,
                    }
                }
            };
            match outcome {
                Ok(true) => claimed.push(object),
                Ok(false) => {}
                Err(error) => failed = failed.or(Some(error)),
            }
        }
        failed.map_or(Ok(claimed), Err)
    }

    fn cannot_adopt(&self, object: &K, error: &str) -> ReconcileError {
        let of = object.identity();
        ReconcileError::Retry(format!(
            "can't adopt {} {}/{} ({}): {error}",
            K::gvk().kind,
            of.namespace,
            of.name,
            of.uid
        ))
    }

    /// Asks the server, not the cache, whether the owner is still there: who goes away must not adopt.
    async fn recheck(&self) -> Result<(), String> {
        use capstan_api::object::Metadata as _;
        let known = self.owner.identity();
        let fresh =
            self.owners.get(known.name).await.map_err(|error| format!("can't recheck DeletionTimestamp: {error}"))?;
        let (place, found) = (format!("{}/{}", known.namespace, known.name), fresh.identity());
        if found.uid != known.uid {
            let gone =
                format!("original {} {place} is gone: got uid {}, wanted {}", O::gvk().kind, found.uid, known.uid);
            return Err(format!("can't recheck DeletionTimestamp: {gone}"));
        }
        match fresh.meta().deletion_timestamp() {
            Some(at) => Err(format!("{place} has just been deleted at {at}")),
            None => Ok(()),
        }
    }

    async fn adopt(&self, object: &K) -> Result<bool, ReconcileError> {
        let of = object.identity();
        let mut metadata = json!({"uid": of.uid, "ownerReferences": [reference_to(self.owner)]});
        if !self.finalizers.is_empty() {
            metadata["finalizers"] = json!(self.finalizers);
        }
        match self.objects.patch(of.name, &Patch::Strategic(json!({ "metadata": metadata }))).await {
            Ok(_) => Ok(true),
            Err(error) if error.is_not_found() => Ok(false),
            Err(error) => Err(error.into()),
        }
    }

    async fn release(&self, object: &K) -> Result<(), ReconcileError> {
        let of = object.identity();
        let gone = json!({"$patch": "delete", "uid": self.owner.identity().uid});
        let mut metadata = json!({"uid": of.uid, "ownerReferences": [gone]});
        if !self.finalizers.is_empty() {
            metadata["$deleteFromPrimitiveList/finalizers"] = json!(self.finalizers);
        }
        match self.objects.patch(of.name, &Patch::Strategic(json!({ "metadata": metadata }))).await {
            // Who is gone, or is another one by now, needs no release.
            Err(error) if !error.is_not_found() && !error.is_invalid() => Err(error.into()),
            _ => Ok(()),
        }
    }
}

/// Whether a write failed because the namespace is going away, so that trying again makes no sense.
pub(crate) fn is_namespace_terminating(error: &Error) -> bool {
    error.status().is_some_and(|status| status.cause("NamespaceTerminating").is_some())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn claims() {
        for (controller, fits, owner_deleted, deleted, expected) in [
            ("me", true, false, false, Claim::Owned),
            ("me", true, true, true, Claim::Owned),
            ("me", false, false, false, Claim::Release),
            ("me", false, true, false, Claim::Ignore),
            ("other", true, false, false, Claim::Ignore),
            ("", true, false, false, Claim::Adopt),
            ("", true, true, false, Claim::Ignore),
            ("", true, false, true, Claim::Ignore),
            ("", false, false, false, Claim::Ignore),
        ] {
            assert_eq!(claim(controller, "me", fits, owner_deleted, deleted), expected, "{controller} {fits}");
        }
    }
}
