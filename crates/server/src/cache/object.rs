//! An object as reads need it: its bytes as they are served, and the little that is asked of it.

use std::{
    fmt,
    ops::Range,
    sync::{Arc, OnceLock},
};

use bytes::Bytes;
use capstan_api::{
    Name, Str,
    codec::{Metadata, MetadataError},
    json::{self, Reader, Token},
    selector::{FieldSelector, Labels, Selector},
};
use capstan_storage::Revision;

use super::fields::SelectableFields;

/// An object as it is served: encoded once, when it came from the store.
///
/// The bytes are those of the store with `metadata.resourceVersion` put in its place. Nothing else is changed, nothing
/// is decoded again.
#[derive(Clone, Debug)]
pub struct Object {
    /// The key below the cache's prefix: `namespace/name`, or `name` for what has no namespace.
    pub key: Arc<str>,
    /// The revision, which is the object's resourceVersion.
    pub revision: Revision,
    /// The JSON.
    pub json: Bytes,
    /// The identity.
    pub uid: Str,
    /// The labels, sorted.
    pub labels: Box<[(Str, Str)]>,
    /// The selectable fields beside `metadata.name` and `metadata.namespace`.
    pub fields: Box<[(Name, Str)]>,
    /// When its deletion is due, as written; there once it has been deleted and something holds it.
    pub deletion_timestamp: Option<Str>,
    /// What holds it.
    pub finalizers: Box<[Str]>,
    /// Whom it belongs to.
    pub owners: Box<[OwnerReference]>,
    /// Where in the JSON the digits of the revision are.
    version: Range<usize>,
    /// The same object as protobuf, once somebody has asked for that.
    message: OnceLock<Bytes>,
}

/// The JSON of one field of an object.
pub(crate) fn part<'j>(object: &'j [u8], field: &str) -> Option<&'j [u8]> {
    let mut reader = Reader::new(object);
    reader.next().ok()?;
    loop {
        match reader.next().ok()? {
            Token::Key(key) if key == field => return reader.skip().ok(),
            Token::Key(_) => drop(reader.skip().ok()?),
            _ => return None,
        }
    }
}

/// Whom an object belongs to.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct OwnerReference {
    /// The group and version.
    pub api_version: Str,
    /// The kind.
    pub kind: Str,
    /// The name.
    pub name: Str,
    /// The identity.
    pub uid: Str,
    /// Whether the owner manages the object.
    pub controller: bool,
    /// Whether the owner's deletion waits for the object's.
    pub block_owner_deletion: bool,
}

/// Bytes under a key that are no object.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Malformed {
    /// The key is not UTF-8.
    Key,
    /// The metadata cannot be read.
    Metadata(MetadataError),
    /// There is no metadata.
    NoMetadata,
}

impl fmt::Display for Malformed {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Malformed::Key => f.write_str("the key is not UTF-8"),
            Malformed::Metadata(error) => error.fmt(f),
            Malformed::NoMetadata => f.write_str("the object has no metadata"),
        }
    }
}

impl std::error::Error for Malformed {}

impl From<MetadataError> for Malformed {
    fn from(error: MetadataError) -> Self {
        Malformed::Metadata(error)
    }
}

impl From<json::Error> for Malformed {
    fn from(error: json::Error) -> Self {
        Malformed::Metadata(MetadataError::Json(error))
    }
}

impl Object {
    /// The object that the store holds as `value` under `key` (without the cache's prefix) since `revision`.
    ///
    /// # Errors
    /// When the bytes are no object.
    pub fn encode(
        key: &[u8],
        value: &[u8],
        revision: Revision,
        fields: &dyn SelectableFields,
    ) -> Result<Self, Malformed> {
        let key = str::from_utf8(key).map_err(|_| Malformed::Key)?;
        let normalized = fields.normalize(value);
        let value = normalized.as_deref().unwrap_or(value);
        let meta = Metadata::scan(value)?;
        let (json, version) = splice(value, revision)?;
        let owners = meta.owner_references.iter().map(|owner| OwnerReference {
            api_version: Str::from(&*owner.api_version),
            kind: Str::from(&*owner.kind),
            name: Str::from(&*owner.name),
            uid: Str::from(&*owner.uid),
            controller: owner.controller,
            block_owner_deletion: owner.block_owner_deletion,
        });
        Ok(Object {
            key: key.into(),
            revision,
            json: json.into(),
            uid: Str::from(&*meta.uid),
            labels: meta.labels.iter().map(|(key, value)| (Str::from(&**key), Str::from(&**value))).collect(),
            fields: fields.extract(value).into(),
            deletion_timestamp: meta.deletion_timestamp.as_deref().map(Str::from),
            finalizers: meta.finalizers.iter().map(|name| Str::from(&**name)).collect(),
            owners: owners.collect(),
            version,
            message: OnceLock::new(),
        })
    }

    /// The namespace; empty when it has none.
    #[must_use]
    pub fn namespace(&self) -> &str {
        self.key.split_once('/').map_or("", |(namespace, _)| namespace)
    }

    /// The name.
    #[must_use]
    pub fn name(&self) -> &str {
        self.key.split_once('/').map_or(&*self.key, |(_, name)| name)
    }

    /// The value of a selectable field.
    #[must_use]
    pub fn field(&self, field: &str) -> Option<&str> {
        match field {
            "metadata.name" => Some(self.name()),
            "metadata.namespace" => Some(self.namespace()),
            _ => self.fields.iter().find(|(name, _)| name.as_str() == field).map(|(_, value)| value.as_str()),
        }
    }

    /// The JSON of one of its fields.
    #[must_use]
    pub fn part(&self, field: &str) -> Option<&[u8]> {
        part(&self.json, field)
    }

    /// Whether both selectors select it.
    #[must_use]
    pub fn matches(&self, labels: &Selector, fields: &FieldSelector) -> bool {
        labels.matches(&*self.labels) && fields.matches(&Fields(self))
    }

    /// The same as of another revision: what a deletion shows.
    #[must_use]
    pub fn at(&self, revision: Revision) -> Self {
        let digits = revision.to_string();
        let Range { start, end } = self.version;
        let json = [&self.json[..start], digits.as_bytes(), &self.json[end..]].concat();
        let version = start..start + digits.len();
        Object { revision, json: json.into(), version, message: OnceLock::new(), ..self.clone() }
    }

    /// The object as protobuf, made by `encode` for whoever asks first and kept for all others.
    pub(crate) fn message(&self, encode: impl FnOnce(&[u8]) -> Option<Vec<u8>>) -> &Bytes {
        self.message.get_or_init(|| encode(&self.json).unwrap_or_default().into())
    }
}

struct Fields<'a>(&'a Object);

impl Labels for Fields<'_> {
    fn get(&self, key: &str) -> Option<&str> {
        self.0.field(key)
    }
}

const VERSION: &str = "resourceVersion";

/// The text with the resourceVersion in its metadata, and where its digits are.
///
/// It comes before the first field that sorts after it, so sorted fields stay sorted; one that is there is replaced.
fn splice(text: &[u8], revision: Revision) -> Result<(Vec<u8>, Range<usize>), Malformed> {
    let mut reader = Reader::new(text);
    reader.next()?;
    loop {
        match reader.next()? {
            Token::Key(key) if key == "metadata" => break,
            Token::Key(_) => drop(reader.skip()?),
            _ => return Err(Malformed::NoMetadata),
        }
    }
    if reader.next()? != Token::BeginObject {
        return Err(Malformed::NoMetadata);
    }
    let digits = revision.to_string();
    let spliced = |cut: Range<usize>, before: &str, after: &str| {
        let start = cut.start + before.len();
        let text = [&text[..cut.start], before.as_bytes(), digits.as_bytes(), after.as_bytes(), &text[cut.end..]];
        Ok((text.concat(), start..start + digits.len()))
    };
    // Where it goes: the end of what comes before it, and whether that is a field.
    let (mut at, mut follows, mut place) = (reader.offset(), false, None);
    while let Token::Key(key) = reader.next()? {
        if key == VERSION {
            let old = reader.skip()?.len();
            return spliced(reader.offset() - old..reader.offset(), "\"", "\"");
        }
        if place.is_none() && *key > *VERSION {
            place = Some((at, follows));
        }
        reader.skip()?;
        (at, follows) = (reader.offset(), true);
    }
    match place.unwrap_or((at, follows)) {
        (at, true) => spliced(at..at, ",\"resourceVersion\":\"", "\""),
        // The first field, with others behind it unless there are none at all.
        (at, false) => spliced(at..at, "\"resourceVersion\":\"", if follows { "\"," } else { "\"" }),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::cache::FieldPaths;

    #[test]
    fn the_version_goes_where_it_belongs() {
        fn check(text: &str, expected: &str) {
            let object = Object::encode(b"a/b", text.as_bytes(), Revision(7), &FieldPaths::default());
            let answer = match object {
                Ok(object) => {
                    let later = object.at(Revision(1234)).at(Revision(7));
                    assert_eq!(later.json, object.json, "{text}");
                    String::from_utf8(object.json.to_vec()).unwrap()
                }
                Err(error) => error.to_string(),
            };
            assert_eq!(answer, expected, "{text}");
        }
        check(r#"{"metadata":{}}"#, r#"{"metadata":{"resourceVersion":"7"}}"#);
        check(r#"{ "metadata" : { } }"#, r#"{ "metadata" : {"resourceVersion":"7" } }"#);
        check(
            r#"{"kind":"Pod","metadata":{"name":"b","uid":"u"},"spec":{"metadata":{}}}"#,
            r#"{"kind":"Pod","metadata":{"name":"b","resourceVersion":"7","uid":"u"},"spec":{"metadata":{}}}"#,
        );
        check(
            r#"{"a":{"metadata":{"x":1}},"metadata":{"uid":"u","name":"b"}}"#,
            r#"{"a":{"metadata":{"x":1}},"metadata":{"resourceVersion":"7","uid":"u","name":"b"}}"#,
        );
        check(
            r#"{"metadata":{"labels":{"z":"}"},"name":"b" } }"#,
            r#"{"metadata":{"labels":{"z":"}"},"name":"b","resourceVersion":"7" } }"#,
        );
        check(
            r#"{"metadata":{"uid":"u", "resourceVersion": "99" ,"x":1}}"#,
            r#"{"metadata":{"uid":"u", "resourceVersion": "7" ,"x":1}}"#,
        );
        check(r#"{"kind":"Pod"}"#, "the object has no metadata");
        check(r#"{"metadata":null}"#, "the object has no metadata");
        check("null", "the object has no metadata");
        check(r#"{"metadata":{}"#, "unexpected end of JSON input");
        check("[]", "json: cannot unmarshal array into Go value of type v1.PartialObjectMetadata");
    }

    #[test]
    fn what_reads_ask_is_kept() {
        let text = br#"{"metadata":{"name":"b","namespace":"a","uid":"u","labels":{"x":"1"},"finalizers":["f"],
            "deletionTimestamp":"2026-01-01T00:00:00Z","ownerReferences":[{"uid":"o","kind":"K","controller":true}]},
            "spec":{"nodeName":"n"}}"#;
        let object = Object::encode(b"a/b", text, Revision(7), &FieldPaths::new(["spec.nodeName"])).unwrap();
        assert_eq!((object.namespace(), object.name(), &*object.uid), ("a", "b", "u"));
        assert_eq!((object.owners[0].uid.as_str(), object.owners[0].controller), ("o", true));
        assert_eq!((object.finalizers.len(), object.deletion_timestamp.is_some()), (1, true));
        let selected = |labels: &str, fields: &str| object.matches(&labels.parse().unwrap(), &fields.parse().unwrap());
        assert!(selected("x=1", "spec.nodeName=n,metadata.name=b,metadata.namespace=a"));
        assert!(!selected("x=2", "") && !selected("", "metadata.name=a") && !selected("", "spec.nodeName!=n"));
    }
}
