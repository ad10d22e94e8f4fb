//! How fast a Pod of 4 KB is read and written, as ratios to `serde_json::Value`.

use std::{hint::black_box, time::Instant};

use capstan_api::{
    codec::{Format, Metadata, decode_strict},
    json,
    value::from_value,
    yaml,
};
use criterion::{Criterion, criterion_group, criterion_main};
use k8s_openapi::api::core::v1::Pod;

const POD: &[u8] = include_bytes!("pod.json");

/// A way to read or write the Pod.
type Way = (&'static str, Box<dyn FnMut()>);

/// What is measured first is what the others are compared with.
fn ways() -> Vec<Way> {
    let value = json::parse(POD).expect("the Pod is JSON");
    let pod = yaml::to_string(&value);
    let (to_json, to_yaml, to_pod) = (value.clone(), value.clone(), value);
    vec![
        (
            "serde_json::Value",
            Box::new(|| drop(black_box(serde_json::from_slice::<serde_json::Value>(black_box(POD))))),
        ),
        ("json parse", Box::new(|| drop(black_box(json::parse(black_box(POD)))))),
        ("json strict decode", Box::new(|| drop(black_box(decode_strict(black_box(POD), Format::Json))))),
        ("metadata only", Box::new(|| drop(black_box(Metadata::scan(black_box(POD)))))),
        ("json write", Box::new(move || drop(black_box(json::to_string(black_box(&to_json)))))),
        ("yaml parse", Box::new(move || drop(black_box(yaml::parse(black_box(pod.as_bytes())))))),
        ("yaml write", Box::new(move || drop(black_box(yaml::to_string(black_box(&to_yaml)))))),
        ("clone to a typed Pod", Box::new(move || drop(black_box(from_value::<Pod>(black_box(&to_pod).clone()))))),
    ]
}

fn codecs(c: &mut Criterion) {
    let mut group = c.benchmark_group("pod");
    for (name, mut way) in ways() {
        group.bench_function(name, |b| b.iter(&mut way));
    }
    group.finish();
}

/// Prints how much longer than the yardstick each way takes. The runs are short and alternate and the best of each
/// counts, so that a busy machine does not matter much.
#[expect(clippy::disallowed_methods, reason = "a benchmark measures real time")]
fn ratios(_: &mut Criterion) {
    let run = |way: &mut dyn FnMut(), best: &mut f64| {
        let start = Instant::now();
        (0..10).for_each(|_| way());
        *best = best.min(start.elapsed().as_secs_f64());
    };
    let mut ways = ways().into_iter();
    let (yardstick, mut yard) = ways.next().expect("there is a yardstick");
    for (name, mut way) in ways {
        let (mut mine, mut theirs) = (f64::MAX, f64::MAX);
        for _ in 0..1000 {
            run(&mut way, &mut mine);
            run(&mut yard, &mut theirs);
        }
        println!("{name}: {:.2} x {yardstick}", mine / theirs);
    }
}

criterion_group!(benches, ratios, codecs);
criterion_main!(benches);
