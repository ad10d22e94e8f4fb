//! The metadata of an object, out of its JSON, without building its tree.

use std::{borrow::Cow, fmt};

use crate::json::{self, Reader, Token};

/// What an object says about itself. Strings without escapes are borrowed from the text.
///
/// All of the text is looked at once: what is not metadata is passed over, but text that is not JSON is refused
/// wherever it is. Fields of other types than they should be are refused, fields that nobody knows are passed over, and
/// of fields that come twice the last one counts.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Metadata<'a> {
    /// The group and version, as `apps/v1`.
    pub api_version: Cow<'a, str>,
    /// The kind.
    pub kind: Cow<'a, str>,
    /// The name.
    pub name: Cow<'a, str>,
    /// What a name is to begin with if there is none.
    pub generate_name: Cow<'a, str>,
    /// The namespace.
    pub namespace: Cow<'a, str>,
    /// The identity.
    pub uid: Cow<'a, str>,
    /// The version of the object.
    pub resource_version: Cow<'a, str>,
    /// How often the desired state has changed.
    pub generation: i64,
    /// When it was created, as written.
    pub creation_timestamp: Option<Cow<'a, str>>,
    /// When its deletion is due, as written.
    pub deletion_timestamp: Option<Cow<'a, str>>,
    /// The labels, sorted.
    pub labels: Vec<(Cow<'a, str>, Cow<'a, str>)>,
    /// The annotations, sorted.
    pub annotations: Vec<(Cow<'a, str>, Cow<'a, str>)>,
    /// Whom it belongs to.
    pub owner_references: Vec<Owner<'a>>,
    /// What keeps it from going away.
    pub finalizers: Vec<Cow<'a, str>>,
}

/// An owner reference.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Owner<'a> {
    /// The group and version of the owner.
    pub api_version: Cow<'a, str>,
    /// The kind of the owner.
    pub kind: Cow<'a, str>,
    /// The name of the owner.
    pub name: Cow<'a, str>,
    /// The identity of the owner.
    pub uid: Cow<'a, str>,
    /// Whether the owner manages this object.
    pub controller: bool,
    /// Whether the owner's deletion waits for this object's.
    pub block_owner_deletion: bool,
}

/// Why there is no metadata.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum MetadataError {
    /// The text is not JSON.
    Json(json::Error),
    /// A field is of the wrong type.
    Type {
        /// The path of the field.
        field: &'static str,
        /// What it is, in JSON's words.
        found: &'static str,
        /// What it should be, in Go's words.
        expected: &'static str,
    },
}

impl From<json::Error> for MetadataError {
    fn from(error: json::Error) -> Self {
        MetadataError::Json(error)
    }
}

impl fmt::Display for MetadataError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            MetadataError::Json(error) => error.fmt(f),
            MetadataError::Type { field: "", found, expected } => {
                write!(f, "json: cannot unmarshal {found} into Go value of type {expected}")
            }
            MetadataError::Type { field, found, expected } => {
                let of = if field.starts_with("metadata.ownerReferences.") {
                    "OwnerReference"
                } else if field.starts_with("metadata.") {
                    "ObjectMeta"
                } else {
                    "PartialObjectMetadata"
                };
                write!(f, "json: cannot unmarshal {found} into Go struct field {of}.{field} of type {expected}")
            }
        }
    }
}

impl std::error::Error for MetadataError {}

impl<'a> Metadata<'a> {
    /// Reads the metadata of the object whose JSON `text` is.
    ///
    /// # Errors
    /// When `text` is not JSON, or not an object, or a field of the metadata is not of its type.
    pub fn scan(text: &'a [u8]) -> Result<Self, MetadataError> {
        let mut scan = Scan { reader: Reader::new(text) };
        let mut meta = Metadata::default();
        scan.object("", "v1.PartialObjectMetadata", |scan, key| {
            match &*key {
                "apiVersion" => scan.string("apiVersion", &mut meta.api_version)?,
                "kind" => scan.string("kind", &mut meta.kind)?,
                "metadata" => {
                    scan.object("metadata", "v1.ObjectMeta", |scan, key| meta.field(scan, &key))?;
                }
                _ => scan.pass()?,
            }
            Ok(())
        })?;
        scan.reader.next()?;
        for map in [&mut meta.labels, &mut meta.annotations] {
            sort(map);
        }
        Ok(meta)
    }

    fn field(&mut self, scan: &mut Scan<'a>, key: &str) -> Result<(), MetadataError> {
        match key {
            "name" => scan.string("metadata.name", &mut self.name),
            "generateName" => scan.string("metadata.generateName", &mut self.generate_name),
            "namespace" => scan.string("metadata.namespace", &mut self.namespace),
            "uid" => scan.string("metadata.uid", &mut self.uid),
            "resourceVersion" => scan.string("metadata.resourceVersion", &mut self.resource_version),
            "generation" => scan.integer("metadata.generation", &mut self.generation),
            "creationTimestamp" => scan.time("metadata.creationTimestamp", &mut self.creation_timestamp),
            "deletionTimestamp" => scan.time("metadata.deletionTimestamp", &mut self.deletion_timestamp),
            "labels" => scan.map("metadata.labels", &mut self.labels),
            "annotations" => scan.map("metadata.annotations", &mut self.annotations),
            "finalizers" => scan.list("metadata.finalizers", "[]string", &mut self.finalizers, |scan, item| {
                scan.string("metadata.finalizers", item)
            }),
            "ownerReferences" => {
                let owners = &mut self.owner_references;
                scan.list("metadata.ownerReferences", "[]v1.OwnerReference", owners, |scan, owner| {
                    scan.object("metadata.ownerReferences", "v1.OwnerReference", |scan, key| owner.field(scan, &key))
                        .map(drop)
                })
            }
            _ => scan.pass(),
        }
    }
}

impl<'a> Owner<'a> {
    fn field(&mut self, scan: &mut Scan<'a>, key: &str) -> Result<(), MetadataError> {
        match key {
            "apiVersion" => scan.string("metadata.ownerReferences.apiVersion", &mut self.api_version),
            "kind" => scan.string("metadata.ownerReferences.kind", &mut self.kind),
            "name" => scan.string("metadata.ownerReferences.name", &mut self.name),
            "uid" => scan.string("metadata.ownerReferences.uid", &mut self.uid),
            "controller" => scan.bool("metadata.ownerReferences.controller", &mut self.controller),
            "blockOwnerDeletion" => {
                scan.bool("metadata.ownerReferences.blockOwnerDeletion", &mut self.block_owner_deletion)
            }
            _ => scan.pass(),
        }
    }
}

/// Of equal keys the last one counts.
fn sort(entries: &mut Vec<(Cow<'_, str>, Cow<'_, str>)>) {
    if !entries.is_sorted_by(|a, b| a.0 < b.0) {
        entries.sort_by(|a, b| a.0.cmp(&b.0));
        entries.dedup_by(|later, earlier| {
            let same = later.0 == earlier.0;
            if same {
                std::mem::swap(later, earlier);
            }
            same
        });
    }
}

/// Reads values of known types. As in Go `null` leaves everything as it is; where that is not so it is said.
struct Scan<'a> {
    reader: Reader<'a>,
}

impl<'a> Scan<'a> {
    fn mistyped(&self, token: &Token<'_>, field: &'static str, expected: &'static str) -> MetadataError {
        let found = match token {
            Token::Bool(_) => "bool",
            Token::Number(_) => "number",
            Token::BeginArray => "array",
            Token::BeginObject => "object",
            _ => "string",
        };
        // Go decodes after it has looked at all of the text.
        match self.reader.check_rest() {
            Ok(()) => MetadataError::Type { field, found, expected },
            Err(error) => MetadataError::Json(error),
        }
    }

    fn pass(&mut self) -> Result<(), MetadataError> {
        self.reader.skip()?;
        Ok(())
    }

    fn string(&mut self, field: &'static str, to: &mut Cow<'a, str>) -> Result<(), MetadataError> {
        match self.reader.next()? {
            Token::String(text) => *to = text,
            Token::Null => {}
            other => return Err(self.mistyped(&other, field, "string")),
        }
        Ok(())
    }

    /// A time; `null` is no time.
    fn time(&mut self, field: &'static str, to: &mut Option<Cow<'a, str>>) -> Result<(), MetadataError> {
        let mut text = Cow::Borrowed("");
        self.string(field, &mut text)?;
        *to = Some(text).filter(|text| !text.is_empty());
        Ok(())
    }

    fn bool(&mut self, field: &'static str, to: &mut bool) -> Result<(), MetadataError> {
        match self.reader.next()? {
            Token::Bool(b) => *to = b,
            Token::Null => {}
            other => return Err(self.mistyped(&other, field, "bool")),
        }
        Ok(())
    }

    fn integer(&mut self, field: &'static str, to: &mut i64) -> Result<(), MetadataError> {
        match self.reader.next()? {
            Token::Number(n) if n.as_i64().is_some() => *to = n.as_i64().unwrap_or_default(),
            Token::Null => {}
            other => return Err(self.mistyped(&other, field, "int64")),
        }
        Ok(())
    }

    /// An object, of which `field` reads each value.
    fn object(
        &mut self,
        path: &'static str,
        expected: &'static str,
        mut field: impl FnMut(&mut Self, Cow<'a, str>) -> Result<(), MetadataError>,
    ) -> Result<(), MetadataError> {
        match self.reader.next()? {
            Token::BeginObject => {}
            Token::Null => return Ok(()),
            other => return Err(self.mistyped(&other, path, expected)),
        }
        while let Token::Key(key) = self.reader.next()? {
            field(self, key)?;
        }
        Ok(())
    }

    /// A map; `null` is none.
    fn map(&mut self, path: &'static str, to: &mut Vec<(Cow<'a, str>, Cow<'a, str>)>) -> Result<(), MetadataError> {
        to.clear();
        self.object(path, "map[string]string", |scan, key| {
            let mut value = Cow::Borrowed("");
            scan.string(path, &mut value)?;
            to.push((key, value));
            Ok(())
        })
    }

    /// A list, of which `item` reads each element; `null` is none.
    fn list<T: Default>(
        &mut self,
        path: &'static str,
        expected: &'static str,
        to: &mut Vec<T>,
        mut item: impl FnMut(&mut Self, &mut T) -> Result<(), MetadataError>,
    ) -> Result<(), MetadataError> {
        to.clear();
        match self.reader.next()? {
            Token::BeginArray => {}
            Token::Null => return Ok(()),
            other => return Err(self.mistyped(&other, path, expected)),
        }
        while !self.reader.at_end_of_array()? {
            let mut element = T::default();
            item(self, &mut element)?;
            to.push(element);
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const POD: &[u8] = include_bytes!("../../benches/pod.json");

    #[test]
    fn a_pod() {
        let meta = Metadata::scan(POD).unwrap();
        assert_eq!((&*meta.api_version, &*meta.kind), ("v1", "Pod"));
        assert_eq!((&*meta.namespace, &*meta.name), ("shop", "checkout-7d9c6b8f5d-x2x7k"));
        assert_eq!((&*meta.generate_name, meta.generation), ("checkout-7d9c6b8f5d-", 1));
        assert_eq!((&*meta.resource_version, &meta.uid[..8]), ("184467", "0f3b9f0e"));
        assert_eq!(meta.creation_timestamp.as_deref(), Some("2026-03-02T10:20:30Z"));
        assert_eq!(meta.deletion_timestamp, None);
        assert_eq!(meta.labels.len(), 4);
        assert_eq!(meta.labels[0], ("app.kubernetes.io/name".into(), "checkout".into()));
        assert_eq!(meta.annotations[2].1, "line one\nline \"two\"");
        let owner = &meta.owner_references[0];
        assert_eq!((&*owner.kind, owner.controller, owner.block_owner_deletion), ("ReplicaSet", true, true));
        assert!(matches!(meta.name, Cow::Borrowed(_)));
    }

    #[test]
    fn small_ones() {
        for text in ["{}", "null", r#"{"metadata":null,"spec":[{}]}"#, r#"{"metadata":{"labels":null,"name":null}}"#] {
            assert_eq!(Metadata::scan(text.as_bytes()).unwrap(), Metadata::default(), "{text}");
        }
        let text =
            br#"{"metadata":{"finalizers":["a","b"],"labels":{"b":"1","a":"2","b":"3"},"deletionTimestamp":"x"}}"#;
        let meta = Metadata::scan(text).unwrap();
        assert_eq!(meta.finalizers, ["a", "b"]);
        assert_eq!(meta.labels, [("a".into(), "2".into()), ("b".into(), "3".into())]);
        assert_eq!(meta.deletion_timestamp.as_deref(), Some("x"));
    }

    #[test]
    fn refuses() {
        for (text, expected) in [
            ("", "unexpected end of JSON input"),
            ("[]", "json: cannot unmarshal array into Go value of type v1.PartialObjectMetadata"),
            (r#"{"spec":{"a":tru}}"#, "invalid character '}' in literal true (expecting 'e')"),
            (
                r#"{"kind":1}"#,
                "json: cannot unmarshal number into Go struct field PartialObjectMetadata.kind of type string",
            ),
            (r#"{"kind":1"#, "unexpected end of JSON input"),
            (
                r#"{"metadata":{"name":{}}}"#,
                "json: cannot unmarshal object into Go struct field ObjectMeta.metadata.name of type string",
            ),
            (
                r#"{"metadata":{"generation":1.5}}"#,
                "json: cannot unmarshal number into Go struct field ObjectMeta.metadata.generation of type int64",
            ),
            (r#"{} {}"#, "invalid character '{' after top-level value"),
        ] {
            assert_eq!(Metadata::scan(text.as_bytes()).unwrap_err().to_string(), expected, "{text}");
        }
    }

    #[test]
    fn deep_text_is_passed_over() {
        let deep = |depth: usize| format!("{{\"spec\":{}{}}}", "[".repeat(depth), "]".repeat(depth));
        assert!(Metadata::scan(deep(9_999).as_bytes()).is_ok());
        assert!(Metadata::scan(deep(10_000).as_bytes()).is_err());
    }
}
