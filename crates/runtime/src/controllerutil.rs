//! What nearly every reconciler does to objects: owners, finalizers, writing only what differs.

use std::fmt;

use capstan_api::{
    GroupVersion, Map, Value,
    object::{Accessor, Object, OwnerReference, controller_of},
    patch::merge,
    value::to_value,
};
use capstan_client::{Api, Error, Patch};
use serde::Serialize;

/// Why an object cannot be owned as asked.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum OwnerError {
    /// Another one controls it, and only one can.
    AlreadyOwned {
        /// The namespace of the object.
        namespace: String,
        /// The name of the object.
        name: String,
        /// Who controls it.
        owner: Box<OwnerReference>,
    },
    /// An owner in a namespace cannot own what is in none.
    ClusterScoped {
        /// The namespace of the owner.
        owner: String,
    },
    /// An owner in a namespace cannot own what is in another.
    CrossNamespace {
        /// The namespace of the owner.
        owner: String,
        /// The namespace of the object.
        object: String,
    },
}

impl fmt::Display for OwnerError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            OwnerError::AlreadyOwned { namespace, name, owner } => write!(
                f,
                "Object {namespace}/{name} is already owned by another {} controller {}",
                owner.kind, owner.name
            ),
            OwnerError::ClusterScoped { owner } => {
                write!(f, "cluster-scoped resource must not have a namespace-scoped owner, owner's namespace {owner}")
            }
            OwnerError::CrossNamespace { owner, object } => write!(
                f,
                "cross-namespace owner references are disallowed, owner's namespace {owner}, obj's namespace {object}"
            ),
        }
    }
}

impl std::error::Error for OwnerError {}

/// Makes `owner` the one that controls `controlled`: when it is deleted, the object goes too, and changes of the object
/// concern it.
///
/// # Errors
/// Another one controls the object, or the owner is in a namespace where the object is not.
pub fn set_controller_reference<O: Accessor, K: Accessor>(owner: &O, controlled: &mut K) -> Result<(), OwnerError> {
    let reference = reference_to(owner, controlled)?;
    let reference = OwnerReference { controller: Some(true), block_owner_deletion: Some(true), ..reference };
    if let Some(other) = controller_of(&controlled.owners()).filter(|other| !refer_same(other, &reference)) {
        let identity = controlled.identity();
        return Err(OwnerError::AlreadyOwned {
            namespace: identity.namespace.to_owned(),
            name: identity.name.to_owned(),
            owner: Box::new(other.clone()),
        });
    }
    upsert(controlled, reference);
    Ok(())
}

/// Makes `owner` one of those that own `object`: when all of them are deleted, the object goes too.
///
/// # Errors
/// The owner is in a namespace where the object is not.
pub fn set_owner_reference<O: Accessor, K: Accessor>(owner: &O, object: &mut K) -> Result<(), OwnerError> {
    let reference = reference_to(owner, object)?;
    upsert(object, reference);
    Ok(())
}

/// `owner` no longer owns `object`. Whether it did.
pub fn remove_owner_reference<O: Accessor, K: Accessor>(owner: &O, object: &mut K) -> bool {
    let reference = OwnerReference::new(&owner.object_gvk(), owner.identity().name, owner.identity().uid);
    let mut owners = object.owners().into_owned();
    let Some(at) = owners.iter().position(|other| refer_same(other, &reference)) else { return false };
    owners.remove(at);
    object.set_object_owners(owners);
    true
}

/// Whether `owner` owns `object`.
pub fn has_owner_reference<O: Accessor, K: Accessor>(owner: &O, object: &K) -> bool {
    let reference = OwnerReference::new(&owner.object_gvk(), owner.identity().name, owner.identity().uid);
    object.owners().iter().any(|other| refer_same(other, &reference))
}

/// Whether somebody controls `object`.
pub fn has_controller_reference<K: Object>(object: &K) -> bool {
    controller_of(&object.owners()).is_some()
}

fn reference_to<O: Accessor, K: Object>(owner: &O, object: &K) -> Result<OwnerReference, OwnerError> {
    let (of, to) = (owner.identity(), object.identity());
    if !of.namespace.is_empty() && to.namespace.is_empty() {
        return Err(OwnerError::ClusterScoped { owner: of.namespace.to_owned() });
    }
    if !of.namespace.is_empty() && of.namespace != to.namespace {
        let (owner, object) = (of.namespace.to_owned(), to.namespace.to_owned());
        return Err(OwnerError::CrossNamespace { owner, object });
    }
    Ok(OwnerReference::new(&owner.object_gvk(), of.name, of.uid))
}

/// By group, kind and name: neither the version nor the uid counts.
fn refer_same(a: &OwnerReference, b: &OwnerReference) -> bool {
    let group =
        |reference: &OwnerReference| reference.api_version.parse::<GroupVersion>().map(|found| found.group).ok();
    group(a).is_some() && group(a) == group(b) && a.kind == b.kind && a.name == b.name
}

fn upsert<K: Accessor>(object: &mut K, reference: OwnerReference) {
    let mut owners = object.owners().into_owned();
    match owners.iter_mut().find(|other| refer_same(other, &reference)) {
        Some(known) => *known = reference,
        None => owners.push(reference),
    }
    object.set_object_owners(owners);
}

/// The object stays until the finalizer is removed, once it is deleted. Whether that is new.
pub fn add_finalizer<K: Accessor>(object: &mut K, finalizer: &str) -> bool {
    if contains_finalizer(object, finalizer) {
        return false;
    }
    let mut finalizers = object.object_finalizers().into_owned();
    finalizers.push(finalizer.to_owned());
    object.set_object_finalizers(finalizers);
    true
}

/// This finalizer no longer keeps the object. Whether it did.
pub fn remove_finalizer<K: Accessor>(object: &mut K, finalizer: &str) -> bool {
    if !contains_finalizer(object, finalizer) {
        return false;
    }
    let mut finalizers = object.object_finalizers().into_owned();
    finalizers.retain(|other| other != finalizer);
    object.set_object_finalizers(finalizers);
    true
}

/// Whether this finalizer keeps the object.
pub fn contains_finalizer<K: Accessor>(object: &K, finalizer: &str) -> bool {
    object.object_finalizers().iter().any(|other| other == finalizer)
}

/// What became of an object.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum OperationResult {
    /// It is as it was.
    Unchanged,
    /// It is new.
    Created,
    /// It was changed.
    Updated,
    /// It and its status were changed.
    UpdatedStatus,
    /// Its status was changed.
    UpdatedStatusOnly,
}

impl fmt::Display for OperationResult {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            OperationResult::Unchanged => "unchanged",
            OperationResult::Created => "created",
            OperationResult::Updated => "updated",
            OperationResult::UpdatedStatus => "updatedStatus",
            OperationResult::UpdatedStatusOnly => "updatedStatusOnly",
        })
    }
}

/// Makes an object as `mutate` wants it: creates it if it is not there, writes it if it differs.
///
/// `object` tells the name, and becomes what the server has. It is `mutate` that sets all that is wanted, as what was
/// in `object` is forgotten if there is one on the server.
///
/// # Errors
/// `mutate` fails or gives the object another name, or the server refuses. What fails with a conflict is to be tried
/// again, as [`retry_on_conflict`](crate::retry_on_conflict) does.
pub async fn create_or_update<K: Object + Serialize + Clone + PartialEq>(
    api: &Api<K>,
    object: &mut K,
    mut mutate: impl FnMut(&mut K) -> Result<(), Error>,
) -> Result<OperationResult, Error> {
    let Some(existing) = api.get_opt(object.identity().name).await? else {
        mutated(object, &mut mutate)?;
        *object = api.create(object).await?;
        return Ok(OperationResult::Created);
    };
    *object = existing.clone();
    mutated(object, &mut mutate)?;
    if *object == existing {
        return Ok(OperationResult::Unchanged);
    }
    *object = api.update(object).await?;
    Ok(OperationResult::Updated)
}

/// Makes an object as `mutate` wants it: creates it if it is not there, and sends only what differs if it is, so that
/// what others change meanwhile stays. The status, if that differs, is sent by itself to where it is written.
///
/// `object` and `mutate` are as in [`create_or_update`]. A new object's status is not written.
///
/// # Errors
/// `mutate` fails or gives the object another name, or the server refuses.
pub async fn create_or_patch<K: Object + Serialize>(
    api: &Api<K>,
    object: &mut K,
    mut mutate: impl FnMut(&mut K) -> Result<(), Error>,
) -> Result<OperationResult, Error> {
    let Some(existing) = api.get_opt(object.identity().name).await? else {
        mutated(object, &mut mutate)?;
        *object = api.create(object).await?;
        return Ok(OperationResult::Created);
    };
    let (before, status_before) = parts(&existing)?;
    *object = existing;
    mutated(object, &mut mutate)?;
    let (after, status_after) = parts(object)?;
    let name = object.identity().name.to_owned();
    let (patch, status) = (merge::diff(&before, &after), merge::diff(&status_before, &status_after));
    if !patch.is_empty() {
        *object = api.patch(&name, &Patch::Merge(Value::Object(patch.clone()))).await?;
    }
    if !status.is_empty() {
        *object = api.patch_status(&name, &Patch::Merge(Value::Object(status.clone()))).await?;
    }
    Ok(match (patch.is_empty(), status.is_empty()) {
        (true, true) => OperationResult::Unchanged,
        (false, true) => OperationResult::Updated,
        (false, false) => OperationResult::UpdatedStatus,
        (true, false) => OperationResult::UpdatedStatusOnly,
    })
}

/// Has the server make an object as `manager` wants it, by server-side apply: what `object` says is owned by `manager`
/// from now on, taken from others if need be, and what it said before and says no more goes. Who wants to be told of
/// conflicts instead calls [`Api::apply`].
///
/// # Errors
/// The server refuses or cannot be reached.
pub async fn apply<K: Object + Serialize>(api: &Api<K>, manager: &str, object: &K) -> Result<K, Error> {
    let mut wanted = content(object)?;
    if let Some(metadata) = wanted.get_mut("metadata").and_then(Value::as_object_mut) {
        // What only the server knows is not wanted by anybody, and the server refuses an apply that carries it.
        for field in ["managedFields", "resourceVersion", "uid", "creationTimestamp", "generation"] {
            metadata.remove(field);
        }
    }
    wanted.remove("status");
    api.apply(object.identity().name, manager, true, Value::Object(wanted)).await
}

fn mutated<K: Object>(object: &mut K, mutate: &mut impl FnMut(&mut K) -> Result<(), Error>) -> Result<(), Error> {
    let identity = object.identity();
    let (namespace, name) = (identity.namespace.to_owned(), identity.name.to_owned());
    mutate(object)?;
    let identity = object.identity();
    if (identity.namespace, identity.name) != (&*namespace, &*name) {
        return Err(Error::Decode("MutateFn cannot mutate object name and/or object namespace".to_owned()));
    }
    Ok(())
}

fn content<K: Serialize>(object: &K) -> Result<Map, Error> {
    match to_value(object).map_err(|error| Error::Decode(error.to_string()))? {
        Value::Object(map) => Ok(map),
        other => Err(Error::Decode(format!("expected an object and not a {}", other.type_name()))),
    }
}

/// An object without its status, and one with nothing but the status.
fn parts<K: Serialize>(object: &K) -> Result<(Map, Map), Error> {
    let mut rest = content(object)?;
    let status = rest.remove("status").map(|status| ("status".into(), status));
    Ok((rest, status.into_iter().collect()))
}

#[cfg(test)]
mod tests {
    use capstan_api::{GroupVersionResource, Unstructured};

    use super::*;

    fn object(kind: &str, namespace: &str, name: &str) -> Unstructured {
        let mut object =
            Unstructured::decode(format!(r#"{{"apiVersion":"apps/v1","kind":"{kind}"}}"#).as_bytes()).unwrap();
        object.set_namespace(namespace);
        object.set_name(name);
        object.set_uid("u");
        object
    }

    #[test]
    fn owners() {
        fn check(owner: &Unstructured, object: &mut Unstructured, expected: &str) {
            let found =
                set_controller_reference(owner, object).map_or_else(|error| error.to_string(), |()| "ok".into());
            assert_eq!(found, expected);
        }
        let owner = object("Deployment", "ns", "web");
        let mut owned = object("ReplicaSet", "ns", "web-1");
        check(&owner, &mut owned, "ok");
        check(&owner, &mut owned, "ok");
        assert_eq!(owned.owner_references().len(), 1);
        assert!(has_owner_reference(&owner, &owned) && has_controller_reference(&owned));
        check(
            &object("Deployment", "ns", "other"),
            &mut owned,
            "Object ns/web-1 is already owned by another Deployment controller web",
        );
        check(
            &owner,
            &mut object("Node", "", "n"),
            "cluster-scoped resource must not have a namespace-scoped owner, owner's namespace ns",
        );
        check(
            &owner,
            &mut object("ReplicaSet", "b", "n"),
            "cross-namespace owner references are disallowed, owner's namespace ns, obj's namespace b",
        );
        check(&object("Node", "", "n"), &mut object("ReplicaSet", "b", "n"), "ok");
        let mut later = owner.clone();
        later.set_uid("another");
        later.set_api_version("apps/v2");
        check(&later, &mut owned, "ok");
        let reference = &owned.owner_references()[0];
        assert_eq!((reference.uid.as_str(), reference.api_version.as_str()), ("another", "apps/v2"));
        set_owner_reference(&object("Deployment", "ns", "friend"), &mut owned).unwrap();
        assert_eq!(owned.owner_references().len(), 2);
        assert!(remove_owner_reference(&owner, &mut owned) && !remove_owner_reference(&owner, &mut owned));
        assert!(!has_controller_reference(&owned));
    }

    #[tokio::test]
    async fn only_what_differs_is_sent() {
        let client = crate::testing::client().await;
        let nodes = client.resource(GroupVersionResource::new("", "v1", "nodes"));
        let check = async |team: &str, phase: &str, expected: OperationResult| {
            let node = br#"{"apiVersion":"v1","kind":"Node","metadata":{"name":"n"}}"#;
            let mut node = Unstructured::decode(node).unwrap();
            let result = create_or_patch(&nodes, &mut node, |node| {
                node.set_nested(["metadata", "labels", "team"], team).unwrap();
                node.set_nested(["status", "phase"], phase).unwrap();
                Ok(())
            });
            assert_eq!(result.await.unwrap(), expected, "{team} {phase}");
            assert_eq!(node.nested_str(["metadata", "labels", "team"]).unwrap(), Some(team));
            assert_eq!(node.nested_str(["status", "phase"]).unwrap(), Some(phase));
        };
        check("a", "Pending", OperationResult::Created).await;
        check("a", "Pending", OperationResult::Unchanged).await;
        check("b", "Pending", OperationResult::Updated).await;
        check("b", "Running", OperationResult::UpdatedStatusOnly).await;
        check("c", "Pending", OperationResult::UpdatedStatus).await;
        let mut other = object("Node", "", "n");
        let renamed = create_or_patch(&nodes, &mut other, |node| {
            node.set_name("other");
            Ok(())
        });
        let error = renamed.await.unwrap_err().to_string();
        assert!(error.contains("MutateFn cannot mutate object name and/or object namespace"), "{error}");
    }

    #[tokio::test]
    async fn what_is_applied_no_more_goes() {
        let client = crate::testing::client().await;
        let maps = client.resource(GroupVersionResource::new("", "v1", "configmaps")).namespace("default");
        let map = |data: &str| {
            let text = format!(r#"{{"apiVersion":"v1","kind":"ConfigMap","metadata":{{"name":"m"}},"data":{data}}}"#);
            Unstructured::decode(text.as_bytes()).unwrap()
        };
        apply(&maps, "me", &map(r#"{"a":"1","b":"2"}"#)).await.unwrap();
        apply(&maps, "you", &map(r#"{"c":"3"}"#)).await.unwrap();
        let mut read = maps.get("m").await.unwrap();
        read.set_nested(["data"], map(r#"{"b":"4"}"#).nested_field(["data"]).unwrap().unwrap().clone()).unwrap();
        let applied = apply(&maps, "me", &read).await.unwrap();
        let data = applied.nested_field(["data"]).unwrap().unwrap().to_string();
        assert_eq!(data, r#"{"b":"4","c":"3"}"#, "what the server knows is not sent back to it");
    }

    #[test]
    fn finalizers() {
        let mut object = object("ReplicaSet", "ns", "a");
        assert!(add_finalizer(&mut object, "x/y") && !add_finalizer(&mut object, "x/y"));
        assert!(add_finalizer(&mut object, "x/z") && contains_finalizer(&object, "x/z"));
        assert!(remove_finalizer(&mut object, "x/y") && !remove_finalizer(&mut object, "x/y"));
        assert_eq!(object.finalizers(), ["x/z"]);
        assert!(remove_finalizer(&mut object, "x/z"));
        assert_eq!(object.nested_field(["metadata", "finalizers"]).unwrap(), None);
    }
}
