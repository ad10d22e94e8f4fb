//! What can be asked at which path: operations, from the rows of discovery.

use std::collections::BTreeMap;

use capstan_api::{
    GroupVersion, GroupVersionKind, builtin,
    builtin::text::{Field, full_name},
};

use super::schemas::{PATCH, VERSION_INFO, scalar};
use crate::discovery::{ApiResource, ApiSubresource};

/// Kinds of which a delete answers with the object, not with a Status.
const RETURNS_DELETED: [&str; 16] = [
    "core.v1.PersistentVolume",
    "core.v1.PersistentVolumeClaim",
    "core.v1.Pod",
    "core.v1.PodTemplate",
    "core.v1.ResourceQuota",
    "core.v1.Service",
    "core.v1.ServiceAccount",
    "resource.v1.DeviceClass",
    "resource.v1.ResourceClaim",
    "resource.v1.ResourceClaimTemplate",
    "resource.v1.ResourceSlice",
    "storage.v1.CSIDriver",
    "storage.v1.CSINode",
    "storage.v1.StorageClass",
    "storage.v1.VolumeAttachment",
    "storage.v1.VolumeAttributesClass",
];

const META: &str = "io.k8s.apimachinery.pkg.apis.meta.v1.";

/// The operations of a document by path and method.
pub(super) type Paths = BTreeMap<String, BTreeMap<&'static str, Operation>>;

/// A parameter in the path or the query.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct Parameter {
    pub(super) name: &'static str,
    /// `path` or `query`.
    pub(super) place: &'static str,
    pub(super) ty: &'static str,
}

/// What bodies an operation sends.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum Media {
    /// All forms of objects.
    Objects,
    /// Those, and streams of them.
    Streams,
    /// The forms that custom resources have.
    Custom,
    /// Objects, or plain text.
    Logs,
    /// JSON only.
    Json,
    /// A set of keys.
    Keys,
    /// Whatever is at the other end.
    Any,
}

/// One thing that can be asked for.
pub(super) struct Operation {
    pub(super) id: String,
    pub(super) tag: String,
    pub(super) action: Option<&'static str>,
    pub(super) kind: Option<GroupVersionKind>,
    pub(super) parameters: Vec<Parameter>,
    /// The name of the schema of the body, and whether there must be one.
    pub(super) body: Option<(String, bool)>,
    pub(super) codes: &'static [u16],
    pub(super) media: Media,
    /// The name of the schema of the answer; a string if there is none.
    pub(super) answer: Option<String>,
}

/// The operations of one group and version.
pub(super) struct Routes<'a> {
    group_version: &'a GroupVersion,
    tag: String,
    infix: String,
    pub(super) paths: Paths,
}

impl<'a> Routes<'a> {
    /// Operations of a group version, of which there is none yet.
    pub(super) fn new(group_version: &'a GroupVersion) -> Self {
        let title = group_title(&group_version.group);
        let tag = format!("{}_{}", decapitalized(&title), group_version.version);
        let infix = format!("{title}{}", capitalized(&group_version.version));
        Routes { group_version, tag, infix, paths: Paths::new() }
    }

    fn operation(&self, verb: &str, rest: &str) -> Operation {
        Operation {
            id: format!("{verb}{}{rest}", self.infix),
            tag: self.tag.clone(),
            action: None,
            kind: None,
            parameters: Vec::new(),
            body: None,
            codes: &[200],
            media: Media::Objects,
            answer: None,
        }
    }

    fn add(&mut self, path: &str, method: &'static str, mut operation: Operation) {
        operation.parameters.extend(path.split('/').filter_map(path_parameter));
        if operation.action.is_some_and(|action| action != "connect") {
            operation.parameters.push(Parameter { name: "pretty", place: "query", ty: "string" });
        }
        operation.parameters.sort();
        self.paths.entry(path.to_owned()).or_default().insert(method, operation);
    }

    /// The list of resources.
    pub(super) fn index(&mut self) {
        let answer = Some(format!("{META}APIResourceList"));
        let operation = Operation { answer, ..self.operation("get", "APIResources") };
        self.add(&format!("{}/", self.group_version.path()), "get", operation);
    }

    /// Everything about a resource. `object` and `list` are the names of the schemas.
    pub(super) fn resource(&mut self, row: &ApiResource, object: &str, list: &str) {
        let base = self.group_version.path();
        let place = if row.namespaced { "/namespaces/{namespace}" } else { "" };
        let scope = if row.namespaced { "Namespaced" } else { "" };
        let kind = &*row.kind;
        let can = |verb: &str| row.verbs.iter().any(|has| **has == *verb);
        let gvk = self.group_version.with_kind(row.kind.clone());
        let all = format!("{base}{place}/{}", row.resource);
        let one = format!("{all}/{{name}}");
        let named = format!("{scope}{kind}");
        let everywhere = if row.namespaced { "ForAllNamespaces" } else { "" };
        let kind_of = Of { gvk: &gvk, schema: object, custom: row.custom };
        for verb in ["create", "delete", "get", "patch", "update"].into_iter().filter(|verb| can(verb)) {
            let path = if verb == "create" { &all } else { &one };
            self.write_or_read(path, verb, &named, kind_of);
        }
        let streams = if row.custom { Media::Custom } else { Media::Streams };
        let listing = |action, parameters, answer: &str, operation| Operation {
            action: Some(action),
            kind: Some(gvk.clone()),
            parameters,
            media: streams,
            answer: Some(answer.to_owned()),
            ..operation
        };
        if can("list") {
            let operation = listing("list", options("meta.v1.ListOptions"), list, self.operation("list", &named));
            self.add(&all, "get", operation);
            if row.namespaced {
                let operation = self.operation("list", &format!("{kind}{everywhere}"));
                let operation = listing("list", options("meta.v1.ListOptions"), list, operation);
                self.add(&format!("{base}/{}", row.resource), "get", operation);
            }
        }
        if can("deletecollection") {
            let operation = self.operation("delete", &format!("Collection{named}"));
            let operation = delete_collection(row.custom, Operation { kind: Some(gvk.clone()), ..operation });
            self.add(&all, "delete", operation);
        }
        if can("watch") && !row.custom {
            let event = format!("{META}WatchEvent");
            let watch = |action, operation| listing(action, options("meta.v1.ListOptions"), &event, operation);
            let operation = watch("watchlist", self.operation("watch", &format!("{kind}List{everywhere}")));
            self.add(&format!("{base}/watch/{}", row.resource), "get", operation);
            if row.namespaced {
                let operation = watch("watchlist", self.operation("watch", &format!("{named}List")));
                self.add(&format!("{base}/watch{place}/{}", row.resource), "get", operation);
            }
            let operation = watch("watch", self.operation("watch", &named));
            self.add(&format!("{base}/watch{place}/{}/{{name}}", row.resource), "get", operation);
        }
        for sub in &row.subresources {
            self.subresource(&one, &named, sub, kind_of);
        }
    }

    fn subresource(&mut self, one: &str, named: &str, sub: &ApiSubresource, parent: Of<'_>) {
        let path = format!("{one}/{}", sub.name);
        let named = format!("{named}{}", capitalized(&sub.name));
        if sub.kind.kind.ends_with("Options") {
            self.connect(&path, &named, sub);
            if *sub.name == *"proxy" {
                self.connect(&format!("{path}/{{path}}"), &format!("{named}WithPath"), sub);
            }
            return;
        }
        if *sub.name == *"log" {
            let operation = Operation {
                action: Some("get"),
                kind: Some(sub.kind.clone()),
                parameters: options("core.v1.PodLogOptions"),
                media: Media::Logs,
                ..self.operation("read", &named)
            };
            return self.add(&path, "get", operation);
        }
        let schema = if parent.custom && *sub.name == *"status" {
            parent.schema.to_owned()
        } else {
            builtin::type_name(&sub.kind).map(full_name).unwrap_or_default()
        };
        let gvk = if parent.custom { parent.gvk } else { &sub.kind };
        for verb in &sub.verbs {
            self.write_or_read(&path, verb, &named, Of { gvk, schema: &schema, custom: parent.custom });
        }
    }

    /// What works on one object.
    fn write_or_read(&mut self, path: &str, verb: &str, named: &str, of: Of<'_>) {
        let mut operation = self.operation("", "");
        operation.kind = Some(of.gvk.clone());
        operation.media = if of.custom { Media::Custom } else { Media::Objects };
        operation.answer = Some(of.schema.to_owned());
        let (word, method) = match verb {
            "create" => ("create", "post"),
            "update" => ("replace", "put"),
            "get" => ("read", "get"),
            "patch" => ("patch", "patch"),
            _ => ("delete", "delete"),
        };
        operation.id = format!("{word}{}{named}", self.infix);
        operation.action = Some(method);
        match verb {
            "create" | "update" => {
                let create = verb == "create";
                operation.codes = if create { &[200, 201, 202] } else { &[200, 201] };
                operation.parameters = options(if create { "meta.v1.CreateOptions" } else { "meta.v1.UpdateOptions" });
                operation.body = Some((of.schema.to_owned(), true));
            }
            "patch" => {
                operation.codes = if of.custom { &[200] } else { &[200, 201] };
                operation.parameters = options("meta.v1.PatchOptions");
                operation.body = Some((PATCH.to_owned(), true));
            }
            "get" if of.custom => operation.parameters = options("meta.v1.GetOptions"),
            "get" => {}
            _ => {
                operation.codes = &[200, 202];
                operation.parameters = options("meta.v1.DeleteOptions");
                operation.body = Some((format!("{META}DeleteOptions"), false));
                if !RETURNS_DELETED.iter().any(|name| full_name(name) == of.schema) {
                    operation.answer = Some(format!("{META}Status"));
                }
            }
        }
        self.add(path, method, operation);
    }

    /// What is handed on to somebody else.
    fn connect(&mut self, path: &str, named: &str, sub: &ApiSubresource) {
        let ty = builtin::type_name(&sub.kind).unwrap_or_default();
        let more: &[(&str, &str)] = if *sub.name == *"proxy" { &[("", "head"), ("", "options")] } else { &[] };
        let methods = [("create", "post"), ("delete", "delete"), ("get", "get"), ("patch", "patch"), ("update", "put")];
        for (verb, method) in methods.iter().chain(more) {
            if !verb.is_empty() && !sub.verbs.iter().any(|has| **has == **verb) {
                continue;
            }
            let operation = Operation {
                action: Some("connect"),
                kind: Some(sub.kind.clone()),
                parameters: options(ty),
                media: Media::Any,
                ..self.operation("connect", &format!("{}{named}", capitalized(method)))
            };
            self.add(path, method, operation);
        }
    }
}

/// What an operation works on.
#[derive(Clone, Copy)]
struct Of<'a> {
    gvk: &'a GroupVersionKind,
    schema: &'a str,
    custom: bool,
}

fn delete_collection(custom: bool, operation: Operation) -> Operation {
    let mut parameters = options("meta.v1.ListOptions");
    let mut body = None;
    if !custom {
        parameters.retain(|parameter| !matches!(parameter.name, "watch" | "allowWatchBookmarks"));
        parameters.extend(options("meta.v1.DeleteOptions"));
        body = Some((format!("{META}DeleteOptions"), false));
    }
    Operation {
        action: Some("deletecollection"),
        parameters,
        body,
        media: if custom { Media::Custom } else { Media::Objects },
        answer: Some(format!("{META}Status")),
        ..operation
    }
}

/// What is asked for a document without a group and version: of groups, and beside resources. `path` is as the list of
/// documents has it.
pub(super) fn beside(path: &str) -> Option<Paths> {
    let (id, tag, media, answer) = match path {
        "api" => ("getCoreAPIVersions".to_owned(), "core".to_owned(), Media::Objects, Some("APIVersions")),
        "apis" => ("getAPIVersions".to_owned(), "apis".to_owned(), Media::Objects, Some("APIGroupList")),
        "version" => ("getCodeVersion".to_owned(), "version".to_owned(), Media::Json, None),
        ".well-known/openid-configuration" => {
            ("getServiceAccountIssuerOpenIDConfiguration".to_owned(), "WellKnown".to_owned(), Media::Json, None)
        }
        "openid/v1/jwks" => ("getServiceAccountIssuerOpenIDKeyset".to_owned(), "openid".to_owned(), Media::Keys, None),
        _ => {
            let group = path.strip_prefix("apis/").filter(|group| !group.contains('/'))?;
            let title = group_title(group);
            (format!("get{title}APIGroup"), decapitalized(&title), Media::Objects, Some("APIGroup"))
        }
    };
    let answer = match path {
        "version" => Some(VERSION_INFO.to_owned()),
        _ => answer.map(|kind| format!("{META}{kind}")),
    };
    let operation = Operation {
        id,
        tag,
        action: None,
        kind: None,
        parameters: Vec::new(),
        body: None,
        codes: &[200],
        media,
        answer,
    };
    Some(Paths::from([(format!("/{path}/"), BTreeMap::from([("get", operation)]))]))
}

/// The fields of a type of options, as far as a query can say them.
fn options(ty: &str) -> Vec<Parameter> {
    let fields = builtin::type_lines(ty).into_iter().flatten().skip(1).filter_map(Field::parse);
    let parameter = |field: Field<'static>| {
        let ty = field.ty.trim_start_matches("[]");
        let sayable = matches!(ty, "string" | "bool" | "int32" | "int64");
        let said = sayable && !matches!(field.name, "apiVersion" | "kind");
        said.then(|| Parameter { name: field.name, place: "query", ty: scalar(ty).0 })
    };
    fields.filter_map(parameter).collect()
}

fn path_parameter(segment: &str) -> Option<Parameter> {
    let name = match segment {
        "{name}" => "name",
        "{namespace}" => "namespace",
        "{path}" => "path",
        _ => return None,
    };
    Some(Parameter { name, place: "path", ty: "string" })
}

/// `RbacAuthorization` for `rbac.authorization.k8s.io`.
fn group_title(group: &str) -> String {
    match group.strip_suffix(".k8s.io").unwrap_or(group) {
        "" => "Core".to_owned(),
        group => group.split(|c: char| !c.is_ascii_alphanumeric()).map(capitalized).collect(),
    }
}

fn capitalized(word: &str) -> String {
    let mut letters = word.chars();
    letters.next().map(|first| first.to_ascii_uppercase()).into_iter().chain(letters).collect()
}

fn decapitalized(word: &str) -> String {
    let mut letters = word.chars();
    letters.next().map(|first| first.to_ascii_lowercase()).into_iter().chain(letters).collect()
}
