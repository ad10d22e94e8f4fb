//! Jobs.

use std::collections::BTreeSet;

use capstan_api::{
    Map, Value,
    field::{Error, ErrorList, Path},
    go,
    selector::LabelSelector,
    validation::{is_dns1123_label, is_domain_prefixed_path, is_qualified_name},
};

use super::{
    apps::mismatch,
    internal, pod,
    read::{at, flag, int, is_set, list, object, objects, text},
    rules::{IMMUTABLE, invalid, nonnegative, show_selector},
    show::{hidden, json},
};

const SPEC: Path<'static> = Path::new("spec");
const INDEXED: &str = "Indexed";
const MAX_PARALLELISM: i64 = 100_000;
const MAX_FAILED: i64 = 100_000;
const MANY_COMPLETIONS: i64 = 100_000;
const MAX_PARALLELISM_OF_MANY: i64 = 10_000;
const MAX_FAILED_OF_MANY: i64 = 10_000;
const MAX_RULES: usize = 20;
const MAX_EXIT_CODES: usize = 255;
const MAX_MANAGED_BY: usize = 63;
const MAX_INDEXES: usize = 64 * 1024;

pub(super) fn job(job: &Map, errors: &mut ErrorList) {
    let spec = at(job, "spec");
    generated_selector(job, errors);
    spec_and_selector(spec, errors);
    let name = text(at(job, "metadata"), "name");
    if let Some(completions) = int(spec, "completions").filter(|n| *n > 0 && is_indexed(spec)) {
        let last = format!("{name}-{}", completions - 1);
        if !is_dns1123_label(&last).is_empty() {
            let detail = format!("will not able to create pod with invalid DNS label: {last}");
            errors.push(Error::invalid("metadata.name", name, detail));
        }
    }
}

fn is_indexed(spec: &Map) -> bool {
    text(spec, "completionMode") == INDEXED
}

/// A selector that the server made must be as it makes them.
fn generated_selector(job: &Map, errors: &mut ErrorList) {
    let spec = at(job, "spec");
    let Some(selector) = object(spec, "selector").filter(|_| !flag(spec, "manualSelector")) else { return };
    let metadata = at(job, "metadata");
    let [uid, name] = ["uid", "name"].map(|key| text(metadata, key));
    if uid.is_empty() {
        errors.push(Error::required("metadata.uid", ""));
    }
    let expected = [
        ("controller-uid", uid),
        ("job-name", name),
        ("batch.kubernetes.io/controller-uid", uid),
        ("batch.kubernetes.io/job-name", name),
    ];
    let labels = at(at(at(spec, "template"), "metadata"), "labels");
    let path = SPEC.child("template");
    let path = path.child("metadata");
    let path = path.child("labels");
    for (key, value) in expected {
        let detail = format!("must be '{value}'");
        match labels.get(key) {
            None => errors.push(Error::required(path.key(key), detail)),
            Some(actual) if actual.as_str() != Some(value) => {
                errors.push(Error::invalid(path.key(key), labels.clone(), detail));
            }
            Some(_) => {}
        }
    }
    let expected: Map = expected.into_iter().map(|(key, value)| (key.into(), Value::from(value))).collect();
    if LabelSelector::from_map(selector).to_selector().is_ok_and(|selector| !selector.matches(&expected)) {
        let detail = "`selector` not auto-generated";
        errors.push(Error::invalid_shown(SPEC.child("selector"), show_selector(Some(selector)), detail));
    }
}

fn spec_and_selector(map: &Map, errors: &mut ErrorList) {
    spec(map, &SPEC, errors);
    let selector = object(map, "selector").map(LabelSelector::from_map);
    match &selector {
        None => errors.push(Error::required(SPEC.child("selector"), "")),
        Some(selector) => errors.extend(selector.validate(&SPEC.child("selector"))),
    }
    let labels = at(at(at(map, "template"), "metadata"), "labels");
    let matches = selector.is_some_and(|selector| selector.to_selector().map_or(true, |s| s.matches(labels)));
    if !matches {
        mismatch(map, errors);
    }
}

/// The spec of a job, whether there is a job or only a template of one.
pub(super) fn spec(spec: &Map, path: &Path<'_>, errors: &mut ErrorList) {
    const COUNTS: &[&str] = &[
        "parallelism",
        "completions",
        "activeDeadlineSeconds",
        "backoffLimit",
        "ttlSecondsAfterFinished",
        "backoffLimitPerIndex",
        "maxFailedIndexes",
    ];
    nonnegative(errors, spec, COUNTS, path);
    if is_set(spec, "maxFailedIndexes") && !is_set(spec, "backoffLimitPerIndex") {
        errors.push(Error::required(path.child("backoffLimitPerIndex"), "when maxFailedIndexes is specified"));
    }
    if is_set(spec, "managedBy") {
        let manager = text(spec, "managedBy");
        errors.extend(is_domain_prefixed_path(&path.child("managedBy"), manager));
        if manager.len() > MAX_MANAGED_BY {
            errors.push(Error::too_long(path.child("managedBy"), MAX_MANAGED_BY));
        }
    }
    let mode = text(spec, "completionMode");
    if is_set(spec, "completionMode") && !["NonIndexed", INDEXED].contains(&mode) {
        errors.push(Error::not_supported(path.child("completionMode"), mode, &["NonIndexed", INDEXED]));
    }
    if mode == INDEXED {
        indexed(spec, path, errors);
    }
    if !is_set(spec, "completionMode") || mode == "NonIndexed" {
        for key in ["backoffLimitPerIndex", "maxFailedIndexes"] {
            if let Some(value) = int(spec, key) {
                errors.push(Error::invalid(path.child(key), value, "requires indexed completion mode"));
            }
        }
    }
    if let Some(policy) = object(spec, "podFailurePolicy") {
        failure_policy(policy, spec, &path.child("podFailurePolicy"), errors);
    }
    if let Some(policy) = object(spec, "successPolicy") {
        let path = path.child("successPolicy");
        if mode == INDEXED {
            success_policy(policy, spec, &path, errors);
        } else {
            let detail = "requires indexed completion mode";
            errors.push(Error::invalid_shown(path, internal::show("SuccessPolicy", policy), detail));
        }
    }
    if is_set(spec, "podReplacementPolicy") {
        let policy = text(spec, "podReplacementPolicy");
        let known: &[&str] =
            if is_set(spec, "podFailurePolicy") { &["Failed"] } else { &["Failed", "TerminatingOrFailed"] };
        if !known.contains(&policy) {
            errors.push(Error::not_supported(path.child("podReplacementPolicy"), policy, known));
        }
    }
    let template = at(spec, "template");
    let path = path.child("template");
    pod::template(template, &path, errors);
    let path = path.child("spec");
    let path = path.child("restartPolicy");
    match text(at(template, "spec"), "restartPolicy") {
        "" | "Always" => errors.push(Error::required(path, r#"valid values: "OnFailure", "Never""#)),
        "OnFailure" if is_set(spec, "podFailurePolicy") => {
            let detail = r#"only "Never" is supported when podFailurePolicy is specified"#;
            errors.push(Error::invalid(path, "OnFailure", detail));
        }
        "OnFailure" | "Never" => {}
        policy => errors.push(Error::not_supported(path, policy, &["OnFailure", "Never"])),
    }
}

fn at_most(spec: &Map, key: &str, max: i64, detail: &str, path: &Path<'_>, errors: &mut ErrorList) {
    if let Some(value) = int(spec, key).filter(|value| *value > max) {
        errors.push(Error::invalid(path.child(key), value, format!("must be less than or equal to {detail}")));
    }
}

fn indexed(spec: &Map, path: &Path<'_>, errors: &mut ErrorList) {
    const PARALLELISM: &str = "parallelism";
    const FAILED: &str = "maxFailedIndexes";
    let completions = int(spec, "completions");
    let mode = format!("when completion mode is {INDEXED}");
    if completions.is_none() {
        errors.push(Error::required(path.child("completions"), mode.as_str()));
    }
    at_most(spec, PARALLELISM, MAX_PARALLELISM, &format!("{MAX_PARALLELISM} {mode}"), path, errors);
    at_most(spec, FAILED, completions.unwrap_or(i64::MAX), "completions", path, errors);
    at_most(spec, FAILED, MAX_FAILED, &MAX_FAILED.to_string(), path, errors);
    if completions.is_none_or(|n| n <= MANY_COMPLETIONS) || !is_set(spec, "backoffLimitPerIndex") {
        return;
    }
    if !is_set(spec, FAILED) {
        let detail = format!("must be specified when completions is above {MANY_COMPLETIONS}");
        errors.push(Error::required(path.child(FAILED), detail));
    }
    for (key, max) in [(PARALLELISM, MAX_PARALLELISM_OF_MANY), (FAILED, MAX_FAILED_OF_MANY)] {
        let detail =
            format!("{max} when completions are above {MANY_COMPLETIONS} and used with backoff limit per index");
        at_most(spec, key, max, &detail, path, errors);
    }
}

/// Words as `%q` prints a list of them.
fn quoted(words: &[&str]) -> String {
    let words: Vec<_> = words.iter().map(|word| go::quote(word)).collect();
    format!("[{}]", words.join(" "))
}

/// One of the words, which must be there.
fn word(map: &Map, key: &str, known: &[&str], path: &Path<'_>, errors: &mut ErrorList) {
    match text(map, key) {
        "" => errors.push(Error::required(path.child(key), format!("valid values: {}", quoted(known)))),
        word if known.contains(&word) => {}
        word => errors.push(Error::not_supported(path.child(key), word, known)),
    }
}

fn failure_policy(policy: &Map, spec: &Map, path: &Path<'_>, errors: &mut ErrorList) {
    let path = path.child("rules");
    let rules = list(policy, "rules");
    if rules.len() > MAX_RULES {
        errors.push(Error::too_many(path, rules.len(), MAX_RULES));
    }
    let pod = at(at(spec, "template"), "spec");
    let names: BTreeSet<_> = ["containers", "initContainers"]
        .into_iter()
        .flat_map(|key| objects(pod, key))
        .map(|(_, container)| text(container, "name"))
        .collect();
    for (i, rule) in objects(policy, "rules") {
        let path = path.index(i);
        word(rule, "action", &["Count", "FailIndex", "FailJob", "Ignore"], &path, errors);
        if text(rule, "action") == "FailIndex" && !is_set(spec, "backoffLimitPerIndex") {
            let detail = "requires the backoffLimitPerIndex to be set";
            errors.push(Error::invalid(path.child("action"), "FailIndex", detail));
        }
        let codes = object(rule, "onExitCodes");
        if let Some(codes) = codes {
            exit_codes(codes, &names, &path.child("onExitCodes"), errors);
        }
        let conditions = list(rule, "onPodConditions");
        let conditions_path = path.child("onPodConditions");
        if conditions.len() > MAX_RULES {
            errors.push(Error::too_many(conditions_path, conditions.len(), MAX_RULES));
        }
        for (i, pattern) in objects(rule, "onPodConditions") {
            let path = conditions_path.index(i);
            invalid(errors, &path.child("type"), text(pattern, "type"), is_qualified_name(text(pattern, "type")));
            word(pattern, "status", &["False", "True", "Unknown"], &path, errors);
        }
        match (codes.is_some(), !conditions.is_empty()) {
            (true, true) => {
                hidden(errors, &path, "specifying both OnExitCodes and OnPodConditions is not supported");
            }
            (false, false) => hidden(errors, &path, "specifying one of OnExitCodes and OnPodConditions is required"),
            _ => {}
        }
    }
}

fn exit_codes(codes: &Map, names: &BTreeSet<&str>, path: &Path<'_>, errors: &mut ErrorList) {
    word(codes, "operator", &["In", "NotIn"], path, errors);
    let container = text(codes, "containerName");
    if is_set(codes, "containerName") && !names.contains(container) {
        let detail = "must be one of the container or initContainer names in the pod template";
        errors.push(Error::invalid(path.child("containerName"), container, detail));
    }
    let path = path.child("values");
    let values = list(codes, "values");
    let shown = codes.get("values").cloned().unwrap_or(Value::Null);
    if values.is_empty() {
        errors.push(Error::invalid(path, shown.clone(), "at least one value is required"));
    } else if values.len() > MAX_EXIT_CODES {
        errors.push(Error::too_many(path, values.len(), MAX_EXIT_CODES));
    }
    let mut seen = BTreeSet::new();
    let numbers: Vec<_> = values.iter().map(|value| value.as_i64().unwrap_or(0)).collect();
    for (i, code) in numbers.iter().enumerate() {
        if *code == 0 && text(codes, "operator") == "In" {
            errors.push(Error::invalid(path.index(i), *code, "must not be 0 for the In operator"));
        }
        if !seen.insert(*code) {
            errors.push(Error::duplicate(path.index(i), *code));
        }
    }
    if !numbers.is_sorted() {
        errors.push(Error::invalid(path, shown, "must be ordered"));
    }
}

fn success_policy(policy: &Map, spec: &Map, path: &Path<'_>, errors: &mut ErrorList) {
    let path = path.child("rules");
    let rules = list(policy, "rules");
    if rules.is_empty() {
        let detail = "at least one rules must be specified when the successPolicy is specified";
        errors.push(Error::required(path, detail));
    }
    if rules.len() > MAX_RULES {
        errors.push(Error::too_many(path, rules.len(), MAX_RULES));
    }
    let completions = int(spec, "completions").unwrap_or(0);
    for (i, rule) in objects(policy, "rules") {
        let path = path.index(i);
        let (count, has_indexes) = (int(rule, "succeededCount"), is_set(rule, "succeededIndexes"));
        if count.is_none() && !has_indexes {
            let detail = "at least one of succeededCount or succeededIndexes must be specified";
            errors.push(Error::required(path, detail));
        }
        let mut total = 0;
        if has_indexes {
            let indexes = text(rule, "succeededIndexes");
            let path = path.child("succeededIndexes");
            if indexes.len() > MAX_INDEXES {
                errors.push(Error::too_long(path, MAX_INDEXES));
            }
            match super::job_status::indexes(indexes, completions) {
                Ok(found) => total = found,
                Err(error) => {
                    let detail = format!("error parsing succeededIndexes: {error}");
                    errors.push(Error::invalid(path, indexes, detail));
                }
            }
        }
        nonnegative(errors, rule, &["succeededCount"], &path);
        let path = path.child("succeededCount");
        let bounds = [
            (completions, "the number of specified completions", true),
            (total, "the number of indexes in the specified succeededIndexes field", has_indexes),
        ];
        for (max, called, _) in bounds.into_iter().filter(|bound| bound.2) {
            if let Some(count) = count.filter(|count| *count > max) {
                let detail = format!("must be less than or equal to {max} ({called})");
                errors.push(Error::invalid(path, count, detail));
            }
        }
    }
}

pub(super) fn update(new: &Map, old: &Map, errors: &mut ErrorList) {
    let old_job = old;
    let (new, old) = (at(new, "spec"), at(old, "spec"));
    spec_and_selector(new, errors);
    completions(new, old, errors);
    let changed = |key: &str| {
        let [new, old] = [new, old].map(|spec| spec.get(key).filter(|value| !value.is_null()));
        new != old
    };
    if changed("selector") {
        let shown = show_selector(object(new, "selector"));
        errors.push(Error::invalid_shown(SPEC.child("selector"), shown, IMMUTABLE));
    }
    template_update(at(new, "template"), at(old, "template"), old_job, errors);
    for key in ["completionMode", "podFailurePolicy", "backoffLimitPerIndex", "managedBy", "successPolicy"] {
        if !changed(key) {
            continue;
        }
        let path = SPEC.child(key);
        let shown = match (key, new.get(key).filter(|value| !value.is_null())) {
            (_, None) => "null".to_owned(),
            ("successPolicy", Some(Value::Object(policy))) => internal::show("SuccessPolicy", policy),
            ("podFailurePolicy", Some(Value::Object(policy))) => internal::show("PodFailurePolicy", policy),
            (_, Some(value)) => json(value),
        };
        errors.push(Error::invalid_shown(path, shown, IMMUTABLE));
    }
}

fn completions(new: &Map, old: &Map, errors: &mut ErrorList) {
    let path = SPEC.child("completions");
    let [now, before] = [new, old].map(|spec| int(spec, "completions"));
    if now == before {
        return;
    }
    let value = now.map_or(Value::Null, Value::from);
    if !is_indexed(new) {
        errors.push(Error::invalid(path, value, IMMUTABLE));
    } else if now.is_some() && now != int(new, "parallelism") {
        errors.push(Error::invalid(path, value, "can only be modified in tandem with spec.parallelism"));
    }
}

/// The template stays as it is, but for where its pods may run and what they need, while the job is suspended.
fn template_update(new: &Map, old: &Map, old_job: &Map, errors: &mut ErrorList) {
    let suspended = flag(at(old_job, "spec"), "suspend");
    let path = SPEC.child("template");
    let mut printed = |path: &Path<'_>, ty: &str, value: &Map| {
        errors.push(Error::invalid_shown(path, internal::show(ty, value), IMMUTABLE));
    };
    if suspended && is_mutable(old_job) {
        if fixed(new, true) != fixed(old, true) {
            printed(&path.child("spec"), "PodSpec", at(new, "spec"));
        }
    } else if fixed(new, false) != fixed(old, false) {
        printed(&path, "PodTemplateSpec", new);
    }
}

/// Whether a suspended job has come to rest.
fn is_mutable(job: &Map) -> bool {
    let status = at(job, "status");
    let suspended =
        |(_, condition): (usize, &Map)| text(condition, "type") == "Suspended" && text(condition, "status") == "True";
    int(status, "active").unwrap_or(0) == 0
        && (!is_set(status, "startTime") || objects(status, "conditions").any(suspended))
}

fn fixed(template: &Map, mutable: bool) -> Map {
    let mut template = template.clone();
    if !mutable {
        return template;
    }
    template.remove("metadata");
    let Some(spec) = template.get_mut("spec").and_then(Value::as_object_mut) else { return template };
    for key in ["nodeSelector", "tolerations", "schedulingGates"] {
        spec.remove(key);
    }
    if let Some(affinity) = spec.get_mut("affinity").and_then(Value::as_object_mut) {
        affinity.remove("nodeAffinity");
        if affinity.is_empty() {
            spec.remove("affinity");
        }
    }
    for key in ["containers", "initContainers"] {
        let containers = spec.get_mut(key).and_then(Value::as_array_mut);
        for container in containers.into_iter().flat_map(|containers| containers.iter_mut()) {
            if let Some(container) = container.as_object_mut() {
                container.remove("resources");
            }
        }
    }
    template
}
