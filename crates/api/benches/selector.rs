//! How long it takes to match labels: under 50 ns for a selector of two requirements on an object with five labels.

use std::hint::black_box;

use capstan_api::{Map, Quantity, Value, selector::Selector};
use criterion::{Criterion, criterion_group, criterion_main};

const LABELS: [(&str, &str); 5] = [
    ("app.kubernetes.io/component", "api"),
    ("app.kubernetes.io/instance", "shop-1"),
    ("app.kubernetes.io/name", "shop"),
    ("pod-template-hash", "5d8c7b9f6c"),
    ("tier", "backend"),
];

fn selectors(criterion: &mut Criterion) {
    let map: Map = LABELS.iter().map(|(key, value)| ((*key).into(), Value::from(*value))).collect();
    for (name, text) in [
        ("two equal", "app.kubernetes.io/name=shop,tier=backend"),
        ("set and absence", "app.kubernetes.io/name in (shop,cart),!canary"),
        ("no match", "app.kubernetes.io/name=cart,tier=backend"),
    ] {
        let selector: Selector = text.parse().expect("the selector is valid");
        criterion.bench_function(&format!("match {name}, map"), |b| {
            b.iter(|| black_box(&selector).matches(black_box(&map)));
        });
        criterion.bench_function(&format!("match {name}, slice"), |b| {
            b.iter(|| black_box(&selector).matches(black_box(&LABELS)));
        });
    }
    criterion.bench_function("parse selector", |b| {
        b.iter(|| black_box("app.kubernetes.io/name=shop,tier in (a,b)").parse::<Selector>());
    });
    for text in ["100m", "128Mi", "1.5Gi"] {
        criterion.bench_function(&format!("parse and print {text}"), |b| {
            b.iter(|| black_box(text).parse::<Quantity>().map(|quantity| quantity.to_string()));
        });
    }
}

criterion_group!(benches, selectors);
criterion_main!(benches);
