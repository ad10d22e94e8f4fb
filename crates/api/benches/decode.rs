//! Strict decoding of a Pod of 4 KB, as a ratio to `serde_json::Value`, and what it costs to load a kind.

use std::{hint::black_box, time::Instant};

use capstan_api::{Value, builtin, json, names::GroupVersionKind, protobuf, schema::Schema};
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
    group.bench_function("decode, check and default", |b| b.iter(|| road(&schema)));
    let (pod, message) = message(&schema);
    group.bench_function("protobuf decode", |b| b.iter(|| protobuf::decode_message(&schema, black_box(&message))));
    group.bench_function("protobuf encode", |b| b.iter(|| protobuf::encode(&schema, black_box(&pod), &mut Vec::new())));
    group.bench_function("schema decode", |b| b.iter(|| schema.decode(black_box(POD))));
    group.finish();
}

/// The Pod and its message.
fn message(schema: &Schema) -> (Value, Vec<u8>) {
    let pod = schema.decode(POD).expect("it is a Pod").value;
    let mut message = Vec::new();
    protobuf::encode(schema, &pod, &mut message);
    (pod, message)
}

fn load(c: &mut Criterion) {
    let (schema, pod) = (schema(), GroupVersionKind::from_static("", "v1", "Pod"));
    c.bench_function("find the schema of a kind", |b| b.iter(|| builtin::schema(black_box(&pod))));
    c.bench_function("load what a Pod of 4 KB needs and decode it", |b| {
        b.iter(|| schema.unloaded().decode(black_box(POD)));
    });
}

/// The road of a built-in object: decode strictly, check, default.
fn road(schema: &Schema) -> Value {
    let mut decoded = schema.decode(black_box(POD)).expect("it is a Pod");
    black_box(builtin::check(schema, &decoded.value));
    builtin::default(schema, &mut decoded.value);
    decoded.value
}

/// Prints ratios; the runs are short and alternate and the best of each counts, so that a busy machine matters little.
#[expect(clippy::disallowed_methods, reason = "a benchmark measures real time")]
fn ratio(_: &mut Criterion) {
    let schema = schema();
    let run = |f: &mut dyn FnMut(), best: &mut f64| {
        let start = Instant::now();
        (0..20).for_each(|_| f());
        *best = best.min(start.elapsed().as_secs_f64());
    };
    let mut best = [f64::MAX; 3];
    for _ in 0..500 {
        run(&mut || drop(black_box(serde_json::from_slice::<serde_json::Value>(black_box(POD)))), &mut best[0]);
        run(&mut || drop(black_box(schema.decode(black_box(POD)))), &mut best[1]);
        run(&mut || drop(black_box(road(&schema))), &mut best[2]);
    }
    println!("strict decode: {:.2} x serde_json::Value", best[1] / best[0]);
    println!("strict decode, check and default: {:.2} x serde_json::Value (at most 2)", best[2] / best[0]);
}

criterion_group!(benches, ratio, decode, load);
criterion_main!(benches);
