//! Resources out of aggregated discovery, with the printer columns of their lists.

use capstan_api::Value;

use super::{
    model::Table,
    openapi::{strings, text},
    source::Source,
};

/// Adds group versions and resources.
pub(crate) fn read(source: &Source, table: &mut Table) -> Result<(), String> {
    for group in source.discovery.iter().filter_map(|list| list.get("items")?.as_array()).flatten() {
        let name = group.get("metadata").and_then(|metadata| text(metadata, "name")).unwrap_or_default();
        for version in group.get("versions").and_then(Value::as_array).into_iter().flatten() {
            let number = text(version, "version").ok_or("a version without a name")?;
            let (group_version, path) = match name {
                "" => (number.to_owned(), format!("/api/{number}")),
                _ => (format!("{name}/{number}"), format!("/apis/{name}/{number}")),
            };
            let package = format!("{}.{number}", package_of(name));
            table.groups.push((group_version.clone(), package));
            for resource in version.get("resources").and_then(Value::as_array).into_iter().flatten() {
                let name = text(resource, "resource").ok_or("a resource without a name")?;
                let lines = lines(resource, name, &group_version, source.columns.get(&format!("{path}/{name}")));
                let lines = lines.ok_or_else(|| format!("{group_version} {name} is incomplete"))?;
                table.resources.insert((group_version.clone(), name.to_owned()), lines);
            }
        }
    }
    Ok(())
}

/// The Go package of a group is called after the group's first part; the core group and three others differ.
fn package_of(group: &str) -> &str {
    match group {
        "" => "core",
        "rbac.authorization.k8s.io" => "rbac",
        "flowcontrol.apiserver.k8s.io" => "flowcontrol",
        _ => group.split('.').next().unwrap_or_default(),
    }
}

fn lines(resource: &Value, name: &str, group_version: &str, columns: Option<&Value>) -> Option<Vec<String>> {
    let kind = text(resource.get("responseKind")?, "kind")?;
    let (scope, singular) = (text(resource, "scope")?, text(resource, "singularResource")?);
    let mut lines = vec![format!("resource {group_version} {name} {kind} {scope} {singular}")];
    for (word, field) in [("short", "shortNames"), ("categories", "categories"), ("verbs", "verbs")] {
        let values = strings(resource, field);
        if !values.is_empty() {
            lines.push(format!(" {word} {}", values.join(" ")));
        }
    }
    for column in columns.and_then(Value::as_array).into_iter().flatten() {
        let format = text(column, "format").filter(|format| !format.is_empty()).unwrap_or("-");
        let priority = column.get("priority")?.as_i64()?;
        lines.push(format!(" column {} {format} {priority} {}", text(column, "type")?, text(column, "name")?));
    }
    for sub in resource.get("subresources").and_then(Value::as_array).into_iter().flatten() {
        let kind = sub.get("responseKind")?;
        let group_version = match (text(kind, "group").unwrap_or_default(), text(kind, "version").unwrap_or_default()) {
            ("", "") => group_version.to_owned(),
            ("", version) => version.to_owned(),
            (group, version) => format!("{group}/{version}"),
        };
        let verbs = strings(sub, "verbs").join(" ");
        lines.push(format!(" sub {} {group_version} {} {verbs}", text(sub, "subresource")?, text(kind, "kind")?));
    }
    Some(lines)
}
