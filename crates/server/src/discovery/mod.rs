//! What there is to ask for: groups, versions, resources, paths, and the version of the server.
//!
//! The documents are rendered from rows, built-in and custom alike, when they are first asked for, and kept as bytes
//! until the rows change. Readers get a snapshot: the documents of one [`Documents`] fit together.

pub(crate) mod json;
mod render;
mod resource;
#[cfg(test)]
mod tests;
pub(crate) mod version;

use std::{
    collections::{BTreeMap, BTreeSet, HashMap},
    sync::{Arc, Mutex, MutexGuard, PoisonError},
};

use bytes::Bytes;
use capstan_api::{GroupVersion, Name, Value, builtin, json as api_json, yaml};
pub use resource::{ApiResource, ApiSubresource, storage_version_hash};
pub(crate) use version::API_VERSION;
pub use version::VersionInfo;

use self::json::Json;
use crate::{
    bootstrap, pretty,
    sha256::{hex, sha256},
};

/// What discovery says besides the resources.
#[derive(Clone, Debug, Default)]
pub struct Config {
    /// Where clients reach the server: `192.0.2.2:6443`.
    pub server_address: String,
    /// What the server says of itself.
    pub version: VersionInfo,
    /// The paths that are listed at `/` besides those of discovery: `/healthz`, `/version` …
    pub other_paths: Vec<String>,
}

/// A document of discovery.
#[derive(Clone, Debug)]
pub struct Document {
    /// Compact JSON, or indented for those documents that always are, as it is sent.
    pub json: Bytes,
    /// The entity tag, with its quotes, if the document has one. Its answer also has `Vary: Accept` and `Cache-Control:
    /// public`.
    pub etag: Option<String>,
}

impl Document {
    fn new(fill: impl FnOnce(&mut Json)) -> Self {
        let mut json = Json::default();
        fill(&mut json);
        let mut json = json.finish();
        json.push(b'\n');
        Document { json: json.into(), etag: None }
    }

    /// A document that is indented whoever asks.
    fn indented(fill: impl FnOnce(&mut Json)) -> Self {
        let document = Document::new(fill);
        Document { json: document.indent().into(), etag: None }
    }

    fn tagged(mut self) -> Self {
        self.etag = Some(format!("\"{}\"", hex(&sha256(&self.json))));
        self
    }

    /// Whether a client that has what this `If-None-Match` header names needs nothing more: then the answer is 304.
    #[must_use]
    pub fn matches(&self, if_none_match: &str) -> bool {
        self.etag.as_deref() == Some(if_none_match)
    }

    /// The document for people.
    #[must_use]
    pub fn indent(&self) -> Vec<u8> {
        pretty::indent(&self.json)
    }

    /// The document as YAML.
    #[must_use]
    pub fn yaml(&self) -> String {
        let value = api_json::parse(&self.json).expect("it was written as JSON");
        yaml::to_string(&value)
    }
}

/// All documents that belong to the same rows.
#[derive(Debug)]
pub struct Documents {
    by_path: HashMap<String, Document>,
    aggregated: HashMap<&'static str, Document>,
}

impl Documents {
    /// The document at a path. Slashes at its end do not matter, except that upstream's `/` and `/apis` are where they
    /// are.
    #[must_use]
    pub fn get(&self, path: &str) -> Option<&Document> {
        let bare = path.trim_end_matches('/');
        match bare {
            "" | "/apis" if path.len() > bare.len() + 1 => None,
            "" => self.by_path.get(path),
            bare => self.by_path.get(bare),
        }
    }

    /// The document at `/api` or `/apis` that says everything at once.
    #[must_use]
    pub fn aggregated(&self, path: &str) -> Option<&Document> {
        self.aggregated.get(path.strip_suffix('/').unwrap_or(path))
    }

    fn render(config: &Config, resources: &[&ApiResource], services: &Services) -> Self {
        let groups = render::groups(resources, services);
        let (core, named): (Vec<_>, Vec<_>) = groups.into_iter().partition(|group| group.name.is_empty());
        let mut by_path = HashMap::new();
        let mut add = |path: &str, document| by_path.insert(path.to_owned(), document);
        for group in &core {
            add("/api", Document::new(|json| render::api_versions(group, &config.server_address, json)));
        }
        add("/apis", Document::new(|json| render::api_group_list(&named, json)));
        for group in core.iter().chain(&named) {
            if !group.name.is_empty() {
                add(&format!("/apis/{}", group.name), Document::new(|json| render::api_group(group, json)));
            }
            // What another server has it says itself.
            for version in group.versions.iter().filter(|version| version.remote.is_none()) {
                let document = Document::new(|json| render::api_resource_list(version, json));
                add(&version.group_version.path(), document);
            }
        }
        // Upstream lists the prefix of all groups twice.
        let mut paths: BTreeSet<_> = by_path.keys().cloned().chain(["/apis/".to_owned()]).collect();
        paths.extend(named.iter().flat_map(|group| &group.versions).map(|version| version.group_version.path()));
        paths.extend(config.other_paths.iter().cloned());
        let paths: Vec<_> = paths.into_iter().collect();
        let root = Document::indented(|json| json.object(|json| json.texts("paths", &paths)));
        by_path.insert("/".to_owned(), root);
        by_path.insert("/version".to_owned(), Document::indented(|json| config.version.write(json)));
        let aggregated = [("/api", core), ("/apis", named)]
            .map(|(path, groups)| (path, Document::new(|json| render::aggregated(&groups, json)).tagged()));
        Documents { by_path, aggregated: aggregated.into() }
    }
}

/// What the APIService of a group version says.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct GroupVersionService {
    /// Where the group stands among others, the highest first.
    pub(crate) group_priority: i64,
    /// Where the version stands in its group, the highest first.
    pub(crate) version_priority: i64,
    /// What another server has under it, as aggregated discovery has it; nothing if it is answered here.
    pub(crate) remote: Option<Bytes>,
}

/// What the APIServices say.
type Services = BTreeMap<GroupVersion, GroupVersionService>;

/// The rows and, once somebody has asked, their documents.
struct State {
    builtin: Vec<ApiResource>,
    /// By group and resource, each in all of its versions.
    custom: BTreeMap<(Name, Name), Vec<ApiResource>>,
    services: Services,
    documents: Option<Arc<Documents>>,
}

/// Discovery as it is now. Readers never wait for a rendering but the first after a change.
pub struct Discovery {
    config: Config,
    state: Mutex<State>,
}

impl Discovery {
    /// Discovery of the built-in kinds.
    #[must_use]
    pub fn new(config: Config) -> Self {
        let builtin = builtin::kinds().map(ApiResource::from).collect();
        let (custom, services) = (BTreeMap::new(), builtin_services());
        Discovery { config, state: Mutex::new(State { builtin, custom, services, documents: None }) }
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Says in which versions and how one custom resource is served from now on; returns whether that changes anything.
    /// This takes as long however many others there are.
    pub fn set_custom(&self, group: &Name, resource: &Name, versions: Vec<ApiResource>) -> bool {
        let mut state = self.state();
        let key = (group.clone(), resource.clone());
        if state.custom.get(&key).map_or(&[][..], |versions| versions) == versions {
            return false;
        }
        if versions.is_empty() {
            state.custom.remove(&key);
        } else {
            state.custom.insert(key, versions);
        }
        state.documents = None;
        true
    }

    /// Says what the APIService of a group version says from now on, or that there is none; returns whether that changes
    /// anything. A built-in group stays where it stands without one.
    pub(crate) fn set_service(&self, group_version: &GroupVersion, service: Option<GroupVersionService>) -> bool {
        let service = service.or_else(|| builtin_services().remove(group_version));
        let mut state = self.state();
        if state.services.get(group_version) == service.as_ref() {
            return false;
        }
        match service {
            Some(service) => state.services.insert(group_version.clone(), service),
            None => state.services.remove(group_version),
        };
        state.documents = None;
        true
    }

    /// The documents of now.
    #[must_use]
    pub fn documents(&self) -> Arc<Documents> {
        let mut state = self.state();
        if let Some(documents) = &state.documents {
            return Arc::clone(documents);
        }
        let resources: Vec<_> = state.builtin.iter().chain(state.custom.values().flatten()).collect();
        let documents = Arc::new(Documents::render(&self.config, &resources, &state.services));
        state.documents = Some(Arc::clone(&documents));
        documents
    }
}

/// What the APIServices of built-in groups say.
fn builtin_services() -> Services {
    let services = bootstrap::objects().into_iter().filter_map(|object| {
        let is_service = object.get("kind").and_then(Value::as_str) == Some("APIService");
        let spec = object.get("spec").filter(|_| is_service)?;
        let text = |field: &str| spec.get(field).and_then(Value::as_str).unwrap_or_default();
        let number = |field: &str| spec.get(field).and_then(Value::as_i64).unwrap_or_default();
        let service = GroupVersionService {
            group_priority: number("groupPriorityMinimum"),
            version_priority: number("versionPriority"),
            remote: None,
        };
        Some((GroupVersion::new(text("group"), text("version")), service))
    });
    services.collect()
}
