//! Who owns which field: tracked with every write, and what server-side apply goes by.

use capstan_api::{
    GroupVersionKind, Map, Status, Time, Value, builtin, codec, json,
    managed_fields::{
        self, FieldManager, Filter, ManagedFieldsEntry, OneVersion, OtherVersions, PathElement, ScaleHandler,
    },
    schema::Schema,
};

use super::call::{Call, metadata_mut};
use crate::{
    conversion, custom,
    registry::{Stored, hooks},
};

/// The other versions of a kind that has some.
struct Versions<'a>(&'a GroupVersionKind);

impl Versions<'_> {
    fn kind(&self, api_version: &str) -> GroupVersionKind {
        GroupVersionKind::from_api_version_and_kind(api_version, &self.0.kind)
    }
}

impl OtherVersions for Versions<'_> {
    fn schema(&self, api_version: &str) -> Option<Schema> {
        builtin::schema(&self.kind(api_version))
    }

    fn convert(&self, object: &Map, api_version: &str) -> Result<Map, String> {
        let stored = conversion::to_storage(self.0, object.clone());
        Ok(conversion::from_storage(&self.kind(api_version), stored))
    }
}

/// The other versions of a custom resource, which differ in their schemas and are written alike.
struct CustomVersions<'a>(&'a custom::Served);

impl OtherVersions for CustomVersions<'_> {
    fn schema(&self, api_version: &str) -> Option<Schema> {
        let definition = self.0.definition();
        let version = api_version.strip_prefix(definition.group.as_str())?.strip_prefix('/')?;
        let at = definition.versions.iter().position(|known| known.name == *version)?;
        Some(definition.schema(at).clone())
    }

    fn convert(&self, object: &Map, api_version: &str) -> Result<Map, String> {
        let mut object = object.clone();
        object.insert("apiVersion", api_version);
        Ok(object)
    }
}

/// Does something with the manager of this endpoint's fields.
fn with_manager<T>(call: &Call<'_>, work: impl FnOnce(&FieldManager<'_>) -> T) -> T {
    let resource = &call.resource;
    let (kind, subresource) = (&resource.gvk, &*call.info.subresource);
    let filter = match resource.as_custom() {
        Some(served) => Filter::of_custom(subresource, served.version().status),
        None => Filter::of_builtin(kind, subresource),
    };
    if let Some(served) = resource.as_custom() {
        let versions = CustomVersions(served);
        let fields =
            FieldManager { kind, schema: resource.schema(), subresource, filter: &filter, versions: &versions };
        return work(&fields);
    }
    let versions = Versions(kind);
    let several = conversion::needs_conversion(kind)
        || resource.stored.as_ref().is_some_and(|stored| conversion::has_versions(&stored.gvk));
    let versions: &dyn OtherVersions = if several { &versions } else { &OneVersion };
    work(&FieldManager { kind, schema: resource.schema(), subresource, filter: &filter, versions })
}

/// Who writes: the name that the request gives, or the beginning of its user agent.
pub(crate) fn manager(call: &Call<'_>, named: &str) -> String {
    managed_fields::manager_name(named, call.header(http::header::USER_AGENT))
}

/// Takes note of who has written which fields of `new`.
pub(crate) fn track(call: &Call<'_>, live: Option<&Map>, new: &mut Map, named: &str) {
    let (manager, now) = (manager(call, named), call.now().to_string());
    template_generation(call, new);
    let builtin = call.resource.as_custom().is_none();
    let labelled = builtin && call.resource.gvk.kind == *"Job" && hooks::label_as_template(new);
    with_manager(call, |fields| fields.update(live, new, &manager, &now));
    if labelled {
        metadata_mut(new).remove("labels");
    }
}

/// Takes note of who asks for something that is made through a subresource, is answered and not kept.
pub(crate) fn track_request(call: &Call<'_>, kind: &GroupVersionKind, new: &mut Map, named: &str) {
    let Some(schema) = builtin::schema(kind) else { return };
    let (subresource, filter, versions) = (&*call.info.subresource, &Filter::default(), &OneVersion);
    let fields = FieldManager { kind, schema: &schema, subresource, filter, versions };
    fields.update(None, new, &manager(call, named), &call.now().to_string());
}

/// Who the server itself is, and who it is where it writes how requests are shared out.
const SELF: &str = "kube-apiserver";
const FLOW_CONTROL: (&str, &str) = ("flowcontrol.apiserver.k8s.io", "api-priority-and-fairness-config-producer-v1");

/// Takes note of what the server itself writes.
pub(crate) fn track_own(stored: &Stored, subresource: &str, live: Option<&Map>, new: &mut Map, now: Time) {
    let Some(schema) = builtin::schema(&stored.gvk) else { return };
    let filter = Filter::of_builtin(&stored.gvk, subresource);
    let versions = &OneVersion;
    let fields = FieldManager { kind: &stored.gvk, schema: &schema, subresource, filter: &filter, versions };
    let manager = if stored.gvk.group == *FLOW_CONTROL.0 { FLOW_CONTROL.1 } else { SELF };
    fields.update(live, new, manager, &now.to_string());
}

/// The number that upstream counts a DaemonSet's templates by is a field inside and an annotation outside, so it is
/// there for whoever writes one.
fn template_generation(call: &Call<'_>, new: &mut Map) {
    if call.resource.gvk.kind == *"DaemonSet" && call.resource.as_custom().is_none() {
        let annotations = metadata_mut(new).get_or_insert_with("annotations", || Map::new().into());
        if let Some(annotations) = annotations.as_object_mut() {
            annotations.get_or_insert_with("deprecated.daemonset.template.generation", || "0".into());
        }
    }
}

/// Takes note of who has written the number of replicas through the scale, and gives the object its new entries.
pub(crate) fn track_scale(
    call: &Call<'_>,
    old: &Map,
    old_scale: &Map,
    scale: &mut Map,
    write: impl FnOnce(&FieldManager<'_>, &Map, &mut Map) -> Result<(), Status>,
) -> Result<Vec<ManagedFieldsEntry>, Status> {
    let api_version = call.resource.gvk.api_version();
    let path = |text: &str| text.split('.').map(PathElement::field).collect::<Vec<_>>();
    // All versions of the object's kind, and where each has its replicas.
    let versions: Vec<(String, Option<Vec<PathElement>>)> = match call.resource.as_custom() {
        Some(served) => {
            let definition = served.definition();
            let of = |version: &str| format!("{}/{version}", call.resource.gvk.group);
            let all = definition.versions.iter();
            all.map(|v| (of(&v.name), v.scale.as_ref().map(|scale| path(&scale.spec_replicas)))).collect()
        }
        None => vec![(api_version.to_string(), Some(path("spec.replicas")))],
    };
    let mappings: Vec<_> = versions.iter().map(|(version, path)| (&**version, path.as_deref())).collect();
    let handler = ScaleHandler { mappings: &mappings, api_version: &api_version };
    let entries = managed_fields::read_entries(old).unwrap_or_default();
    let mut live = old_scale.clone();
    managed_fields::write_entries(&mut live, handler.to_subresource(&entries));
    let kind = super::scale::SCALE;
    let schema = builtin::schema(&kind).ok_or_else(|| Status::internal_error("Scale has no schema"))?;
    let filter = Filter::default();
    let fields =
        FieldManager { kind: &kind, schema: &schema, subresource: "scale", filter: &filter, versions: &OneVersion };
    write(&fields, &live, scale)?;
    let mut written = managed_fields::read_entries(scale).unwrap_or_default();
    for entry in &mut written {
        if entry.subresource == "scale" && !entries.iter().any(|old| old.is_same(entry)) {
            entry.time = None;
        }
    }
    Ok(handler.to_parent(entries, written))
}

/// The object with a configuration applied to it.
pub(crate) fn apply(
    call: &Call<'_>,
    live: Option<&Map>,
    config: Map,
    manager: &str,
    force: bool,
) -> Result<Map, Status> {
    let now = call.now().to_string();
    let applied = with_manager(call, |fields| fields.apply(live, config, manager, force, &now));
    applied.map_err(managed_fields::ApplyError::into_status)
}

/// An empty list of entries asks to forget them, and does not outlive decoding: it is put back.
pub(crate) fn keep_clearing(call: &Call<'_>, object: &mut Map) {
    if memchr::memmem::find(&call.body, b"managedFields").is_none() {
        return;
    }
    let yaml = || codec::decode_strict(&call.body, codec::Format::Yaml).ok().map(|(sent, _)| sent);
    if let Some(sent) = json::parse(&call.body).ok().or_else(yaml) {
        keep_cleared(&sent, object);
    }
}

/// The same, of what is to be decoded.
pub(crate) fn keep_cleared(sent: &Value, object: &mut Map) {
    if sent.as_object().is_some_and(managed_fields::asks_to_clear) {
        metadata_mut(object).insert("managedFields", Vec::<Value>::new());
    }
}
