//! A test for conversions: an object that went to another version and came back must be the same.

use std::{any::Any, fmt};

use super::{ConvertError, KnownType, Scheme};
use crate::{GroupVersion, GroupVersionKind, Value, names::INTERNAL_VERSION};

/// An object that does not come back from another version as it went.
#[derive(Clone, Debug, PartialEq)]
pub enum RoundTripError {
    /// It could not go, or not come back.
    Convert {
        /// The kind of the object.
        gvk: GroupVersionKind,
        /// The version that it was to visit.
        via: GroupVersion,
        /// Why not.
        error: ConvertError,
    },
    /// It came back changed.
    Changed {
        /// The kind of the object.
        gvk: GroupVersionKind,
        /// The version that it visited.
        via: GroupVersion,
        /// Where the first difference is.
        path: String,
        /// What was there; nothing if it was not there.
        before: Option<Value>,
        /// What is there now.
        after: Option<Value>,
    },
}

impl fmt::Display for RoundTripError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let show = |value: &Option<Value>| value.as_ref().map_or("missing".to_owned(), Value::to_string);
        match self {
            RoundTripError::Convert { gvk, via, error } => write!(f, "{gvk} cannot visit {via}: {error}"),
            RoundTripError::Changed { gvk, via, path, before, after } => {
                let (before, after) = (show(before), show(after));
                write!(f, "{gvk} does not survive {via}: {path} was {before} and became {after}")
            }
        }
    }
}

impl std::error::Error for RoundTripError {}

impl Scheme {
    /// Sends an object to the hub and to every other version of its kind and back, and compares. For tests: with
    /// objects that have every field set, it finds what a conversion forgets.
    ///
    /// # Errors
    /// The first version that the object does not come back from unchanged.
    pub fn round_trip<T: KnownType>(&self, object: &T) -> Result<(), Box<RoundTripError>> {
        let kinds = self.object_kinds::<T>().map_err(|error| {
            let (gvk, via) = Default::default();
            RoundTripError::Convert { gvk, via, error: error.into() }
        })?;
        for gvk in kinds.iter().filter(|gvk| gvk.version != INTERNAL_VERSION) {
            let mut visits = self.versions_for_group_kind(&gvk.group_kind());
            if self.recognizes(&gvk.group_kind().with_version(INTERNAL_VERSION)) {
                visits.insert(0, GroupVersion::new(gvk.group.clone(), INTERNAL_VERSION));
            }
            for via in visits {
                self.visit(object, gvk, &via)?;
            }
        }
        Ok(())
    }

    fn visit(
        &self,
        object: &(dyn Any + Send + Sync),
        gvk: &GroupVersionKind,
        via: &GroupVersion,
    ) -> Result<(), Box<RoundTripError>> {
        let there_and_back = || {
            let (there_gvk, mut there) = self.convert_to_version(object, via)?;
            // On the way it is written and read, so that what does not serialize shows too.
            if let Some(codec) = self.types.get(&(*there).type_id()).and_then(|info| info.codec) {
                let value = self.value_of(there.as_ref(), &there_gvk)?;
                there = (codec.read)(&value).map_err(|error| ConvertError::Failed(error.to_string()))?;
            }
            let (_, back) = self.convert_to_version(there.as_ref(), &gvk.group_version())?;
            Ok((self.value_of(object, gvk)?, self.value_of(back.as_ref(), gvk)?))
        };
        let (before, after) = there_and_back().map_err(|error: ConvertError| RoundTripError::Convert {
            gvk: gvk.clone(),
            via: via.clone(),
            error,
        })?;
        match first_difference(&before, &after) {
            None => Ok(()),
            Some((path, before, after)) => {
                let (gvk, via) = (gvk.clone(), via.clone());
                let (before, after) = (before.cloned(), after.cloned());
                Err(Box::new(RoundTripError::Changed { gvk, via, path, before, after }))
            }
        }
    }
}

type Difference<'a> = (String, Option<&'a Value>, Option<&'a Value>);

/// Where two trees differ first, in the order of their fields, and what is there in each.
fn first_difference<'a>(before: &'a Value, after: &'a Value) -> Option<Difference<'a>> {
    let mut todo = vec![(String::new(), Some(before), Some(after))];
    while let Some((path, before, after)) = todo.pop() {
        let at = todo.len();
        match (before, after) {
            (Some(Value::Object(a)), Some(Value::Object(b))) => {
                let mut keys: Vec<&str> = a.keys().chain(b.keys()).collect();
                keys.sort_unstable();
                keys.dedup();
                todo.extend(keys.into_iter().map(|key| (format!("{path}.{key}"), a.get(key), b.get(key))));
            }
            (Some(Value::Array(a)), Some(Value::Array(b))) => {
                let indices = 0..a.len().max(b.len());
                todo.extend(indices.map(|index| (format!("{path}[{index}]"), a.get(index), b.get(index))));
            }
            (a, b) if a == b => {}
            (a, b) => return Some((path, a, b)),
        }
        // The stack is taken from its end: the first is to be there.
        todo[at..].reverse();
    }
    None
}
