//! `PodSecurity`: what pods may do on their hosts, by the labels of their namespaces.
//!
//! Pods are refused; of pods that controllers will make clients are warned, as they are of pods that run already when a
//! namespace gets stricter. What a namespace wants to have noted, what was enforced and who was exempt is in the audit
//! log.

mod baseline;
mod checks;
mod policy;
mod restricted;
#[cfg(test)]
mod tests;
mod words;

use std::{collections::HashMap, collections::HashSet, sync::Arc};

use capstan_api::{GroupResource, Map, Status, Value, go, json};

pub use checks::{Pod, Violation, evaluate};
pub use policy::{Labels, Level, LevelVersion, Policy, Version};

use super::{Operation, Plugin, Request, forbidden::name};
use crate::{
    cache::Object,
    validation::read::{at, object, objects, text},
};

/// Under which keys the audit log has what would be refused, what was enforced, and why nothing was.
const AUDIT_VIOLATIONS: &str = "pod-security.kubernetes.io/audit-violations";
const ENFORCE_POLICY: &str = "pod-security.kubernetes.io/enforce-policy";
const EXEMPT: &str = "pod-security.kubernetes.io/exempt";

/// How many pods are looked at when a namespace gets stricter.
pub const MAX_PODS_TO_CHECK: usize = 3000;

/// What is not checked.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Exemptions {
    /// What these users write.
    pub usernames: Vec<String>,
    /// Pods of these runtime classes.
    pub runtime_classes: Vec<String>,
    /// What is in these namespaces.
    pub namespaces: Vec<String>,
}

/// The plugin. By default nothing is exempt and namespaces without labels are privileged.
#[derive(Clone, Debug, Default)]
pub struct PodSecurity {
    /// What holds where labels say nothing.
    pub defaults: Policy,
    /// What is not checked.
    pub exemptions: Exemptions,
}

/// Subresources of pods that do not change the spec.
const IGNORED_SUBRESOURCES: [&str; 8] =
    ["exec", "attach", "binding", "eviction", "log", "portforward", "proxy", "status"];

/// Where controllers have the template of their pods.
const TEMPLATES: [(&str, &str, &[&str]); 8] = [
    ("", "replicationcontrollers", &["spec", "template"]),
    ("", "podtemplates", &["template"]),
    ("apps", "replicasets", &["spec", "template"]),
    ("apps", "deployments", &["spec", "template"]),
    ("apps", "statefulsets", &["spec", "template"]),
    ("apps", "daemonsets", &["spec", "template"]),
    ("batch", "jobs", &["spec", "template"]),
    ("batch", "cronjobs", &["spec", "jobTemplate", "spec", "template"]),
];

impl Plugin for PodSecurity {
    fn name(&self) -> &'static str {
        "PodSecurity"
    }

    fn validate(&self, request: &mut Request<'_>) -> Result<(), Status> {
        if !matches!(request.operation, Operation::Create | Operation::Update) {
            return Ok(());
        }
        match (&*request.resource.group, &*request.resource.resource) {
            ("", "namespaces") => self.validate_namespace(request),
            ("", "pods") => self.validate_pod(request),
            named => {
                if let Some((.., path)) = TEMPLATES.iter().find(|(group, resource, _)| (*group, *resource) == named) {
                    self.warn_of_template(request, path);
                }
                Ok(())
            }
        }
    }
}

/// The labels of an object as it is written.
fn labels_of(object: &Map) -> impl Fn(&str) -> Option<String> {
    let labels = at(at(object, "metadata"), "labels");
    |name| labels.get(name).and_then(Value::as_str).map(str::to_owned)
}

fn contains(list: &[String], text: &str) -> bool {
    !text.is_empty() && list.iter().any(|item| item == text)
}

impl PodSecurity {
    fn validate_namespace(&self, request: &mut Request<'_>) -> Result<(), Status> {
        let Some(namespace) = request.object.as_deref().filter(|_| request.subresource.is_empty()) else {
            return Ok(());
        };
        let labels = labels_of(namespace);
        let (new, errors) = Policy::of(&labels, &self.defaults);
        let invalid = || Status::invalid(&request.kind.group_kind(), name(request), &errors);
        let Some(old) = request.old_object.filter(|_| request.operation == Operation::Update) else {
            return if errors.is_empty() { Ok(()) } else { Err(invalid()) };
        };
        let (old, old_errors) = Policy::of(&labels_of(old), &self.defaults);
        if !errors.is_empty() && errors != old_errors {
            return Err(invalid());
        }
        let relaxed = new.enforce.version == old.enforce.version && new.enforce.level <= old.enforce.level;
        if new.enforce == old.enforce || new.enforce.level == Level::Privileged || relaxed {
            return Ok(());
        }
        let name = name(request);
        let warnings = if contains(&self.exemptions.namespaces, name) {
            new.exempt_warning(name, &labels, &self.defaults).into_iter().collect()
        } else {
            let pods = request.objects.list(&GroupResource::new("", "pods"), name);
            self.warnings_of_pods(pods, name, new.enforce)
        };
        request.warnings.extend(warnings);
        Ok(())
    }

    fn is_exempt(&self, request: &mut Request<'_>) -> bool {
        let exemptions = [
            ("namespace", contains(&self.exemptions.namespaces, request.namespace)),
            ("user", contains(&self.exemptions.usernames, &request.user.name)),
        ];
        let why = exemptions.into_iter().find(|(_, exempt)| *exempt);
        request.annotations.extend(why.map(|(why, _)| (EXEMPT, why.to_owned())));
        why.is_some()
    }

    /// The policy of the namespace that the request is about, if there is such a namespace.
    fn policy(&self, request: &Request<'_>) -> Option<Policy> {
        let namespace = request.objects.get(&GroupResource::new("", "namespaces"), "", request.namespace)?;
        let label =
            |name: &str| namespace.labels.iter().find(|(label, _)| label == name).map(|(_, value)| value.to_string());
        Some(Policy::of(&label, &self.defaults).0)
    }

    fn validate_pod(&self, request: &mut Request<'_>) -> Result<(), Status> {
        if IGNORED_SUBRESOURCES.contains(&request.subresource) || self.is_exempt(request) {
            return Ok(());
        }
        let Some(policy) = self.policy(request) else {
            let error = format!("failed to lookup namespace {}", go::quote(request.namespace));
            return Err(Status::internal_error(error));
        };
        if policy.fully_privileged() {
            request.annotations.push((ENFORCE_POLICY, LevelVersion::default().to_string()));
            return Ok(());
        }
        let Some(pod) = request.object.as_deref() else {
            return Err(Status::bad_request("failed to decode pod"));
        };
        if request.operation == Operation::Update && !request.old_object.is_none_or(|old| is_significant(pod, old)) {
            return Ok(());
        }
        let pod = Pod::new(pod);
        if self.is_exempt_class(pod.spec) {
            request.annotations.push((EXEMPT, "runtimeClass".to_owned()));
            return Ok(());
        }
        request.annotations.push((ENFORCE_POLICY, policy.enforce.to_string()));
        request.annotations.extend(would_violate(policy.audit, pod).map(|words| (AUDIT_VIOLATIONS, words)));
        let violations = evaluate(policy.enforce, pod);
        if !violations.is_empty() {
            let level = go::quote(&policy.enforce.to_string());
            let error = format!("violates PodSecurity {level}: {}", checks::details(&violations));
            return Err(Status::forbidden(&request.resource.group_resource(), name(request), error));
        }
        let warning = would_violate(policy.warn, pod);
        request.warnings.extend(warning);
        Ok(())
    }

    fn warn_of_template(&self, request: &mut Request<'_>, path: &[&str]) {
        if !request.subresource.is_empty() || self.is_exempt(request) {
            return;
        }
        let template =
            request.object.as_deref().and_then(|owner| path.iter().try_fold(owner, |map, key| object(map, key)));
        if let (Some(policy), Some(template)) = (self.policy(request), template) {
            let pod = Pod::new(template);
            if self.is_exempt_class(pod.spec) {
                request.annotations.push((EXEMPT, "runtimeClass".to_owned()));
                return;
            }
            let (warning, noted) = (would_violate(policy.warn, pod), would_violate(policy.audit, pod));
            request.warnings.extend(warning);
            request.annotations.extend(noted.map(|words| (AUDIT_VIOLATIONS, words)));
        }
    }

    fn is_exempt_class(&self, spec: &Map) -> bool {
        contains(&self.exemptions.runtime_classes, text(spec, "runtimeClassName"))
    }

    /// What to say of the pods that run in a namespace that gets stricter.
    fn warnings_of_pods(&self, pods: Vec<Arc<Object>>, namespace: &str, enforce: LevelVersion) -> Vec<String> {
        let exempts = !self.exemptions.runtime_classes.is_empty();
        let read = |pod: &Arc<Object>| json::parse(&pod.json).unwrap_or_default();
        let spec =
            |pod: &Value| pod.get("spec").and_then(Value::as_object).is_some_and(|spec| self.is_exempt_class(spec));
        let pods: Vec<_> = pods.into_iter().filter(|pod| !exempts || !spec(&read(pod))).collect();
        let total = pods.len();
        let checked = first_of_each_controller(pods);
        // Reason to the pod with the smallest name and how many there are.
        let mut found: HashMap<String, (String, usize)> = HashMap::new();
        for pod in checked.iter().take(MAX_PODS_TO_CHECK) {
            let value = read(pod);
            let Some(map) = value.as_object() else { continue };
            let violations = evaluate(enforce, Pod::new(map));
            if !violations.is_empty() {
                let entry = found.entry(checks::reasons(&violations)).or_insert_with(|| (pod.name().to_owned(), 0));
                entry.1 += 1;
                if pod.name() < entry.0.as_str() {
                    pod.name().clone_into(&mut entry.0);
                }
            }
        }
        let mut warnings = Vec::new();
        if total > MAX_PODS_TO_CHECK {
            warnings.push(format!(
                "new PodSecurity enforce level only checked against the first {MAX_PODS_TO_CHECK} of {total} existing pods"
            ));
        }
        if !found.is_empty() {
            let (namespace, level) = (go::quote(namespace), go::quote(&enforce.to_string()));
            warnings.push(format!(
                "existing pods in namespace {namespace} violate the new PodSecurity enforce level {level}"
            ));
        }
        let mut each: Vec<_> = found
            .into_iter()
            .map(|(reasons, (pod, count))| match count {
                1 => format!("{pod}: {reasons}"),
                2 => format!("{pod} (and 1 other pod): {reasons}"),
                _ => format!("{pod} (and {} other pods): {reasons}", count - 1),
            })
            .collect();
        each.sort();
        warnings.extend(each);
        warnings
    }
}

/// What is said of a pod that would be refused at this level.
fn would_violate(level: LevelVersion, pod: Pod<'_>) -> Option<String> {
    let violations = evaluate(level, pod);
    let level = go::quote(&level.to_string());
    (!violations.is_empty()).then(|| format!("would violate PodSecurity {level}: {}", checks::details(&violations)))
}

/// Pods of a controller are alike, so one of each comes before the others.
fn first_of_each_controller(pods: Vec<Arc<Object>>) -> Vec<Arc<Object>> {
    let mut seen = HashSet::new();
    let (mut first, others): (Vec<_>, Vec<_>) = pods.into_iter().partition(|pod| {
        let controller = pod.owners.iter().find(|owner| owner.controller);
        controller.is_none_or(|controller| seen.insert(controller.uid.clone()))
    });
    first.extend(others);
    first
}

/// Whether an update of a pod changes what is checked: only images and what containers there are can change.
fn is_significant(pod: &Map, old: &Map) -> bool {
    let (spec, old) = (at(pod, "spec"), at(old, "spec"));
    let containers = |spec, list| -> Vec<&Map> { objects(spec, list).map(|(_, container)| container).collect() };
    let differ = |list| {
        let (new, old) = (containers(spec, list), containers(old, list));
        new.len() != old.len() || new.iter().zip(&old).any(|(new, old)| text(new, "image") != text(old, "image"))
    };
    let old_ephemeral: HashMap<_, _> =
        containers(old, "ephemeralContainers").into_iter().rev().map(|c| (text(c, "name"), text(c, "image"))).collect();
    let is_new = |container: &&Map| old_ephemeral.get(text(container, "name")) != Some(&text(container, "image"));
    differ("containers") || differ("initContainers") || containers(spec, "ephemeralContainers").iter().any(is_new)
}
