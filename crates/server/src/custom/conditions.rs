//! The conditions of a definition.

use capstan_api::{Map, Str, Time, Value, field, go, schema::structural};

use super::names::Conflict;
use crate::registry::paths;

const CONDITIONS: &str = "status.conditions";
const APPROVED: &str = "api-approved.kubernetes.io";
const SEE: &str = "see https://github.com/kubernetes/enhancements/pull/1111";

/// One condition.
pub(crate) struct Condition {
    pub(crate) ty: &'static str,
    pub(crate) status: &'static str,
    pub(crate) reason: &'static str,
    pub(crate) message: String,
}

impl Condition {
    pub(crate) fn new(
        ty: &'static str,
        status: &'static str,
        reason: &'static str,
        message: impl Into<String>,
    ) -> Self {
        Condition { ty, status, reason, message: message.into() }
    }

    /// Sets the condition. Its time is that of the last change of its status.
    pub(crate) fn set(&self, crd: &mut Map, now: Time) {
        let mut all = paths::items(crd, CONDITIONS).to_vec();
        let is_this = |one: &&mut Value| one.get("type").and_then(Value::as_str) == Some(self.ty);
        let time = |condition: &Value| condition.get("lastTransitionTime").and_then(Value::as_str).map(Str::from);
        let at = all.iter_mut().find(is_this);
        let kept = at.as_ref().filter(|one| one.get("status").and_then(Value::as_str) == Some(self.status));
        let since = kept.and_then(|one| time(one)).unwrap_or_else(|| now.to_string().into());
        let condition: Map = [
            ("type", Value::from(self.ty)),
            ("status", self.status.into()),
            ("lastTransitionTime", since.into()),
            ("reason", self.reason.into()),
            ("message", self.message.as_str().into()),
        ]
        .into_iter()
        .map(|(key, value)| (Str::from(key), value))
        .collect();
        match at {
            Some(at) => *at = condition.into(),
            None => all.push(condition.into()),
        }
        paths::set(crd, CONDITIONS, all);
    }
}

fn find<'c>(crd: &'c Map, ty: &str) -> Option<&'c Value> {
    paths::items(crd, CONDITIONS).iter().find(|one| one.get("type").and_then(Value::as_str) == Some(ty))
}

/// Whether a condition is true.
pub(crate) fn is_true(crd: &Map, ty: &str) -> bool {
    find(crd, ty).and_then(|one| one.get("status")?.as_str()) == Some("True")
}

/// Says whether the names are accepted, and whether the resource is there.
pub(super) fn naming(crd: &mut Map, conflict: Option<&Conflict>, now: Time) {
    match conflict {
        Some(Conflict { reason, message }) => {
            Condition::new("NamesAccepted", "False", reason, message.as_str()).set(crd, now);
            if find(crd, "Established").is_none() {
                Condition::new("Established", "False", "NotAccepted", "not all names are accepted").set(crd, now);
            }
        }
        None => {
            Condition::new("NamesAccepted", "True", "NoConflicts", "no conflicts found").set(crd, now);
            if !is_true(crd, "Established") {
                let words = "the initial names have been accepted";
                Condition::new("Established", "True", "InitialNamesAccepted", words).set(crd, now);
            }
        }
    }
}

/// Says whether a group of the community was approved. Others are not asked.
pub(super) fn approval(crd: &mut Map, now: Time) {
    let group = paths::text(crd, "spec.group");
    let of = |domain: &str| group.strip_suffix(domain).is_some_and(|rest| rest.is_empty() || rest.ends_with('.'));
    if !of("k8s.io") && !of("kubernetes.io") {
        return;
    }
    let annotation = paths::get(crd, "metadata.annotations").and_then(|all| all.get(APPROVED));
    let annotation = annotation.and_then(Value::as_str).unwrap_or_default();
    let name = go::quote(APPROVED);
    let (status, reason, message) = match annotation {
        "" => ("False", "MissingAnnotation", format!("protected groups must have approval annotation {name}, {SEE}")),
        text if text.starts_with("unapproved") => {
            ("False", "UnapprovedAnnotation", format!("not approved: {}", go::quote(text)))
        }
        text if is_url(text) => ("True", "ApprovedAnnotation", format!("approved in {text}")),
        _ => {
            let words = format!(
                "protected groups must have approval annotation {name} with either a URL or a reason starting with \
                 \"unapproved\", {SEE}"
            );
            ("False", "InvalidAnnotation", words)
        }
    };
    Condition::new("KubernetesAPIApprovalPolicyConformant", status, reason, message).set(crd, now);
}

fn is_url(text: &str) -> bool {
    text.parse::<http::Uri>().is_ok_and(|uri| uri.scheme().is_some() && uri.host().is_some_and(|host| !host.is_empty()))
}

/// Says whether a schema is not structural, which only old definitions can be.
pub(super) fn non_structural(crd: &mut Map, now: Time) {
    let mut errors = Vec::new();
    if paths::get(crd, "spec.preserveUnknownFields").and_then(Value::as_bool) == Some(true) {
        errors.push(field::Error::invalid("spec.preserveUnknownFields", true, "must be false"));
        for (at, version) in paths::items(crd, "spec.versions").iter().enumerate() {
            let path = format!("spec.versions[{at}].schema.openAPIV3Schema");
            let schema = version.get("schema").and_then(|schema| schema.get("openAPIV3Schema"));
            errors.extend(schema.and_then(|schema| structural::compile(schema, &path).err()).into_iter().flatten());
        }
    }
    if errors.is_empty() {
        if find(crd, "NonStructuralSchema").is_some() {
            let mut all = paths::items(crd, CONDITIONS).to_vec();
            all.retain(|one| one.get("type").and_then(Value::as_str) != Some("NonStructuralSchema"));
            paths::set(crd, CONDITIONS, all);
        }
        return;
    }
    Condition::new("NonStructuralSchema", "True", "Violations", field::aggregate(&errors)).set(crd, now);
}
