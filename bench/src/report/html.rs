//! `report.html`: one page without anything from elsewhere, for screens of every width and for paper.

use std::{collections::BTreeMap, fmt::Write as _};

use super::{
    escape, figure,
    svg::{self, Bar, Line, Plot, Scale},
    table,
};
use crate::{
    bench::Bench,
    benchmarks::Benchmark,
    histogram::Histogram,
    machine::Machine,
    result::{Row, Summary},
};

/// The sides in the order in which they are drawn.
const SIDES: [&str; 2] = ["capstan", "upstream"];

const STYLE: &str = include_str!("report.css");

/// The whole page.
pub(super) fn render(bench: &Bench, machine: &Machine) -> String {
    let mut out = format!(
        "<!doctype html>\n<html lang=\"en\"><meta charset=\"utf-8\"><meta name=\"viewport\" \
         content=\"width=device-width, initial-scale=1\"><title>Capstan beside its peers</title>\
         <style>{STYLE}</style>\n<h1>Capstan beside its peers</h1>\n"
    );
    introduction(&mut out, bench, machine);
    overview(&mut out, bench);
    for benchmark in Benchmark::ALL {
        let rows: Vec<&Row> = bench.rows.iter().filter(|row| row.benchmark == benchmark.id()).collect();
        if !rows.is_empty() {
            let _ = writeln!(out, "<section id=\"{0}\"><h2>{0} {1}</h2>", benchmark.id(), benchmark.title());
            rows.iter().for_each(|row| case(&mut out, row));
            curves(&mut out, &rows);
            memory(&mut out, bench, benchmark.id());
            out.push_str("</section>\n");
        }
    }
    profiles(&mut out, bench);
    if !bench.failures.is_empty() {
        out.push_str("<section><h2>Not measured</h2><ul>");
        for failure in &bench.failures {
            let _ = write!(out, "<li>{}", escape(failure));
        }
        out.push_str("</ul></section>");
    }
    about(&mut out, bench, machine);
    out + "</html>\n"
}

fn introduction(out: &mut String, bench: &Bench, machine: &Machine) {
    let quick = if bench.settings.quick { "A quick run with small counts. " } else { "" };
    let _ = writeln!(
        out,
        "<p>{quick}Both sides on the same machine in the same run, in turn, over TLS and HTTP/2, with every write \
         synced to disk. A ratio says how many times better Capstan is; bars are medians of {} rounds of {} s, with \
         the least and the most of them. Load of the machine before and after: {}.</p>\
         <p class=\"key\"><span class=\"capstan\">●</span> capstan <span class=\"upstream\">○</span> upstream: \
         kube-apiserver and etcd</p>",
        bench.settings.rounds,
        bench.settings.time.as_secs(),
        escape(&machine.load.join("; ")),
    );
}

/// What there are goals for.
fn overview(out: &mut String, bench: &Bench) {
    let rows: Vec<&Row> = bench.rows.iter().filter(|row| row.met().is_some()).collect();
    if rows.is_empty() {
        return;
    }
    out.push_str(
        "<h2>Goals</h2><div class=\"wide\"><table><tr><th>what<th>capstan<th>upstream<th>ratio<th>goal</tr>\n",
    );
    for row in rows {
        let value = |side| row.summary(side).map_or("–".to_owned(), |side: Summary| figure(side.value));
        let class = if row.met() == Some(true) { "met" } else { "missed" };
        let ratio = row.ratio().map_or("–".to_owned(), |ratio| format!("{}×", figure(ratio)));
        let _ = writeln!(
            out,
            "<tr><td><a href=\"#{0}\">{0}</a> {1}, {2}<td>{3}<td>{4}<td>{ratio}<td class=\"{class}\">{5}</tr>",
            row.benchmark,
            escape(&row.case.name),
            row.case.unit,
            value("capstan"),
            value("upstream"),
            table::goal(row),
        );
    }
    out.push_str("</table></div>\n");
}

/// One case: its bars, a line of what it used, and its latencies.
fn case(out: &mut String, row: &Row) {
    let sides: Vec<(&'static str, Summary)> =
        SIDES.iter().filter_map(|side| Some((*side, row.summary(side)?))).collect();
    let bars: Vec<Bar> = sides
        .iter()
        .map(|(side, summary)| Bar { side, value: summary.value, low: summary.low, high: summary.high })
        .collect();
    let ratio = row.ratio().map_or(String::new(), |ratio| format!(" <b>{}×</b>", figure(ratio)));
    let _ = write!(out, "<figure><figcaption>{}{ratio}", escape(&row.case.name));
    let _ = write!(out, " <small>{}</small></figcaption>{}", table::goal(row), svg::bars(&bars, row.case.unit));
    for (side, summary) in &sides {
        let used = used(summary);
        if !used.is_empty() {
            let _ = write!(out, "<small>{side}: {used}</small><br>");
        }
    }
    let latencies: Vec<(&'static str, &Histogram)> =
        sides.iter().filter_map(|(side, summary)| Some((*side, summary.latency.as_ref()?))).collect();
    if !latencies.is_empty() {
        let _ = write!(out, "<details><summary>latencies</summary>{}</details>", latency_curve(&latencies));
    }
    out.push_str("</figure>\n");
}

/// What a side used, in words.
fn used(summary: &Summary) -> String {
    let mut parts = Vec::new();
    if let Some(latency) = &summary.latency {
        let [p50, p99, p999] = [0.5, 0.99, 0.999].map(|at| figure(latency.quantile(at)));
        parts.push(format!("p50 {p50}, p99 {p99}, p99.9 {p999} ms"));
    }
    for (value, unit) in [
        (summary.cpu, "µs of CPU each"),
        (summary.wire, "bytes on the wire each"),
        (summary.rss, "MB resident"),
        (summary.peak, "MB at the peak"),
        (summary.errors as f64, "failed"),
    ] {
        if value > 0.0 {
            parts.push(format!("{} {unit}", figure(value)));
        }
    }
    parts.join("; ")
}

/// Latency over how rare it is: each decade to the right is ten times as rare.
fn latency_curve(latencies: &[(&'static str, &Histogram)]) -> String {
    let lines: Vec<Line> = latencies
        .iter()
        .map(|(side, histogram)| {
            let points = (0..=60).map(|step| 10_f64.powf(f64::from(step) / 20.0));
            // Beyond one in as many as there are, there is nothing to tell.
            let points = points.take_while(|rare| *rare <= histogram.count() as f64);
            Line { side, points: points.map(|rare| (rare, histogram.quantile(1.0 - 1.0 / rare))).collect() }
        })
        .collect();
    let marks = vec![(1.0, "min"), (2.0, "p50"), (10.0, "p90"), (100.0, "p99"), (1000.0, "p99.9")];
    let plot = Plot { x: ("of all operations", Scale::Log), y: ("ms", Scale::Log), marks, dots: false };
    svg::lines(&plot, &lines)
}

/// How figures grow with a count.
fn curves(out: &mut String, rows: &[&Row]) {
    let mut curves: BTreeMap<&str, (&'static str, Vec<Line>)> = BTreeMap::new();
    for row in rows {
        let Some((name, at)) = &row.case.point else { continue };
        let (_, lines) = curves.entry(name).or_insert((row.case.unit, Vec::new()));
        for side in SIDES {
            let Some(summary) = row.summary(side) else { continue };
            match lines.iter_mut().find(|line| line.side == side) {
                Some(line) => line.points.push((*at, summary.value)),
                None => lines.push(Line { side, points: vec![(*at, summary.value)] }),
            }
        }
    }
    for (name, (unit, lines)) in curves {
        if lines.iter().all(|line| line.points.len() < 2) {
            continue;
        }
        let plot = Plot { x: ("", Scale::Log), y: (unit, Scale::Log), marks: Vec::new(), dots: true };
        let _ =
            writeln!(out, "<figure><figcaption>{}</figcaption>{}</figure>", escape(name), svg::lines(&plot, &lines));
    }
}

fn memory(out: &mut String, bench: &Bench, benchmark: &str) {
    let lines: Vec<Line> = bench
        .memory
        .iter()
        .filter(|((of, _), points)| *of == benchmark && points.len() > 1)
        .map(|((_, side), points)| Line { side, points: points.clone() })
        .collect();
    if !lines.is_empty() {
        let plot = Plot {
            x: ("seconds since the start of the server", Scale::Linear),
            y: ("MB", Scale::Linear),
            marks: Vec::new(),
            dots: false,
        };
        let _ =
            writeln!(out, "<figure><figcaption>Memory over time</figcaption>{}</figure>", svg::lines(&plot, &lines));
    }
}

/// Where our server's time goes: what costs most by itself, and the flame graphs.
fn profiles(out: &mut String, bench: &Bench) {
    if bench.profiles.is_empty() {
        return;
    }
    out.push_str("<section><h2>Where the time goes</h2>");
    for profile in &bench.profiles {
        let file = profile.file.file_name().unwrap_or_default().to_string_lossy();
        let _ = write!(
            out,
            "<figure><figcaption>{} {}: <a href=\"{}\">flame graph</a></figcaption><table>",
            profile.benchmark,
            escape(&profile.case),
            escape(&file),
        );
        for (name, share) in &profile.most {
            let _ = write!(out, "<tr><td>{:.1} %<td>{}</tr>", share * 100.0, escape(name));
        }
        out.push_str("</table></figure>\n");
    }
    out.push_str("</section>\n");
}

fn about(out: &mut String, bench: &Bench, machine: &Machine) {
    let mut facts = vec![
        ("measured", machine.started.to_string()),
        ("machine", format!("{} × {}, {}, Linux {}", machine.cores, machine.processor, machine.memory, machine.kernel)),
        ("commit", machine.commit.clone()),
        (
            "how",
            format!(
                "{} rounds of {} s, quick: {}",
                bench.settings.rounds,
                bench.settings.time.as_secs(),
                bench.settings.quick
            ),
        ),
    ];
    for (side, versions, flags) in &machine.sides {
        facts.push((side, format!("{versions}; {flags}")));
    }
    out.push_str("<section class=\"about\"><h2>What this was measured on</h2><dl>");
    for (name, text) in facts {
        let _ = write!(out, "<dt>{name}<dd>{}", escape(&text));
    }
    out.push_str("</dl></section>");
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{
        result::{Case, Sample},
        settings::Settings,
    };

    #[test]
    fn what_was_measured_and_what_failed_is_on_the_page() {
        let mut bench = Bench::new(Settings::parse(&["--quick"]).unwrap(), Vec::new());
        bench.begin("B5", 1, 1);
        for (count, value) in [(10, 100.0), (100, 90.0)] {
            let case = Case::more(format!("GET <{count}>"), "ops/s").goal(8.0).point("GET over objects", count);
            bench.add(&case, "capstan", Sample::of(value));
            bench.add(&case, "upstream", Sample::of(10.0));
        }
        bench.failures.push("B6: a & b".to_owned());
        let page = render(&bench, &Machine::look(&[]));
        for part in ["B5 GET", "GET &lt;10&gt;", "9.00×", "8x ✓", "GET over objects", "a &amp; b"] {
            assert!(page.contains(part), "{part} in {page}");
        }
        assert!(!page.contains("NaN"));
    }
}
