//! The entries of `metadata.managedFields`.

use std::fmt;

use super::FieldSet;
use crate::{Array, Map, Str, Time, Value, go, json};

/// How a manager came to its fields.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Operation {
    /// By server-side apply.
    Apply,
    /// By any other write.
    Update,
}

impl Operation {
    fn as_str(self) -> &'static str {
        match self {
            Operation::Apply => "Apply",
            Operation::Update => "Update",
        }
    }
}

/// What one manager owns.
#[derive(Clone, Debug, PartialEq)]
pub struct ManagedFieldsEntry {
    /// The manager's name.
    pub manager: Str,
    /// How it came to its fields.
    pub operation: Operation,
    /// The version that the paths are of.
    pub api_version: Str,
    /// The subresource through which it wrote; empty for the main one.
    pub subresource: Str,
    /// When it last changed something, if that is known.
    pub time: Option<Value>,
    /// The fields.
    pub fields: FieldSet,
}

/// Why entries cannot be read.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct EntriesError(String);

impl fmt::Display for EntriesError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

impl std::error::Error for EntriesError {}

impl ManagedFieldsEntry {
    /// Whether both are of the same manager: those who apply are the same in all versions.
    pub fn is_same(&self, other: &Self) -> bool {
        self.manager == other.manager
            && self.operation == other.operation
            && self.subresource == other.subresource
            && (self.operation == Operation::Apply || self.api_version == other.api_version)
    }

    /// The text by which upstream tells managers apart, and sorts them.
    pub(super) fn identifier(&self) -> String {
        let mut map = String::from("{");
        let version = if self.operation == Operation::Apply { "" } else { self.api_version.as_str() };
        let fields = [
            ("manager", self.manager.as_str()),
            ("operation", self.operation.as_str()),
            ("apiVersion", version),
            ("subresource", &self.subresource),
        ];
        for (name, value) in fields.into_iter().filter(|(_, value)| !value.is_empty()) {
            let comma = if map.len() > 1 { "," } else { "" };
            map.push_str(&format!("{comma}\"{name}\":{}", json::to_string(&value.into())));
        }
        map + "}"
    }

    pub(super) fn seconds(&self) -> i64 {
        let time = self.time.as_ref().and_then(Value::as_str).and_then(|text| text.parse::<Time>().ok());
        time.map_or(0, Time::unix_seconds)
    }

    /// The manager as messages of conflicts name it.
    pub(super) fn shown(&self) -> String {
        let mut shown = go::quote(&self.manager);
        if !self.subresource.is_empty() {
            shown = format!("{shown} with subresource {}", go::quote(&self.subresource));
        }
        if self.operation == Operation::Update {
            shown = format!("{shown} using {}", self.api_version);
        }
        shown
    }

    fn read(at: usize, value: &Value) -> Result<Self, EntriesError> {
        let error = |message: String| Err(EntriesError(message));
        let text = |name: &str| value.get(name).and_then(Value::as_str).unwrap_or_default();
        let operation = match text("operation") {
            "Apply" => Operation::Apply,
            "Update" => Operation::Update,
            _ => return error("operation must be `Apply` or `Update`".to_owned()),
        };
        if text("apiVersion").is_empty() {
            return error("apiVersion must not be empty".to_owned());
        }
        match text("fieldsType") {
            "FieldsV1" => {}
            "" => return error(format!("missing fieldsType in managed fields entry {at}")),
            other => return error(format!("invalid fieldsType {} in managed fields entry {at}", go::quote(other))),
        }
        let fields = match value.get("fieldsV1") {
            None | Some(Value::Null) => FieldSet::new(),
            Some(fields) => FieldSet::from_value(fields).map_err(|error| {
                EntriesError(format!("error decoding versioned set from {value}: error decoding set: {error}"))
            })?,
        };
        Ok(ManagedFieldsEntry {
            manager: text("manager").into(),
            operation,
            api_version: text("apiVersion").into(),
            subresource: text("subresource").into(),
            time: value.get("time").filter(|time| !time.is_null()).cloned(),
            fields,
        })
    }

    fn to_value(&self) -> Value {
        let mut map = Map::new();
        for (name, text) in [
            ("apiVersion", self.api_version.as_str()),
            ("fieldsType", "FieldsV1"),
            ("manager", &self.manager),
            ("operation", self.operation.as_str()),
            ("subresource", &self.subresource),
        ] {
            if !text.is_empty() {
                map.insert(name, text);
            }
        }
        map.insert("fieldsV1", self.fields.to_value());
        if let Some(time) = &self.time {
            map.insert("time", time.clone());
        }
        map.into()
    }
}

/// Reads the entries of an object. Of two of the same manager the last one counts.
///
/// # Errors
/// If an entry is not well formed.
pub fn read_entries(object: &Map) -> Result<Vec<ManagedFieldsEntry>, EntriesError> {
    let mut entries: Vec<ManagedFieldsEntry> = Vec::new();
    for (at, value) in raw_entries(object).into_iter().flatten().enumerate() {
        let entry = ManagedFieldsEntry::read(at, value)?;
        match entries.iter_mut().find(|other| other.is_same(&entry)) {
            Some(other) => *other = entry,
            None => entries.push(entry),
        }
    }
    Ok(entries)
}

pub(super) fn raw_entries(object: &Map) -> Option<&[Value]> {
    Some(object.get("metadata")?.get("managedFields")?.as_array()?)
}

/// The entries as they stand in an object, in upstream's order: those who apply first, then by time, name, version and
/// subresource.
#[must_use]
pub fn sorted_entries(mut entries: Vec<ManagedFieldsEntry>) -> Array {
    entries.sort_by(|a, b| {
        (a.operation.cmp(&b.operation))
            .then_with(|| a.seconds().cmp(&b.seconds()))
            .then_with(|| a.manager.cmp(&b.manager))
            .then_with(|| a.api_version.cmp(&b.api_version))
            .then_with(|| a.subresource.cmp(&b.subresource))
    });
    entries.iter().map(ManagedFieldsEntry::to_value).collect()
}

/// Puts entries into an object, or takes them out if there are none.
pub fn write_entries(object: &mut Map, entries: Vec<ManagedFieldsEntry>) {
    if entries.is_empty() {
        return clear(object);
    }
    let metadata = object.get_or_insert_with("metadata", || Map::new().into());
    if let Some(metadata) = metadata.as_object_mut() {
        metadata.insert("managedFields", sorted_entries(entries));
    }
}

/// Takes the entries out of an object.
pub(super) fn clear(object: &mut Map) {
    if let Some(metadata) = object.get_mut("metadata").and_then(Value::as_object_mut) {
        metadata.remove("managedFields");
    }
}
