//! What nearly every reconciler does to objects: owners, finalizers, writing only what differs.

use std::fmt;

use capstan_api::{
    GroupVersion,
    object::{Accessor, Object, OwnerReference, controller_of},
};
use capstan_client::{Api, Error};
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
}

impl fmt::Display for OperationResult {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            OperationResult::Unchanged => "unchanged",
            OperationResult::Created => "created",
            OperationResult::Updated => "updated",
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
    let mut changed = |object: &mut K| {
        let identity = object.identity();
        let (namespace, name) = (identity.namespace.to_owned(), identity.name.to_owned());
        mutate(object)?;
        let identity = object.identity();
        if (identity.namespace, identity.name) != (&*namespace, &*name) {
            let message = "MutateFn cannot mutate object name and/or object namespace";
            return Err(Error::Decode(message.to_owned()));
        }
        Ok(())
    };
    let Some(existing) = api.get_opt(object.identity().name).await? else {
        changed(object)?;
        *object = api.create(object).await?;
        return Ok(OperationResult::Created);
    };
    *object = existing.clone();
    changed(object)?;
    if *object == existing {
        return Ok(OperationResult::Unchanged);
    }
    *object = api.update(object).await?;
    Ok(OperationResult::Updated)
}

#[cfg(test)]
mod tests {
    use capstan_api::Unstructured;

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
