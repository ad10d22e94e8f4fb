//! Strict decoding of a Pod of 4 KB, as a ratio to `serde_json::Value`, and what it costs to load a kind.

use std::{hint::black_box, time::Instant};

use capstan_api::{builtin, json, names::GroupVersionKind, schema::Schema};
use criterion::{Criterion, criterion_group, criterion_main};

const POD: &[u8] = include_bytes!("pod.json");

fn schema() -> Schema {
    builtin::schema(&GroupVersionKind::from_static("", "v1", "Pod")).expect("Pod is built in")
}

fn decode(c: &mut Criterion) {
    let schema = schema();
    assert!(schema.decode(POD).expect("it is a Pod").strict.is_empty());
    let mut group = c.benchmark_group("strict decode");
    group
        .bench_function("serde_json value", |b| b.iter(|| serde_json::from_slice::<serde_json::Value>(black_box(POD))));
    group.bench_function("json parse", |b| b.iter(|| json::parse(black_box(POD))));
    group.bench_function("schema decode", |b| b.iter(|| schema.decode(black_box(POD))));
    group.finish();
}

fn load(c: &mut Criterion) {
    let (schema, pod) = (schema(), GroupVersionKind::from_static("", "v1", "Pod"));
    c.bench_function("find the schema of a kind", |b| b.iter(|| builtin::schema(black_box(&pod))));
    c.bench_function("load what a Pod of 4 KB needs and decode it", |b| {
        b.iter(|| schema.unloaded().decode(black_box(POD)));
    });
}

/// Prints the ratio; the runs alternate, so that a busy machine slows both.
#[expect(clippy::disallowed_methods, reason = "a benchmark measures real time")]
fn ratio(_: &mut Criterion) {
    let schema = schema();
    let run = |f: &mut dyn FnMut()| {
        let start = Instant::now();
        (0..200).for_each(|_| f());
        start.elapsed().as_secs_f64()
    };
    let ratios = (0..51).map(|_| {
        let yard = run(&mut || drop(black_box(serde_json::from_slice::<serde_json::Value>(black_box(POD)))));
        run(&mut || drop(black_box(schema.decode(black_box(POD))))) / yard
    });
    let mut ratios: Vec<f64> = ratios.collect();
    ratios.sort_by(f64::total_cmp);
    println!("strict decode: {:.2} x serde_json::Value", ratios[ratios.len() / 2]);
}

criterion_group!(benches, ratio, decode, load);
criterion_main!(benches);
