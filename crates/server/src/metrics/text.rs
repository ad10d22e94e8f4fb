//! The text that Prometheus reads, version 0.0.4.

use std::fmt::Write;

use capstan_api::go;

use super::family::{Collect, Histogram, Labels};

/// What `Content-Type` says of it.
pub const CONTENT_TYPE: &str = "text/plain; version=0.0.4; charset=utf-8; escaping=underscores";

/// The text of these families, in the order of their names.
#[must_use]
pub fn render(mut families: Vec<&dyn Collect>) -> String {
    families.sort_by_key(|family| family.name());
    let mut out = String::new();
    for family in families {
        family.write(&mut out);
    }
    out
}

pub(super) fn head(name: &str, help: &str, ty: &str, out: &mut String) {
    let help = help.replace('\\', "\\\\").replace('\n', "\\n");
    write!(out, "# HELP {name} {help}\n# TYPE {name} {ty}\n").expect("a String takes everything");
}

/// What is in the braces.
pub(super) fn labels(names: &[&str], values: &Labels) -> String {
    let mut out = String::new();
    for (name, value) in names.iter().zip(values) {
        if !out.is_empty() {
            out.push(',');
        }
        let value = value.replace('\\', "\\\\").replace('"', "\\\"").replace('\n', "\\n");
        write!(out, "{name}=\"{value}\"").expect("a String takes everything");
    }
    out
}

pub(super) fn sample(name: &str, suffix: &str, labels: &str, value: f64, out: &mut String) {
    let (open, close) = if labels.is_empty() { ("", "") } else { ("{", "}") };
    let value = go::float(value);
    writeln!(out, "{name}{suffix}{open}{labels}{close} {value}").expect("a String takes everything");
}

pub(super) fn histogram(name: &str, labels: &str, histogram: &Histogram, out: &mut String) {
    let comma = if labels.is_empty() { "" } else { "," };
    let mut count = 0;
    for (bound, below) in histogram.cumulated() {
        sample(name, "_bucket", &format!("{labels}{comma}le=\"{}\"", go::float(bound)), below as f64, out);
        count = below;
    }
    sample(name, "_sum", labels, histogram.sum(), out);
    sample(name, "_count", labels, count as f64, out);
}
