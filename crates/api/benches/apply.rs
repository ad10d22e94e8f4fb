//! Applying a Pod of 10 KB, as a ratio to its strict decoding.

use std::{hint::black_box, time::Instant};

use capstan_api::{
    Map, Value, builtin, json,
    managed_fields::{FieldManager, Filter, OneVersion},
    names::GroupVersionKind,
};
use criterion::{Criterion, criterion_group, criterion_main};

/// As the server has it.
#[global_allocator]
static ALLOCATOR: mimalloc::MiMalloc = mimalloc::MiMalloc;

const POD: &[u8] = include_bytes!("pod.json");
const SIZE: usize = 10_000;

/// The Pod of the other benchmarks with its first container again and again.
fn pod() -> Map {
    let Value::Object(mut pod) = json::parse(POD).expect("it is JSON") else { unreachable!("it is an object") };
    pod.remove("status");
    while json::to_string(&Value::Object(pod.clone())).len() < SIZE {
        let containers = pod.get_mut("spec").and_then(|spec| spec.get_mut("containers")?.as_array_mut());
        let containers = containers.expect("it has containers");
        let mut container = containers[0].clone();
        let name = format!("container-{}", containers.len());
        container.as_object_mut().expect("it is an object").insert("name", name);
        containers.push(container);
    }
    pod
}

fn ratio(_: &mut Criterion) {
    let kind = GroupVersionKind::from_static("", "v1", "Pod");
    let schema = builtin::schema(&kind).expect("Pod is built in");
    let filter = Filter::without(&["status"]);
    let manager =
        FieldManager { kind: &kind, schema: &schema, subresource: "", filter: &filter, versions: &OneVersion };
    let config = pod();
    let text = json::to_string(&Value::Object(config.clone()));
    let mut live = Value::Object(manager.apply(None, config.clone(), "one", false, "now").expect("it is new"));
    builtin::default(&schema, &mut live);
    let live = live.as_object().expect("it is an object");
    let mut changed = config.clone();
    changed.insert("metadata", json::parse(br#"{"name":"a","labels":{"changed":"yes"}}"#).expect("it is JSON"));
    let mut best = [f64::MAX; 5];
    let mut other = config.clone();
    let image = |pod: &mut Map| {
        let containers = pod.get_mut("spec").and_then(|spec| spec.get_mut("containers")?.as_array_mut());
        let container = containers.and_then(|containers| containers[3].as_object_mut());
        container.expect("it has containers").insert("image", "example.com/other:2");
    };
    image(&mut other);
    for _ in 0..300 {
        time(&mut best[0], || (), |()| schema.decode(black_box(text.as_bytes())));
        for (best, config) in best[1..].iter_mut().zip([&config, &other, &changed]) {
            let apply = |config| manager.apply(black_box(Some(live)), config, "one", false, "now");
            time(best, || config.clone(), apply);
        }
        let copy = || {
            let mut new = live.clone();
            new.insert("kind", "Pod");
            new
        };
        let update = |mut new| {
            manager.update(black_box(Some(live)), &mut new, "two", "now");
            new
        };
        time(&mut best[4], copy, update);
    }
    println!("strict decode of {} bytes: {:.1} µs", text.len(), best[0] * 1e6);
    let names = ["apply again", "apply another image", "apply with less metadata", "update"];
    for (name, time) in names.iter().zip(&best[1..]) {
        println!("{name}: {:.1} µs, {:.2} x strict decode (at most 3)", time * 1e6, time / best[0]);
    }
}

/// How long `f` takes, and the dropping of what it returns, with what `make` makes before.
#[expect(clippy::disallowed_methods, reason = "a benchmark measures real time")]
fn time<I, O>(best: &mut f64, make: impl Fn() -> I, f: impl Fn(I) -> O) {
    const TIMES: usize = 20;
    let inputs: Vec<I> = (0..TIMES).map(|_| make()).collect();
    let start = Instant::now();
    for input in inputs {
        drop(black_box(f(input)));
    }
    *best = best.min(start.elapsed().as_secs_f64() / TIMES as f64);
}

criterion_group!(benches, ratio);
criterion_main!(benches);
