//! An audit event, which grows as a request goes on.

use std::collections::BTreeMap;

use capstan_api::{Map, MicroTime, Status, Time, Value, go, json};

use super::{Config, Level, Request, Stage};
use crate::{authorization::UserInfo, discovery::json::Json, registry::encode, validation::read};

/// What is recorded of a request.
#[derive(Debug)]
pub struct Event {
    config: Config,
    id: String,
    uri: String,
    verb: String,
    user: UserInfo,
    impersonated: Option<(UserInfo, String)>,
    source_ips: Vec<String>,
    user_agent: String,
    object: Option<ObjectReference>,
    status: Option<Status>,
    request_object: Option<Vec<u8>>,
    response_object: Option<Vec<u8>>,
    received: Time,
    annotations: BTreeMap<String, String>,
}

#[derive(Debug, Default)]
struct ObjectReference {
    resource: String,
    namespace: String,
    name: String,
    uid: String,
    group: String,
    version: String,
    resource_version: String,
    subresource: String,
}

impl Event {
    pub(super) fn new(config: Config, request: &Request<'_>) -> Self {
        let attributes = request.attributes;
        let object = attributes.is_resource.then(|| ObjectReference {
            resource: attributes.resource.to_owned(),
            namespace: attributes.namespace.to_owned(),
            name: attributes.name.to_owned(),
            group: attributes.group.to_owned(),
            version: attributes.version.to_owned(),
            subresource: attributes.subresource.to_owned(),
            ..ObjectReference::default()
        });
        Event {
            config,
            id: String::from_utf8_lossy(request.id.as_bytes()).into_owned(),
            uri: request.uri.to_owned(),
            verb: attributes.verb.to_owned(),
            user: attributes.user.clone(),
            impersonated: None,
            source_ips: request.source_ips.to_vec(),
            user_agent: request.user_agent.to_owned(),
            object,
            status: None,
            request_object: None,
            response_object: None,
            received: request.received,
            annotations: BTreeMap::new(),
        }
    }

    pub(super) fn config(&self) -> Config {
        self.config
    }

    pub(super) fn received(&self) -> Time {
        self.received
    }

    /// Adds an annotation. One that is there stays as it is.
    pub fn annotate(&mut self, key: &str, value: &str) {
        self.annotations.entry(key.to_owned()).or_insert_with(|| value.to_owned());
    }

    /// How the request was decided on, as annotations.
    pub fn decision(&mut self, allowed: bool, reason: &str) {
        self.annotate("authorization.k8s.io/decision", if allowed { "allow" } else { "forbid" });
        self.annotate("authorization.k8s.io/reason", reason);
    }

    /// Whom the user acts as, and the verb that allowed it if that is a narrow one.
    pub fn impersonate(&mut self, user: &UserInfo, constraint: &str) {
        self.impersonated = Some((user.clone(), constraint.to_owned()));
    }

    /// The object or the patch that the client has sent.
    pub fn request_object(&mut self, object: Value) {
        if self.verb != "patch"
            && let Some(object) = object.as_object()
        {
            self.refer(object);
        }
        if self.config.level >= Level::Request {
            self.request_object = Some(self.show(object));
        }
    }

    /// Fills in what the request itself does not say of its object.
    fn refer(&mut self, object: &Map) {
        let metadata = read::at(object, "metadata");
        let reference = self.object.get_or_insert_default();
        for (field, key) in [
            (&mut reference.namespace, "namespace"),
            (&mut reference.name, "name"),
            (&mut reference.uid, "uid"),
            (&mut reference.resource_version, "resourceVersion"),
        ] {
            if field.is_empty() {
                read::text(metadata, key).clone_into(field);
            }
        }
    }

    /// Whether the object that the client gets is recorded.
    #[must_use]
    pub fn wants_response(&self) -> bool {
        self.config.level >= Level::RequestResponse
    }

    /// The object that the client gets.
    pub fn response_object(&mut self, object: Value) {
        if self.wants_response() {
            self.response_object = Some(self.show(object));
        }
    }

    /// The status that the client gets instead of an object.
    pub fn response_status(&mut self, status: &Status) {
        if self.wants_response() {
            let mut json = Json::default();
            write_status(status, true, &mut json);
            self.response_object = Some(json.finish());
        }
        self.status(Status { metadata: None, ..status.clone() });
    }

    /// How the request went.
    pub fn status(&mut self, status: Status) {
        self.status = Some(status);
    }

    /// The code of the answer.
    pub fn code(&mut self, code: u16) {
        self.status.get_or_insert_default().code = code.into();
    }

    /// Whether the code of the answer is known yet: if not, the connection was closed early.
    #[must_use]
    pub fn has_status(&self) -> bool {
        self.status.is_some()
    }

    /// An object as JSON in one line, without managed fields if they are not wanted.
    fn show(&self, mut object: Value) -> Vec<u8> {
        if self.config.omit_managed_fields {
            omit_managed_fields(&mut object);
        }
        match &object {
            Value::Object(object) => encode(object),
            patch => json::to_string(patch).into_bytes(),
        }
    }

    /// The event as a line of JSON, with its fields in upstream's order.
    pub(super) fn line(&self, stage: Stage, at: MicroTime) -> Vec<u8> {
        let mut json = Json::default();
        json.object(|json| self.write(json, stage, at));
        let line = String::from_utf8_lossy(&json.finish()).into_owned();
        let mut line = go::escape_html(&line).into_bytes();
        line.push(b'\n');
        line
    }

    fn write(&self, json: &mut Json, stage: Stage, at: MicroTime) {
        json.field("kind", "Event");
        json.field("apiVersion", "audit.k8s.io/v1");
        json.field("level", self.config.level.name());
        json.field("auditID", &self.id);
        json.field("stage", stage.name());
        json.field("requestURI", &self.uri);
        json.field("verb", &self.verb);
        json.key("user");
        write_user(&self.user, json);
        if let Some((user, constraint)) = &self.impersonated {
            json.key("impersonatedUser");
            write_user(user, json);
            if !constraint.is_empty() {
                json.key("authenticationMetadata");
                json.object(|json| json.field("impersonationConstraint", constraint));
            }
        }
        json.some_texts("sourceIPs", &self.source_ips);
        some_field(json, "userAgent", &self.user_agent);
        if let Some(object) = &self.object {
            json.key("objectRef");
            json.object(|json| {
                some_field(json, "resource", &object.resource);
                some_field(json, "namespace", &object.namespace);
                some_field(json, "name", &object.name);
                some_field(json, "uid", &object.uid);
                some_field(json, "apiGroup", &object.group);
                some_field(json, "apiVersion", &object.version);
                some_field(json, "resourceVersion", &object.resource_version);
                some_field(json, "subresource", &object.subresource);
            });
        }
        // The first stage comes before there is an answer, whatever was learned since.
        if let Some(status) = self.status.as_ref().filter(|_| stage != Stage::RequestReceived) {
            json.key("responseStatus");
            write_status(status, false, json);
        }
        for (key, object) in [("requestObject", &self.request_object), ("responseObject", &self.response_object)] {
            if let Some(object) = object {
                json.key(key);
                json.raw(object);
            }
        }
        json.field("requestReceivedTimestamp", &MicroTime(self.received).to_string());
        json.field("stageTimestamp", &at.to_string());
        if !self.annotations.is_empty() {
            json.key("annotations");
            json.object(|json| self.annotations.iter().for_each(|(key, value)| json.field(key, value)));
        }
    }
}

/// Of an object, of the items of a list and of the rows of a table.
fn omit_managed_fields(object: &mut Value) {
    let strip = |value: &mut Value| {
        let metadata = value.get_mut("metadata").and_then(Value::as_object_mut);
        metadata.and_then(|metadata| metadata.remove("managedFields"));
    };
    strip(object);
    for item in object.get_mut("items").and_then(Value::as_array_mut).into_iter().flat_map(|items| items.iter_mut()) {
        strip(item);
    }
    for row in object.get_mut("rows").and_then(Value::as_array_mut).into_iter().flat_map(|rows| rows.iter_mut()) {
        row.get_mut("object").map(strip);
    }
}

/// A status in upstream's order of fields; as an object of its own it has a kind.
fn write_status(status: &Status, kind: bool, json: &mut Json) {
    json.object(|json| {
        if kind {
            json.field("kind", "Status");
            json.field("apiVersion", "v1");
        }
        json.key("metadata");
        json.object(|_| {});
        some_field(json, "status", &status.status);
        some_field(json, "message", &status.message);
        some_field(json, "reason", status.reason.as_str());
        if let Some(details) = &status.details {
            json.key("details");
            json.object(|json| {
                some_field(json, "name", &details.name);
                some_field(json, "group", &details.group);
                some_field(json, "kind", &details.kind);
                some_field(json, "uid", &details.uid);
                if !details.causes.is_empty() {
                    json.key("causes");
                    json.array(&details.causes, |json, cause| {
                        json.object(|json| {
                            some_field(json, "reason", &cause.reason);
                            some_field(json, "message", &cause.message);
                            some_field(json, "field", &cause.field);
                        });
                    });
                }
                some_number(json, "retryAfterSeconds", details.retry_after_seconds);
            });
        }
        some_number(json, "code", status.code);
    });
}

fn some_number(json: &mut Json, key: &str, number: i32) {
    if number != 0 {
        json.key(key);
        json.raw(number.to_string().as_bytes());
    }
}

fn some_field(json: &mut Json, key: &str, text: &str) {
    if !text.is_empty() {
        json.field(key, text);
    }
}

fn write_user(user: &UserInfo, json: &mut Json) {
    json.object(|json| {
        some_field(json, "username", &user.name);
        some_field(json, "uid", &user.uid);
        json.some_texts("groups", &user.groups);
        if !user.extra.is_empty() {
            json.key("extra");
            json.object(|json| user.extra.iter().for_each(|(key, values)| json.texts(key, values)));
        }
    });
}
