//! Who may do what, and what requests go through: bindings, certificates, policies, aggregated services.

use capstan_api::{Time, Value};

use super::view::{View, cell, human_seconds};

/// The users, groups and service accounts of a binding.
pub(super) fn subjects(binding: View<'_>, _now: Time) -> Vec<Value> {
    let of = |kind| binding.items("subjects").filter(move |subject| subject.text("kind") == kind);
    let names = |kind| of(kind).map(|subject| subject.text("name")).collect::<Vec<_>>().join(", ");
    let account = |subject: View<'_>| format!("{}/{}", subject.text("namespace"), subject.text("name"));
    let accounts: Vec<_> = of("ServiceAccount").map(account).collect();
    vec![cell(names("User")), cell(names("Group")), cell(accounts.join(", "))]
}

/// The kind of a policy's parameters.
pub(super) fn param_kind(policy: View<'_>, _now: Time) -> String {
    let kind = policy.at("spec.paramKind");
    if policy.has("spec.paramKind") {
        format!("{}/{}", kind.text("apiVersion"), kind.text("kind"))
    } else {
        "<unset>".to_owned()
    }
}

/// The parameters of a policy's binding. A selector is shown as Go shows the type.
pub(super) fn param_ref(binding: View<'_>, _now: Time) -> String {
    let reference = binding.at("spec.paramRef");
    let name = reference.text("name");
    if !name.is_empty() {
        return format!("{}/{name}", reference.text_or("namespace", "*"));
    }
    if !reference.has("selector") {
        return "<unset>".to_owned();
    }
    let selector = reference.selector("selector");
    let labels: String = selector.match_labels.iter().map(|(key, value)| format!("{key}: {value},")).collect();
    let requirement = |requirement: &capstan_api::selector::LabelSelectorRequirement| {
        let values = requirement.values.join(" ");
        format!(
            "LabelSelectorRequirement{{Key:{},Operator:{},Values:[{values}],}},",
            requirement.key, requirement.operator
        )
    };
    let expressions: String = selector.match_expressions.iter().map(requirement).collect();
    format!(
        "&LabelSelector{{MatchLabels:map[string]string{{{labels}}},\
         MatchExpressions:[]LabelSelectorRequirement{{{expressions}}},}}"
    )
}

/// The service behind an API, and whether it can be reached.
pub(super) fn api_service(api: View<'_>, _now: Time) -> Vec<Value> {
    let service = api.at("spec.service");
    let service = if api.has("spec.service") {
        format!("{}/{}", service.text("namespace"), service.text("name"))
    } else {
        "Local".to_owned()
    };
    let available = api.condition("status.conditions", "Available");
    let status = available.map_or_else(
        || "Unknown".to_owned(),
        |available| match (available.text("status"), available.text("reason")) {
            (status @ "True", _) | (status, "") => status.to_owned(),
            (status, reason) => format!("{status} ({reason})"),
        },
    );
    vec![cell(service), cell(status)]
}

/// How long a certificate is to hold.
pub(super) fn requested_duration(request: View<'_>, _now: Time) -> String {
    let seconds = request.get("spec.expirationSeconds").and_then(Value::as_i64);
    seconds.map_or_else(|| "<none>".to_owned(), human_seconds)
}

/// How a request for a certificate stands.
pub(super) fn csr_status(request: View<'_>, _now: Time) -> String {
    let has = |condition| request.condition("status.conditions", condition).is_some();
    let decision = ["Denied", "Approved"].into_iter().find(|condition| has(condition)).unwrap_or("Pending");
    let failed = if has("Failed") { ",Failed" } else { "" };
    let issued = if request.text("status.certificate").is_empty() { "" } else { ",Issued" };
    format!("{decision}{failed}{issued}")
}

/// Whether the priority level of a flow schema is missing.
pub(super) fn dangling(schema: View<'_>, _now: Time) -> String {
    let condition = schema.condition("status.conditions", "Dangling");
    condition.map_or("?", |condition| condition.text("status")).to_owned()
}
