//! From the body of a request to an object of the kind that the endpoint takes.

use std::borrow::Cow;

use capstan_api::{
    GroupVersion, GroupVersionKind, Map, Status, Str, Value, builtin,
    codec::{self, Format, StrictErrors},
    json::{self, Reader, Token},
    protobuf,
    schema::{Decoded, Schema},
};

use crate::request::{MediaType, body_media_type, negotiate::Protobuf, options::FieldValidation};
use crate::{
    base64, conversion,
    custom::{self, decode::Nulls},
    registry::Resource,
};

/// Where upstream says that its scheme of built-in kinds was made.
const SCHEME: &str = "pkg/runtime/scheme.go:111";

/// The Go type that a kind is looked for in.
pub(crate) const TYPE_META: &str = concat!(
    "struct { APIVersion string \"json:\\\"apiVersion,omitempty\\\"\"; ",
    "Kind string \"json:\\\"kind,omitempty\\\"\" }"
);

/// How much of a body that cannot be read is shown.
const SUMMARY_BYTES: usize = 30;

/// Whether a body of this form is read at all, which creates ask before anything else.
///
/// # Errors
/// 415 for one that is not.
pub(crate) fn check_form(resource: &Resource, content_type: &str) -> Result<(), Status> {
    let protobuf = if resource.as_custom().is_some() { Protobuf::No } else { Protobuf::Yes };
    body_media_type(content_type, protobuf).map(drop)
}

/// Reads and defaults an object of a resource, built in or custom.
///
/// # Errors
/// See [`object`].
pub(crate) fn of(
    resource: &Resource,
    body: &[u8],
    content_type: &str,
    validation: FieldValidation,
    warnings: &mut Vec<String>,
) -> Result<Map, Status> {
    let Some(served) = resource.as_custom() else {
        return object(body, content_type, &resource.gvk, resource.schema(), validation, warnings);
    };
    let format = match body_media_type(content_type, Protobuf::No)? {
        MediaType::Yaml => Format::Yaml,
        _ => Format::Json,
    };
    let refuse = |kind: &str, version: &str, words: &str| custom::decode::refusal(served, kind, version, words);
    let (object, found) =
        custom::decode::object(served, body, format, Nulls::Dropped).map_err(|refused| match refused {
            custom::decode::Refused::Unrecognized(words) => unrecognized(&resource.gvk, &words, body),
            custom::decode::Refused::Other(kind, version, words) => refuse(&kind, &version, &words),
        })?;
    let text = |key: &str| object.get(key).and_then(Value::as_str).unwrap_or_default();
    let version = text("apiVersion").rsplit('/').next().unwrap_or_default();
    strict(found, validation, warnings).map_err(|errors| refuse(text("kind"), version, &errors.to_string()))?;
    custom::decode::check_version(served, &object)?;
    Ok(object)
}

/// Reads and defaults an object of `gvk`.
///
/// # Errors
/// 415 for a form that nobody reads, 400 for what is not such an object.
pub(crate) fn object(
    body: &[u8],
    content_type: &str,
    gvk: &GroupVersionKind,
    schema: &Schema,
    validation: FieldValidation,
    warnings: &mut Vec<String>,
) -> Result<Map, Status> {
    let format = match body_media_type(content_type, Protobuf::Yes)? {
        MediaType::Protobuf => None,
        MediaType::Yaml => Some(Format::Yaml),
        _ => Some(Format::Json),
    };
    let (sent, found) = Sent::open(body, format).map_err(|error| unrecognized(gvk, &error, body))?;
    let found = resolve(found, gvk).map_err(|error| unrecognized(gvk, &error, body))?;
    let refuse = |error: &dyn std::fmt::Display| {
        let (kind, version) = (&found.kind, found.version.as_str());
        Status::bad_request(format!("{kind} in version {version:?} cannot be handled as a {}: {error}", gvk.kind))
    };
    match other_kind(&sent, &found, gvk) {
        Other::No => {}
        Other::Kind(error) => return Err(refuse(&error)),
        Other::Version => {
            return Err(Status::bad_request(format!(
                "the API version in the data ({}) does not match the expected API version ({})",
                found.api_version(),
                gvk.api_version()
            )));
        }
    }
    let decoded = sent.decode(schema).map_err(|error| refuse(&error))?;
    strict(decoded.strict, validation, warnings).map_err(|error| refuse(&error))?;
    Ok(finish(decoded.value, gvk, schema))
}

/// Whether an object is of another kind than expected.
enum Other {
    No,
    /// It is, and this is why that cannot be.
    Kind(String),
    /// It is the same kind in another version.
    Version,
}

fn other_kind(sent: &Sent<'_>, found: &GroupVersionKind, gvk: &GroupVersionKind) -> Other {
    if found == gvk {
        return Other::No;
    }
    let Some(other) = builtin::schema(found) else {
        let (version, kind) = (found.api_version(), found.kind.as_str());
        return Other::Kind(format!("no kind {kind:?} is registered for version {version:?} in scheme {SCHEME:?}"));
    };
    if let Err(error) = sent.decode(&other) {
        return Other::Kind(error);
    }
    if found.kind != gvk.kind || found.group != gvk.group {
        let from = format!("{}.{}", found.version, found.kind);
        let to = format!("{}.{}", internal_package(&gvk.group), gvk.kind);
        return Other::Kind(format!("converting ({from}) to ({to}): unknown conversion"));
    }
    Other::Version
}

/// Whether what a patch has made is still of the kind.
pub(crate) fn check_kind(json: &[u8], gvk: &GroupVersionKind) -> Result<(), String> {
    let found = resolve(kind_of(json)?, gvk)?;
    let sent = Sent::Json(Cow::Borrowed(json), StrictErrors::default());
    match other_kind(&sent, &found, gvk) {
        Other::No | Other::Version => Ok(()),
        Other::Kind(error) => Err(error),
    }
}

/// A body whose kind has been read, and nothing else of it.
enum Sent<'a> {
    Json(Cow<'a, [u8]>, StrictErrors),
    Message(&'a [u8]),
}

impl<'a> Sent<'a> {
    /// The body, and the kind and the version that it claims; protobuf if it is no text.
    fn open(body: &'a [u8], format: Option<Format>) -> Result<(Self, (Str, Str)), String> {
        let Some(format) = format else {
            let envelope = protobuf::envelope(body).map_err(|error| error.to_string())?;
            return Ok((Sent::Message(envelope.raw), (envelope.kind, envelope.api_version)));
        };
        let (json, duplicates) = to_json(body, format)?;
        let found = kind_of(&json)?;
        Ok((Sent::Json(json, duplicates), found))
    }

    fn decode(&self, schema: &Schema) -> Result<Decoded, String> {
        match self {
            Sent::Json(json, duplicates) => {
                let mut decoded = schema.decode(json).map_err(|error| error.to_string())?;
                decoded.strict.extend(duplicates.clone());
                Ok(decoded)
            }
            Sent::Message(raw) => {
                let value = protobuf::decode_message(schema, raw).map_err(|error| error.to_string())?;
                Ok(Decoded { value, strict: StrictErrors::default() })
            }
        }
    }
}

/// What an object of a kind has in any case: its kind, and what the server fills in.
pub(crate) fn finish(mut value: Value, gvk: &GroupVersionKind, schema: &Schema) -> Map {
    if !matches!(value, Value::Object(_)) {
        value = Value::from(Map::new());
    }
    let is_empty = |value: &Value| value.as_array().is_some_and(|items| items.is_empty());
    let empty: Vec<Str> = value
        .as_object()
        .into_iter()
        .flat_map(Map::iter)
        .filter(|(_, value)| is_empty(value))
        .map(|(key, _)| Str::from(key))
        .collect();
    let labels = value.get("metadata").and_then(|metadata| metadata.get("labels")).and_then(Value::as_object);
    let unlabelled_job = gvk.kind == *"Job" && labels.is_none_or(Map::is_empty);
    builtin::default(schema, &mut value);
    let Value::Object(mut object) = value else { return Map::new() };
    // A Job without labels has those of its template, with what the server adds to them: its strategy sees to it.
    if unlabelled_job && let Some(Value::Object(metadata)) = object.get_mut("metadata") {
        metadata.remove("labels");
    }
    // A list that was sent empty is one, until it is stored.
    for key in empty {
        if object.get(&key).is_some_and(Value::is_null) {
            object.insert(key, Vec::<Value>::new());
        }
    }
    object.insert("kind", Str::from(gvk.kind.as_str()));
    object.insert("apiVersion", gvk.api_version());
    conversion::default_v1(gvk, &mut object);
    if gvk.kind == *"Secret" && gvk.group.is_empty() {
        string_data(&mut object);
    }
    object
}

/// Text that was sent for a secret becomes data.
fn string_data(secret: &mut Map) {
    let Some(Value::Object(texts)) = secret.remove("stringData") else { return };
    if texts.is_empty() {
        return;
    }
    let mut data = secret.get("data").and_then(Value::as_object).cloned().unwrap_or_default();
    for (key, text) in texts.iter() {
        data.insert(key, base64::encode(text.as_str().unwrap_or_default().as_bytes()));
    }
    secret.insert("data", data);
}

/// What is done about fields that the kind does not know.
pub(crate) fn strict(
    errors: StrictErrors,
    validation: FieldValidation,
    warnings: &mut Vec<String>,
) -> Result<(), StrictErrors> {
    match validation {
        FieldValidation::Ignore => Ok(()),
        FieldValidation::Warn => {
            for error in errors.as_slice() {
                let text = error.to_string();
                // What YAML has to say comes in lines under a heading.
                match text.strip_prefix("yaml: unmarshal errors:\n") {
                    Some(lines) => warnings.extend(lines.lines().map(|line| line.trim().to_owned())),
                    None => warnings.push(text),
                }
            }
            Ok(())
        }
        FieldValidation::Strict => errors.into_result(),
    }
}

fn to_json(body: &[u8], format: Format) -> Result<(Cow<'_, [u8]>, StrictErrors), String> {
    match format {
        Format::Json => Ok((body.into(), StrictErrors::default())),
        Format::Yaml => {
            let (value, duplicates) = codec::decode_strict(body, format).map_err(|error| error.to_string())?;
            Ok((json::to_string(&value).into_bytes().into(), duplicates))
        }
    }
}

/// The kind and the version that the text claims, as they are.
fn kind_of(text: &[u8]) -> Result<(Str, Str), String> {
    let prefix = |error: String| format!("couldn't get version/kind; json parse error: {error}");
    let mut reader = Reader::new(text);
    let (mut kind, mut api_version) = (Str::default(), Str::default());
    let step = |error: json::Error| prefix(error.to_string());
    match reader.next().map_err(step)? {
        Token::BeginObject => {}
        Token::Null => return Ok((kind, api_version)),
        token => {
            let what = match token {
                Token::BeginArray => "array",
                Token::String(_) => "string",
                Token::Bool(_) => "bool",
                _ => "number",
            };
            reader.check_rest().map_err(step)?;
            return Err(prefix(format!("json: cannot unmarshal {what} into Go value of type {TYPE_META}")));
        }
    }
    loop {
        match reader.next().map_err(step)? {
            Token::Key(key) => {
                let place = match &*key {
                    "kind" => Some((&mut kind, "kind")),
                    "apiVersion" => Some((&mut api_version, "apiVersion")),
                    _ => None,
                };
                let raw = reader.skip().map_err(step)?;
                let Some((place, name)) = place else { continue };
                let what = match Reader::new(raw).next() {
                    Ok(Token::String(text)) => {
                        *place = Str::from(&*text);
                        continue;
                    }
                    Ok(Token::Null) => continue,
                    Ok(Token::BeginArray) => "array",
                    Ok(Token::BeginObject) => "object",
                    Ok(Token::Bool(_)) => "bool",
                    _ => "number",
                };
                reader.check_rest().map_err(step)?;
                return Err(prefix(format!(
                    "json: cannot unmarshal {what} into Go struct field .{name} of type string"
                )));
            }
            Token::EndObject => break,
            _ => {}
        }
    }
    reader.check_rest().map_err(step)?;
    Ok((kind, api_version))
}

/// What is not said is what the endpoint takes.
fn resolve((kind, api_version): (Str, Str), expected: &GroupVersionKind) -> Result<GroupVersionKind, String> {
    let group_version: GroupVersion = match &*api_version {
        "" => expected.group_version(),
        text if text.matches('/').count() > 1 => return Err(format!("unexpected GroupVersion string: {text}")),
        text => {
            let gvk = GroupVersionKind::from_api_version_and_kind(text, "");
            gvk.group_version()
        }
    };
    let kind = if kind.is_empty() { expected.kind.as_str() } else { &*kind };
    Ok(group_version.with_kind(capstan_api::Name::from(kind)))
}

fn unrecognized(gvk: &GroupVersionKind, error: &str, body: &[u8]) -> Status {
    let shown = &body[..body.len().min(SUMMARY_BYTES)];
    let mut summary = match body.first() {
        None => "<empty>".to_owned(),
        Some(b'{') => String::from_utf8_lossy(shown).into_owned(),
        Some(_) => shown.iter().map(|byte| format!("{byte:02x}")).collect(),
    };
    if body.len() > SUMMARY_BYTES {
        summary.push_str(" ...");
    }
    let kind = &gvk.kind;
    Status::bad_request(format!("the object provided is unrecognized (must be of type {kind}): {error} ({summary})"))
}

/// The Go package of a group's internal types, which some refusals name.
pub(crate) fn internal_package(group: &str) -> &str {
    match group.split('.').next().unwrap_or_default() {
        "" => "core",
        first => first,
    }
}
