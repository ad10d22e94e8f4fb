//! Protobuf: the numbers of fields, and kinds that OpenAPI does not show (options of requests, lists of metadata).

use capstan_api::{
    Value,
    builtin::text::{Field, full_name, short_name},
};

use super::{
    model::{Table, Type, element},
    openapi::{leak, text},
};

/// Kinds that only protobuf knows: they are sent as query parameters or asked for by `Accept`.
const KINDS: [&str; 19] = [
    "core.v1.NodeProxyOptions",
    "core.v1.PodAttachOptions",
    "core.v1.PodExecOptions",
    "core.v1.PodLogOptions",
    "core.v1.PodPortForwardOptions",
    "core.v1.PodProxyOptions",
    "core.v1.ServiceProxyOptions",
    "meta.v1.APIGroup",
    "meta.v1.APIGroupList",
    "meta.v1.APIVersions",
    "meta.v1.CreateOptions",
    "meta.v1.GetOptions",
    "meta.v1.List",
    "meta.v1.ListOptions",
    "meta.v1.PartialObjectMetadata",
    "meta.v1.PartialObjectMetadataList",
    "meta.v1.PatchOptions",
    "meta.v1.TableOptions",
    "meta.v1.UpdateOptions",
];

/// Adds the numbers, and the kinds that are missing.
pub(crate) fn read(messages: &Value, table: &mut Table) -> Result<(), String> {
    for name in KINDS {
        add_kind(messages, table, name)?;
    }
    for (name, ty) in &mut table.types {
        let Some(message) = messages.get(&message_name(name)) else { continue };
        let Type { fields, embedded, .. } = ty;
        let names: Vec<&str> = fields.keys().copied().collect();
        for field in fields.values_mut() {
            let Some((number, found)) = find(messages, message, field.name, &names, "", embedded) else { continue };
            field.number = leak(number);
            // A list whose type is a message of its own has its elements in that message's field 1.
            let protobuf = text(found, "type").unwrap_or_default();
            let alone = !is_true(found, "repeated") && !protobuf.starts_with("map<");
            if field.ty.starts_with("[]") && alone && protobuf != "bytes" {
                field.ty = leak(format!("*{}", field.ty));
            } else if field.ty.starts_with("{}[]") {
                field.ty = leak(format!("{{}}*{}", &field.ty[2..]));
            }
        }
    }
    Ok(())
}

/// Takes from `present` what the source did not say.
pub(crate) fn keep(present: &Table, table: &mut Table) {
    for (name, known) in &present.types {
        let Some(ty) = table.types.get_mut(name) else {
            if KINDS.contains(&name.as_str()) || present.types.iter().any(|(k, ty)| needs(k, ty, name)) {
                let Type { kind, atomic, .. } = *known;
                let fields = known.fields.clone();
                table.types.insert(name.clone(), Type { kind, atomic, fields, ..Type::default() });
            }
            continue;
        };
        ty.embedded = known.embedded.clone();
        for field in ty.fields.values_mut() {
            let Some(known) = known.fields.get(field.name) else { continue };
            field.number = known.number;
            if known.ty.replace('*', "") == field.ty {
                field.ty = known.ty;
            }
        }
    }
}

fn needs(kind: &str, ty: &Type, name: &str) -> bool {
    KINDS.contains(&kind) && ty.fields.values().any(|field| element(field.ty) == name)
}

fn message_name(name: &str) -> String {
    full_name(name).replacen("io.k8s", "k8s.io", 1).replace('-', "_")
}

fn is_true(value: &Value, name: &str) -> bool {
    value.get(name).and_then(Value::as_bool) == Some(true)
}

/// Whether the field `key` of a message is the one that JSON calls `name`: `xKubernetesListType` is
/// `x-kubernetes-list-type`, `ref` is `$ref`.
fn is_name(key: &str, name: &str) -> bool {
    key.bytes()
        .map(|c| c.to_ascii_lowercase())
        .eq(name.bytes().filter(|c| !matches!(c, b'-' | b'$')).map(|c| c.to_ascii_lowercase()))
}

/// The place of the field `name` in `message`, which may be inside a message that JSON does not show.
fn find<'a>(
    messages: &'a Value,
    message: &'a Value,
    name: &str,
    names: &[&str],
    prefix: &str,
    embedded: &mut std::collections::BTreeMap<String, String>,
) -> Option<(String, &'a Value)> {
    let fields = message.as_object()?;
    let number = |field: &Value| Some(format!("{prefix}{}", field.get("number")?.as_i64()?));
    if let Some((_, field)) = fields.iter().find(|(key, _)| is_name(key, name)) {
        return Some((number(field)?, field));
    }
    fields.iter().filter(|(key, _)| !names.iter().any(|name| is_name(key, name))).find_map(|(_, field)| {
        let inner = text(field, "type")?;
        let place = number(field)?;
        let found = find(messages, messages.get(inner)?, name, names, &format!("{place}/"), embedded)?;
        embedded.insert(place, inner.rsplit('.').next()?.to_owned());
        Some(found)
    })
}

/// Adds the kind `name` and the types that it needs.
fn add_kind(messages: &Value, table: &mut Table, name: &str) -> Result<(), String> {
    let mut missing = vec![name.to_owned()];
    while let Some(name) = missing.pop() {
        if table.types.contains_key(&name) {
            continue;
        }
        let message = messages.get(&message_name(&name)).and_then(Value::as_object);
        let message = message.ok_or_else(|| format!("no message for {name}"))?;
        let mut ty = Type { kind: KINDS.contains(&name.as_str()), ..Type::default() };
        for (name, field) in message.iter() {
            let repeated = if is_true(field, "repeated") { "[]" } else { "" };
            let element = type_text(text(field, "type").unwrap_or_default());
            let element = element.ok_or_else(|| format!("{name}: {field:?} is of an unknown type"))?;
            if element.contains('.') {
                missing.push(element.clone());
            }
            let ty_text = leak(format!("{repeated}{element}"));
            ty.fields.insert(leak(name), Field { name: leak(name), number: "-", ty: ty_text, ..Field::default() });
        }
        if ty.kind {
            for name in ["apiVersion", "kind"] {
                ty.fields.insert(name, Field { name, number: "-", ty: "string", ..Field::default() });
            }
        }
        table.types.insert(name, ty);
    }
    Ok(())
}

fn type_text(protobuf: &str) -> Option<String> {
    Some(match protobuf {
        "string" | "bool" | "int32" | "int64" | "double" | "bytes" => protobuf.to_owned(),
        "k8s.io.apimachinery.pkg.apis.meta.v1.Time" => "time".to_owned(),
        "k8s.io.apimachinery.pkg.runtime.RawExtension" => "raw".to_owned(),
        message => short_name(&message.replacen("k8s.io", "io.k8s", 1))?,
    })
}
