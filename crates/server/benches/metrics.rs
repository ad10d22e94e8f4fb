//! What recording a request costs.

use std::{hint::black_box, time::Duration};

use capstan_server::metrics::{Metrics, RequestLabels};
use criterion::{Criterion, criterion_group, criterion_main};
use http::StatusCode;

fn record(criterion: &mut Criterion) {
    let metrics = Metrics::new(0.0);
    let resources: Vec<_> = (0..60).map(|i| format!("resources{i}")).collect();
    for resource in &resources {
        one(&metrics, resource);
    }
    criterion.bench_function("metrics/record", |bencher| bencher.iter(|| one(&metrics, black_box("resources7"))));
}

fn one(metrics: &Metrics, resource: &str) {
    let labels = RequestLabels {
        verb: "GET",
        group: "apps",
        version: "v1",
        resource,
        scope: "resource",
        component: "apiserver",
        ..RequestLabels::default()
    };
    metrics.requests.record(&labels, StatusCode::OK, 1000, Duration::from_micros(300), Duration::ZERO);
}

criterion_group!(benches, record);
criterion_main!(benches);
