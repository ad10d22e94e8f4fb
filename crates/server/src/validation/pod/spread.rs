//! How pods spread over the parts of a cluster.

use std::collections::BTreeMap;

use capstan_api::{
    Map,
    field::{Error, ErrorList, Path},
    selector::LabelSelector,
};

use super::affinity::label_keys;
use crate::validation::read::{at, int, is_set, objects, text};

const POSITIVE: &str = "must be greater than zero";

pub(super) fn validate(spec: &Map, path: &Path<'_>, errors: &mut ErrorList) {
    let path = path.child("topologySpreadConstraints");
    let last_of: BTreeMap<_, _> = objects(spec, "topologySpreadConstraints")
        .map(|(i, constraint)| ((text(constraint, "topologyKey"), text(constraint, "whenUnsatisfiable")), i))
        .collect();
    for (i, constraint) in objects(spec, "topologySpreadConstraints") {
        let path = path.index(i);
        let skew = int(constraint, "maxSkew").unwrap_or(0);
        if skew <= 0 {
            errors.push(Error::invalid(path.child("maxSkew"), skew, POSITIVE));
        }
        let [key, action] = ["topologyKey", "whenUnsatisfiable"].map(|key| text(constraint, key));
        if key.is_empty() {
            errors.push(Error::required(path.child("topologyKey"), "can not be empty"));
        }
        let actions = ["DoNotSchedule", "ScheduleAnyway"];
        if !actions.contains(&action) {
            errors.push(Error::not_supported(path.child("whenUnsatisfiable"), action, &actions));
        }
        let last = last_of.get(&(key, action)).copied();
        if last.is_some_and(|last| last > i) {
            let place = path.child("{topologyKey, whenUnsatisfiable}");
            errors.push(Error::duplicate(place, format!("{{{key}, {action}}}")));
        }
        if let Some(domains) = int(constraint, "minDomains") {
            let path = path.child("minDomains");
            if domains <= 0 {
                errors.push(Error::invalid(path, domains, POSITIVE));
            }
            if action != "DoNotSchedule" {
                let detail = format!("can only use minDomains if whenUnsatisfiable=DoNotSchedule, not {action}");
                errors.push(Error::invalid(path, domains, detail));
            }
        }
        for key in ["nodeAffinityPolicy", "nodeTaintsPolicy"] {
            let known = ["Honor", "Ignore"];
            if is_set(constraint, key) && !known.contains(&text(constraint, key)) {
                errors.push(Error::not_supported(path.child(key), text(constraint, key), &known));
            }
        }
        label_keys(constraint, &path, errors);
        errors.extend(LabelSelector::from_map(at(constraint, "labelSelector")).validate(&path.child("labelSelector")));
    }
}
