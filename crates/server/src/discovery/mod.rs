//! What there is to ask for: groups, versions, resources, paths, and the version of the server.
//!
//! The documents are rendered from rows, built-in and custom alike, when they are first asked for, and kept as bytes
//! until the rows change. Readers get a snapshot: the documents of one [`Documents`] fit together.

pub(crate) mod json;
mod render;
mod resource;
#[cfg(test)]
mod tests;
mod version;

use std::{
    collections::{BTreeSet, HashMap},
    sync::{Arc, OnceLock, PoisonError, RwLock},
};

use bytes::Bytes;
use capstan_api::{builtin, json as api_json, yaml};
pub use resource::{ApiResource, ApiSubresource, storage_version_hash};
pub(crate) use version::API_VERSION;
pub use version::VersionInfo;

use self::json::Json;
use crate::{
    pretty,
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

    fn render(config: &Config, resources: &[ApiResource]) -> Self {
        let groups = render::groups(resources);
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
            for version in &group.versions {
                let document = Document::new(|json| render::api_resource_list(version, json));
                add(&version.group_version.path(), document);
            }
        }
        // Upstream lists the prefix of all groups twice.
        let mut paths: BTreeSet<_> = by_path.keys().cloned().chain(["/apis/".to_owned()]).collect();
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

/// The rows and, once somebody has asked, their documents.
struct Snapshot {
    resources: Vec<ApiResource>,
    documents: OnceLock<Arc<Documents>>,
}

/// Discovery as it is now. Readers never wait for a rendering but the first after a change.
pub struct Discovery {
    config: Config,
    snapshot: RwLock<Arc<Snapshot>>,
}

impl Discovery {
    /// Discovery of the built-in kinds.
    #[must_use]
    pub fn new(config: Config) -> Self {
        let resources = builtin::kinds().map(ApiResource::from).collect();
        let snapshot = Snapshot { resources, documents: OnceLock::new() };
        Discovery { config, snapshot: RwLock::new(Arc::new(snapshot)) }
    }

    /// Says which custom resources there are from now on; returns whether that changes anything.
    pub fn set_custom(&self, mut custom: Vec<ApiResource>) -> bool {
        let mut snapshot = self.snapshot.write().unwrap_or_else(PoisonError::into_inner);
        custom.retain(|resource| resource.custom);
        let (builtin, before): (Vec<_>, Vec<_>) =
            snapshot.resources.iter().cloned().partition(|resource| !resource.custom);
        if before == custom {
            return false;
        }
        let resources = builtin.into_iter().chain(custom).collect();
        *snapshot = Arc::new(Snapshot { resources, documents: OnceLock::new() });
        true
    }

    /// The documents of now.
    #[must_use]
    pub fn documents(&self) -> Arc<Documents> {
        let snapshot = Arc::clone(&self.snapshot.read().unwrap_or_else(PoisonError::into_inner));
        let render = || Arc::new(Documents::render(&self.config, &snapshot.resources));
        Arc::clone(snapshot.documents.get_or_init(render))
    }
}
