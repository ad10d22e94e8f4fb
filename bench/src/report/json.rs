//! `report.json`: all figures, of every round.

use capstan_api::{Map, Value, json};

use crate::{bench::Bench, histogram::Histogram, machine::Machine, result::Row};

/// The whole report.
pub(super) fn render(bench: &Bench, machine: &Machine) -> String {
    let list = |texts: &[String]| Value::from(texts.iter().map(|text| text.as_str().into()).collect::<Vec<Value>>());
    let sides = machine.sides.iter().map(|(name, versions, flags)| {
        object([("name", (*name).into()), ("versions", versions.as_str().into()), ("flags", flags.as_str().into())])
    });
    let about = object([
        ("started", machine.started.to_string().into()),
        ("processor", machine.processor.as_str().into()),
        ("cores", (machine.cores as i64).into()),
        ("memory", machine.memory.as_str().into()),
        ("kernel", machine.kernel.as_str().into()),
        ("commit", machine.commit.as_str().into()),
        ("load", list(&machine.load)),
        ("quick", bench.settings.quick.into()),
        ("rounds", (bench.settings.rounds as i64).into()),
        ("seconds", Value::Float(bench.settings.time.as_secs_f64())),
        ("sides", sides.collect::<Vec<Value>>().into()),
    ]);
    let memory = bench.memory.iter().map(|((benchmark, side), series)| {
        let series: Vec<Value> = series.iter().map(|(at, mb)| vec![number(*at), number(*mb)].into()).collect();
        object([("benchmark", (*benchmark).into()), ("side", (*side).into()), ("series", series.into())])
    });
    let report = object([
        ("machine", about),
        ("rows", bench.rows.iter().map(row).collect::<Vec<Value>>().into()),
        ("memory", memory.collect::<Vec<Value>>().into()),
        ("failures", list(&bench.failures)),
    ]);
    json::to_pretty_string(&report)
}

fn row(row: &Row) -> Value {
    let sides = row.samples.iter().filter_map(|(side, samples)| {
        let summary = row.summary(side)?;
        let rounds: Vec<Value> = samples.iter().map(|sample| number(sample.value)).collect();
        Some(object([
            ("side", (*side).into()),
            ("median", number(summary.value)),
            ("rounds", rounds.into()),
            ("latency_ms", summary.latency.as_ref().map_or(Value::Null, latency)),
            ("rss_mb", number(summary.rss)),
            ("peak_rss_mb", number(summary.peak)),
            ("cpu_us_per_operation", number(summary.cpu)),
            ("wire_bytes_per_operation", number(summary.wire)),
            ("errors", (summary.errors as i64).into()),
        ]))
    });
    let option = |value: Option<f64>| value.map_or(Value::Null, number);
    object([
        ("benchmark", row.benchmark.into()),
        ("case", row.case.name.as_str().into()),
        ("unit", row.case.unit.into()),
        ("ratio", option(row.ratio())),
        ("goal_ratio", option(row.case.goal)),
        ("goal_bound", option(row.case.bound)),
        ("met", row.met().map_or(Value::Null, Value::from)),
        ("sides", sides.collect::<Vec<Value>>().into()),
    ])
}

fn latency(histogram: &Histogram) -> Value {
    let quantiles = [("p50", 0.5), ("p90", 0.9), ("p99", 0.99), ("p99.9", 0.999), ("max", 1.0)];
    object(quantiles.map(|(name, at)| (name, number(histogram.quantile(at)))))
}

/// A figure without the digits that nobody measured.
fn number(value: f64) -> Value {
    Value::Float((value * 1e4).round() / 1e4)
}

fn object<const N: usize>(fields: [(&str, Value); N]) -> Value {
    let mut map = Map::default();
    for (name, value) in fields {
        map.insert(name, value);
    }
    map.into()
}
