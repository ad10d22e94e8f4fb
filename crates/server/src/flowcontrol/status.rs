//! What the status of a FlowSchema says: whether the priority level that it names is there.

use capstan_api::{Map, Time, Value, json};

/// Who writes it.
const MANAGER: &str = "api-priority-and-fairness-config-consumer-v1";
/// What that manager comes to own.
const FIELDS: &[u8] = br#"{"f:status":{"f:conditions":{"k:{\"type\":\"Dangling\"}":{".":{},"f:lastTransitionTime":{},"f:message":{},"f:reason":{},"f:status":{},"f:type":{}}}}}"#;

/// Brings the condition `Dangling` up to date; whether there was anything to do.
pub(crate) fn bring_up(schema: &mut Map, now: Time, exists: impl Fn(&str) -> bool) -> bool {
    let text = |value: Option<&Value>, key: &str| {
        value.and_then(|value| value.get(key)).and_then(Value::as_str).unwrap_or_default().to_owned()
    };
    let level = text(schema.get("spec").and_then(|spec| spec.get("priorityLevelConfiguration")), "name");
    let (status, reason, found) = match exists(&level) {
        true => ("False", "Found", "and it exists"),
        false => ("True", "NotFound", "but there is no such object"),
    };
    let message = format!("This FlowSchema references the PriorityLevelConfiguration object named {level:?} {found}");
    let conditions = schema.get("status").and_then(|status| status.get("conditions")).and_then(Value::as_array);
    let mut conditions: Vec<Value> = conditions.map(|list| list.iter().cloned().collect()).unwrap_or_default();
    let is_dangling = |one: &Value| one.get("type").and_then(Value::as_str) == Some("Dangling");
    let before = conditions.iter().position(is_dangling);
    let old = before.map(|at| &conditions[at]);
    if text(old, "status") == status && text(old, "reason") == reason && text(old, "message") == message {
        return false;
    }
    let since = match text(old, "status") == status {
        true => text(old, "lastTransitionTime"),
        false => now.to_string(),
    };
    let entries = [
        ("type", "Dangling".to_owned()),
        ("status", status.to_owned()),
        ("lastTransitionTime", since),
        ("reason", reason.to_owned()),
        ("message", message),
    ];
    let condition = Value::from(entries.into_iter().map(|(key, value)| (key.into(), value.into())).collect::<Map>());
    match before {
        Some(at) => conditions[at] = condition,
        None => conditions.push(condition),
    }
    let status: Map = [("conditions".into(), Value::from(conditions))].into_iter().collect();
    let api_version = schema.get("apiVersion").and_then(Value::as_str).unwrap_or_default().to_owned();
    schema.insert("status", status);
    own(schema, &api_version, now);
    true
}

/// Notes the manager of the condition.
fn own(schema: &mut Map, api_version: &str, now: Time) {
    let Some(Value::Object(metadata)) = schema.get_mut("metadata") else { return };
    let entries = metadata.get("managedFields").and_then(Value::as_array);
    let is_own = |entry: &&Value| entry.get("manager").and_then(Value::as_str) == Some(MANAGER);
    let mut entries: Vec<Value> =
        entries.map(|list| list.iter().filter(|entry| !is_own(entry)).cloned().collect()).unwrap_or_default();
    let mut entry: Map = [
        ("manager", MANAGER),
        ("operation", "Apply"),
        ("apiVersion", api_version),
        ("fieldsType", "FieldsV1"),
        ("subresource", "status"),
    ]
    .into_iter()
    .map(|(key, value)| (key.into(), value.into()))
    .collect();
    entry.insert("time", now.to_string());
    entry.insert("fieldsV1", json::parse(FIELDS).unwrap_or_default());
    entries.insert(0, entry.into());
    metadata.insert("managedFields", entries);
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_status_says_whether_the_level_is_there() {
        let text = br#"{"apiVersion":"flowcontrol.apiserver.k8s.io/v1","kind":"FlowSchema","metadata":{"name":"x"},
                        "spec":{"priorityLevelConfiguration":{"name":"p"}}}"#;
        let Ok(Value::Object(mut schema)) = json::parse(text) else { panic!("an object") };
        let now = Time::default();
        let condition = |schema: &Map| {
            let condition = &schema.get("status").unwrap().get("conditions").unwrap().as_array().unwrap()[0];
            ["status", "reason", "message"].map(|key| condition.get(key).unwrap().as_str().unwrap().to_owned())
        };
        assert!(bring_up(&mut schema, now, |_| false));
        let message = "This FlowSchema references the PriorityLevelConfiguration object named \"p\" but there is no such \
                       object";
        assert_eq!(condition(&schema), ["True", "NotFound", message]);
        assert!(!bring_up(&mut schema, now, |_| false));
        assert!(bring_up(&mut schema, now, |level| level == "p"));
        assert_eq!(condition(&schema)[..2], ["False", "Found"]);
        assert_eq!(schema.get("metadata").unwrap().get("managedFields").unwrap().as_array().unwrap().len(), 1);
    }
}
