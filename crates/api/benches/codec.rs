//! How fast a Pod of 4 KB is read and written, as ratios to `serde_json::Value`.

use std::{hint::black_box, time::Instant};

use capstan_api::{Value, codec::Metadata, json};
use criterion::{Criterion, criterion_group, criterion_main};

const POD: &[u8] = include_bytes!("pod.json");

fn codecs(c: &mut Criterion) {
    let mut group = c.benchmark_group("pod");
    let value = json::parse(POD).expect("the Pod is JSON");
    group
        .bench_function("serde_json value", |b| b.iter(|| serde_json::from_slice::<serde_json::Value>(black_box(POD))));
    group.bench_function("json parse", |b| b.iter(|| json::parse(black_box(POD))));
    group.bench_function("metadata only", |b| b.iter(|| Metadata::scan(black_box(POD))));
    group.bench_function("json write", |b| {
        let mut out = Vec::new();
        b.iter(|| {
            out.clear();
            json::write(black_box(&value), &mut out);
        });
    });
    group.finish();
}

/// Prints how much longer than the yardstick each way takes; the runs alternate, so that a busy machine slows both.
#[expect(clippy::disallowed_methods, reason = "a benchmark measures real time")]
fn ratios(_: &mut Criterion) {
    let value: Value = json::parse(POD).expect("the Pod is JSON");
    let run = |f: &mut dyn FnMut()| {
        let start = Instant::now();
        (0..200).for_each(|_| f());
        start.elapsed().as_secs_f64()
    };
    let mut ways: Vec<(&str, Box<dyn FnMut()>)> = vec![
        ("json parse", Box::new(|| drop(black_box(json::parse(black_box(POD)))))),
        ("metadata only", Box::new(|| drop(black_box(Metadata::scan(black_box(POD)))))),
        ("json write", Box::new(|| drop(black_box(json::to_string(black_box(&value)))))),
    ];
    for (name, f) in &mut ways {
        let mut best: Vec<f64> = (0..51)
            .map(|_| {
                let yard = run(&mut || drop(black_box(serde_json::from_slice::<serde_json::Value>(black_box(POD)))));
                run(f) / yard
            })
            .collect();
        best.sort_by(f64::total_cmp);
        println!("{name}: {:.2} x serde_json::Value", best[best.len() / 2]);
    }
}

criterion_group!(benches, ratios, codecs);
criterion_main!(benches);
