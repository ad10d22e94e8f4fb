//! The published definition of the API, in OpenAPI 3 (one document for each group and version) and OpenAPI 2 (one for
//! all).
//!
//! Documents are made from the table of built-in kinds and from the custom resources when somebody first asks for them,
//! and kept compressed until what they speak of changes: together they are a hundredth of what they are when they are
//! sent. A change of a custom resource leaves the documents of version 3 of all other groups and versions as they are.

mod answer;
mod custom;
mod follow;
mod paths;
mod protobuf;
mod remote;
mod render;
mod schemas;
#[cfg(test)]
mod tests;

use std::{
    collections::{BTreeMap, BTreeSet},
    io::{Read as _, Write as _},
    sync::{Arc, Mutex, OnceLock, PoisonError, RwLock},
};

use aws_lc_rs::digest::{SHA512, digest};
use bytes::Bytes;
use capstan_api::{GroupVersion, Value, builtin, builtin::text::full_name, json};
pub use custom::CustomResource;
use flate2::{Compression, read::DeflateDecoder, write::DeflateEncoder};

use self::paths::{Paths, Routes, beside};
pub(crate) use self::remote::RemoteSpec;
use crate::discovery::{ApiResource, json::Json};

/// A version of OpenAPI.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum OpenApiVersion {
    /// `/openapi/v2`.
    V2,
    /// `/openapi/v3`.
    V3,
}

impl OpenApiVersion {
    /// Where schemas are in a document.
    fn references(self) -> &'static str {
        match self {
            OpenApiVersion::V2 => "#/definitions/",
            OpenApiVersion::V3 => "#/components/schemas/",
        }
    }
}

/// Documents about what is beside groups and resources.
const BESIDE: [&str; 5] = [".well-known/openid-configuration", "api", "apis", "openid/v1/jwks", "version"];

/// A document as it is kept.
struct Document {
    /// The hash of its JSON, whatever the form, in capital hexadecimal digits.
    hash: String,
    packed: Vec<u8>,
    length: usize,
}

impl Document {
    fn new(bytes: &[u8]) -> Self {
        let mut encoder = DeflateEncoder::new(Vec::new(), Compression::new(6));
        encoder.write_all(bytes).expect("a vector takes everything");
        let packed = encoder.finish().expect("a vector takes everything");
        Document { hash: hash(bytes), packed, length: bytes.len() }
    }

    fn bytes(&self) -> Bytes {
        let mut bytes = Vec::with_capacity(self.length);
        DeflateDecoder::new(&*self.packed).read_to_end(&mut bytes).expect("it was packed here");
        bytes.into()
    }
}

fn hash(bytes: &[u8]) -> String {
    digest(&SHA512, bytes).as_ref().iter().map(|byte| format!("{byte:02X}")).collect()
}

/// A document that is made when it is first needed.
type Lazy = Arc<OnceLock<Document>>;

/// The documents that belong together.
struct Snapshot {
    custom: Vec<CustomResource>,
    /// What other servers publish.
    remote: BTreeMap<GroupVersion, RemoteSpec>,
    /// By path behind `/openapi/v3/`.
    v3: BTreeMap<String, Lazy>,
    v2: Lazy,
    /// The same as protobuf.
    v2_protobuf: Lazy,
    index: OnceLock<Bytes>,
}

/// The published definition as it is now. Readers wait for the rendering of what they ask for at most.
pub struct OpenApi {
    snapshot: RwLock<Arc<Snapshot>>,
    made: Mutex<follow::Made>,
}

impl OpenApi {
    /// The definition of the built-in kinds.
    #[must_use]
    pub fn new() -> Self {
        let mut paths: BTreeSet<String> = BESIDE.iter().map(|&path| path.to_owned()).collect();
        for group_version in builtin::group_versions() {
            if !group_version.group.is_empty() {
                paths.insert(format!("apis/{}", group_version.group));
            }
            paths.insert(group_version.path().trim_start_matches('/').to_owned());
        }
        let v3 = paths.into_iter().map(|path| (path, Lazy::default())).collect();
        let snapshot = Snapshot {
            custom: Vec::new(),
            remote: BTreeMap::new(),
            v3,
            v2: Lazy::default(),
            v2_protobuf: Lazy::default(),
            index: OnceLock::new(),
        };
        OpenApi { snapshot: RwLock::new(Arc::new(snapshot)), made: Mutex::default() }
    }

    /// Says which custom resources there are from now on; returns whether that changes anything.
    pub fn set_custom(&self, custom: Vec<CustomResource>) -> bool {
        let mut snapshot = self.snapshot.write().unwrap_or_else(PoisonError::into_inner);
        if snapshot.custom == custom {
            return false;
        }
        let (before, now) = (by_path(&snapshot.custom), by_path(&custom));
        let mut v3 = snapshot.v3.clone();
        v3.retain(|path, _| !before.contains_key(path) || before.get(path) == now.get(path));
        for path in now.into_keys() {
            v3.entry(path).or_default();
        }
        let remote = snapshot.remote.clone();
        *snapshot = Arc::new(Snapshot {
            custom,
            remote,
            v3,
            v2: Lazy::default(),
            v2_protobuf: Lazy::default(),
            index: OnceLock::new(),
        });
        true
    }

    /// Says what the server of a group version publishes from now on, if another has it.
    pub(crate) fn set_remote(&self, group_version: &GroupVersion, spec: Option<RemoteSpec>) {
        let mut snapshot = self.snapshot.write().unwrap_or_else(PoisonError::into_inner);
        if snapshot.remote.get(group_version) == spec.as_ref() {
            return;
        }
        let mut remote = snapshot.remote.clone();
        match spec {
            Some(spec) => remote.insert(group_version.clone(), spec),
            None => remote.remove(group_version),
        };
        *snapshot = Arc::new(Snapshot {
            custom: snapshot.custom.clone(),
            remote,
            v3: snapshot.v3.clone(),
            v2: Lazy::default(),
            v2_protobuf: Lazy::default(),
            index: OnceLock::new(),
        });
    }

    /// Whose server has the document of version 3 at this path, if it is another's.
    pub(crate) fn remote_of(&self, path: &str) -> Option<GroupVersion> {
        let snapshot = self.snapshot.read().unwrap_or_else(PoisonError::into_inner);
        if snapshot.remote.is_empty() || snapshot.v3.contains_key(path) {
            return None;
        }
        let has = |(_, spec): &(&GroupVersion, &RemoteSpec)| spec.v3.contains_key(path);
        snapshot.remote.iter().find(has).map(|(group_version, _)| group_version.clone())
    }

    fn snapshot(&self) -> Arc<Snapshot> {
        Arc::clone(&self.snapshot.read().unwrap_or_else(PoisonError::into_inner))
    }
}

/// The custom resources of each document of version 3.
fn by_path(custom: &[CustomResource]) -> BTreeMap<String, Vec<&CustomResource>> {
    let mut all: BTreeMap<String, Vec<&CustomResource>> = BTreeMap::new();
    for resource in custom {
        all.entry(resource.path()).or_default().push(resource);
    }
    all
}

/// The list of documents of version 3.
fn index(snapshot: &Snapshot) -> Bytes {
    let render = || {
        let mut json = Json::default();
        json.object(|json| {
            json.key("paths");
            json.object(|json| {
                let ours = snapshot.v3.iter().map(|(path, lazy)| {
                    let url = relative_url(path, &v3(snapshot, path, lazy).hash);
                    (path.as_str(), url)
                });
                let theirs = snapshot.remote.values().flat_map(|spec| &spec.v3);
                let mut all: BTreeMap<&str, String> = theirs.map(|(path, url)| (path.as_str(), url.clone())).collect();
                all.extend(ours);
                for (path, url) in all {
                    json.key(path);
                    json.object(|json| json.field("serverRelativeURL", &url));
                }
            });
        });
        json.finish().into()
    };
    snapshot.index.get_or_init(render).clone()
}

/// A document of version 3.
fn v3<'a>(snapshot: &Snapshot, path: &str, lazy: &'a Lazy) -> &'a Document {
    lazy.get_or_init(|| Document::new(&render_v3(&snapshot.custom, path)))
}

fn render_v3(custom: &[CustomResource], path: &str) -> Vec<u8> {
    let version = OpenApiVersion::V3;
    if let Some(paths) = beside(path) {
        return render::document(version, &paths, &[], &BTreeMap::new());
    }
    let custom: Vec<&CustomResource> = custom.iter().filter(|resource| resource.path() == path).collect();
    if let Some(first) = custom.first() {
        let group_versions: Vec<GroupVersion> = builtin::group_versions().collect();
        let paths = custom::paths(&first.resource.group_version, &custom);
        return render::document(version, &paths, &group_versions, &custom::schemas(version, &custom));
    }
    let group_version = builtin::group_versions().find(|known| known.path().trim_start_matches('/') == path);
    let group_version = group_version.unwrap_or_else(|| GroupVersion::from_static("", "v1"));
    let paths = builtin_paths(&group_version);
    render::document(version, &paths, &[group_version], &BTreeMap::new())
}

/// The one document of version 2.
fn v2(snapshot: &Snapshot) -> &Document {
    snapshot.v2.get_or_init(|| {
        let own = render_v2(&snapshot.custom);
        let others: Vec<&Value> = snapshot.remote.values().filter_map(|spec| spec.v2.as_ref()).collect();
        if !others.is_empty()
            && let Ok(Value::Object(mut merged)) = json::parse(&own)
        {
            others.into_iter().for_each(|other| remote::merge(&mut merged, other));
            return Document::new(json::to_string(&merged.into()).as_bytes());
        }
        Document::new(&own)
    })
}

/// The one document of version 2 as protobuf.
fn v2_protobuf(snapshot: &Snapshot) -> &Document {
    snapshot.v2_protobuf.get_or_init(|| {
        let document = v2(snapshot);
        let value = json::parse(&document.bytes()).expect("it was written as JSON");
        Document { hash: document.hash.clone(), ..Document::new(&protobuf::encode(&value)) }
    })
}

fn render_v2(custom: &[CustomResource]) -> Vec<u8> {
    let version = OpenApiVersion::V2;
    let group_versions: Vec<GroupVersion> = builtin::group_versions().collect();
    let groups: BTreeSet<&str> = group_versions.iter().map(|known| &*known.group).collect();
    let groups = groups.into_iter().filter(|group| !group.is_empty()).map(|group| format!("apis/{group}"));
    let mut paths: Paths =
        BESIDE.iter().map(|&path| path.to_owned()).chain(groups).filter_map(|path| beside(&path)).flatten().collect();
    paths.extend(group_versions.iter().flat_map(builtin_paths));
    let custom: Vec<&CustomResource> = custom.iter().collect();
    for resource in &custom {
        paths.extend(custom::paths(&resource.resource.group_version, &[resource]));
    }
    render::document(version, &paths, &group_versions, &custom::schemas(version, &custom))
}

/// Where a document is, such that it may be kept for good.
fn relative_url(path: &str, hash: &str) -> String {
    format!("/openapi/v3/{path}?hash={hash}")
}

/// The operations on the built-in resources of a group version.
fn builtin_paths(group_version: &GroupVersion) -> Paths {
    let mut routes = Routes::new(group_version);
    routes.index();
    for kind in builtin::kinds().filter(|kind| kind.group_version == *group_version) {
        let object = builtin::type_name(&kind.gvk()).map(full_name).unwrap_or_default();
        let list = format!("{object}List");
        routes.resource(&ApiResource::from(kind), &object, &list);
    }
    routes.paths
}

impl Default for OpenApi {
    fn default() -> Self {
        OpenApi::new()
    }
}
