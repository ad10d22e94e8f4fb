//! What can go wrong with a scheme, word for word as upstream says it. Types have the names that Rust gives them.

use std::fmt;

use crate::{GroupVersion, GroupVersionKind, go::quote, json, names::INTERNAL_VERSION};

/// A registration that is refused.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum RegisterError {
    /// Another type stands for the kind.
    Double {
        /// The kind.
        gvk: Box<GroupVersionKind>,
        /// The type that is registered.
        old: &'static str,
        /// The type that was to be.
        new: &'static str,
        /// The name of the scheme.
        scheme: String,
    },
    /// Another unversioned type has the name.
    Unversioned {
        /// The kind.
        gvk: Box<GroupVersionKind>,
        /// The type that is registered.
        old: &'static str,
        /// The name of the scheme.
        scheme: String,
    },
    /// The kind has no version.
    VersionRequired {
        /// The kind.
        gvk: GroupVersionKind,
        /// The type.
        type_name: &'static str,
    },
    /// The hub cannot be preferred.
    InternalPriority(GroupVersion),
    /// Versions of one group are ranked at a time; the groups.
    OneGroup(Vec<String>),
}

impl fmt::Display for RegisterError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            RegisterError::Double { gvk, old, new, scheme } => write!(
                f,
                "Double registration of different types for {gvk}: old={old}, new={new} in scheme {}",
                quote(scheme)
            ),
            RegisterError::Unversioned { gvk, old, scheme } => write!(
                f,
                "{old} has already been registered as unversioned kind {} - kind name must be unique in scheme {}",
                quote(&gvk.to_string()),
                quote(scheme)
            ),
            RegisterError::VersionRequired { gvk, type_name } => {
                write!(f, "version is required on all types: {gvk} {type_name}")
            }
            RegisterError::InternalPriority(gv) => write!(f, "internal versions cannot be prioritized: {gv}"),
            RegisterError::OneGroup(groups) => {
                write!(f, "must register versions for exactly one group: {}", groups.join(", "))
            }
        }
    }
}

impl std::error::Error for RegisterError {}

/// A kind or type that the scheme does not know.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum NotRegistered {
    /// No type stands for the kind.
    Kind {
        /// The kind.
        gvk: GroupVersionKind,
        /// The name of the scheme.
        scheme: String,
    },
    /// The type stands for no kind.
    Type {
        /// The type.
        type_name: &'static str,
        /// The name of the scheme.
        scheme: String,
    },
    /// The type has no kind in the group that it is to be converted to.
    Target {
        /// The type.
        type_name: &'static str,
        /// The group and version.
        target: GroupVersion,
        /// The name of the scheme.
        scheme: String,
    },
}

impl fmt::Display for NotRegistered {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            NotRegistered::Kind { gvk, scheme } => {
                let version = quote(&gvk.api_version());
                match (gvk.kind.as_str(), gvk.version.as_str()) {
                    ("", _) => write!(f, "no version {version} has been registered")?,
                    (kind, INTERNAL_VERSION) => write!(
                        f,
                        "no kind {} is registered for the internal version of group {}",
                        quote(kind),
                        quote(&gvk.group)
                    )?,
                    (kind, _) => write!(f, "no kind {} is registered for version {version}", quote(kind))?,
                }
                write!(f, " in scheme {}", quote(scheme))
            }
            NotRegistered::Type { type_name, scheme } => {
                write!(f, "no kind is registered for the type {type_name} in scheme {}", quote(scheme))
            }
            NotRegistered::Target { type_name, target, scheme } => {
                let (target, scheme) = (quote(&target.to_string()), quote(scheme));
                write!(f, "{type_name} is not suitable for converting to {target} in scheme {scheme}")
            }
        }
    }
}

impl std::error::Error for NotRegistered {}

/// An object that could not be converted.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum ConvertError {
    /// The scheme does not know one of the types.
    NotRegistered(NotRegistered),
    /// There is no function for the two types, and no way through a hub.
    Unknown {
        /// The type of the object.
        from: &'static str,
        /// The type that was asked for.
        to: &'static str,
    },
    /// What the function said that converts.
    Failed(String),
}

impl fmt::Display for ConvertError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            ConvertError::NotRegistered(error) => error.fmt(f),
            ConvertError::Unknown { from, to } => write!(f, "converting ({from}) to ({to}): unknown conversion"),
            ConvertError::Failed(message) => f.write_str(message),
        }
    }
}

impl std::error::Error for ConvertError {}

impl From<NotRegistered> for ConvertError {
    fn from(error: NotRegistered) -> Self {
        ConvertError::NotRegistered(error)
    }
}

/// Bytes that could not be read as an object of a registered type.
#[derive(Debug)]
pub enum DecodeError {
    /// The bytes are not JSON.
    Json(json::Error),
    /// The group and version, or the kind, is not a string; what is wrong, in the words of Go's decoder.
    TypeMeta(String),
    /// The group and version cannot be read.
    GroupVersion(crate::names::ParseError),
    /// There is no kind; the data, as text.
    MissingKind(String),
    /// There is no version; the data, as text.
    MissingVersion(String),
    /// No type stands for the kind.
    NotRegistered(NotRegistered),
    /// The data is not what the type expects; what serde says.
    Shape(crate::value::SerdeError),
    /// What was read could not be converted to what was asked for.
    Convert(ConvertError),
}

impl fmt::Display for DecodeError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            DecodeError::Json(error) => write!(f, "couldn't get version/kind; json parse error: {error}"),
            DecodeError::TypeMeta(wrong) => {
                write!(f, "couldn't get version/kind; json parse error: json: cannot unmarshal {wrong}")
            }
            DecodeError::GroupVersion(error) => error.fmt(f),
            DecodeError::MissingKind(data) => write!(f, "Object 'Kind' is missing in '{data}'"),
            DecodeError::MissingVersion(data) => write!(f, "Object 'apiVersion' is missing in '{data}'"),
            DecodeError::NotRegistered(error) => error.fmt(f),
            DecodeError::Shape(error) => error.fmt(f),
            DecodeError::Convert(error) => error.fmt(f),
        }
    }
}

impl std::error::Error for DecodeError {}

impl From<NotRegistered> for DecodeError {
    fn from(error: NotRegistered) -> Self {
        DecodeError::NotRegistered(error)
    }
}

impl From<ConvertError> for DecodeError {
    fn from(error: ConvertError) -> Self {
        DecodeError::Convert(error)
    }
}
