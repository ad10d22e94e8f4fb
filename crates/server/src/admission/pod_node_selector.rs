//! PodNodeSelector, off by default: the pods of a namespace go to its nodes.

use std::collections::BTreeMap;

use capstan_api::{
    Map, Status,
    field::{self, Path},
    validation::{is_qualified_name, is_valid_label_value},
};

use super::{
    Operation, Plugin, Request,
    common::{NAMESPACES, PODS, annotation, is_about, keyed, object, stored, strings},
};
use crate::registry::paths;

const ANNOTATION: &str = "scheduler.alpha.kubernetes.io/node-selector";
const CLUSTER_DEFAULT: &str = "clusterDefaultNodeSelector";

type Labels = BTreeMap<String, String>;

/// The plugin.
#[derive(Debug, Default)]
pub struct PodNodeSelector {
    selectors: Labels,
}

impl PodNodeSelector {
    /// A plugin with what its configuration says: the labels that the pods of a namespace may ask for, and under
    /// `clusterDefaultNodeSelector` those that pods get in namespaces which say nothing.
    #[must_use]
    pub fn new(selectors: BTreeMap<String, String>) -> Self {
        PodNodeSelector { selectors }
    }

    fn configured(&self, key: &str) -> Result<Labels, Status> {
        parse(self.selectors.get(key).map_or("", String::as_str)).map_err(Status::unknown)
    }

    /// What the namespace asks for, if that does not contradict the pod.
    fn of_namespace(&self, request: &Request<'_>) -> Result<Labels, Status> {
        let Some(namespace) = stored(request, &NAMESPACES, "", request.namespace) else {
            return Err(Status::internal_error(format!("namespace {} does not exist", request.namespace)));
        };
        let labels = match annotation(&namespace, ANNOTATION) {
            Some(selector) => parse(selector).map_err(Status::unknown)?,
            None => self.configured(CLUSTER_DEFAULT)?,
        };
        let pod = object(request);
        if labels.iter().any(|(key, value)| keyed(pod, "spec.nodeSelector", key).is_some_and(|own| own != value)) {
            return Err(refusal(pod, "pod node label selector conflicts with its namespace node label selector"));
        }
        Ok(labels)
    }
}

impl Plugin for PodNodeSelector {
    fn name(&self) -> &'static str {
        "PodNodeSelector"
    }

    fn admit(&self, request: &mut Request<'_>) -> Result<(), Status> {
        if !is_about(request, &PODS) || request.operation != Operation::Create {
            return Ok(());
        }
        let labels = self.of_namespace(request)?;
        if let Some(pod) = request.object.as_deref_mut() {
            let own = strings(pod, "spec.nodeSelector").map(|(key, value)| (key.into(), value.into()));
            let merged: Map =
                labels.iter().map(|(key, value)| (key.into(), value.as_str().into())).chain(own).collect();
            if !merged.is_empty() {
                paths::set(pod, "spec.nodeSelector", merged);
            }
        }
        self.validate(request)
    }

    fn validate(&self, request: &mut Request<'_>) -> Result<(), Status> {
        if !is_about(request, &PODS) || request.operation != Operation::Create {
            return Ok(());
        }
        self.of_namespace(request)?;
        let allowed = self.configured(request.namespace)?;
        let pod = object(request);
        let is_allowed = |(key, value): (&str, &str)| allowed.get(key).is_some_and(|allowed| allowed == value);
        if allowed.is_empty() || strings(pod, "spec.nodeSelector").all(is_allowed) {
            return Ok(());
        }
        Err(refusal(pod, "pod node label selector labels conflict with its namespace whitelist"))
    }
}

fn refusal(pod: &Map, error: &str) -> Status {
    Status::forbidden(&PODS, paths::text(pod, "metadata.name"), error)
}

/// Reads `key=value,key=value`.
fn parse(selector: &str) -> Result<Labels, String> {
    let mut labels = Labels::new();
    if selector.is_empty() {
        return Ok(labels);
    }
    for label in selector.split(',') {
        let parts: Vec<&str> = label.split('=').collect();
        let [key, value] = parts[..] else {
            return Err(format!("invalid selector: [{}]", parts.join(" ")));
        };
        let (key, value) = (key.trim(), value.trim());
        let errors = is_qualified_name(key);
        if !errors.is_empty() {
            return Err(field::Error::invalid(Path::ROOT, key, errors.join("; ")).to_string());
        }
        let errors = is_valid_label_value(value);
        if !errors.is_empty() {
            return Err(field::Error::invalid(Path::ROOT.key(key), value, errors.join("; ")).to_string());
        }
        labels.insert(key.to_owned(), value.to_owned());
    }
    Ok(labels)
}
