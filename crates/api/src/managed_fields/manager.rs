//! The whole of a write, as far as managed fields go.

use super::{
    FieldSet, Filter, ManagedFieldsEntry, Operation,
    cap::cap,
    conflict,
    entry::{clear, raw_entries, read_entries, write_entries},
    fields::valid_field_set,
    last_applied,
    types::Ty,
    updater::{Applied, Failure, Updater},
    validate::validate,
    zero::zero_object,
};
use crate::{Map, Status, Str, Value, names::GroupVersionKind, schema::Schema};

/// The manager of all that was there before the first apply.
const BEFORE_FIRST_APPLY: &str = "before-first-apply";
/// The manager of a request that names none.
const UNKNOWN: &str = "unknown";

/// Other versions of a kind, for entries that were written in them.
pub trait OtherVersions {
    /// The schema of the kind in a version; nothing if there is no such version. Entries of such are dropped.
    fn schema(&self, api_version: &str) -> Option<Schema>;

    /// The object in a version that there is.
    ///
    /// # Errors
    /// Why it cannot be converted.
    fn convert(&self, object: &Map, api_version: &str) -> Result<Map, String>;
}

/// A kind that has no other version.
#[derive(Clone, Copy, Debug)]
pub struct OneVersion;

impl OtherVersions for OneVersion {
    fn schema(&self, _: &str) -> Option<Schema> {
        None
    }

    fn convert(&self, _: &Map, api_version: &str) -> Result<Map, String> {
        Err(format!("there is no version {api_version}"))
    }
}

/// Keeps the entries of objects through the writes of one endpoint: a kind in a version, or a subresource of it.
#[derive(Clone, Copy)]
pub struct FieldManager<'a> {
    /// The kind, in the version of the request.
    pub kind: &'a GroupVersionKind,
    /// Its schema.
    pub schema: &'a Schema,
    /// The subresource that is written through; empty for the main one.
    pub subresource: &'a str,
    /// The fields that can be written through this endpoint.
    pub filter: &'a Filter,
    /// Other versions of the kind.
    pub versions: &'a dyn OtherVersions,
}

/// Why an apply is refused.
#[derive(Clone, Debug, PartialEq)]
pub enum ApplyError {
    /// Others own what is applied. The status names them all.
    Conflicts(Box<Status>),
    /// The configuration cannot be applied here.
    BadRequest(String),
    /// It does not fit the schema, or something that should not happen did.
    Internal(String),
}

impl ApplyError {
    /// What the client is told.
    #[must_use]
    pub fn into_status(self) -> Status {
        match self {
            ApplyError::Conflicts(status) => *status,
            ApplyError::BadRequest(message) => Status::bad_request(message),
            ApplyError::Internal(message) => Status { code: 500, ..Status::unknown(message) },
        }
    }
}

/// Fields that nobody owns.
fn stripped() -> &'static FieldSet {
    static SET: std::sync::OnceLock<FieldSet> = std::sync::OnceLock::new();
    SET.get_or_init(|| {
        FieldSet::of_fields(&[
            "apiVersion",
            "kind",
            "metadata",
            "metadata.name",
            "metadata.namespace",
            "metadata.creationTimestamp",
            "metadata.selfLink",
            "metadata.uid",
            "metadata.clusterName",
            "metadata.generation",
            "metadata.managedFields",
            "metadata.resourceVersion",
        ])
    })
}

impl FieldManager<'_> {
    fn api_version(&self) -> Str {
        match (&*self.kind.group, &*self.kind.version) {
            ("", version) => version.into(),
            (group, version) => format!("{group}/{version}").into(),
        }
    }

    fn entry(&self, manager: &str, operation: Operation) -> ManagedFieldsEntry {
        ManagedFieldsEntry {
            manager: if manager.is_empty() { UNKNOWN } else { manager }.into(),
            operation,
            api_version: self.api_version(),
            subresource: self.subresource.into(),
            time: None,
            fields: FieldSet::new(),
        }
    }

    /// Sets the entries of `new`, which a create, an update or a patch by `manager` has made of `live`, at the time
    /// `now`. There is no `live` when the object is created.
    ///
    /// `new` is the object as it was decoded or patched, with defaults, before admission. What it has for entries
    /// itself counts: clients may change them, and clear them with an empty list or one empty entry. It never fails: if
    /// ownership cannot be told, the object has no entries, and tracking begins again with the first apply.
    pub fn update(&self, live: Option<&Map>, new: &mut Map, manager: &str, now: &str) {
        let entries = self.entries_to_keep(live, new);
        clear(new);
        if entries.is_empty() && live.is_some() {
            return;
        }
        let zero;
        let live = match live {
            Some(live) => live,
            None => {
                zero = zero_object(self.schema);
                &zero
            }
        };
        if let Ok(entries) = self.track(live, new, entries, manager, now) {
            write_entries(new, entries);
        }
    }

    /// The entries that an update starts from: what the client sends on the main endpoint, if that is anything.
    fn entries_to_keep(&self, live: Option<&Map>, new: &Map) -> Vec<ManagedFieldsEntry> {
        let of_live = || live.and_then(|live| read_entries(live).ok()).unwrap_or_default();
        if !self.subresource.is_empty() {
            return of_live();
        }
        if asks_to_clear(new) {
            return Vec::new();
        }
        match read_entries(new) {
            Ok(entries) if !entries.is_empty() => entries,
            _ => of_live(),
        }
    }

    /// The entries after an update.
    fn track(
        &self,
        live: &Map,
        new: &Map,
        entries: Vec<ManagedFieldsEntry>,
        manager: &str,
        now: &str,
    ) -> Result<Vec<ManagedFieldsEntry>, Failure> {
        let version = self.api_version();
        let updater = Updater::new(&version, self.schema, self.versions, self.filter, &entries);
        let (mut entries, changed) = updater.update(live, new, entries)?;
        let changed = changed.difference(stripped());
        if !changed.is_empty() {
            let own = self.entry(manager, Operation::Update);
            let at = entries.iter().position(|entry| entry.is_same(&own)).unwrap_or_else(|| {
                entries.push(own);
                entries.len() - 1
            });
            let entry = &mut entries[at];
            entry.fields = std::mem::take(&mut entry.fields).union(changed);
            entry.time = Some(now.into());
        }
        cap(&mut entries);
        Ok(entries)
    }

    /// What `live` becomes when `manager` applies `config`, with its entries, at the time `now`. There is no `live`
    /// when the object is created. The result has no defaults yet.
    ///
    /// # Errors
    /// If another manager owns a field that would change, unless `force` is set; if the configuration is of another
    /// kind or version, has entries itself, or does not fit the schema.
    pub fn apply(
        &self,
        live: Option<&Map>,
        config: Map,
        manager: &str,
        force: bool,
        now: &str,
    ) -> Result<Map, ApplyError> {
        let zero;
        let live = match live {
            Some(live) => live,
            None => {
                zero = self.typed_zero();
                &zero
            }
        };
        let entries = read_entries(live)
            .map_err(|error| ApplyError::Internal(format!("failed to decode managed fields: {error}")))?;
        self.check_kind(&config)?;
        let entries = match self.before_first_apply(live, entries, now) {
            Ok(entries) => entries,
            Err(failure) => {
                const PREFIX: &str = "failed to create manager for existing fields: ";
                // What is stored may be what no configuration could be; then it is said where.
                let live = Value::Object(live.clone());
                return Err(match validate(Ty::of(self.schema), &live) {
                    Err(errors) => {
                        let shown = self.shown(&live);
                        ApplyError::Internal(format!(
                            "{PREFIX}failed to convert new object ({shown}) to smd typed: {errors}"
                        ))
                    }
                    Ok(()) => internal(failure, PREFIX),
                });
            }
        };
        if has_entries(&config) {
            return Err(ApplyError::BadRequest("metadata.managedFields must be nil".to_owned()));
        }
        let config = Value::Object(config);
        let fields = valid_field_set(Ty::of(self.schema), &config).map_err(|errors| {
            ApplyError::Internal(format!("failed to create typed patch object ({}): {errors}", self.shown(&config)))
        })?;
        let last_config = (manager == last_applied::MANAGER
            && [live].into_iter().chain(config.as_object()).any(last_applied::has))
        .then(|| config.clone());

        let version = self.api_version();
        let updater = Updater::new(&version, self.schema, self.versions, self.filter, &entries);
        let own = self.entry(manager, Operation::Apply);
        let applier = ManagedFieldsEntry { fields, ..own.clone() };
        let applied = match last_config {
            None => updater.apply(live, config, entries, applier, force),
            // kubectl may take over what it applied itself before servers could.
            Some(_) => match updater.apply(live, config.clone(), entries.clone(), applier.clone(), force) {
                Err(Failure::Conflicts(mut conflicts)) => {
                    if let Some(allowed) = last_applied::allowed(live, &version, Ty::of(self.schema)) {
                        conflicts.retain(|conflict| !allowed.has(&conflict.path));
                    }
                    if conflicts.is_empty() {
                        updater.apply(live, config, entries, applier, true)
                    } else {
                        Err(Failure::Conflicts(conflicts))
                    }
                }
                applied => applied,
            },
        };
        let Applied { mut object, changed, mut entries } = applied.map_err(|failure| internal(failure, ""))?;
        if let Some(at) = entries.iter().position(|entry| entry.is_same(&own)) {
            let entry = &mut entries[at];
            entry.fields = std::mem::take(&mut entry.fields).difference(stripped());
            if changed {
                entry.time = Some(now.into());
            }
            if entry.fields.is_empty() {
                entries.remove(at);
            }
        }
        if let Some(config) = last_config {
            last_applied::set(&mut object, config);
        }
        write_entries(&mut object, entries);
        Ok(object)
    }

    fn typed_zero(&self) -> Map {
        let mut zero = zero_object(self.schema);
        zero.insert("apiVersion", Value::String(self.api_version()));
        zero.insert("kind", self.kind.kind.as_str());
        zero
    }

    /// What is there before anything is tracked belongs to a manager of its own.
    fn before_first_apply(
        &self,
        live: &Map,
        entries: Vec<ManagedFieldsEntry>,
        now: &str,
    ) -> Result<Vec<ManagedFieldsEntry>, Failure> {
        if entries.is_empty() {
            self.track(&self.typed_zero(), live, entries, BEFORE_FIRST_APPLY, now)
        } else {
            Ok(entries)
        }
    }

    fn check_kind(&self, config: &Map) -> Result<(), ApplyError> {
        let (api_version, kind) = type_of(config);
        let (group, version) = api_version.split_once('/').unwrap_or(("", api_version));
        if (group, version, kind) == (&self.kind.group, &self.kind.version, &self.kind.kind) {
            return Ok(());
        }
        Err(ApplyError::BadRequest(format!("invalid object type: {group}/{version}, Kind={kind}")))
    }

    fn shown(&self, config: &Value) -> String {
        let text = |name: &str| config.get("metadata").and_then(|meta| meta.get(name)?.as_str()).unwrap_or_default();
        let GroupVersionKind { group, version, kind } = self.kind;
        format!("{}/{}; {group}/{version}, Kind={kind}", text("namespace"), text("name"))
    }
}

fn type_of(object: &Map) -> (&str, &str) {
    let text = |name: &str| object.get(name).and_then(Value::as_str).unwrap_or_default();
    (text("apiVersion"), text("kind"))
}

/// Whether an object that a client has sent asks for its entries to be forgotten: the list is empty, or has one empty
/// entry.
///
/// An empty list does not outlive decoding into a built-in type, so whoever decodes has to ask before, and put it back.
#[must_use]
pub fn asks_to_clear(object: &Map) -> bool {
    let nothing = |value: &Value| value.is_null() || value.as_str() == Some("");
    match raw_entries(object) {
        Some([]) => true,
        Some([one]) => one.as_object().is_some_and(|entry| entry.values().all(nothing)),
        _ => false,
    }
}

/// Whether a configuration has entries, even if there are none in the list.
fn has_entries(config: &Map) -> bool {
    raw_entries(config).is_some_and(|entries| entries.iter().all(|entry| entry.as_object().is_some()))
}

fn internal(failure: Failure, before: &str) -> ApplyError {
    match failure {
        Failure::Conflicts(conflicts) => ApplyError::Conflicts(Box::new(conflict::status(&conflicts))),
        Failure::Other(message) => ApplyError::Internal(format!("{before}{message}")),
    }
}

/// Checks the entries of an object that admission may have changed; if they cannot be read, they become those that it
/// had `before`, and the warning for the client is returned.
pub fn check_after_admission(before: Option<&[Value]>, object: &mut Map) -> Option<String> {
    let error = read_entries(object).err()?;
    clear(object);
    if let Some(before) = before
        && let Some(metadata) = object.get_mut("metadata").and_then(Value::as_object_mut)
    {
        metadata.insert("managedFields", Value::from(before.to_vec()));
    }
    Some(format!(
        ".metadata.managedFields was in an invalid state after admission; this could be caused by an outdated mutating \
         admission controller; please fix your requests: {error}"
    ))
}
