//! How a cache keeps an object: whole, or packed into as few bytes as it came in.

use std::{
    fmt,
    panic::{AssertUnwindSafe, catch_unwind},
    sync::{Arc, Mutex, PoisonError},
};

use capstan_api::{
    GroupVersionKind,
    object::{Encoded, Object},
};
use serde::Serialize;

use crate::{
    Key,
    reflector::{ReflectorError, WatchErrorHandler},
};

/// How many objects that were unpacked are kept whole for those who read them next. A power of two.
const RECENT: usize = 256;

/// An object in a cache. Clones share it.
///
/// Whole, it is an `Arc` of it. Packed, it is the bytes of it, which are unpacked when somebody wants to see it: a Pod
/// of 4 KB takes some 15 KB of memory as a struct full of options, lists and strings, and 1 to 3 KB packed.
pub struct Kept<K>(Form<K>);

enum Form<K> {
    Whole(Arc<K>),
    Packed { bytes: Arc<[u8]>, recent: Arc<Recent<K>> },
}

impl<K> Clone for Kept<K> {
    fn clone(&self) -> Self {
        Kept(match &self.0 {
            Form::Whole(object) => Form::Whole(Arc::clone(object)),
            Form::Packed { bytes, recent } => Form::Packed { bytes: Arc::clone(bytes), recent: Arc::clone(recent) },
        })
    }
}

impl<K> From<Arc<K>> for Kept<K> {
    fn from(object: Arc<K>) -> Self {
        Kept(Form::Whole(object))
    }
}

impl<K> fmt::Debug for Kept<K> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match &self.0 {
            Form::Whole(_) => f.write_str("Whole"),
            Form::Packed { bytes, .. } => write!(f, "Packed({} bytes)", bytes.len()),
        }
    }
}

impl<K> Kept<K> {
    /// Whether both are one object in one place of memory.
    #[must_use]
    pub fn ptr_eq(&self, other: &Self) -> bool {
        match (&self.0, &other.0) {
            (Form::Whole(a), Form::Whole(b)) => Arc::ptr_eq(a, b),
            (Form::Packed { bytes: a, .. }, Form::Packed { bytes: b, .. }) => Arc::ptr_eq(a, b),
            _ => false,
        }
    }
}

impl<K: Object> Kept<K> {
    /// The object. Nothing when it was packed and turns out not to be of its type, which the error handler is told.
    #[must_use]
    pub fn object(&self) -> Option<Arc<K>> {
        match &self.0 {
            Form::Whole(object) => Some(Arc::clone(object)),
            Form::Packed { bytes, recent } => recent.unpack(bytes),
        }
    }

    /// Whether it is the object of this identity, in this version.
    #[must_use]
    pub fn is_at(&self, uid: &str, resource_version: &str) -> bool {
        match &self.0 {
            Form::Whole(object) => {
                let identity = object.identity();
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
            || match &other.0 {
                Form::Whole(object) => {
                    let identity = object.identity();
                    self.is_at(identity.uid, identity.resource_version)
                }
                Form::Packed { bytes, .. } => {
                    let metadata = Encoded::new(bytes).metadata().unwrap_or_default();
                    self.is_at(&metadata.uid, &metadata.resource_version)
                }
            }
    }
}

type Slot<K> = Mutex<Option<(Arc<[u8]>, Arc<K>)>>;

/// Objects that were unpacked a moment ago, each in the slot that its bytes choose.
struct Recent<K> {
    slots: Box<[Slot<K>]>,
    on_error: Option<WatchErrorHandler>,
}

impl<K: Object> Recent<K> {
    fn unpack(&self, bytes: &Arc<[u8]>) -> Option<Arc<K>> {
        // Bytes that are here are alive, so no others have their address.
        let slot = &self.slots[(bytes.as_ptr() as usize >> 5) % RECENT];
        let held = || slot.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some((of, object)) = &*held()
            && Arc::ptr_eq(of, bytes)
        {
            return Some(Arc::clone(object));
        }
        let read = catch_unwind(AssertUnwindSafe(|| K::decode(Encoded::new(bytes), None)));
        match read
            .map_or_else(|_| Err("reading it panicked".to_owned()), |read| read.map_err(|error| error.to_string()))
        {
            Ok(object) => {
                let object = Arc::new(object);
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
pub(crate) struct Packing<K> {
    encode: fn(&K) -> Result<Vec<u8>, serde_json::Error>,
    recent: Arc<Recent<K>>,
}

/// An object that was packed, and what there is to know of it.
pub(crate) struct Packed<K> {
    pub(crate) key: Key,
    pub(crate) resource_version: String,
    pub(crate) object: Kept<K>,
}

impl<K> Clone for Packing<K> {
    fn clone(&self) -> Self {
        Packing { encode: self.encode, recent: Arc::clone(&self.recent) }
    }
}

impl<K: Object> Packing<K> {
    pub(crate) fn new(encode: fn(&K) -> Result<Vec<u8>, serde_json::Error>) -> Self {
        Packing { encode, recent: Recent::new(None) }
    }

    /// The same way to pack, telling of objects that cannot be unpacked.
    pub(crate) fn with_error_handler(&self, on_error: Option<WatchErrorHandler>) -> Self {
        Packing { encode: self.encode, recent: Recent::new(on_error) }
    }

    /// Packs what came as protobuf, without reading it: it is of a built-in kind, and the types of those take whatever
    /// has the form of a message. Nothing for others: whether they are of their type shows only when they are read.
    pub(crate) fn pack(&self, encoded: Encoded<'_>, kind: Option<&GroupVersionKind>) -> Option<Packed<K>> {
        let bytes = encoded.packed(kind).ok()??;
        let metadata = encoded.metadata().ok().filter(|metadata| !metadata.name.is_empty())?;
        Some(Packed {
            key: Key::new(&metadata.namespace, &metadata.name),
            resource_version: metadata.resource_version.into_owned(),
            object: self.kept(bytes),
        })
    }

    /// Packs an object that was read. One that cannot be written stays whole.
    pub(crate) fn pack_object(&self, object: K) -> Kept<K> {
        match (self.encode)(&object) {
            Ok(bytes) => self.kept(bytes.into()),
            Err(_) => Kept::from(Arc::new(object)),
        }
    }

    fn kept(&self, bytes: Arc<[u8]>) -> Kept<K> {
        Kept(Form::Packed { bytes, recent: Arc::clone(&self.recent) })
    }
}

impl<K> Recent<K> {
    fn new(on_error: Option<WatchErrorHandler>) -> Arc<Self> {
        Arc::new(Recent { slots: (0..RECENT).map(|_| Mutex::default()).collect(), on_error })
    }
}

/// Writes an object for [`Packing`].
pub(crate) fn encode<K: Serialize>(object: &K) -> Result<Vec<u8>, serde_json::Error> {
    serde_json::to_vec(object)
}
