//! How a cache keeps an object: whole, or packed into as few bytes as it came in.
//!
//! What lies between a server and those who read a cache does not ask of which type the objects are: it has them as
//! `Erased`, so that there is one of it in a program and not one for each kind. Types are for those at its borders.

use std::{
    any::Any,
    fmt,
    marker::PhantomData,
    panic::{AssertUnwindSafe, catch_unwind},
    sync::{Arc, Mutex, PoisonError},
};

use capstan_api::{
    GroupVersionKind,
    object::{Encoded, Identity, Object},
};
use serde::Serialize;

use crate::{
    Key,
    reflector::{ReflectorError, TransformFunc, WatchErrorHandler},
};

/// How many objects that were unpacked are kept whole for those who read them next. A power of two.
const RECENT: usize = 256;

/// Stands for the type of objects where nobody asks for it.
#[derive(Debug)]
pub(crate) enum Erased {}

/// An object of any type.
pub(crate) trait AnyObject: Any + Send + Sync {
    /// Which object, and in which state.
    fn which(&self) -> Identity<'_>;
}

impl<K: Object> AnyObject for K {
    fn which(&self) -> Identity<'_> {
        self.identity()
    }
}

/// The object as what it is. Nothing if it is of another type.
pub(crate) fn typed<K: Object>(object: Arc<dyn AnyObject>) -> Option<Arc<K>> {
    let object: Arc<dyn Any + Send + Sync> = object;
    object.downcast().ok()
}

/// The same for who only looks at it.
pub(crate) fn typed_ref<K: Object>(object: &dyn AnyObject) -> Option<&K> {
    let object: &dyn Any = object;
    object.downcast_ref()
}

/// An object in a cache. Clones share it.
///
/// Whole, it is an `Arc` of it. Packed, it is the bytes of it, which are unpacked when somebody wants to see it: a Pod
/// of 4 KB takes some 15 KB of memory as a struct full of options, lists and strings, and 1 to 3 KB packed.
pub struct Kept<K> {
    form: Form,
    of: PhantomData<fn() -> K>,
}

#[derive(Clone)]
enum Form {
    Whole(Arc<dyn AnyObject>),
    Packed { bytes: Arc<[u8]>, recent: Arc<Recent> },
}

impl<K> From<Form> for Kept<K> {
    fn from(form: Form) -> Self {
        Kept { form, of: PhantomData }
    }
}

impl<K> Clone for Kept<K> {
    fn clone(&self) -> Self {
        self.form.clone().into()
    }
}

impl<K: Object> From<Arc<K>> for Kept<K> {
    fn from(object: Arc<K>) -> Self {
        Form::Whole(object).into()
    }
}

impl<K> fmt::Debug for Kept<K> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match &self.form {
            Form::Whole(_) => f.write_str("Whole"),
            Form::Packed { bytes, .. } => write!(f, "Packed({} bytes)", bytes.len()),
        }
    }
}

impl<K> Kept<K> {
    /// The same object. Who reads it as another type than it is of finds none.
    pub(crate) fn cast<T>(self) -> Kept<T> {
        self.form.into()
    }

    /// The object, of whatever type it is.
    pub(crate) fn any(&self) -> Option<Arc<dyn AnyObject>> {
        match &self.form {
            Form::Whole(object) => Some(Arc::clone(object)),
            Form::Packed { bytes, recent } => recent.unpack(bytes),
        }
    }

    /// Whether both are one object in one place of memory.
    #[must_use]
    pub fn ptr_eq(&self, other: &Self) -> bool {
        match (&self.form, &other.form) {
            (Form::Whole(a), Form::Whole(b)) => Arc::ptr_eq(a, b),
            (Form::Packed { bytes: a, .. }, Form::Packed { bytes: b, .. }) => Arc::ptr_eq(a, b),
            _ => false,
        }
    }

    /// Whether it is the object of this identity, in this version.
    #[must_use]
    pub fn is_at(&self, uid: &str, resource_version: &str) -> bool {
        match &self.form {
            Form::Whole(object) => {
                let identity = object.which();
                identity.uid == uid && identity.resource_version == resource_version
            }
            Form::Packed { bytes, .. } => {
                let metadata = Encoded::new(bytes).metadata().unwrap_or_default();
                metadata.uid == uid && metadata.resource_version == resource_version
            }
        }
    }

    /// Whether both are the same object in the same version.
    #[must_use]
    pub fn is_same(&self, other: &Self) -> bool {
        self.ptr_eq(other)
            || match &other.form {
                Form::Whole(object) => {
                    let identity = object.which();
                    self.is_at(identity.uid, identity.resource_version)
                }
                Form::Packed { bytes, .. } => {
                    let metadata = Encoded::new(bytes).metadata().unwrap_or_default();
                    self.is_at(&metadata.uid, &metadata.resource_version)
                }
            }
    }
}

impl<K: Object> Kept<K> {
    /// The object. Nothing when it was packed and turns out not to be of its type, which the error handler is told.
    #[must_use]
    pub fn object(&self) -> Option<Arc<K>> {
        self.any().and_then(typed)
    }
}

type Slot = Mutex<Option<(Arc<[u8]>, Arc<dyn AnyObject>)>>;

/// Reads an object that was packed.
type Unpack = fn(&[u8]) -> Result<Arc<dyn AnyObject>, String>;

/// Objects that were unpacked a moment ago, each in the slot that its bytes choose.
struct Recent {
    slots: Box<[Slot]>,
    unpack: Unpack,
    on_error: Option<WatchErrorHandler>,
}

impl Recent {
    fn new(unpack: Unpack, on_error: Option<WatchErrorHandler>) -> Arc<Self> {
        Arc::new(Recent { slots: (0..RECENT).map(|_| Mutex::default()).collect(), unpack, on_error })
    }

    fn unpack(&self, bytes: &Arc<[u8]>) -> Option<Arc<dyn AnyObject>> {
        // Bytes that are here are alive, so no others have their address.
        let slot = &self.slots[(bytes.as_ptr() as usize >> 5) % RECENT];
        let held = || slot.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some((of, object)) = &*held()
            && Arc::ptr_eq(of, bytes)
        {
            return Some(Arc::clone(object));
        }
        let read = catch_unwind(AssertUnwindSafe(|| (self.unpack)(bytes)));
        match read.unwrap_or_else(|_| Err("reading it panicked".to_owned())) {
            Ok(object) => {
                // What was there is dropped without the lock.
                drop(held().replace((Arc::clone(bytes), Arc::clone(&object))));
                Some(object)
            }
            Err(reason) => {
                if let Some(on_error) = &self.on_error {
                    let metadata = Encoded::new(bytes).metadata().unwrap_or_default();
                    let key = Some(Key::new(&metadata.namespace, &metadata.name));
                    on_error(&ReflectorError::BadObject { key, reason });
                }
                None
            }
        }
    }
}

/// Packs the objects of one informer.
#[derive(Clone)]
pub(crate) struct Packing {
    encode: fn(&dyn AnyObject) -> Option<Vec<u8>>,
    recent: Arc<Recent>,
}

impl Packing {
    /// The way to pack objects of a type.
    pub(crate) fn of<K: Object + Serialize>() -> Self {
        let unpack: Unpack = |bytes| match K::decode(Encoded::new(bytes), None) {
            Ok(object) => Ok(Arc::new(object)),
            Err(error) => Err(error.to_string()),
        };
        let encode = |object: &dyn AnyObject| serde_json::to_vec(typed_ref::<K>(object)?).ok();
        Packing { encode, recent: Recent::new(unpack, None) }
    }

    /// The same way to pack, telling of objects that cannot be unpacked.
    pub(crate) fn with_error_handler(&self, on_error: Option<WatchErrorHandler>) -> Self {
        Packing { encode: self.encode, recent: Recent::new(self.recent.unpack, on_error) }
    }

    /// Packs what came as protobuf, without reading it: it is of a built-in kind, and the types of those take whatever
    /// has the form of a message. Nothing for others: whether they are of their type shows only when they are read.
    fn pack(&self, encoded: Encoded<'_>, kind: Option<&GroupVersionKind>) -> Option<Named<Erased>> {
        let bytes = encoded.packed(kind).ok()??;
        let metadata = encoded.metadata().ok().filter(|metadata| !metadata.name.is_empty())?;
        Some(Named {
            key: Key::new(&metadata.namespace, &metadata.name),
            resource_version: metadata.resource_version.into_owned(),
            object: self.kept(bytes),
        })
    }

    /// Packs an object that was read. One that cannot be written has to stay whole.
    fn pack_object(&self, object: &dyn AnyObject) -> Option<Kept<Erased>> {
        (self.encode)(object).map(|bytes| self.kept(bytes.into()))
    }

    fn kept(&self, bytes: Arc<[u8]>) -> Kept<Erased> {
        Form::Packed { bytes, recent: Arc::clone(&self.recent) }.into()
    }
}

/// An object that was read, and what there is to know of it.
pub(crate) struct Named<K> {
    pub(crate) key: Key,
    pub(crate) resource_version: String,
    pub(crate) object: Kept<K>,
}

/// Reads objects of the type that only it knows, for caches that keep them packed or not.
pub(crate) type Decode = Arc<
    dyn Fn(Encoded<'_>, Option<&GroupVersionKind>, Option<&Packing>) -> Result<Named<Erased>, String> + Send + Sync,
>;

/// Reads objects of a type, and changes them before anybody sees them.
pub(crate) fn decoder<K: Object>(transform: Option<TransformFunc<K>>) -> Decode {
    Arc::new(move |encoded, kind, packing| {
        if transform.is_none()
            && let Some(packed) = packing.and_then(|packing| packing.pack(encoded, kind))
        {
            return Ok(packed);
        }
        let object = K::decode(encoded, kind).map_err(|error| error.to_string())?;
        let object = match &transform {
            None => object,
            Some(transform) => transform(object)?,
        };
        let (key, resource_version) = (Key::of(&object), object.identity().resource_version.to_owned());
        let packed = packing.and_then(|packing| packing.pack_object(&object));
        let object = packed.unwrap_or_else(|| Form::Whole(Arc::new(object)).into());
        Ok(Named { key, resource_version, object })
    })
}

#[cfg(test)]
mod tests {
    use capstan_api::{Unstructured, partial::PartialObjectMetadata};

    use super::*;

    /// The way to no type and back leads to the same object, and to another type it leads to none.
    #[test]
    fn types_are_found_again() {
        let text = br#"{"kind":"Thing","apiVersion":"v1","metadata":{"name":"a","uid":"u","resourceVersion":"1"}}"#;
        let decode = decoder::<Unstructured>(None);
        let packing = Packing::of::<Unstructured>();
        for packing in [None, Some(&packing)] {
            let Named { key, object, .. } = decode(Encoded::new(text), None, packing).unwrap();
            let (known, other) =
                (object.clone().cast::<Unstructured>(), object.clone().cast::<PartialObjectMetadata>());
            assert_eq!((key.as_str(), known.object().unwrap().name()), ("a", "a"));
            assert!(Arc::ptr_eq(&known.object().unwrap(), &object.cast().object().unwrap()));
            assert!(known.is_at("u", "1") && other.is_at("u", "1") && other.object().is_none());
        }
        assert_eq!(
            size_of::<Kept<Erased>>(),
            24,
            "an object takes no more room than its bytes and where they are read"
        );
    }
}
