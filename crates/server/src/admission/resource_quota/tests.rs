//! Reservations under concurrency, and that counting anew gives what was reserved.

use capstan_api::{Map, Quantity, Time, Value, json};
use proptest::prelude::*;

use super::{
    super::{
        golden::{Case, POLICY, Stored, group_resource, lines, run},
        pod_security::PodSecurity,
    },
    QuotaUpdate, quotas, usage,
};
use crate::{admission::resources, objects::Objects, validation::read::at};

fn parse(text: &str) -> Value {
    json::parse(text.as_bytes()).expect("JSON")
}

/// A pod with this request, as a case.
fn pod(name: &str, cpu: u16) -> Case {
    Case(parse(&format!(
        r#"{{"operation": "Create", "resource": "pods", "kind": "Pod", "namespace": "ns", "object_name": "{name}",
        "object": {{"metadata": {{"name": "{name}", "namespace": "ns"}}, "spec": {{"containers": [
        {{"name": "a", "resources": {{"requests": {{"cpu": "{cpu}m"}}}}}}]}}}}}}"#
    )))
}

fn store(quotas: &[(&str, u16)]) -> Stored {
    let mut stored = Stored::default();
    stored.insert("namespaces", &parse(r#"{"metadata": {"name": "ns"}}"#), 1);
    for (name, cpu) in quotas {
        let lists = format!(r#""hard": {{"cpu": "{cpu}m"}}"#);
        let quota = format!(
            r#"{{"metadata": {{"name": "{name}", "namespace": "ns"}}, "spec": {{{lists}}},
            "status": {{{lists}, "used": {{"cpu": "0"}}}}}}"#
        );
        stored.insert("resourcequotas", &parse(&quota), 1);
    }
    stored
}

/// Writes the object and the quotas, if the quotas still are what the reservation was computed from.
fn commit(stored: &mut Stored, case: &Case, updates: &[QuotaUpdate], revision: u64) -> bool {
    let current = quotas(stored, "ns");
    let name = |quota: &Map| at(quota, "metadata").get("name").and_then(Value::as_str).expect("a name").to_owned();
    let fresh = |update: &QuotaUpdate| {
        current.iter().any(|quota| quota.name() == name(&update.quota) && quota.revision == update.revision)
    };
    if !updates.iter().all(fresh) {
        return false;
    }
    for update in updates {
        stored.insert("resourcequotas", &update.quota.clone().into(), revision);
    }
    stored.insert("pods", case.0.get("object").expect("an object"), revision);
    true
}

fn used(stored: &Stored, name: &str) -> Quantity {
    let quota = stored.get(&group_resource("resourcequotas"), "ns", name).expect("a quota");
    let quota = json::parse(&quota.json).expect("JSON");
    resources::read(at(quota.as_object().expect("an object"), "status"), "used").remove("cpu").expect("cpu")
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(64))]

    /// Writers read at one time and commit at another, in any order; who comes too late computes anew.
    #[test]
    fn nothing_is_overshot_and_nothing_is_lost(
        requests in prop::collection::vec(1_u16..400, 1..12),
        hard in prop::collection::vec(1_u16..1500, 1..3),
        order in prop::collection::vec(any::<prop::sample::Index>(), 1..80),
    ) {
        let names = ["q0", "q1", "q2"];
        let hard: Vec<_> = names.into_iter().zip(hard).collect();
        let mut stored = store(&hard);
        let cases: Vec<_> = requests.iter().enumerate().map(|(at, cpu)| pod(&format!("p{at}"), *cpu)).collect();
        let mut pending: Vec<_> = cases.iter().map(|case| (case, None::<Vec<QuotaUpdate>>)).collect();
        let mut revision = 1;
        for step in order {
            if pending.is_empty() {
                break;
            }
            let at_ = step.index(pending.len());
            let (case, reserved) = &mut pending[at_];
            match reserved.take() {
                None => match run(case, &stored, &PodSecurity::default()).result {
                    Ok(updates) => {
                        prop_assert_eq!(updates.len(), hard.len());
                        *reserved = Some(updates);
                    }
                    Err(_) => {
                        pending.remove(at_);
                    }
                },
                Some(updates) => {
                    revision += 1;
                    if commit(&mut stored, case, &updates, revision) {
                        pending.remove(at_);
                    }
                }
            }
        }
        for (name, cpu) in &hard {
            let used = used(&stored, name);
            let limit: Quantity = format!("{cpu}m").parse().expect("a quantity");
            prop_assert!(used <= limit);
            let mut sum = Quantity::default();
            for pod in stored.list(&group_resource("pods"), "ns") {
                let at: usize = pod.name()[1..].parse().expect("a number");
                sum.add(&format!("{}m", requests[at]).parse().expect("a quantity"));
            }
            prop_assert_eq!(&used, &sum);
            let quota = stored.get(&group_resource("resourcequotas"), "ns", name).expect("a quota");
            let quota = json::parse(&quota.json).expect("JSON");
            let anew = usage(&stored, quota.as_object().expect("an object"), Time::from_unix(0, 0));
            prop_assert_eq!(anew.get("cpu").and_then(Value::as_str), Some(&*sum.to_string()));
        }
    }
}

/// For every object that upstream admitted into an empty namespace, counting it gives what upstream reserved.
#[test]
fn counting_anew_gives_what_was_reserved() {
    let mut counted = 0;
    for case in lines(POLICY) {
        let Some(theirs) = case.object("used").filter(|_| case.0.get("status").is_none()) else { continue };
        let is_dry = case.0.get("dry_run").and_then(Value::as_bool) == Some(true);
        let mut stored = case.stored();
        let before: Vec<_> =
            quotas(&stored, "ns").iter().map(|quota| json::parse(&quota.json).expect("JSON")).collect();
        let is_unused = |quota: &Value| {
            let used = resources::read(at(quota.as_object().expect("an object"), "status"), "used");
            !used.is_empty() && used.values().all(Quantity::is_zero)
        };
        if is_dry || case.text("operation") != "Create" || !before.iter().all(is_unused) {
            continue;
        }
        let object = run(&case, &stored, &PodSecurity::default()).object;
        stored.insert(case.text("resource"), &object.into(), 99);
        for quota in &before {
            let quota = quota.as_object().expect("an object");
            let name = at(quota, "metadata").get("name").and_then(Value::as_str).expect("a name");
            let anew = Map::from_iter([("used".into(), usage(&stored, quota, Time::from_unix(0, 0)).into())]);
            let theirs = Map::from_iter([("used".into(), theirs.get(name).cloned().expect("used"))]);
            let [anew, theirs] = [anew, theirs].map(|map| resources::read(&map, "used"));
            let anew: Vec<_> = anew.iter().filter(|(name, _)| theirs.contains_key(*name)).collect();
            assert_eq!(
                anew,
                theirs.iter().filter(|(name, _)| **name != "count/events").collect::<Vec<_>>(),
                "{}",
                case.text("name")
            );
            counted += 1;
        }
    }
    assert!(counted > 25, "only {counted} were counted");
}

/// What pods that have ended, or should have, still use.
#[test]
fn pods_that_ended_keep_their_place_only() {
    let check = |more: &str, cpu: &str, now: i64| {
        let mut stored = store(&[("q", 1000)]);
        let pod = format!(
            r#"{{"metadata": {{"name": "p", "namespace": "ns" {more}, "spec": {{"containers": [
            {{"name": "a", "resources": {{"requests": {{"cpu": "1"}}}}}}]}}}}"#
        );
        stored.insert("pods", &parse(&pod), 2);
        let quota = parse(
            r#"{"metadata": {"name": "q", "namespace": "ns"}, "spec": {"hard": {"cpu": "1", "pods": "1", "count/pods": "1"}}}"#,
        );
        let used = usage(&stored, quota.as_object().expect("an object"), Time::from_unix(now, 0));
        let amount = |name| used.get(name).and_then(Value::as_str).map(str::to_owned);
        assert_eq!(amount("cpu").as_deref(), Some(cpu), "{more}");
        assert_eq!(amount("count/pods").as_deref(), Some("1"), "{more}");
    };
    check("}", "1", 0);
    check(r#"}, "status": {"phase": "Failed"}"#, "0", 0);
    check(r#"}, "status": {"phase": "Succeeded"}"#, "0", 0);
    check(r#"}, "status": {"phase": "Running"}"#, "1", 0);
    let deleted = r#", "deletionTimestamp": "1970-01-01T00:01:00Z", "deletionGracePeriodSeconds": 30}"#;
    check(deleted, "1", 90);
    check(deleted, "0", 91);
}
