//! Disruption budgets.

use capstan_api::{
    Map,
    field::{Error, ErrorList, Path},
    selector::LabelSelector,
};

use super::{
    apps::{at_most_all, count_or_percent},
    read::{at, is_set, object, text},
    rules::show_selector,
    show::json,
};

pub(super) fn budget(budget: &Map, errors: &mut ErrorList) {
    let path = Path::new("spec");
    let spec = at(budget, "spec");
    let counts = ["minAvailable", "maxUnavailable"];
    if counts.iter().all(|key| is_set(spec, key)) {
        let of = |key: &str| spec.get(key).map_or_else(|| "null".to_owned(), json);
        let shown = format!(
            r#"{{"MinAvailable":{},"Selector":{},"MaxUnavailable":{},"UnhealthyPodEvictionPolicy":{}}}"#,
            of("minAvailable"),
            show_selector(object(spec, "selector")),
            of("maxUnavailable"),
            of("unhealthyPodEvictionPolicy"),
        );
        let detail = "minAvailable and maxUnavailable cannot be both set";
        errors.push(Error::invalid_shown(path, shown, detail));
    }
    for key in counts.iter().filter(|key| is_set(spec, key)) {
        count_or_percent(spec, key, &path, errors);
        at_most_all(spec, key, &path, errors);
    }
    errors.extend(LabelSelector::from_map(at(spec, "selector")).validate(&path.child("selector")));
    let policy = text(spec, "unhealthyPodEvictionPolicy");
    let known = ["AlwaysAllow", "IfHealthyBudget"];
    if is_set(spec, "unhealthyPodEvictionPolicy") && !known.contains(&policy) {
        errors.push(Error::not_supported(path.child("unhealthyPodEvictionPolicy"), policy, &known));
    }
}
