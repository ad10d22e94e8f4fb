//! TokenRequest: the `token` of a service account.

use std::{fmt, sync::Arc};

use capstan_api::{
    Array, GroupKind, GroupResource, GroupVersionKind, Map, Status, Str, Time, Value, field::Error as FieldError, go,
    json,
};
use capstan_clock::{Ids, Timestamp};

use super::{jwt, service_account::ServiceAccountToken};
use crate::{cache::Object, objects::Objects, pki::PrivateKey};

const GROUP: &str = "authentication.k8s.io";
const DEFAULT_SECONDS: i64 = 60 * 60;
const MIN_SECONDS: i64 = 10 * 60;
const MAX_SECONDS: i64 = 1 << 32;
/// What is asked for by pods whose libraries may not read a token again: they get a longer one, with a note.
const WARN_ONLY_SECONDS: i64 = 60 * 60 + 7;
const EXTENDED_SECONDS: i64 = 24 * 365 * 60 * 60;

/// Who signs tokens.
#[derive(Clone, Debug)]
pub struct TokenIssuer {
    /// The issuer's name.
    pub issuer: Str,
    /// Its key.
    pub key: Arc<PrivateKey>,
    /// The audiences of tokens that ask for none.
    pub api_audiences: Vec<Str>,
    /// The most seconds that a token may be good for.
    pub max_expiration_seconds: Option<i64>,
    /// Whether pods get longer tokens where they ask for the ones that they know from before.
    pub extend_expiration: bool,
}

/// Where and when a token is requested.
pub struct TokenRequestContext<'a> {
    /// The namespace of the service account.
    pub namespace: &'a str,
    /// Its name.
    pub name: &'a str,
    /// What is stored.
    pub objects: &'a dyn Objects,
    /// The present time.
    pub now: Timestamp,
    /// Where the token's id comes from.
    pub ids: &'a dyn Ids,
}

/// What a token is bound to.
#[derive(Default)]
struct Bound {
    pod: Option<(Str, Str)>,
    secret: Option<(Str, Str)>,
    node: Option<(Str, Str)>,
}

/// The answer to a TokenRequest: the same object with a token in its status. Adds to `warnings` what the client is to
/// be warned of.
///
/// # Errors
/// The answer to a request that is refused.
pub fn token_request(
    issuer: &TokenIssuer,
    context: &TokenRequestContext<'_>,
    mut request: Map,
    warnings: &mut Vec<String>,
) -> Result<Map, Status> {
    let &TokenRequestContext { namespace, name, now, .. } = context;
    let mut metadata = take_map(&mut request, "metadata");
    for (field, expected) in [("name", name), ("namespace", namespace)] {
        let own = text(&metadata, field);
        if !own.is_empty() && own != expected {
            let detail = format!("must match the service account {field} if specified");
            let error = FieldError::invalid(format!("metadata.{field}"), own, detail);
            return Err(invalid(name, error));
        }
    }
    let account = find(context, "serviceaccounts", namespace, name)?;
    let uid = text(&metadata, "uid");
    if !uid.is_empty() && uid != account.uid {
        let problem = format_args!(
            "the UID in the token request ({uid}) does not match the UID of the service account ({})",
            account.uid
        );
        return Err(Status::conflict(&GroupResource::new(GROUP, "TokenRequest"), name, problem));
    }
    metadata.insert("name", name);
    metadata.insert("namespace", namespace);
    metadata.insert("uid", account.uid.clone());
    metadata.insert("creationTimestamp", time(now, 0));

    let mut spec = take_map(&mut request, "spec");
    let mut audiences: Vec<Str> = spec
        .get("audiences")
        .and_then(Value::as_array)
        .into_iter()
        .flatten()
        .filter_map(Value::as_str)
        .map(Str::from)
        .collect();
    if audiences.is_empty() {
        audiences = issuer.api_audiences.clone();
    }
    let mut seconds = spec.get("expirationSeconds").and_then(Value::as_i64).unwrap_or(DEFAULT_SECONDS);
    let problem = match seconds {
        ..MIN_SECONDS => Some("may not specify a duration less than 10 minutes"),
        MIN_SECONDS..=MAX_SECONDS => None,
        _ => Some("may not specify a duration larger than 2^32 seconds"),
    };
    if let Some(problem) = problem {
        return Err(invalid("", FieldError::invalid("spec.expirationSeconds", seconds, problem)));
    }
    let reference = spec.get("boundObjectRef").and_then(Value::as_object);
    let bound = reference.map_or_else(|| Ok(Bound::default()), |reference| bound(context, reference))?;
    if let Some(max) = issuer.max_expiration_seconds.filter(|&max| max > 0 && seconds > max) {
        warnings.push(format!("requested expiration of {seconds} seconds shortened to {max} seconds"));
        seconds = max;
    }
    let extended = issuer.extend_expiration
        && bound.pod.is_some()
        && seconds == WARN_ONLY_SECONDS
        && audiences.iter().all(|audience| issuer.api_audiences.contains(audience));
    let token = ServiceAccountToken {
        namespace: namespace.into(),
        service_account: (name.into(), account.uid.clone()),
        pod: bound.pod,
        secret: bound.secret,
        node: bound.node,
        audiences: audiences.clone(),
        expiration_seconds: if extended { EXTENDED_SECONDS } else { seconds },
        warn_after: extended.then_some(seconds),
    };
    let token = jwt::sign(&issuer.key, &token.claims(&issuer.issuer, &context.ids.uid(), now));

    spec.insert("audiences", audiences.into_iter().map(Value::from).collect::<Array>());
    spec.insert("expirationSeconds", seconds);
    spec.get_or_insert_with("boundObjectRef", || Value::Null);
    let mut status = Map::new();
    status.insert("token", token);
    status.insert("expirationTimestamp", time(now, seconds));
    request.insert("apiVersion", format!("{GROUP}/v1"));
    request.insert("kind", "TokenRequest");
    request.insert("metadata", metadata);
    request.insert("spec", spec);
    request.insert("status", status);
    Ok(request)
}

/// The object that a token is to be bound to.
fn bound(context: &TokenRequestContext<'_>, reference: &Map) -> Result<Bound, Status> {
    let (api_version, kind) = (text(reference, "apiVersion"), text(reference, "kind"));
    let (name, wanted) = (text(reference, "name"), text(reference, "uid"));
    let gvk = GroupVersionKind::from_api_version_and_kind(&api_version, &kind);
    let mut bound = Bound::default();
    let (group, kind) = (gvk.group.as_str(), gvk.kind.as_str());
    let uid = match (group, kind) {
        ("", "Pod") => {
            let pod = find(context, "pods", context.namespace, &name)?;
            let object = json::parse(&pod.json).unwrap_or_default();
            let spec =
                |field| object.get("spec").and_then(|spec| spec.get(field)).and_then(Value::as_str).unwrap_or("");
            if spec("serviceAccountName") != context.name {
                return Err(Status::bad_request(format!(
                    "cannot bind token for serviceaccount {} to pod running with different serviceaccount name.",
                    go::quote(context.name)
                )));
            }
            let node = spec("nodeName");
            if !node.is_empty() {
                // A node that is gone is still named.
                let uid = find(context, "nodes", "", node).map(|node| node.uid.clone()).unwrap_or_default();
                bound.node = Some((node.into(), uid));
            }
            bound.pod = Some((name.clone(), pod.uid.clone()));
            pod.uid.clone()
        }
        ("", "Node") => {
            let node = find(context, "nodes", "", &name)?;
            bound.node = Some((name.clone(), node.uid.clone()));
            node.uid.clone()
        }
        ("", "Secret") => {
            let secret = find(context, "secrets", context.namespace, &name)?;
            bound.secret = Some((name.clone(), secret.uid.clone()));
            secret.uid.clone()
        }
        _ => {
            let problem = format!("cannot bind token to object of type {}/{}, Kind={kind}", group, gvk.version);
            return Err(Status::bad_request(problem));
        }
    };
    if !wanted.is_empty() && wanted != uid {
        let problem = format_args!(
            "the UID in the bound object reference ({wanted}) does not match the UID in record. The object might have \
             been deleted and then recreated"
        );
        return Err(Status::conflict(&GroupResource::new(group, kind.to_owned()), &name, problem));
    }
    Ok(bound)
}

fn find(
    context: &TokenRequestContext<'_>,
    resource: &'static str,
    namespace: &str,
    name: &str,
) -> Result<Arc<Object>, Status> {
    let resource = GroupResource::new("", resource);
    context.objects.get(&resource, namespace, name).ok_or_else(|| Status::not_found(&resource, name))
}

fn invalid(name: &str, error: FieldError) -> Status {
    Status::invalid(&GroupKind::new(GROUP, "TokenRequest"), name, &vec![error])
}

pub(super) fn time(now: Timestamp, later: i64) -> String {
    Time::from_unix(now.as_second().saturating_add(later), 0).to_string()
}

pub(super) fn take_map(object: &mut Map, field: &str) -> Map {
    match object.remove(field) {
        Some(Value::Object(map)) => map,
        _ => Map::new(),
    }
}

fn text(map: &Map, field: &str) -> Str {
    map.get(field).and_then(Value::as_str).map(Str::from).unwrap_or_default()
}

impl fmt::Debug for TokenRequestContext<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "TokenRequestContext({}/{})", self.namespace, self.name)
    }
}
