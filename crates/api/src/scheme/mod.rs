//! The registry of Rust types and the kinds they stand for: decode, default, convert.
//!
//! A kind may exist in several versions, each with a Rust type of its own. Versions are converted through a *hub*, a
//! type that no client sees: with one function from and one to the hub a version, every version converts to every
//! other.
//!
//! An online shop whose orders had a price as text first, and as an amount with a currency later:
//!
//! ```
//! use capstan_api::{GroupKind, GroupVersion, scheme::{RegisterError, Scheme}};
//!
//! mod v1beta1 {
//!     use serde::{Deserialize, Serialize};
//!
//!     #[derive(Clone, Debug, Serialize, Deserialize)]
//!     pub struct Order {
//!         pub item: String,
//!         pub price: String, // "12.50 EUR"
//!     }
//! }
//!
//! mod v1 {
//!     use serde::{Deserialize, Serialize};
//!
//!     #[derive(Clone, Debug, Serialize, Deserialize)]
//!     pub struct Order {
//!         pub item: String,
//!         pub price: Money,
//!         #[serde(default)]
//!         pub quantity: Option<u32>,
//!     }
//!
//!     #[derive(Clone, Debug, Serialize, Deserialize)]
//!     pub struct Money {
//!         pub amount: String,
//!         pub currency: String,
//!     }
//! }
//!
//! /// The hub: whatever a version can say has a place here.
//! #[derive(Clone, Debug)]
//! struct Order {
//!     item: String,
//!     amount: String,
//!     currency: String,
//!     quantity: Option<u32>,
//! }
//!
//! const V1: GroupVersion = GroupVersion::from_static("shop.example.com", "v1");
//! const V1BETA1: GroupVersion = GroupVersion::from_static("shop.example.com", "v1beta1");
//!
//! fn add_to_scheme(scheme: &mut Scheme) -> Result<(), RegisterError> {
//!     scheme.add_known_type_with_name::<v1::Order>(V1.with_kind("Order"))?;
//!     scheme.add_known_type_with_name::<v1beta1::Order>(V1BETA1.with_kind("Order"))?;
//!     scheme.add_hub::<Order>(&GroupKind::new("shop.example.com", "Order"))?;
//!     scheme.set_version_priority(&[V1, V1BETA1])?;
//!
//!     scheme.add_conversion(|from: &v1::Order| {
//!         let v1::Money { amount, currency } = from.price.clone();
//!         Ok(Order { item: from.item.clone(), amount, currency, quantity: from.quantity })
//!     });
//!     scheme.add_conversion(|from: &Order| {
//!         let price = v1::Money { amount: from.amount.clone(), currency: from.currency.clone() };
//!         Ok(v1::Order { item: from.item.clone(), price, quantity: from.quantity })
//!     });
//!     scheme.add_conversion(|from: &v1beta1::Order| {
//!         let (amount, currency) = from.price.split_once(' ').ok_or("a price is an amount and a currency")?;
//!         let (amount, currency) = (amount.to_owned(), currency.to_owned());
//!         Ok(Order { item: from.item.clone(), amount, currency, quantity: None })
//!     });
//!     scheme.add_conversion(|from: &Order| {
//!         Ok(v1beta1::Order { item: from.item.clone(), price: format!("{} {}", from.amount, from.currency) })
//!     });
//!     scheme.add_default(|order: &mut v1::Order| {
//!         order.quantity.get_or_insert(1);
//!     });
//!     Ok(())
//! }
//!
//! # fn main() -> Result<(), Box<dyn std::error::Error>> {
//! let mut scheme = Scheme::new("shop");
//! add_to_scheme(&mut scheme)?;
//!
//! // Bytes of any version, read as the one wanted.
//! let old = br#"{"apiVersion":"shop.example.com/v1beta1","kind":"Order","item":"tea","price":"12.50 EUR"}"#;
//! let order: v1::Order = scheme.decode_as(old)?;
//! assert_eq!(order.price.currency, "EUR");
//!
//! // And written as any version.
//! let new = r#"{"apiVersion":"shop.example.com/v1","item":"tea","kind":"Order","price":{"amount":"12.50","currency":"EUR"},"quantity":null}"#;
//! assert_eq!(String::from_utf8(scheme.encode(&order, &V1)?)?, new);
//! assert!(scheme.encode(&order, &V1BETA1)?.ends_with(br#""price":"12.50 EUR"}"#));
//!
//! // Nothing may get lost on the way to another version and back: here the quantity would.
//! scheme.round_trip(&order)?;
//! let dozen = v1::Order { quantity: Some(12), ..order };
//! let lost = scheme.round_trip(&dozen).unwrap_err();
//! assert_eq!(lost.to_string(), "shop.example.com/v1, Kind=Order does not survive shop.example.com/v1beta1: .quantity was 12 and became null");
//! # Ok(())
//! # }
//! ```

mod builder;
mod codec;
mod convert;
mod error;
mod field_label;
mod round_trip;
mod versions;

use std::{
    any::{Any, TypeId, type_name},
    collections::{BTreeMap, HashMap},
    fmt,
};

use serde::{Serialize, de::DeserializeOwned};

pub use builder::SchemeBuilder;
pub use codec::Decoded;
pub use error::{ConvertError, DecodeError, NotRegistered, RegisterError};
pub use field_label::{FieldLabelError, default_field_label_conversion};
pub use round_trip::RoundTripError;

use crate::{
    GroupKind, GroupVersion, GroupVersionKind, Name, Resource, Value,
    names::INTERNAL_VERSION,
    value::{self, SerdeError},
};

/// What can be registered: a type that is read and written, copied and shared.
pub trait KnownType: Serialize + DeserializeOwned + Clone + Send + Sync + 'static {}

impl<T: Serialize + DeserializeOwned + Clone + Send + Sync + 'static> KnownType for T {}

/// An object of some registered type.
pub type AnyObject = Box<dyn Any + Send + Sync>;

/// The registry of types and kinds. See the [module](self) for an example.
///
/// It is filled once and then only read, by as many threads as like to.
pub struct Scheme {
    name: String,
    kinds: HashMap<GroupVersionKind, TypeId>,
    types: HashMap<TypeId, TypeInfo>,
    /// Kinds that are the same in every group and version.
    unversioned_kinds: HashMap<Name, TypeId>,
    field_labels: HashMap<GroupVersionKind, field_label::Convert>,
    defaults: HashMap<TypeId, Fill>,
    conversions: HashMap<(TypeId, TypeId), convert::Convert>,
    version_priority: BTreeMap<Name, Vec<Name>>,
    observed_versions: Vec<GroupVersion>,
}

/// Fills in what is missing in objects of one type.
type Fill = Box<dyn Fn(&mut dyn Any) + Send + Sync>;

/// What is known of a registered type.
struct TypeInfo {
    name: &'static str,
    kinds: Vec<GroupVersionKind>,
    unversioned: Option<GroupVersionKind>,
    copy: fn(&dyn Any) -> Option<AnyObject>,
    /// How to read and write it; hubs are neither.
    codec: Option<Codec>,
}

#[derive(Clone, Copy)]
struct Codec {
    read: fn(&Value) -> Result<AnyObject, SerdeError>,
    write: fn(&dyn Any) -> Result<Value, SerdeError>,
}

impl Codec {
    fn of<T: KnownType>() -> Self {
        Codec {
            read: |value| Ok(Box::new(value::from_value::<T>(value.clone())?)),
            write: |object| object.downcast_ref::<T>().map_or(Ok(Value::Null), value::to_value),
        }
    }
}

impl fmt::Debug for Scheme {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Scheme").field("name", &self.name).field("kinds", &self.kinds.len()).finish_non_exhaustive()
    }
}

impl Scheme {
    /// A scheme without types. Its name shows in errors.
    pub fn new(name: impl Into<String>) -> Self {
        Scheme {
            name: name.into(),
            kinds: HashMap::new(),
            types: HashMap::new(),
            unversioned_kinds: HashMap::new(),
            field_labels: HashMap::new(),
            defaults: HashMap::new(),
            conversions: HashMap::new(),
            version_priority: BTreeMap::new(),
            observed_versions: Vec::new(),
        }
    }

    /// The name of the scheme.
    #[must_use]
    pub fn name(&self) -> &str {
        &self.name
    }

    /// Registers a type under the kind that it says it is.
    ///
    /// # Errors
    /// Another type is registered under that kind.
    pub fn add_known_type<T: Resource + KnownType>(&mut self) -> Result<(), RegisterError> {
        self.add_known_type_with_name::<T>(T::gvk())
    }

    /// Registers a type under a kind. A type may stand for several kinds.
    ///
    /// # Errors
    /// Another type is registered under that kind, or the version is empty.
    pub fn add_known_type_with_name<T: KnownType>(&mut self, gvk: GroupVersionKind) -> Result<(), RegisterError> {
        self.register::<T>(gvk, Some(Codec::of::<T>()))
    }

    /// Registers the type through which the versions of a kind are converted.
    ///
    /// # Errors
    /// The kind has another hub already.
    pub fn add_hub<T: Clone + Send + Sync + 'static>(&mut self, kind: &GroupKind) -> Result<(), RegisterError> {
        self.register::<T>(kind.with_version(INTERNAL_VERSION), None)
    }

    /// Registers a type that is the same in every group and version, such as `Status`. It is never converted.
    ///
    /// # Errors
    /// Another type is registered under that kind, or under that name as unversioned.
    pub fn add_unversioned_type<T: KnownType>(&mut self, gvk: GroupVersionKind) -> Result<(), RegisterError> {
        if let Some(old) = self.unversioned_kinds.get(&gvk.kind)
            && *old != TypeId::of::<T>()
        {
            let (old, scheme) = (self.type_name(*old), self.name.clone());
            return Err(RegisterError::Unversioned { gvk: gvk.into(), old, scheme });
        }
        self.add_known_type_with_name::<T>(gvk.clone())?;
        self.unversioned_kinds.insert(gvk.kind.clone(), TypeId::of::<T>());
        if let Some(info) = self.types.get_mut(&TypeId::of::<T>()) {
            info.unversioned = Some(gvk);
        }
        Ok(())
    }

    fn register<T: Clone + Send + Sync + 'static>(
        &mut self,
        gvk: GroupVersionKind,
        codec: Option<Codec>,
    ) -> Result<(), RegisterError> {
        if gvk.version.is_empty() {
            return Err(RegisterError::VersionRequired { gvk, type_name: type_name::<T>() });
        }
        let id = TypeId::of::<T>();
        if let Some(old) = self.kinds.get(&gvk)
            && *old != id
        {
            let (old, scheme) = (self.type_name(*old), self.name.clone());
            return Err(RegisterError::Double { gvk: gvk.into(), old, new: type_name::<T>(), scheme });
        }
        self.observe(gvk.group_version());
        self.kinds.insert(gvk.clone(), id);
        let info = self.types.entry(id).or_insert_with(|| TypeInfo {
            name: type_name::<T>(),
            kinds: Vec::new(),
            unversioned: None,
            copy: |object| object.downcast_ref::<T>().map(|object| Box::new(object.clone()) as AnyObject),
            codec: None,
        });
        info.codec = info.codec.or(codec);
        if !info.kinds.contains(&gvk) {
            info.kinds.push(gvk);
        }
        Ok(())
    }

    /// Registers a function that fills in what is missing in objects of a type. A later one takes the place of an
    /// earlier one.
    pub fn add_default<T: 'static>(&mut self, fill: impl Fn(&mut T) + Send + Sync + 'static) {
        let fill = move |object: &mut dyn Any| {
            if let Some(object) = object.downcast_mut::<T>() {
                fill(object);
            }
        };
        self.defaults.insert(TypeId::of::<T>(), Box::new(fill));
    }

    /// Fills in what is missing, if there is a function for the type.
    pub fn default<T: 'static>(&self, object: &mut T) {
        self.default_any(object);
    }

    fn default_any(&self, object: &mut dyn Any) {
        if let Some(fill) = self.defaults.get(&(*object).type_id()) {
            fill(object);
        }
    }

    /// The kinds that a type stands for.
    ///
    /// # Errors
    /// The type is not registered.
    pub fn object_kinds<T: 'static>(&self) -> Result<&[GroupVersionKind], NotRegistered> {
        match self.types.get(&TypeId::of::<T>()) {
            Some(info) => Ok(&info.kinds),
            None => Err(NotRegistered::Type { type_name: type_name::<T>(), scheme: self.name.clone() }),
        }
    }

    /// Whether a type stands for a kind.
    #[must_use]
    pub fn recognizes(&self, gvk: &GroupVersionKind) -> bool {
        self.kinds.contains_key(gvk)
    }

    /// Whether a type is the same in every group and version; nothing if it is not registered.
    #[must_use]
    pub fn is_unversioned<T: 'static>(&self) -> Option<bool> {
        self.types.get(&TypeId::of::<T>()).map(|info| info.unversioned.is_some())
    }

    /// The kinds of a group and version and the names of their types, sorted.
    #[must_use]
    pub fn known_types(&self, gv: &GroupVersion) -> BTreeMap<Name, &'static str> {
        let of_version = self.kinds.iter().filter(|(gvk, _)| gvk.group == gv.group && gvk.version == gv.version);
        of_version.map(|(gvk, id)| (gvk.kind.clone(), self.type_name(*id))).collect()
    }

    /// All kinds and the names of their types, sorted.
    #[must_use]
    pub fn all_known_types(&self) -> BTreeMap<GroupVersionKind, &'static str> {
        self.kinds.iter().map(|(gvk, id)| (gvk.clone(), self.type_name(*id))).collect()
    }

    fn type_name(&self, id: TypeId) -> &'static str {
        self.types.get(&id).map_or("an unknown type", |info| info.name)
    }
}

#[cfg(test)]
mod tests;
