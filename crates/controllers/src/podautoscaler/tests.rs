//! Upstream's cases: what measurements ask for, and what rules make of it.

use std::{sync::Arc, time::Duration};

use capstan_clock::{Moment, Timestamp};
use k8s_openapi::api::autoscaling::v2::HorizontalPodAutoscalerBehavior;
use serde_json::{Value, json};

use super::{
    history::{History, Wish},
    replicas::{PodMetric, PodMetrics, Proposal, Target, Tolerances, by_average, by_pods, by_value},
};

use crate::pod::Pod;

const TOLERANCES: (f64, f64) = (0.1, 0.1);

fn now() -> Timestamp {
    "2026-01-01T01:00:00Z".parse().unwrap()
}

/// Pods and their measurements, one a word: a state, what is used or `-`, and after a slash what is requested, if that
/// is not 1000. States are `r`eady, `u`nready since it is there, `h`ot: just started, `H`: that and unready, `p`ending,
/// `f`ailed, `d`eleted, and `x` for a measurement without a pod.
fn pods(words: &str) -> (Vec<Arc<Pod>>, PodMetrics) {
    let (mut pods, mut metrics) = (Vec::new(), PodMetrics::new());
    for (index, word) in words.split_whitespace().enumerate() {
        let (state, rest) = word.split_at(1);
        let (used, requested) = rest.split_once('/').unwrap_or((rest, "1000"));
        let name = format!("p{index}");
        if let Ok(value) = used.parse() {
            let metric = PodMetric { timestamp: now(), window: Duration::from_mins(1), value };
            metrics.insert(name.clone(), metric);
        }
        if state == "x" {
            continue;
        }
        let phase = match state {
            "p" => "Pending",
            "f" => "Failed",
            _ => "Running",
        };
        let started = if matches!(state, "h" | "H") { "2026-01-01T00:59:30Z" } else { "2026-01-01T00:00:00Z" };
        let ready = if matches!(state, "u" | "H") { "False" } else { "True" };
        let mut pod = json!({
            "metadata": {"name": name},
            "spec": {"containers": [{"name": "c", "resources": {"requests": {"cpu": format!("{requested}m")}}}]},
            "status": {"phase": phase, "startTime": started, "conditions":
                [{"type": "Ready", "status": ready, "lastTransitionTime": started}]},
        });
        if state == "d" {
            pod["metadata"]["deletionTimestamp"] = json!(started);
        }
        pods.push(Arc::new(serde_json::from_value(pod).unwrap()));
    }
    (pods, metrics)
}

fn tolerances((scale_down, scale_up): (f64, f64)) -> Tolerances {
    Tolerances { scale_down, scale_up }
}

fn show(proposal: Result<Proposal, String>) -> String {
    match proposal {
        Ok(Proposal { replicas, usage, utilization: Some(percent) }) => format!("{replicas} {percent}% {usage}"),
        Ok(Proposal { replicas, usage, utilization: None }) => format!("{replicas} {usage}"),
        Err(error) => error,
    }
}

#[test]
fn by_utilization() {
    let within = |allowed: (f64, f64), percent: i32, words: &str, current: i32, expected: &str| {
        let (pods, metrics) = pods(words);
        let target = Target::Utilization { percent, container: "" };
        let found = by_pods(metrics, &pods, "cpu", target, current, tolerances(allowed), now());
        assert_eq!(show(found), expected, "{percent}% {words}");
    };
    let check = |percent, words, current, expected| within(TOLERANCES, percent, words, current, expected);
    check(100, "r- x100", 1, "no metrics returned matched known pods");
    check(30, "", 1, "no pods returned by selector while calculating replica count");
    check(30, "f1", 1, "did not receive metrics for targeted pods (pods might be unready)");
    // More.
    check(30, "r300 r500 r700", 3, "5 50% 500");
    check(30, "u300 r500 r700", 3, "4 60% 600");
    check(30, "h300 r500 r700", 3, "4 60% 600");
    check(30, "r400 u500 u700", 3, "3 40% 400");
    check(30, "r400 H500 H700", 3, "3 40% 400");
    check(30, "r500 r700 f- f-", 2, "4 60% 600");
    check(30, "r500 r700 d- d-", 2, "4 60% 600");
    check(100, "r4000 r9500 r3000 r7000 x3200 x2000", 4, "24 587% 5875");
    // Fewer.
    check(50, "r100 r300 r500 r250 r250", 5, "3 28% 280");
    check(50, "r100 r300 r500 u250 u250", 5, "2 30% 300");
    check(50, "r100 r300 r500 h250 h250", 5, "2 30% 300");
    check(50, "r100 p- p- p- p-", 5, "1 10% 100");
    check(50, "r100 r300 r500 r250 r250 f- f-", 5, "3 28% 280");
    check(50, "r100 r300 r500 r250 r250 d- d-", 5, "3 28% 280");
    // As many.
    check(100, "r1010/900 r1030/1000 r1020/1100", 3, "3 102% 1020");
    let spread = "r150/400 r150/200 r150/310 r150/290 r150/302 r150/298 r150/301 r150/299 r150/300 r150/300";
    check(56, spread, 10, "9 50% 150");
    check(55, spread, 10, "10 50% 150");
    // Without some measurements.
    check(100, "r400 r95 r- r-", 4, "3 24% 247");
    check(100, "r1000 r-", 2, "2 100% 1000");
    check(100, "r1900 r-", 2, "2 190% 1900");
    check(100, "r600 r-", 2, "2 60% 600");
    check(50, "u100 r450 r-", 3, "3 45% 450");
    check(50, "h100 r450 r-", 3, "3 45% 450");
    check(50, "u100 r2000 r-", 3, "4 200% 2000");
    check(50, "H100 r2000 r-", 3, "4 200% 2000");
    check(50, "u100 r100 r100 r-", 4, "3 10% 100");
    check(300, "u200 r100 r100/2000 r-/2000", 4, "2 6% 100");
    check(50, "r100 r100 r-", 2, "2 10% 100");
    // With tolerances of its own, down and up.
    within((0.0, 0.0), 100, "r909/900 r1010 r1111/1100", 3, "4 101% 1010");
    within((0.1, 2.0), 100, "r1890/900 r1910 r1900/1100", 3, "3 190% 1900");
    within((2.0, 0.08), 100, "r1100/900 r1080 r1090/1100", 3, "4 109% 1090");
    within((0.36, 0.1), 100, "r660/900 r640 r650/1100", 3, "3 65% 650");
    within((0.34, 0.1), 100, "r660/900 r640 r650/1100", 3, "2 65% 650");
}

/// Whether a pod is ready says nothing about what it does, except for CPU.
#[test]
fn by_usage() {
    let within = |allowed: (f64, f64), target: i64, words: &str, current: i32, expected: &str| {
        let (pods, metrics) = pods(words);
        let found = by_pods(metrics, &pods, "", Target::Usage(target), current, tolerances(allowed), now());
        assert_eq!(show(found), expected, "{target} {words}");
    };
    let check = |target, words, current, expected| within(TOLERANCES, target, words, current, expected);
    check(15_000, "r20000 r10000 r30000", 3, "4 20000");
    check(15_000, "r50000 r10000 H30000", 3, "6 30000");
    check(15_000, "H50000 r15000 H30000", 3, "7 31666");
    check(4_400, "r8600", 1, "2 8600");
    check(20_000, "r12000 r12000 r12000 r12000 r12000", 5, "3 12000");
    check(20_000, "r20000 r21000 r21000", 3, "3 20666");
    within((0.1, 0.01), 20_000, "r20000 r21000 r21000", 3, "4 20666");
    check(20_000, "r20000 r19000 r21000 r- r-", 5, "5 20000");
    check(17_000, "r10000 r10000 r-", 2, "2 10000");
}

#[test]
fn by_one_number() {
    let within = |allowed: (f64, f64), usage: i64, target: i64, words: &str, current: i32, expected: i32| {
        let (pods, _) = pods(words);
        let found = by_value(usage, target, &pods, current, tolerances(allowed)).unwrap();
        assert_eq!((found.replicas, found.usage), (expected, usage), "{usage} {target} {words}");
    };
    let check = |usage, target, words, current, replicas| within(TOLERANCES, usage, target, words, current, replicas);
    check(20_000, 15_000, "r- r- r-", 3, 4);
    check(50_000, 10_000, "u- r- u-", 3, 5);
    check(8_600, 4_400, "u- r- u-", 3, 2);
    check(12_000, 20_000, "r- r- r- r- r-", 5, 3);
    check(8_600, 14_334, "r- r- r- r- r-", 5, 3);
    check(20_666, 20_000, "r- r- r-", 3, 3);
    check(8_600, 8_888, "r- r- r-", 3, 3);
    check(i64::MAX, 1, "r- r- r-", 3, i32::MAX);
    within((0.1, 0.01), 20_666, 20_000, "r- r- r-", 3, 4);
    within((0.1, 0.01), 8_900, 8_800, "r- r- r-", 3, 4);
    // From nothing, by what is there to do.
    check(0, 1_000, "", 0, 0);
    check(1_500, 1_000, "", 0, 2);
}

#[test]
fn by_one_number_a_pod() {
    let within = |allowed: (f64, f64), usage: i64, target: i64, current: i32, expected: (i32, i64)| {
        let found = by_average(usage, target, current, tolerances(allowed));
        assert_eq!((found.replicas, found.usage), expected, "{usage} {target} {current}");
    };
    let check = |usage, target, current, expected| within(TOLERANCES, usage, target, current, expected);
    check(20_000, 5_000, 3, (4, 6_667));
    check(8_600, 2_150, 3, (4, 2_867));
    check(6_000, 2_000, 5, (3, 1_200));
    check(8_600, 2_867, 5, (3, 1_720));
    check(20_166, 5_000, 4, (4, 5_042));
    check(8_600, 2_900, 3, (3, 2_867));
    check(i64::MAX, 1, 1, (i32::MAX, i64::MAX));
    check(i64::MAX, i64::MAX, 1, (1, i64::MAX));
    within((0.1, 0.01), 20_208, 5_000, 4, (5, 5_052));
    within((0.1, 0.01), 8_600, 2_800, 3, (4, 2_867));
}

/// What the whole pod asks for goes before what its containers do, unless one of those is meant.
#[test]
fn requests_of_whole_pods() {
    let check = |spec: Value, resource: &str, container: &str, expected: &str| {
        let pod: Pod = serde_json::from_value(json!({
            "metadata": {"name": "p"}, "spec": spec, "status": {"phase": "Running", "startTime": "2026-01-01T00:00:00Z",
            "conditions": [{"type": "Ready", "status": "True", "lastTransitionTime": "2026-01-01T00:00:00Z"}]},
        }))
        .unwrap();
        let metric = PodMetric { timestamp: now(), window: Duration::from_mins(1), value: 1_000 };
        let target = Target::Utilization { percent: 100, container };
        let metrics = [("p".to_owned(), metric)].into();
        let found = by_pods(metrics, &[Arc::new(pod)], resource, target, 1, tolerances(TOLERANCES), now());
        assert_eq!(show(found), expected, "{spec} {resource} {container}");
    };
    let container = |name: &str, requests: Value| json!({"name": name, "resources": {"requests": requests}});
    let whole = json!({"resources": {"requests": {"cpu": "2"}}, "containers": [container("c", json!({"cpu": "1"}))]});
    check(whole.clone(), "cpu", "", "1 50% 1000");
    check(whole.clone(), "cpu", "c", "1 100% 1000");
    check(whole.clone(), "memory", "", "missing pod-level request for memory in Pod p");
    let also = json!({"resources": {"requests": {"cpu": "2"}}, "overhead": {"cpu": "500m"}, "containers":
        [container("a", json!({"memory": "1"})), container("b", json!({"memory": "1"}))]});
    check(also.clone(), "cpu", "", "1 40% 1000");
    check(also, "memory", "", "1 50% 1000");
    let sidecar = json!({"containers": [container("c", json!({"cpu": "1"}))], "initContainers": [
        {"name": "s", "restartPolicy": "Always", "resources": {"requests": {"cpu": "1"}}}, container("i", json!({}))]});
    check(sidecar.clone(), "cpu", "", "1 50% 1000");
    check(sidecar.clone(), "cpu", "s", "1 100% 1000");
    check(sidecar, "cpu", "i", "container i not found in Pod p");
    let bare = json!({"containers": [container("c", json!({}))]});
    check(bare, "cpu", "", "missing request for cpu in container c of Pod p");
}

fn at(seconds: u64) -> Moment {
    Moment(Duration::from_secs(seconds))
}

/// Policies for pods and percent, each with its period, if it has one, and a window.
fn rules(pods: (i32, i32), percent: (i32, i32), window: i32) -> Value {
    let policy =
        |kind: &str, (value, period): (i32, i32)| json!({"type": kind, "value": value, "periodSeconds": period});
    let policies = [("Pods", pods), ("Percent", percent)].into_iter().filter(|(_, (value, _))| *value != 0);
    let policies: Vec<_> = policies.map(|(kind, of)| policy(kind, of)).collect();
    json!({"stabilizationWindowSeconds": window, "selectPolicy": "Max", "policies": policies})
}

/// What an autoscaler has that says nothing.
fn behavior(up: Option<Value>, down: Option<Value>) -> HorizontalPodAutoscalerBehavior {
    let up = up.unwrap_or_else(|| rules((4, 15), (100, 15), 0));
    let down = down.unwrap_or_else(|| rules((0, 0), (100, 15), 300));
    serde_json::from_value(json!({"scaleUp": up, "scaleDown": down})).unwrap()
}

/// A history in which so much was added and removed, evenly in the last two minutes.
fn history(ups: &[i32], downs: &[i32]) -> History {
    let long = behavior(Some(rules((1, 9_999), (0, 0), 0)), Some(rules((1, 9_999), (0, 0), 0)));
    let mut all: Vec<(u64, i32)> = Vec::new();
    for (changes, sign) in [(ups, 1), (downs, -1)] {
        let segment = 120.0 / changes.len().max(1) as f64;
        for (index, change) in changes.iter().enumerate() {
            all.push(((1_000.0 - 120.0 + segment * (index as f64 + 0.5)) as u64, change * sign));
        }
    }
    all.sort_unstable();
    let mut history = History::default();
    for (time, change) in all {
        history.scaled(1_000, 1_000 + change, Some(&long), at(time));
    }
    history
}

#[test]
fn growth_and_shrinking_by_rules() {
    type Rules = Option<Value>;
    let check = |changes: (&[i32], &[i32]),
                 (up, down): (Rules, Rules),
                 wish: (i32, i32, i32, i32),
                 expected: (i32, &str)| {
        let (min, max, current, desired) = wish;
        let behavior = behavior(up, down);
        let found =
            history(changes.0, changes.1).normalize(Wish { current, desired, min, max }, Some(&behavior), at(1_000));
        assert_eq!((found.replicas, found.limited.1), expected, "{behavior:?} {wish:?}");
    };
    let none: (&[i32], &[i32]) = (&[], &[]);
    let (within, most, least) = ("DesiredWithinRange", "TooManyReplicas", "TooFewReplicas");
    let (up, down) = ("ScaleUpLimit", "ScaleDownLimit");
    let pods = |count, period, window| Some(rules((count, period), (0, 0), window));
    let percent = |part, period, window| Some(rules((0, 0), (part, period), window));
    check(none, (None, None), (3, 8, 5, 7), (7, within));
    check(none, (None, None), (2, 8, 3, 1), (2, least));
    check(none, (None, None), (0, 10, 1, 0), (0, within));
    check(none, (None, None), (1, 10, 20, 1_000), (10, most));
    check(none, (None, None), (100, 150, 100, 1_000), (150, most));
    check(none, (percent(1, 60, 0), None), (1, 2_000, 3, 1_000), (4, up));
    check(none, (None, pods(20, 60, 0)), (3, 2_000, 1_000, 3), (980, down));
    check(none, (None, None), (1, 1_000, 10, 50), (20, up));
    check(none, (Some(rules((100, 60), (100, 60), 0)), None), (1, 1_000, 10, 500), (110, up));
    check(none, (Some(rules((2, 60), (100, 60), 0)), None), (1, 1_000, 10, 500), (20, up));
    check(none, (pods(100, 60, 0), None), (1, 1_000, 10, 50), (50, within));
    check(none, (pods(30, 60, 0), None), (1, 1_000, 10, 50), (40, up));
    check(none, (percent(200, 60, 0), None), (1, 1_000, 10, 50), (30, up));
    check(none, (None, Some(rules((20, 60), (1, 60), 300))), (1, 1_000, 100, 2), (80, down));
    check(none, (None, Some(rules((2, 60), (1, 60), 300))), (1, 1_000, 100, 2), (98, down));
    check(none, (None, pods(100, 60, 300)), (1, 1_000, 10, 0), (1, least));
    check(none, (None, percent(100, 60, 300)), (5, 1_000, 10, 2), (5, least));
    check(none, (None, pods(5, 60, 300)), (1, 1_000, 10, 2), (5, down));
    check(none, (None, percent(50, 60, 300)), (1, 1_000, 10, 5), (5, within));
    // What was done in the period counts.
    let grown: (&[i32], &[i32]) = (&[1, 5, 9], &[]);
    check(grown, (pods(300, 60, 0), None), (1, 200, 100, 500), (200, most));
    check(grown, (percent(10_000, 60, 0), None), (1, 200, 100, 500), (200, most));
    check(grown, (pods(5, 120, 0), None), (1, 1_000, 100, 500), (100, up));
    check(grown, (pods(150, 120, 0), None), (1, 1_000, 100, 500), (235, up));
    check(grown, (percent(200, 120, 0), None), (1, 1_000, 100, 500), (255, up));
    check((&[4], &[2]), (percent(300, 300, 0), None), (1, 1_000, 6, 24), (16, up));
    let shrunk: (&[i32], &[i32]) = (&[], &[1, 5, 9]);
    check(shrunk, (None, None), (1, 1_000, 10, 5), (5, within));
    check(shrunk, (None, pods(115, 120, 300)), (1, 1_000, 100, 0), (1, least));
    check(shrunk, (None, pods(130, 120, 300)), (5, 1_000, 100, 0), (5, least));
    check(shrunk, (None, percent(100, 120, 300)), (5, 1_000, 100, 2), (5, least));
    check(shrunk, (None, pods(5, 120, 300)), (1, 1_000, 100, 2), (100, down));
    check((&[], &[2, 4, 6]), (None, percent(50, 120, 300)), (1, 1_000, 100, 0), (56, down));
    check((&[2], &[4]), (None, percent(50, 180, 0)), (1, 1_000, 10, 1), (6, down));
    check((&[], &[10, 10, 10]), (None, percent(10, 120, 300)), (1, 1_000, 100, 0), (100, down));
    check((&[], &[10, 10, 10]), (None, percent(1_000, 120, 300)), (1, 1_000, 10, 5), (5, within));
    // The smaller change, if that is asked for, and none.
    let least_change = |rules: Value| {
        let mut rules = rules;
        rules["selectPolicy"] = json!("Min");
        Some(rules)
    };
    check(none, (least_change(rules((2, 60), (50, 60), 0)), None), (1, 100, 1, 50), (2, up));
    check(none, (None, least_change(rules((2, 60), (50, 60), 0))), (1, 100, 5, 1), (3, down));
    let off = || Some(json!({"selectPolicy": "Disabled", "stabilizationWindowSeconds": 0}));
    check(none, (off(), None), (1, 100, 5, 50), (5, up));
    check(none, (None, off()), (1, 100, 5, 1), (5, down));
}

#[test]
fn recent_recommendations_hold() {
    let check = |minutes: &[(i32, u64)], windows: Option<(i32, i32)>, (current, desired): (i32, i32), expected: i32| {
        let mut history = History::default();
        // As if each had been what was recommended then, without a rule that would have changed it.
        let mut all: Vec<_> = minutes.to_vec();
        all.sort_by_key(|(_, ago)| std::cmp::Reverse(*ago));
        let keep = behavior(Some(rules((1, 1), (0, 0), 99_999)), Some(rules((1, 1), (0, 0), 99_999)));
        for (replicas, ago) in all {
            let wish = Wish { current: replicas, desired: replicas, min: 0, max: 1_000 };
            history.normalize(wish, Some(&keep), at(10_000 - ago * 60));
        }
        let wide = |window| rules((10_000, 60), (0, 0), window);
        let behavior = windows.map(|(up, down)| behavior(Some(wide(up)), Some(wide(down))));
        let wish = Wish { current, desired, min: 0, max: 1_000 };
        let found = history.normalize(wish, behavior.as_ref(), at(10_000));
        assert_eq!(found.replicas, expected, "{minutes:?} {windows:?} {current} {desired}");
    };
    // Without a behaviour the highest of five minutes.
    check(&[], None, (100, 5), 5);
    check(&[(4, 2), (5, 1)], None, (100, 3), 5);
    check(&[(1, 2), (2, 1)], None, (100, 3), 3);
    check(&[(10, 10), (9, 9)], None, (100, 3), 3);
    check(&[(10, 10), (4, 1), (5, 2), (9, 9)], None, (100, 3), 5);
    // With one by its windows, up and down.
    check(&[], Some((0, 0)), (100, 5), 5);
    check(&[(4, 2), (5, 1)], Some((0, 180)), (100, 3), 5);
    check(&[(4, 2), (5, 1)], Some((300, 0)), (1, 7), 4);
    check(&[(1, 2), (2, 1)], Some((300, 0)), (100, 3), 3);
    check(&[(4, 2), (5, 1)], Some((0, 300)), (1, 3), 3);
    check(&[(10, 10), (9, 9)], Some((0, 0)), (100, 3), 3);
    check(&[(10, 10), (9, 9)], Some((0, 0)), (1, 100), 100);
    check(&[(10, 10), (4, 1), (5, 2), (9, 9)], Some((0, 180)), (100, 3), 5);
    check(&[(10, 100), (6, 1), (5, 2), (9, 3)], Some((300, 0)), (1, 100), 5);
    check(&[(2, 100), (3, 3)], Some((300, 300)), (2, 1), 2);
    check(&[(2, 100), (1, 3)], Some((300, 300)), (2, 3), 2);
}
