//! ComponentStatuses: what the control plane is made of and how it does. Deprecated, and still asked for.

use bytes::Bytes;
use capstan_api::{GroupResource, Status, object::ListMeta};

use super::call::Call;
use crate::http::Response;

/// The parts of this control plane: the store, which has answered if this does.
const COMPONENTS: [(&str, &str); 1] = [(
    "etcd-0",
    r#"{"kind":"ComponentStatus","apiVersion":"v1","metadata":{"name":"etcd-0"},"conditions":[{"type":"Healthy","status":"True","message":"ok"}]}"#,
)];

/// One part, or all.
pub(crate) fn components(call: &Call<'_>) -> Result<Response, Status> {
    let form = call.form()?;
    let json = |text: &'static str| Bytes::from_static(text.as_bytes());
    if call.info.verb == "list" {
        let items = COMPONENTS.iter().map(|(_, text)| (json(text), json(text))).collect();
        return form.list_of(&call.resource, ListMeta::default(), items, call.now());
    }
    let found = COMPONENTS.iter().find(|(name, _)| *name == call.info.name);
    // Upstream names it in the singular here.
    let resource = GroupResource::from_static("", "componentstatus");
    let (_, text) = found.ok_or_else(|| Status::not_found(&resource, &call.info.name))?;
    form.object(&call.resource, 200, json(text), call.now())
}
