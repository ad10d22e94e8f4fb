//! Sequences of writes that were put to upstream's server, with its answers.

use base64::{Engine as _, prelude::BASE64_STANDARD};

use super::{FieldManager, Filter, OtherVersions, asks_to_clear, keep_timestamps};
use crate::{
    Map, Value, builtin, json,
    names::GroupVersionKind,
    patch::merge,
    schema::{Schema, structural},
};

/// The kind of users, in all its versions; they differ in nothing but their names.
struct Widgets(Schema);

impl OtherVersions for Widgets {
    fn schema(&self, api_version: &str) -> Option<Schema> {
        ["example.com/v1", "example.com/v2"].contains(&api_version).then(|| self.0.clone())
    }

    fn convert(&self, object: &Map, api_version: &str) -> Result<Map, String> {
        let mut object = object.clone();
        object.insert("apiVersion", api_version);
        Ok(object)
    }
}

fn text<'v>(value: &'v Value, name: &str) -> &'v str {
    value.get(name).and_then(Value::as_str).unwrap_or_default()
}

#[derive(Default)]
struct Replay {
    wrong: Vec<String>,
    right: usize,
}

#[test]
fn upstream_answers_the_same() {
    let folder = std::path::Path::new(env!("CARGO_MANIFEST_DIR")).join("testdata/managed_fields");
    let read = |name: &str| std::fs::read(folder.join(name)).unwrap();
    let widget = json::parse(&read("widget.json")).unwrap();
    let widgets = Widgets(structural::compile(&widget, "schema").unwrap());
    let mut replay = Replay::default();
    for line in String::from_utf8(read("sequences.jsonl")).unwrap().lines() {
        replay.sequence(&json::parse(line.as_bytes()).unwrap(), &widgets);
    }
    assert!(
        replay.wrong.is_empty(),
        "{} wrong, {} right\n{}",
        replay.wrong.len(),
        replay.right,
        replay.wrong.join("\n")
    );
    assert!(replay.right > 700, "{}", replay.right);
}

impl Replay {
    fn sequence(&mut self, sequence: &Value, widgets: &Widgets) {
        let mut live: Option<Value> = None;
        for (at, step) in sequence.get("steps").unwrap().as_array().unwrap().iter().enumerate() {
            let name = format!("{} #{at} {}", text(sequence, "name"), text(step, "op"));
            let result = &full(step.get("result").unwrap(), live.as_ref());
            let code = step.get("code").unwrap().as_i64().unwrap();
            let expected = if code < 300 { object_of(result) } else { status_of(result) };
            let actual = answer(sequence, step, live.as_ref(), widgets);
            if actual == expected {
                self.right += 1;
            } else {
                self.wrong.push(format!(
                    "{name}\n  step     {}\n  live     {}\n  expected {expected}\n  got      {actual}",
                    short(step),
                    live.as_ref().map(ToString::to_string).unwrap_or_default()
                ));
            }
            if code < 300 {
                live = Some(result.clone());
            }
        }
    }
}

/// A recorded object: fields that are `"="` and entries that are numbers are those of the object before.
fn full(result: &Value, live: Option<&Value>) -> Value {
    let mut result = result.clone();
    let Some(live) = live else { return result };
    for (key, value) in result.as_object_mut().unwrap().iter_mut().filter(|(_, value)| value.as_str() == Some("=")) {
        *value = live.get(key).unwrap().clone();
    }
    let entries = result.get_mut("metadata").and_then(|metadata| metadata.get_mut("managedFields")?.as_array_mut());
    for entry in entries.into_iter().flat_map(|entries| entries.iter_mut()) {
        if let Some(at) = entry.as_i64() {
            let before = live.get("metadata").unwrap().get("managedFields").unwrap().as_array().unwrap();
            *entry = before[usize::try_from(at).unwrap()].clone();
        }
    }
    result
}

fn short(step: &Value) -> Value {
    let mut step = step.clone();
    step.as_object_mut().unwrap().remove("result");
    step
}

/// What counts of a status. The order of several errors is not fixed upstream.
fn status_of(status: &Value) -> Value {
    let mut lines: Vec<_> = text(status, "message").lines().collect();
    lines.sort_unstable();
    let mut causes = status
        .get("details")
        .and_then(|details| details.get("causes"))
        .and_then(Value::as_array)
        .cloned()
        .unwrap_or_default()
        .into_vec();
    causes.sort_by_key(ToString::to_string);
    let code = status.get("code").and_then(Value::as_i64).unwrap_or_default();
    Value::from(vec![code.into(), lines.join("\n").into(), causes.into()])
}

/// What counts of an object: what is not made by strategies or admission.
fn object_of(object: &Value) -> Value {
    let mut object = object.clone();
    let map = object.as_object_mut().unwrap();
    let kind = map.get("kind").and_then(Value::as_str).unwrap_or_default().to_owned();
    if !["ConfigMap", "Deployment", "Widget"].contains(&kind.as_str()) {
        map.retain(|key, _| key == "metadata");
    }
    map.remove("status");
    object
}

fn answer(sequence: &Value, step: &Value, live: Option<&Value>, widgets: &Widgets) -> Value {
    let (group, version) = text(step, "gv").split_once('/').unwrap_or(("", text(step, "gv")));
    let kind = GroupVersionKind::new(group, version, text(sequence, "kind"));
    let custom = group == "example.com";
    let schema = if custom { widgets.0.clone() } else { builtin::schema(&kind).unwrap() };
    let filter = match custom {
        true => Filter::of_custom(text(step, "sub"), true),
        false => Filter::of_builtin(&kind, text(step, "sub")),
    };
    let manager = FieldManager {
        kind: &kind,
        schema: &schema,
        subresource: text(step, "sub"),
        filter: &filter,
        versions: widgets,
    };
    let live = live.map(|live| {
        let mut live = live.clone();
        live.as_object_mut().unwrap().insert("apiVersion", text(step, "gv"));
        live
    });
    let live_map = live.as_ref().map(|live| live.as_object().unwrap());
    let (now, name) = (text(step, "now"), text(step, "manager"));
    // A caller sees what the client has sent before decoding, which drops empty lists and does not know `stringData`.
    let finish = |mut value: Value| {
        let clears = asks_to_clear(value.as_object().unwrap());
        if let Some(Value::Object(plain)) = value.as_object_mut().unwrap().remove("stringData") {
            let data: Map =
                plain.iter().map(|(k, v)| (k.into(), BASE64_STANDARD.encode(v.as_str().unwrap()).into())).collect();
            value.as_object_mut().unwrap().insert("data", data);
        }
        if custom {
            crate::schema::default::default(&mut value, &schema);
        } else {
            value = schema.decode(json::to_string(&value).as_bytes()).unwrap().value;
            builtin::default(&schema, &mut value);
        }
        if clears {
            value.get_mut("metadata").unwrap().as_object_mut().unwrap().insert("managedFields", crate::Array::new());
        }
        value
    };
    let body = step.get("body").unwrap().clone();
    let mut new = match text(step, "op") {
        "apply" => {
            let force = step.get("force").and_then(Value::as_bool).unwrap_or_default();
            match manager.apply(live_map, body.as_object().unwrap().clone(), name, force, now) {
                Ok(object) => finish(object.into()),
                Err(error) => {
                    let status = json::parse(serde_json::to_string(&error.into_status()).unwrap().as_bytes()).unwrap();
                    return status_of(&status);
                }
            }
        }
        op => {
            let new = match op {
                "patch" => merge::apply(live.clone().unwrap(), body).unwrap(),
                _ => body,
            };
            let mut new = finish(new);
            manager.update(live_map, new.as_object_mut().unwrap(), name, now);
            new
        }
    };
    let map = new.as_object_mut().unwrap();
    if let Some(live) = live_map {
        keep_timestamps(live, map);
        if !text(step, "sub").is_empty() {
            // A status endpoint leaves the rest alone.
            let spec = live.get("spec").cloned().unwrap_or_default();
            map.insert("spec", spec);
            let labels = live.get("metadata").and_then(|metadata| metadata.get("labels")).is_some();
            let metadata = map.get_mut("metadata").unwrap().as_object_mut().unwrap();
            metadata.retain(|key, _| key != "labels" || labels);
        }
    }
    object_of(&new)
}
