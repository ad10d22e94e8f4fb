//! Leases. The fields of coordinated elections are not enabled, so nothing is said of them.

use capstan_api::{
    Map,
    field::{Error, ErrorList, Path},
};

use super::{
    read::{at, int},
    rules::nonnegative,
};

pub(super) fn lease(lease: &Map, errors: &mut ErrorList) {
    let path = Path::new("spec");
    let spec = at(lease, "spec");
    if let Some(seconds) = int(spec, "leaseDurationSeconds").filter(|seconds| *seconds <= 0) {
        errors.push(Error::invalid(path.child("leaseDurationSeconds"), seconds, "must be greater than 0"));
    }
    nonnegative(errors, spec, &["leaseTransitions"], &path);
}
