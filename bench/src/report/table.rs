//! The table on the terminal.

use std::fmt::Write as _;

use super::figure;
use crate::{
    bench::Bench,
    benchmarks::Benchmark,
    machine::Machine,
    result::{Better, Row, Summary},
};

/// The headings, and how wide the columns are.
const COLUMNS: [(&str, usize); 8] = [
    ("", 48),
    ("capstan", 10),
    ("peer", 10),
    ("ratio", 7),
    ("goal", 15),
    ("p50/p99/p99.9 ms", 34),
    ("CPU µs/op", 15),
    ("RSS MB", 11),
];

/// The whole table.
pub(super) fn render(bench: &Bench, machine: &Machine) -> String {
    let mut out = String::new();
    let headings = COLUMNS.map(|(name, _)| name.to_owned());
    for benchmark in Benchmark::ALL {
        let rows: Vec<&Row> = bench.rows.iter().filter(|row| row.benchmark == benchmark.id()).collect();
        if rows.is_empty() {
            continue;
        }
        let _ = writeln!(out, "\n{} {}", benchmark.id(), benchmark.title());
        line(&mut out, &headings);
        for row in rows {
            line(&mut out, &cells(row));
        }
    }
    for failure in &bench.failures {
        let _ = writeln!(out, "\nnot measured: {failure}");
    }
    let load = machine.load.join(", then ");
    let _ = writeln!(
        out,
        "\n{} × {}, load {load}, commit {}; of two figures the left one is Capstan's, the right one the peer's\n",
        machine.cores, machine.processor, machine.commit
    );
    out
}

fn cells(row: &Row) -> [String; 8] {
    let (ours, theirs) = (row.summary("capstan"), row.summary("upstream"));
    let value = |side: &Option<Summary>| side.as_ref().map_or("–".to_owned(), |side| figure(side.value));
    let both = |of: &dyn Fn(&Summary) -> Option<String>| {
        let [ours, theirs] = [&ours, &theirs].map(|side| side.as_ref().and_then(of));
        match (ours, theirs) {
            (None, None) => String::new(),
            (ours, theirs) => format!("{} | {}", ours.unwrap_or("–".into()), theirs.unwrap_or("–".into())),
        }
    };
    let latency = |side: &Summary| {
        let latency = side.latency.as_ref()?;
        Some([0.5, 0.99, 0.999].map(|at| figure(latency.quantile(at))).join("/"))
    };
    let above = |value: f64| (value > 0.0).then(|| figure(value));
    [
        format!("{} [{}]", row.case.name, row.case.unit),
        value(&ours),
        value(&theirs),
        row.ratio().map_or(String::new(), |ratio| format!("{}x", figure(ratio))),
        goal(row),
        both(&latency),
        both(&|side| above(side.cpu)),
        both(&|side| above(side.rss)),
    ]
}

/// What is wanted, and whether it is so.
pub(super) fn goal(row: &Row) -> String {
    let mut wanted = Vec::new();
    wanted.extend(row.case.goal.map(|times| format!("{times}x")));
    let sign = if row.case.better == Better::More { "≥" } else { "≤" };
    wanted.extend(row.case.bound.map(|bound| format!("{sign} {}", figure(bound))));
    let mark = match row.met() {
        None => "",
        Some(true) => " ✓",
        Some(false) => " ✗",
    };
    wanted.join(", ") + mark
}

fn line(out: &mut String, cells: &[String; 8]) {
    let mut text = String::new();
    for (at, (cell, (_, width))) in cells.iter().zip(COLUMNS).enumerate() {
        // The name is to the left, figures are to the right of their columns.
        let pad = " ".repeat(width.saturating_sub(cell.chars().count()));
        let _ = if at == 0 { write!(text, "  {cell}{pad}") } else { write!(text, "  {pad}{cell}") };
    }
    let _ = writeln!(out, "{}", text.trim_end());
}
