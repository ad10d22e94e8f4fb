//! The rows of tables: what `kubectl get` prints for each built-in kind.
//!
//! Most cells are a path into the object and a way to show what is there (`columns`); what is computed from several
//! fields has a function.

mod access;
mod autoscaling;
mod cell;
mod columns;
mod event;
mod network;
mod node;
mod pod;
mod storage;
mod view;
mod workload;

#[cfg(test)]
mod tests;

use capstan_api::{
    Map, Time, Value,
    builtin::{Kind, text::full_name},
    table::TableRowCondition,
};

use self::{
    cell::Cell,
    view::{View, cell},
};
use crate::descriptions;

/// A row of a table, without the object.
#[derive(Debug, Default)]
pub struct Row {
    /// The cells, in the order of the kind's columns.
    pub cells: Vec<Value>,
    /// What holds for the row: pods that are done are `Completed`.
    pub conditions: Vec<TableRowCondition>,
}

/// The row of an object of a kind, as it is at a time.
///
/// The object is one that the server has accepted; what is absent or of the wrong type shows as empty.
#[must_use]
pub fn cells(kind: &Kind, object: &Map, now: Time) -> Row {
    let view = View::new(object);
    let mut cells = Vec::with_capacity(kind.columns.len());
    let columns = columns::of(kind.group_version.group.as_ref(), kind.resource.as_ref());
    columns.iter().for_each(|column| show(column, view, now, &mut cells));
    let is_pod = kind.group_version.group.is_empty() && kind.resource == *"pods";
    let conditions = if is_pod { pod::conditions(view) } else { Vec::new() };
    Row { cells, conditions }
}

/// How long ago something was, as tables show it.
#[must_use]
pub fn age(then: Time, now: Time) -> String {
    view::since(then, now)
}

/// What a column shows, in words.
#[must_use]
pub fn describe(resource: &str, column: &str) -> String {
    let (mut common, mut own) = (None, None);
    for line in DESCRIPTIONS.lines() {
        match *line.splitn(3, '\t').collect::<Vec<_>>() {
            ["*", name, words] if name == column => common = Some(words),
            [of, name, words] if (of, name) == (resource, column) => own = Some(words),
            _ => {}
        }
    }
    let words = own.or(common).unwrap_or_default();
    let Some(field) = words.strip_prefix('=') else { return words.to_owned() };
    let (schema, field) = field.split_once(' ').unwrap_or((field, ""));
    let words = descriptions::text(&full_name(schema), field).unwrap_or_default();
    // Bindings are described as they were when their references could be changed.
    match resource {
        "clusterrolebindings" | "rolebindings" => words.trim_end_matches(" This field is immutable.").to_owned(),
        _ => words,
    }
}

/// A column a line: the resource or `*` for all, the name, and the words or, behind `=`, the field that has them.
static DESCRIPTIONS: &str = include_str!("descriptions.txt");

/// Appends a cell, or several.
fn show(column: &Cell, view: View<'_>, now: Time, out: &mut Vec<Value>) {
    out.push(match *column {
        Cell::Name => cell(view.text("metadata.name")),
        Cell::Age => cell(view.since("metadata.creationTimestamp", now)),
        Cell::CreatedAt => cell(view.time("metadata.creationTimestamp").to_string()),
        Cell::Text(path) => cell(view.text(path)),
        Cell::Set(path, word) => cell(if view.has(path) { view.text(path) } else { word }),
        Cell::Filled(path, word) => cell(view.text_or(path, word)),
        Cell::Int(path) => Value::Int(view.int(path)),
        Cell::IntIf(path) => view.get(path).and_then(Value::as_i64).map_or_else(|| cell("<none>"), Value::Int),
        Cell::Flag(path, absent) => Value::Bool(view.get(path).and_then(Value::as_bool).unwrap_or(absent)),
        Cell::Count(paths) => Value::Int(paths.iter().map(|path| view.count(path)).sum()),
        Cell::Each(path, field) => cell(view.each(path, field).join(",")),
        Cell::List(path) => cell(view.texts(path).join(",")),
        Cell::Labels(path) => cell(view.labels(path)),
        Cell::Selector(path) => cell(view.selector(path).format()),
        Cell::Pair(first, second) => cell(format!("{}/{}", view.text(first), view.text(second))),
        Cell::Of(first, second) => cell(format!("{}/{}", view.int(first), view.int(second))),
        Cell::With(make) => cell(make(view, now)),
        Cell::Many(make) => return out.extend(make(view, now)),
    });
}
