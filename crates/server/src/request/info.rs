//! Which verb is asked of which resource: the one place that reads meaning into a path.
//!
//! Authentication, authorization, audit and the handlers all look at the [`RequestInfo`] and never at the path, so none
//! of them can see another request than the others.

use std::{fmt, ops::Range};

use capstan_api::{Status, Str, go, validation::is_path_segment_name};

use super::{ListOptions, Query, Url};

/// The first segment of paths to resources, and whether a group follows it.
const API_PREFIXES: [(&str, bool); 2] = [("api", false), ("apis", true)];
/// Verbs that stand in the path before the resource.
const SPECIAL_VERBS: [&str; 2] = ["proxy", "watch"];
/// What follows the name of a namespace and still belongs to the namespace.
const NAMESPACE_SUBRESOURCES: [&str; 2] = ["status", "finalize"];
/// The verbs whose selectors authorization looks at.
const VERBS_WITH_SELECTORS: [&str; 3] = ["list", "watch", "deletecollection"];

/// What a request is about.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct RequestInfo {
    /// Whether it is about a resource; if not, only path and verb are filled in.
    pub is_resource_request: bool,
    /// The path without escapes.
    pub path: String,
    /// The verb: `get`, `list`, `watch` …; for what is not a resource the HTTP method in lower case.
    pub verb: Str,
    /// `api` or `apis`.
    pub api_prefix: Str,
    /// The group, empty for the core group.
    pub api_group: Str,
    /// The version.
    pub api_version: Str,
    /// The namespace, empty if there is none. For a namespace it is its own name.
    pub namespace: Str,
    /// The resource: `pods`.
    pub resource: Str,
    /// The part of the object: `status`.
    pub subresource: Str,
    /// The name of the object, from the path or from a field selector that allows one name alone.
    pub name: Str,
    /// The field selector as it was sent, for authorization.
    pub field_selector: String,
    /// The label selector as it was sent, for authorization.
    pub label_selector: String,
    /// Whether the verb stands in the path: `/api/v1/watch/pods`.
    pub verb_in_path: bool,
    /// Whether a namespace stands before the resource: `namespaces/default/pods`.
    pub in_namespace: bool,
    /// Where in the path the resource and all behind it stand.
    parts: Range<usize>,
}

/// A path that ends behind a special verb. Upstream answers it with 500 in plain text.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct InfoError {
    target: String,
}

impl fmt::Display for InfoError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "unable to determine kind and namespace from url, {}", self.target)
    }
}

impl std::error::Error for InfoError {}

impl InfoError {
    /// The body of the answer.
    #[must_use]
    pub fn body(&self) -> String {
        let target = go::quote(&self.target);
        go::without_tags(&format!("Internal Server Error: {target}: failed to create RequestInfo: {self}"))
    }
}

/// The segments of a path that have not been looked at yet.
struct Parts<'a> {
    path: &'a str,
    rest: Range<usize>,
}

impl<'a> Parts<'a> {
    fn text(&self) -> &'a str {
        &self.path[self.rest.clone()]
    }

    /// The first segments, up to as many as are asked for.
    fn first<const N: usize>(&self) -> [Option<&'a str>; N] {
        let mut segments = self.text().split('/');
        [(); N].map(|()| segments.next())
    }

    /// Goes past the first segment and returns it.
    fn take(&mut self) -> &'a str {
        let text = self.text();
        let segment = text.split('/').next().unwrap_or_default();
        self.rest.start += (segment.len() + 1).min(text.len());
        segment
    }
}

impl RequestInfo {
    /// Reads a request.
    ///
    /// # Errors
    /// When the path ends behind a special verb.
    pub fn new(method: &str, url: &Url<'_>, query: &Query<'_>) -> Result<Self, InfoError> {
        let path = &*url.path;
        let mut info =
            RequestInfo { path: path.to_owned(), verb: method.to_lowercase().into(), ..RequestInfo::default() };
        let start = path.len() - path.trim_start_matches('/').len();
        let end = path.trim_end_matches('/').len().max(start);
        let mut parts = Parts { path, rest: start..end };

        let [Some(first), Some(_), Some(_), fourth] = parts.first() else { return Ok(info) };
        let Some((_, grouped)) = API_PREFIXES.into_iter().find(|(prefix, _)| *prefix == first) else {
            return Ok(info);
        };
        info.api_prefix = parts.take().into();
        if grouped {
            if fourth.is_none() {
                return Ok(info);
            }
            info.api_group = parts.take().into();
        }
        info.is_resource_request = true;
        info.api_version = parts.take().into();

        let special = SPECIAL_VERBS.contains(&parts.first::<1>()[0].unwrap_or_default());
        if special {
            if parts.first::<2>()[1].is_none() {
                return Err(InfoError { target: url.target.to_owned() });
            }
            info.verb = parts.take().into();
            info.verb_in_path = true;
        } else {
            info.verb = verb_of(method).into();
        }
        if let [Some("namespaces"), Some(namespace), third] = parts.first() {
            info.namespace = namespace.into();
            if third.is_some_and(|third| !NAMESPACE_SUBRESOURCES.contains(&third)) {
                parts.take();
                parts.take();
                info.in_namespace = true;
            }
        }
        info.parts = parts.rest.clone();
        let [resource, name, subresource] = parts.first();
        info.resource = resource.unwrap_or_default().into();
        info.name = name.unwrap_or_default().into();
        if info.verb != "proxy" {
            info.subresource = subresource.unwrap_or_default().into();
        }
        info.settle_verb(query);
        if !special && VERBS_WITH_SELECTORS.contains(&info.verb.as_str()) {
            info.field_selector = query.text("fieldSelector").to_owned();
            info.label_selector = query.text("labelSelector").to_owned();
        }
        Ok(info)
    }

    /// Without a name, a get is a list or a watch and a delete is one of a collection.
    fn settle_verb(&mut self, query: &Query<'_>) {
        if self.name.is_empty() && self.verb == "get" {
            // Options that cannot be read are refused later; here they count for nothing, except that a watch stays a
            // watch.
            let options = ListOptions::decode(query).unwrap_or_else(|_| ListOptions {
                watch: query.flag("watch").unwrap_or_default(),
                ..ListOptions::default()
            });
            self.verb = if options.watch { "watch" } else { "list" }.into();
            let name = options.field_selector.requires_exact_match("metadata.name").unwrap_or_default();
            if is_path_segment_name(name).is_empty() {
                self.name = name.into();
            }
        }
        if self.name.is_empty() && self.verb == "delete" {
            self.verb = "deletecollection".into();
        }
    }

    /// The segments from the resource on: resource, name, subresource, and what nobody here interprets.
    pub fn parts(&self) -> impl Iterator<Item = &str> {
        self.is_resource_request.then(|| self.path[self.parts.clone()].split('/')).into_iter().flatten()
    }
}

/// Whether an object can be stored under this name at all.
///
/// # Errors
/// When the name, or for a namespaced kind the namespace, is missing, or the name cannot be part of a path.
pub fn check_name(namespaced: bool, namespace: &str, name: &str) -> Result<(), Status> {
    if namespaced && namespace.is_empty() {
        return Err(Status::bad_request("Namespace parameter required."));
    }
    if name.is_empty() {
        return Err(Status::bad_request("Name parameter required."));
    }
    let wrong = is_path_segment_name(name);
    if wrong.is_empty() {
        return Ok(());
    }
    Err(Status::bad_request(format!("Name parameter invalid: {}: {}", go::quote(name), wrong.join(";"))))
}

fn verb_of(method: &str) -> &'static str {
    match method {
        "POST" => "create",
        "GET" | "HEAD" => "get",
        "PUT" => "update",
        "PATCH" => "patch",
        "DELETE" => "delete",
        _ => "",
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn info(method: &str, target: &str) -> Result<RequestInfo, InfoError> {
        let url = Url::parse(target).unwrap();
        RequestInfo::new(method, &url, &Query::parse(url.query))
    }

    /// A case a line: method, target, then verb, prefix, group, version, namespace, resource, subresource, name, parts;
    /// `-` is empty.
    #[test]
    fn reads_as_upstream() {
        for case in include_str!("info_cases.txt").lines().filter(|line| !line.starts_with('#') && !line.is_empty()) {
            let words: Vec<_> = case.split_whitespace().collect();
            let info = info(words[0], words[1]).unwrap();
            let shown = if info.is_resource_request {
                let parts: Vec<_> = info.parts().collect();
                let parts = parts.join("|");
                let RequestInfo { verb, api_prefix, api_group, api_version, namespace, .. } = &info;
                let (resource, subresource, name) = (&*info.resource, &*info.subresource, &*info.name);
                [verb, api_prefix, api_group, api_version, namespace, resource, subresource, name, &parts]
                    .map(|word| if word.is_empty() { "-".to_owned() } else { word.escape_debug().to_string() })
                    .join(" ")
            } else {
                assert_eq!(info.parts().count(), 0);
                [&*info.verb, &*info.api_prefix].join(" ").trim_end().to_owned()
            };
            assert_eq!(shown, words[2..].join(" "), "{case}");
        }
    }

    #[test]
    fn selectors_for_authorization() {
        for (method, target, fields, labels) in [
            ("GET", "/api/v1/pods?fieldSelector=a%3Db&labelSelector=%3D%3D", "a=b", "=="),
            ("GET", "/api/v1/pods?watch=1&labelSelector=x&labelSelector=y", "", "x"),
            ("DELETE", "/api/v1/namespaces/n/pods?labelSelector=x", "", "x"),
            ("GET", "/api/v1/watch/pods?labelSelector=x", "", ""),
            ("GET", "/api/v1/namespaces/n/pods/p?labelSelector=x", "", ""),
            ("POST", "/api/v1/namespaces/n/pods?labelSelector=x", "", ""),
        ] {
            let info = info(method, target).unwrap();
            assert_eq!((&*info.field_selector, &*info.label_selector), (fields, labels), "{target}");
        }
    }

    #[test]
    fn ends_behind_a_special_verb() {
        for verb in ["watch", "proxy"] {
            let error = info("GET", &format!("/api/v1/{verb}")).unwrap_err();
            let expected = format!(
                "Internal Server Error: \"/api/v1/{verb}\": failed to create RequestInfo: unable to determine kind and namespace from url, /api/v1/{verb}"
            );
            assert_eq!(error.body(), expected);
        }
    }

    #[test]
    fn names() {
        for (namespaced, namespace, name, expected) in [
            (true, "n", "a", ""),
            (false, "", "a", ""),
            (true, "", "a", "Namespace parameter required."),
            (true, "n", "", "Name parameter required."),
            (true, "n", "..", r#"Name parameter invalid: "..": may not be '..'"#),
            (true, "n", "a%", r#"Name parameter invalid: "a%": may not contain '%'"#),
        ] {
            let said = check_name(namespaced, namespace, name).map_or_else(|status| status.message, |()| String::new());
            assert_eq!(said, expected);
        }
    }
}
