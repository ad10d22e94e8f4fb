//! What delete and deletecollection can be told, by query or by body.

use capstan_api::{
    GroupVersionKind, Map, Str, Value, builtin,
    codec::{self, Format},
    field::{Error, Path},
    go, json,
    names::GroupVersion,
    protobuf,
    status::Status,
};

use super::{
    Query,
    options::{invalid, shown_as_json, validate_dry_run},
};

/// The kind of the options.
const KIND: GroupVersionKind = GroupVersionKind::from_static("meta.k8s.io", "v1", "DeleteOptions");
/// The kinds of the API machinery itself, which a body may be of by mistake. Upstream finds them, but no way to the
/// options.
const META_KINDS: [&str; 11] = [
    "APIGroup",
    "APIGroupList",
    "APIResourceList",
    "APIVersions",
    "CreateOptions",
    "GetOptions",
    "ListOptions",
    "PatchOptions",
    "Status",
    "UpdateOptions",
    "WatchEvent",
];
/// The place that upstream's schemes say they were made at.
const SCHEME: &str = "pkg/runtime/scheme.go:111";

/// What becomes of what the object owns.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Propagation {
    /// It lives on, without an owner.
    Orphan,
    /// It is deleted after the object.
    Background,
    /// It is deleted before the object.
    Foreground,
}

/// What must hold for an object to be deleted.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Preconditions {
    /// The UID that it must have.
    pub uid: Option<Str>,
    /// The version that it must have.
    pub resource_version: Option<Str>,
}

/// The options of delete and deletecollection.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct DeleteOptions {
    /// How many seconds the object may take to end.
    pub grace_period_seconds: Option<i64>,
    /// What must hold.
    pub preconditions: Option<Preconditions>,
    /// What becomes of what it owns, in the old way: whether it lives on.
    pub orphan_dependents: Option<bool>,
    /// What becomes of what it owns.
    pub propagation_policy: Option<Propagation>,
    /// All is done but the deleting.
    pub dry_run: bool,
}

/// The options as they were sent, before anything is checked.
struct Raw<'a> {
    options: DeleteOptions,
    propagation_policy: Option<&'a str>,
    dry_run: Vec<&'a str>,
}

impl Raw<'_> {
    fn validate(mut self) -> Result<DeleteOptions, Status> {
        let path = Path::new("propagationPolicy");
        let mut errors = Vec::new();
        if let Some(policy) = self.propagation_policy {
            if self.options.orphan_dependents.is_some() {
                let words = "orphanDependents and deletionPropagation cannot be both set";
                errors.push(shown_as_json(Error::invalid(path, policy, words)));
            }
            self.options.propagation_policy = match policy {
                "Orphan" => Some(Propagation::Orphan),
                "Background" => Some(Propagation::Background),
                "Foreground" => Some(Propagation::Foreground),
                _ => {
                    let supported = ["Foreground", "Background", "Orphan", "nil"];
                    errors.push(shown_as_json(Error::not_supported(path, policy, &supported)));
                    None
                }
            };
        }
        errors.extend(validate_dry_run(&self.dry_run));
        self.options.dry_run = !self.dry_run.is_empty();
        invalid("DeleteOptions", errors).map(|()| self.options)
    }
}

impl DeleteOptions {
    /// Reads the options of a request without a body.
    ///
    /// # Errors
    /// 400 for what cannot be read, 422 for what makes no sense.
    pub fn from_query(query: &Query<'_>) -> Result<Self, Status> {
        let number = query.number("gracePeriodSeconds");
        let given = |key| query.get(key).filter(|text| !text.is_empty()).map(Str::from);
        let (uid, resource_version) = (given("uid"), given("resourceVersion"));
        let preconditions = Preconditions { uid, resource_version };
        let raw = Raw {
            options: DeleteOptions {
                grace_period_seconds: number.map_err(|error| Status::bad_request(error.to_string()))?,
                preconditions: Some(preconditions).filter(|wanted| *wanted != Preconditions::default()),
                orphan_dependents: query.flag("orphanDependents"),
                ..DeleteOptions::default()
            },
            propagation_policy: query.get("propagationPolicy"),
            dry_run: query.all("dryRun").collect(),
        };
        raw.validate()
    }

    /// Reads the options of a request with a body; then the query counts for nothing.
    ///
    /// # Errors
    /// 400 for what cannot be read, 422 for what makes no sense.
    pub fn from_body(body: &[u8], format: Format) -> Result<Self, Status> {
        Self::from_value(&decode(body, format).map_err(Status::bad_request)?)
    }

    /// Reads the options of a request with a body that is protobuf.
    ///
    /// # Errors
    /// As [`from_body`](DeleteOptions::from_body).
    pub fn from_message(body: &[u8]) -> Result<Self, Status> {
        let refuse = |error: protobuf::Error| Status::bad_request(error.to_string());
        let envelope = protobuf::envelope(body).map_err(refuse)?;
        let mut head = Map::default();
        for (name, text) in [("apiVersion", envelope.api_version), ("kind", envelope.kind)] {
            if !text.is_empty() {
                head.insert(name, text);
            }
        }
        check_kind(&head.into()).map_err(Status::bad_request)?;
        let schema = builtin::schema(&KIND).expect("the table has the options of all verbs");
        Self::from_value(&protobuf::decode_message(&schema, envelope.raw).map_err(refuse)?)
    }

    fn from_value(value: &Value) -> Result<Self, Status> {
        let empty = Map::default();
        let map = value.as_object().unwrap_or(&empty);
        let text = |map: &Map, key: &str| map.get(key).and_then(Value::as_str).map(Str::from);
        let preconditions = map.get("preconditions").and_then(Value::as_object).map(|wanted| Preconditions {
            uid: text(wanted, "uid"),
            resource_version: text(wanted, "resourceVersion"),
        });
        let dry_run = map.get("dryRun").and_then(Value::as_array);
        let raw = Raw {
            options: DeleteOptions {
                grace_period_seconds: map.get("gracePeriodSeconds").and_then(Value::as_i64),
                preconditions,
                orphan_dependents: map.get("orphanDependents").and_then(Value::as_bool),
                ..DeleteOptions::default()
            },
            propagation_policy: map.get("propagationPolicy").and_then(Value::as_str),
            dry_run: dry_run.map_or_else(Vec::new, |values| values.iter().filter_map(Value::as_str).collect()),
        };
        raw.validate()
    }
}

/// The value of a body that says, or does not deny, that it holds these options.
fn decode(body: &[u8], format: Format) -> Result<Value, String> {
    let value = codec::decode(body, format).map_err(|error| match format {
        Format::Json => format!("couldn't get version/kind; json parse error: {error}"),
        Format::Yaml => error.to_string(),
    })?;
    check_kind(&value)?;
    let text = match format {
        Format::Json => None,
        Format::Yaml => Some(json::to_string(&value)),
    };
    let schema = builtin::schema(&KIND).expect("the table has the options of all verbs");
    let decoded = schema.decode(text.as_ref().map_or(body, |text| text.as_bytes()));
    decoded.map(|decoded| decoded.value).map_err(|error| error.to_string())
}

fn check_kind(value: &Value) -> Result<(), String> {
    let map = match value {
        Value::Null => return Ok(()),
        Value::Object(map) => map,
        other => {
            let fields = r#"APIVersion string "json:\"apiVersion,omitempty\""; Kind string "json:\"kind,omitempty\"""#;
            let found = go_type(other);
            return Err(format!(
                "couldn't get version/kind; json parse error: json: cannot unmarshal {found} into Go value of type struct {{ {fields} }}"
            ));
        }
    };
    // Here Go does not look at the case of letters.
    let text = |key: &str| match map.iter().rfind(|(name, _)| name.eq_ignore_ascii_case(key)) {
        None | Some((_, Value::Null)) => Ok(""),
        Some((_, Value::String(text))) => Ok(text.as_str()),
        Some((_, other)) => {
            let found = go_type(other);
            Err(format!(
                "couldn't get version/kind; json parse error: json: cannot unmarshal {found} into Go struct field .{key} of type string"
            ))
        }
    };
    let (api_version, kind) = (text("apiVersion")?, text("kind")?);
    let version: GroupVersion = api_version.parse().map_err(|_| {
        // The parser's own error says the same in a sentence of its own.
        format!("unexpected GroupVersion string: {api_version}")
    })?;
    let version = if version.is_empty() { KIND.group_version() } else { version };
    if kind.is_empty() || kind == &*KIND.kind {
        return Ok(());
    }
    let shared = version.version == "v1" && (version.group.is_empty() || version.group == KIND.group);
    if shared && META_KINDS.contains(&kind) {
        return Err(format!("converting (v1.{kind}) to (v1.DeleteOptions): unknown conversion"));
    }
    let (kind, version) = (go::quote(kind), go::quote(&version.to_string()));
    Err(format!("no kind {kind} is registered for version {version} in scheme {}", go::quote(SCHEME)))
}

/// What Go's decoder calls a value.
fn go_type(value: &Value) -> &'static str {
    match value {
        Value::Null => "null",
        Value::Bool(_) => "bool",
        Value::Int(_) | Value::Float(_) => "number",
        Value::String(_) => "string",
        Value::Array(_) => "array",
        Value::Object(_) => "object",
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// What upstream answered: `q` and a query or `b` and a body, a tab, and code and message. Behind good options it
    /// did not find the object.
    #[test]
    fn answers_as_upstream() {
        let mut cases = 0;
        for case in include_str!("delete_cases.txt").lines().filter(|line| !line.starts_with('#')) {
            let (input, expected) = case.split_once('\t').unwrap();
            let answer = match input.split_once(' ').unwrap() {
                ("q", query) => DeleteOptions::from_query(&Query::parse(query)),
                ("b", body) => DeleteOptions::from_body(body.as_bytes(), Format::Json),
                (_, body) => DeleteOptions::from_body(body.as_bytes(), Format::Yaml),
            };
            let said = answer.map_or_else(|status| format!("{} {}", status.code, status.message), |_| "ok".to_owned());
            assert_eq!(said, expected, "{input}");
            cases += 1;
        }
        assert!(cases > 30);
    }

    #[test]
    fn both_ways_mean_the_same() {
        let query = "gracePeriodSeconds=-3&uid=u&resourceVersion=7&propagationPolicy=Orphan&dryRun=All";
        let body =
            br#"{"kind":"DeleteOptions","gracePeriodSeconds":-3,"preconditions":{"uid":"u","resourceVersion":"7"},
            "propagationPolicy":"Orphan","dryRun":["All"]}"#;
        let expected = DeleteOptions {
            grace_period_seconds: Some(-3),
            preconditions: Some(Preconditions { uid: Some("u".into()), resource_version: Some("7".into()) }),
            orphan_dependents: None,
            propagation_policy: Some(Propagation::Orphan),
            dry_run: true,
        };
        assert_eq!(DeleteOptions::from_query(&Query::parse(query)), Ok(expected.clone()));
        assert_eq!(DeleteOptions::from_body(body, Format::Json), Ok(expected));
        let zero =
            DeleteOptions::from_body(br#"{"gracePeriodSeconds":0,"orphanDependents":false}"#, Format::Json).unwrap();
        assert_eq!((zero.grace_period_seconds, zero.orphan_dependents), (Some(0), Some(false)));
        assert_eq!(DeleteOptions::from_query(&Query::parse("uid=")), Ok(DeleteOptions::default()));
    }
}
