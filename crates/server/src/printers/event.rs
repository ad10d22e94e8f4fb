//! Events, of either group: their fields have other names in each.

use capstan_api::{Time, Value};

use super::view::{View, cell, since};

/// All the cells.
pub(super) fn cells(view: View<'_>, now: Time) -> Vec<Value> {
    let text = |paths: [&'static str; 2]| view.text_or(paths[0], view.text(paths[1]));
    let time = |paths: [&'static str; 2]| text(paths).parse().unwrap_or(Time::ZERO);
    let first = match time(["firstTimestamp", "deprecatedFirstTimestamp"]) {
        Time::ZERO => view.since("eventTime", now),
        first => since(first, now),
    };
    let mut last = match time(["lastTimestamp", "deprecatedLastTimestamp"]) {
        Time::ZERO => first.clone(),
        last => since(last, now),
    };
    let mut count = view.int("count").max(view.int("deprecatedCount"));
    if view.has("series") {
        last = view.since("series.lastObservedTime", now);
        count = view.int("series.count");
    } else if count == 0 {
        count = 1;
    }
    let kind = text(["involvedObject.kind", "regarding.kind"]).to_lowercase();
    let target = match text(["involvedObject.name", "regarding.name"]) {
        "" => kind,
        name => format!("{kind}/{name}"),
    };
    let component = match text(["source.component", "deprecatedSource.component"]) {
        "" => text(["reportingComponent", "reportingController"]),
        component => component,
    };
    let instance = match text(["source.host", "deprecatedSource.host"]) {
        "" => view.text("reportingInstance"),
        host => host,
    };
    let source = if instance.is_empty() { component.to_owned() } else { format!("{component}, {instance}") };
    vec![
        cell(last),
        cell(view.text("type")),
        cell(view.text("reason")),
        cell(target),
        cell(text(["involvedObject.fieldPath", "regarding.fieldPath"])),
        cell(source),
        cell(text(["message", "note"]).trim()),
        cell(first),
        Value::Int(count),
        cell(view.text("metadata.name")),
    ]
}
