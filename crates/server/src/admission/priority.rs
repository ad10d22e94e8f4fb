//! Priority: a pod's priority is that of its class; at most one class is everybody's.

use capstan_api::{GroupResource, Map, Status, Value};

use super::{
    Operation, Plugin, Request,
    common::{PODS, content, flag, forbidden, is_about, is_set, is_write, object, old_object, stored},
};
use crate::registry::paths;

const PRIORITY_CLASSES: GroupResource = GroupResource::from_static("scheduling.k8s.io", "priorityclasses");

/// The plugin.
#[derive(Debug, Default)]
pub struct Priority;

/// What a class gives to a pod.
struct Class {
    name: String,
    value: i64,
    preemption_policy: Option<String>,
}

impl Class {
    fn new(class: &Map) -> Self {
        let policy = paths::text(class, "preemptionPolicy");
        Class {
            name: paths::text(class, "metadata.name").to_owned(),
            value: paths::number(class, "value"),
            preemption_policy: (!policy.is_empty()).then(|| policy.to_owned()),
        }
    }
}

impl Plugin for Priority {
    fn name(&self) -> &'static str {
        "Priority"
    }

    fn admit(&self, request: &mut Request<'_>) -> Result<(), Status> {
        if !is_about(request, &PODS) || request.object.is_none() {
            return Ok(());
        }
        match request.operation {
            Operation::Create => set_priority(request),
            Operation::Update => {
                let old = old_object(request);
                if let Some(pod) = request.object.as_deref_mut() {
                    // What was given at creation stays; validation refuses any change of it.
                    for path in ["spec.priority", "spec.preemptionPolicy"] {
                        if !is_set(pod, path) && is_set(old, path) {
                            paths::copy(pod, old, path);
                        }
                    }
                }
                Ok(())
            }
            _ => Ok(()),
        }
    }

    fn validate(&self, request: &mut Request<'_>) -> Result<(), Status> {
        let class = object(request);
        if !is_about(request, &PRIORITY_CLASSES) || !is_write(request) || flag(class, "globalDefault") != Some(true) {
            return Ok(());
        }
        let is_same =
            |other: &Class| request.operation == Operation::Update && other.name == paths::text(class, "metadata.name");
        match global_default(request).filter(|other| !is_same(other)) {
            None => Ok(()),
            Some(Class { name, .. }) => {
                let error = format!("PriorityClass {name} is already marked as default. Only one default can exist");
                Err(forbidden(request, error))
            }
        }
    }
}

/// The class that is everybody's; the least of them, should there be several.
fn global_default(request: &Request<'_>) -> Option<Class> {
    let classes = request.objects.list(&PRIORITY_CLASSES, "");
    let classes = classes.iter().map(|class| content(class)).filter(|class| flag(class, "globalDefault") == Some(true));
    classes.map(|class| Class::new(&class)).min_by_key(|class| class.value)
}

fn set_priority(request: &mut Request<'_>) -> Result<(), Status> {
    let pod = object(request);
    let class = match paths::text(pod, "spec.priorityClassName") {
        "" => global_default(request).unwrap_or_else(|| Class {
            name: String::new(),
            value: 0,
            preemption_policy: Some("PreemptLowerPriority".to_owned()),
        }),
        name => match stored(request, &PRIORITY_CLASSES, "", name) {
            Some(class) => Class::new(&class),
            None => return Err(forbidden(request, format!("no PriorityClass with name {name} was found"))),
        },
    };
    let priority = paths::get(pod, "spec.priority").and_then(Value::as_i64);
    if let Some(priority) = priority.filter(|priority| *priority != class.value) {
        return Err(forbidden(
            request,
            format!(
                "the integer value of priority ({priority}) must not be provided in pod spec; priority admission \
                 controller computed {} from the given PriorityClass name",
                class.value
            ),
        ));
    }
    let own = paths::get(pod, "spec.preemptionPolicy").and_then(Value::as_str);
    if let (Some(own), Some(policy)) = (own, &class.preemption_policy)
        && own != policy
    {
        return Err(forbidden(
            request,
            format!(
                "the string value of PreemptionPolicy ({own}) must not be provided in pod spec; priority admission \
                 controller computed {policy} from the given PriorityClass name"
            ),
        ));
    }
    if let Some(pod) = request.object.as_deref_mut() {
        if !class.name.is_empty() {
            paths::set(pod, "spec.priorityClassName", class.name);
        }
        paths::set(pod, "spec.priority", class.value);
        if let Some(policy) = class.preemption_policy {
            paths::set(pod, "spec.preemptionPolicy", policy);
        }
    }
    Ok(())
}
