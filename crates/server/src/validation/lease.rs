//! Leases.

use capstan_api::{
    Map,
    field::{Error, ErrorList, Path},
    validation::is_qualified_name,
};

use super::{
    read::{at, int, text},
    rules::{invalid, nonnegative},
};

pub(super) fn lease(lease: &Map, errors: &mut ErrorList) {
    let path = Path::new("spec");
    let spec = at(lease, "spec");
    if let Some(seconds) = int(spec, "leaseDurationSeconds").filter(|seconds| *seconds <= 0) {
        errors.push(Error::invalid(path.child("leaseDurationSeconds"), seconds, "must be greater than 0"));
    }
    nonnegative(errors, spec, &["leaseTransitions"], &path);
    let strategy = text(spec, "strategy");
    if super::read::is_set(spec, "strategy") {
        // Told with the field's name twice, as upstream does.
        let path = path.child("strategy");
        let path = path.child("strategy");
        if strategy.contains('/') {
            invalid(errors, &path, strategy, is_qualified_name(strategy));
        } else if strategy != "OldestEmulationVersion" {
            errors.push(Error::not_supported(path, strategy, &["OldestEmulationVersion"]));
        }
    }
    if !text(spec, "preferredHolder").is_empty() && strategy.is_empty() {
        let detail = "may only be specified if `strategy` is defined";
        errors.push(Error::forbidden(path.child("preferredHolder"), detail));
    }
}
