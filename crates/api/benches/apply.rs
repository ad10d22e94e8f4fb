//! Applying a Pod of 10 KB, as a ratio to its strict decoding.

use std::{hint::black_box, time::Instant};

use capstan_api::{
    Map, Value, builtin, json,
    managed_fields::{FieldManager, Filter, OneVersion},
    names::GroupVersionKind,
};
use criterion::{Criterion, criterion_group, criterion_main};

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

#[expect(clippy::disallowed_methods, reason = "a benchmark measures real time")]
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
    let mut best = [f64::MAX; 4];
    let run = |f: &mut dyn FnMut(), best: &mut f64| {
        let start = Instant::now();
        (0..20).for_each(|_| f());
        *best = best.min(start.elapsed().as_secs_f64() / 20.0);
    };
    for _ in 0..300 {
        run(&mut || drop(black_box(schema.decode(black_box(text.as_bytes())))), &mut best[0]);
        let apply = |config: &Map| {
            drop(black_box(manager.apply(black_box(Some(live)), config.clone(), "one", false, "now")));
        };
        run(&mut || apply(&config), &mut best[1]);
        run(&mut || apply(&changed), &mut best[2]);
        run(
            &mut || {
                let mut new = live.clone();
                new.insert("kind", "Pod");
                manager.update(black_box(Some(live)), &mut new, "two", "now");
                drop(black_box(new));
            },
            &mut best[3],
        );
    }
    println!("strict decode of {} bytes: {:.1} µs", text.len(), best[0] * 1e6);
    for (name, time) in ["apply again", "apply with less metadata", "update"].iter().zip(&best[1..]) {
        println!("{name}: {:.1} µs, {:.2} x strict decode (at most 3)", time * 1e6, time / best[0]);
    }
}

criterion_group!(benches, ratio);
criterion_main!(benches);
