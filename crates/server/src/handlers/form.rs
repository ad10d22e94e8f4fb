//! How an answer looks: the object, its table or its metadata; JSON or YAML; for programs or for people.

use std::{collections::VecDeque, sync::Arc};

use bytes::Bytes;
use capstan_api::{
    GroupVersionKind, Map, Status, Time, Value, builtin,
    list::{List, Part},
    object::ListMeta,
    partial::{self, PARTIAL_OBJECT_METADATA_LIST},
    protobuf,
    table::{IncludeObject, Table, TableColumnDefinition, TableRow},
    value, yaml,
};
use http::{HeaderValue, StatusCode, header};

use crate::{
    cache::{Object, part},
    conversion,
    http::{Body, Response},
    pretty,
    registry::{Resource, encode, live},
    request::{
        Endpoint, MediaType, Negotiated, Query, RequestInfo, Transform,
        negotiate::{MEDIA_TYPES, MetaVersion, Protobuf, Serves, check_route, is_pretty},
        options::table_options,
    },
};

/// The subresources that upstream makes no tables of.
const WITHOUT_TABLE: &[(&str, &str)] = &[
    ("apiservices", "status"),
    ("certificatesigningrequests", "approval"),
    ("customresourcedefinitions", "status"),
    ("namespaces", "finalize"),
    ("pods", "binding"),
    ("pods", "ephemeralcontainers"),
    ("pods", "eviction"),
    ("pods", "log"),
    ("pods", "resize"),
    ("resourceclaims", "status"),
    ("serviceaccounts", "token"),
];

/// The form of an answer, as it was agreed on.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Form {
    pub(crate) negotiated: Negotiated,
    pretty: bool,
    include: IncludeObject,
}

/// What of a request settles the form of its answer.
#[derive(Clone, Copy)]
pub(crate) struct Wishes<'a> {
    pub(crate) accept: &'a str,
    pub(crate) user_agent: &'a str,
    pub(crate) raw_query: &'a str,
    pub(crate) query: &'a Query<'a>,
}

impl Form {
    /// Compact JSON.
    const JSON: Form = Form {
        negotiated: Negotiated { media_type: MediaType::Json, transform: None, pretty: false },
        pretty: false,
        include: IncludeObject::Metadata,
    };

    /// What there is where a request for objects arrives.
    fn endpoint(resource: &Resource, asked: &RequestInfo) -> Endpoint {
        let has_rows = resource.stored.is_some() || resource.gvk.kind == *"ComponentStatus";
        let plain = WITHOUT_TABLE.contains(&(&*resource.gvr.resource, &*asked.subresource));
        let serves = Serves::Objects { tables: has_rows && !plain };
        let streams = matches!(&*asked.verb, "list" | "watch");
        let protobuf = if resource.as_custom().is_some() { Protobuf::Transforms } else { Protobuf::Yes };
        Endpoint { protobuf, serves, streams }
    }

    /// Whether the route of a built-in resource has a form that the client takes. Custom resources have no routes.
    ///
    /// # Errors
    /// 406 if not.
    pub(crate) fn check_route(accept: &str, resource: &Resource, asked: &RequestInfo) -> Result<(), Status> {
        match &*asked.subresource {
            // The handler behind the route still wants one of the others.
            "log" => check_route(accept, &[&["text/plain"][..], &MEDIA_TYPES.map(MediaType::as_str)].concat()),
            _ => Form::endpoint(resource, asked).check_accept(accept),
        }
    }

    /// Whether the form agreed on can be streamed.
    ///
    /// # Errors
    /// 406 if not.
    pub(crate) fn check_stream(accept: &str, resource: &Resource, asked: &RequestInfo) -> Result<(), Status> {
        Form::endpoint(resource, asked).negotiate_stream(accept).map(drop)
    }

    /// Agrees on the form of objects.
    ///
    /// # Errors
    /// 406 when there is none that both know.
    pub(crate) fn negotiate(wishes: Wishes<'_>, resource: &Resource, asked: &RequestInfo) -> Result<Form, Status> {
        let endpoint = Form::endpoint(resource, asked);
        let negotiated = endpoint.negotiate(wishes.accept)?;
        let include = match negotiated.transform {
            // Wrong ones are refused, but not before there is something to make a table of.
            Some(Transform::Table(_)) => table_options(wishes.query).unwrap_or(IncludeObject::Metadata),
            _ => IncludeObject::Metadata,
        };
        let pretty = negotiated.pretty || is_pretty(wishes.raw_query, wishes.query, wishes.user_agent);
        Ok(Form { negotiated, pretty, include })
    }

    /// Refuses a table that is asked for with wrong options.
    pub(crate) fn check_table(self, query: &Query<'_>) -> Result<(), Status> {
        match self.negotiated.transform {
            Some(Transform::Table(_)) => table_options(query).map(drop),
            _ => Ok(()),
        }
    }

    /// The form of what is not made into tables: errors and documents. Who can agree on nothing gets JSON for people.
    pub(crate) fn plain(wishes: Wishes<'_>) -> Form {
        let endpoint = Endpoint { protobuf: Protobuf::Yes, serves: Serves::Documents, streams: false };
        let json = Negotiated { media_type: MediaType::Json, transform: None, pretty: true };
        let negotiated = endpoint.negotiate(wishes.accept).unwrap_or(json);
        let pretty = negotiated.pretty || is_pretty(wishes.raw_query, wishes.query, wishes.user_agent);
        Form { negotiated, pretty, include: IncludeObject::Metadata }
    }

    /// An answer of JSON that is whole, in the form agreed on.
    pub(crate) fn write(self, code: u16, json: Bytes) -> Response {
        let body = match self.negotiated.media_type {
            MediaType::Protobuf => match message(&json) {
                Some(message) => Body::from(message),
                None => return Form::JSON.write(code, json),
            },
            MediaType::Yaml => match capstan_api::json::parse(&json) {
                Ok(value) => Body::from(yaml::to_string(&value)),
                Err(_) => Body::from(json),
            },
            // Go ends a line only where it does not indent.
            _ if self.pretty => Body::from(pretty::indent(&json)),
            _ => Body::Slices(VecDeque::from([json, Bytes::from_static(b"\n")])),
        };
        answer(code, &self.negotiated.content_type(), body)
    }

    /// A status, which is never made into anything else.
    pub(crate) fn status(self, status: &Status) -> Response {
        let value = value::to_value(status).unwrap_or_default();
        let json = value.as_object().map(encode).unwrap_or_default();
        let mut response = self.write(u16::try_from(status.code).unwrap_or(500), json.into());
        if let Some(seconds) = status.suggests_client_delay() {
            response.headers_mut().insert(header::RETRY_AFTER, HeaderValue::from(seconds));
        }
        response
    }

    /// What is said of a request that went well and has no object to show.
    pub(crate) fn success(self, status: &Status) -> Response {
        let value = value::to_value(status).unwrap_or_default();
        self.write(200, value.as_object().map(encode).unwrap_or_default().into())
    }

    /// One object, given as its whole JSON in the version asked for.
    pub(crate) fn object(self, resource: &Resource, code: u16, json: Bytes, now: Time) -> Result<Response, Status> {
        let json = self.shape(resource, json, now, true)?;
        Ok(self.write(code, json))
    }

    /// What is made of an object; `columns` says whether a table gets its head.
    pub(crate) fn shape(self, resource: &Resource, json: Bytes, now: Time, columns: bool) -> Result<Bytes, Status> {
        match self.negotiated.transform {
            None | Some(Transform::AggregatedDiscovery) => Ok(json),
            Some(Transform::PartialObjectMetadata(version)) => Ok(versioned(partial_of(resource, &json), version)),
            Some(Transform::PartialObjectMetadataList(_)) if resource.as_custom().is_some() => {
                Err(Status::unknown("content is not a list"))
            }
            Some(Transform::PartialObjectMetadataList(_)) => {
                let words = format!(
                    "you requested PartialObjectMetadataList, but the requested object is not a list (*{})",
                    go_type(resource, false)
                );
                Err(not_acceptable(words))
            }
            Some(Transform::Table(version)) => {
                let object = live::parse(&json)?;
                let seen = object.get("metadata").and_then(|metadata| metadata.get("resourceVersion"));
                let resource_version = seen.and_then(Value::as_str).unwrap_or_default().to_owned();
                let table = Table {
                    metadata: ListMeta { resource_version, ..ListMeta::default() },
                    column_definitions: columns.then(|| resource.columns()),
                    rows: vec![self.row(resource, &object, json.clone(), &json, now)],
                };
                let mut out = Vec::new();
                table.render(&mut out);
                Ok(versioned(out.into(), version))
            }
        }
    }

    /// A table of one row, with columns of its own; `None` if no table is asked for.
    pub(crate) fn table(
        self,
        columns: Vec<TableColumnDefinition>,
        cells: Vec<Value>,
        object: &Map,
    ) -> Option<Response> {
        let Some(Transform::Table(version)) = self.negotiated.transform else { return None };
        let json = Bytes::from(encode(object));
        let shown = match self.include {
            IncludeObject::None => None,
            IncludeObject::Object => Some(json),
            IncludeObject::Metadata => Some(versioned(partial(metadata_of(&json)), version)),
        };
        let seen = object.get("metadata").and_then(|metadata| metadata.get("resourceVersion"));
        let resource_version = seen.and_then(Value::as_str).unwrap_or_default().to_owned();
        let table = Table {
            metadata: ListMeta { resource_version, ..ListMeta::default() },
            column_definitions: Some(columns),
            rows: vec![TableRow { cells, conditions: Vec::new(), object: shown }],
        };
        let mut out = Vec::new();
        table.render(&mut out);
        Some(self.write(200, versioned(out.into(), version)))
    }

    /// The version in which what is made of objects is wanted.
    pub(crate) fn meta_version(self) -> MetaVersion {
        match self.negotiated.transform {
            Some(
                Transform::Table(version)
                | Transform::PartialObjectMetadata(version)
                | Transform::PartialObjectMetadataList(version),
            ) => version,
            None | Some(Transform::AggregatedDiscovery) => MetaVersion::V1,
        }
    }

    /// The row of an object. Its metadata is that of the stored version.
    fn row(self, resource: &Resource, object: &Map, json: Bytes, stored: &[u8], now: Time) -> TableRow<Bytes> {
        let row = resource.cells(object, now);
        let object = match self.include {
            IncludeObject::None => None,
            IncludeObject::Object => Some(json),
            IncludeObject::Metadata => Some(versioned(partial_of(resource, stored), self.meta_version())),
        };
        TableRow { cells: row.cells, conditions: row.conditions, object }
    }

    /// A list of stored objects.
    pub(crate) fn list(
        self,
        resource: &Resource,
        metadata: ListMeta,
        items: &[Arc<Object>],
        now: Time,
    ) -> Result<Response, Status> {
        let pair = |item: &Arc<Object>| Ok((in_version(resource, item)?, item.json.clone()));
        let items = items.iter().map(pair).collect::<Result<Vec<_>, Status>>()?;
        self.list_of(resource, metadata, items, now)
    }

    /// A list of objects, each in the version asked for and as it is stored.
    pub(crate) fn list_of(
        self,
        resource: &Resource,
        metadata: ListMeta,
        items: Vec<(Bytes, Bytes)>,
        now: Time,
    ) -> Result<Response, Status> {
        match self.negotiated.transform {
            None | Some(Transform::AggregatedDiscovery) => {
                // Items of built-in kinds do not say what they are.
                let head = type_head(resource);
                let custom = resource.as_custom().is_some();
                let items =
                    items.into_iter().map(|(json, _)| if custom { (None, json) } else { without_type(json, &head) });
                let mut slices = VecDeque::new();
                let starts = custom && metadata.continue_token.is_empty();
                for part in (List { gvk: resource.list_gvk.clone(), metadata, items }).into_parts() {
                    match part {
                        Part::Head(head) if starts => slices.push_back(with_continue(head).into()),
                        Part::Head(head) => slices.push_back(head.into()),
                        Part::Fixed(fixed) => slices.push_back(Bytes::from_static(fixed)),
                        Part::Item((brace, json)) => slices.extend(brace.into_iter().chain([json])),
                    }
                }
                Ok(self.write_slices(200, slices))
            }
            Some(Transform::PartialObjectMetadata(_)) => {
                let words = format!(
                    "you requested PartialObjectMetadata, but the requested object is a list (*{})",
                    go_type(resource, true)
                );
                Err(not_acceptable(words))
            }
            Some(Transform::PartialObjectMetadataList(version)) => {
                let one = |(_, stored): &(Bytes, Bytes)| versioned(partial_of(resource, stored), version);
                let items: Vec<_> = items.iter().map(one).collect();
                let none = items.is_empty();
                let mut out = Vec::new();
                List { gvk: PARTIAL_OBJECT_METADATA_LIST, metadata, items }.render(&mut out);
                // Go's list of none is null here, and empty elsewhere.
                if none && out.ends_with(b"[]}") {
                    out.truncate(out.len() - 3);
                    out.extend_from_slice(b"null}");
                }
                Ok(self.write(200, versioned(out.into(), version)))
            }
            Some(Transform::Table(version)) => {
                let mut rows = Vec::with_capacity(items.len());
                for (json, stored) in items {
                    rows.push(self.row(resource, &live::parse(&json)?, json, &stored, now));
                }
                let table = Table { metadata, column_definitions: Some(resource.columns()), rows };
                let mut out = Vec::new();
                table.render(&mut out);
                Ok(self.write(200, versioned(out.into(), version)))
            }
        }
    }

    fn write_slices(self, code: u16, mut slices: VecDeque<Bytes>) -> Response {
        if self.pretty || self.negotiated.media_type != MediaType::Json {
            let whole: Vec<u8> = slices.iter().flat_map(|slice| slice.iter().copied()).collect();
            return self.write(code, whole.into());
        }
        slices.push_back(Bytes::from_static(b"\n"));
        answer(code, &self.negotiated.content_type(), Body::Slices(slices))
    }
}

/// The message of a whole object, if it is of a kind that has one.
pub(crate) fn message(json: &[u8]) -> Option<Vec<u8>> {
    let object = capstan_api::json::parse(json).ok()?;
    let text = |name| object.get(name).and_then(Value::as_str);
    let gvk = GroupVersionKind::from_api_version_and_kind(text("apiVersion").unwrap_or_default(), text("kind")?);
    Some(protobuf::encode_object(&gvk, &builtin::schema(&gvk)?, &object))
}

/// An answer that nobody may keep.
pub(crate) fn answer(code: u16, content_type: &str, body: Body) -> Response {
    let mut response = Response::new(body);
    *response.status_mut() = StatusCode::from_u16(code).unwrap_or(StatusCode::INTERNAL_SERVER_ERROR);
    let headers = response.headers_mut();
    headers.insert(header::CACHE_CONTROL, HeaderValue::from_static("no-cache, private"));
    if let Ok(content_type) = HeaderValue::from_str(content_type) {
        headers.insert(header::CONTENT_TYPE, content_type);
    }
    response
}

fn not_acceptable(message: String) -> Status {
    let reason = capstan_api::status::StatusReason::NotAcceptable;
    Status { status: capstan_api::status::FAILURE, code: reason.code(), reason, message, ..Status::default() }
}

/// A stored object's JSON in the version that the resource is served in.
pub(crate) fn in_version(resource: &Resource, object: &Object) -> Result<Bytes, Status> {
    if !resource.converts() {
        return Ok(object.json.clone());
    }
    Ok(encode(&super::from_storage(resource, live::parse(&object.json)?)).into())
}

/// What was made of an object, in another version: both look the same but for the name at their head.
pub(crate) fn versioned(rendered: Bytes, version: MetaVersion) -> Bytes {
    const NAME: &[u8] = b"\"meta.k8s.io/v1\"";
    if version == MetaVersion::V1 {
        return rendered;
    }
    let Some(at) = rendered.windows(NAME.len()).position(|window| window == NAME) else { return rendered };
    [&rendered[..at], b"\"meta.k8s.io/v1beta1\"", &rendered[at + NAME.len()..]].concat().into()
}

/// The metadata of an object alone.
fn partial_of(resource: &Resource, json: &[u8]) -> Bytes {
    let metadata = metadata_of(json);
    let Some(without) = conversion::annotations_of(&resource.gvk) else { return partial(metadata) };
    let mut object = Map::new();
    object.insert("metadata", metadata.and_then(|text| live::parse(text).ok()).unwrap_or_default());
    let object = without(object);
    let metadata = object.get("metadata").and_then(Value::as_object).map(encode);
    partial(metadata.as_deref())
}

fn partial(metadata: Option<&[u8]>) -> Bytes {
    let mut out = Vec::new();
    partial::render(metadata.unwrap_or(b"{}"), &mut out);
    out.into()
}

/// The text of the metadata.
fn metadata_of(json: &[u8]) -> Option<&[u8]> {
    part(json, "metadata")
}

/// The beginning of a list of custom resources, which says also that it does not go on.
fn with_continue(mut head: Vec<u8>) -> Vec<u8> {
    const METADATA: &[u8] = b"\"metadata\":{";
    let Some(at) = head.windows(METADATA.len()).position(|window| window == METADATA) else { return head };
    let at = at + METADATA.len();
    let field: &[u8] = if head.get(at) == Some(&b'}') { b"\"continue\":\"\"" } else { b"\"continue\":\"\"," };
    head.splice(at..at, field.iter().copied());
    head
}

/// What the JSON of every object of a built-in kind begins with, which items of a list leave out.
fn type_head(resource: &Resource) -> Vec<u8> {
    format!(r#"{{"kind":"{}","apiVersion":"{}","#, resource.gvk.kind, resource.gvk.api_version()).into_bytes()
}

/// An item of a list: the brace that replaces the head, and the rest.
fn without_type(json: Bytes, head: &[u8]) -> (Option<Bytes>, Bytes) {
    if json.starts_with(head) {
        return (Some(Bytes::from_static(b"{")), json.slice(head.len()..));
    }
    let Ok(mut object) = live::parse(&json) else { return (None, json) };
    object.remove("kind");
    object.remove("apiVersion");
    (None, encode(&object).into())
}

/// The Go type of an object or a list, which some refusals name.
fn go_type(resource: &Resource, list: bool) -> String {
    let kind = if list { &resource.list_gvk.kind } else { &resource.gvk.kind };
    match resource.as_custom() {
        Some(_) if list => "unstructured.UnstructuredList".to_owned(),
        Some(_) => "unstructured.Unstructured".to_owned(),
        None => format!("{}.{kind}", super::decode::internal_package(&resource.gvk.group)),
    }
}
