//! What pods are made from: templates and the objects that have them.

use capstan_api::{Map, field::Path};

use super::{
    pod::{name_of_hosts, template},
    storage::claim_spec,
};
use crate::validation::read;

const USED: &str = "this is used in Pod names and hostnames";
/// An indexed job with more completions and more parallelism than these might lose track.
const COMPLETIONS: i64 = 100_000;
const PARALLELISM: i64 = 10_000;

fn generation(object: &Map) -> Option<i64> {
    read::int(read::at(object, "metadata"), "generation")
}

fn changed(object: &Map, old: Option<&Map>) -> bool {
    old.is_none_or(|old| generation(old) != generation(object))
}

fn template_of(object: &Map) -> &Map {
    read::at(read::at(object, "spec"), "template")
}

fn spec_template(object: &Map, out: &mut Vec<String>) {
    template(template_of(object), &Path::new("spec").child("template"), out);
}

/// Deployments and replica sets.
pub(super) fn replicated(object: &Map, old: Option<&Map>, out: &mut Vec<String>) {
    if old.is_none() {
        name_of_hosts(object, USED, out);
    }
    if changed(object, old) {
        spec_template(object, out);
    }
}

/// As the others, but that an update is about the template that was there before.
pub(super) fn replication_controller(object: &Map, old: Option<&Map>, out: &mut Vec<String>) {
    if old.is_none() {
        name_of_hosts(object, USED, out);
    }
    if changed(object, old) {
        spec_template(old.unwrap_or(object), out);
    }
}

pub(super) fn daemon_set(object: &Map, old: Option<&Map>, out: &mut Vec<String>) {
    if old.is_none_or(|old| template_of(old) != template_of(object)) {
        spec_template(object, out);
    }
}

pub(super) fn stateful_set(object: &Map, old: Option<&Map>, out: &mut Vec<String>) {
    if changed(object, old) {
        spec_template(object, out);
    }
    let spec = read::at(object, "spec");
    let path = Path::new("spec");
    let path = path.child("volumeClaimTemplates");
    for (i, claim) in read::objects(spec, "volumeClaimTemplates") {
        let path = path.index(i);
        // Upstream names the place differently on updates.
        let path = if old.is_some() { path.child("Spec") } else { path };
        claim_spec(read::at(claim, "spec"), &path, out);
    }
    if read::int(spec, "revisionHistoryLimit").is_some_and(|limit| limit < 0) {
        out.push(
            "spec.revisionHistoryLimit: a negative value retains all historical revisions; a value >= 0 is recommended"
                .to_owned(),
        );
    }
}

pub(super) fn pod_template(object: &Map, old: Option<&Map>, out: &mut Vec<String>) {
    if changed(object, old) {
        template(read::at(object, "template"), &Path::new("template"), out);
    }
}

fn job_spec(spec: &Map, path: &Path<'_>, out: &mut Vec<String>) {
    let number = |key| read::int(spec, key).unwrap_or(0);
    if read::text(spec, "completionMode") == "Indexed"
        && number("completions") > COMPLETIONS
        && number("parallelism") > PARALLELISM
    {
        out.push(format!(
            "{path}: In Indexed Jobs with a number of completions higher than 10^5 and a parallelism higher than 10^4, \
             Kubernetes might not be able to track completedIndexes when a big number of indexes fail"
        ));
    }
    template(read::at(spec, "template"), &path.child("template"), out);
}

pub(super) fn job(object: &Map, old: Option<&Map>, out: &mut Vec<String>) {
    if old.is_none() {
        name_of_hosts(object, USED, out);
    }
    if changed(object, old) {
        job_spec(read::at(object, "spec"), &Path::new("spec"), out);
    }
}

pub(super) fn cron_job(object: &Map, old: Option<&Map>, out: &mut Vec<String>) {
    if old.is_none() {
        name_of_hosts(object, USED, out);
    }
    let spec = read::at(object, "spec");
    if changed(object, old) {
        let path = Path::new("spec");
        let path = path.child("jobTemplate");
        job_spec(read::at(read::at(spec, "jobTemplate"), "spec"), &path.child("spec"), out);
    }
    if old.is_some() && read::text(spec, "schedule").contains("TZ") {
        out.push(
            "cannot use TZ or CRON_TZ in spec.spec.schedule, use timeZone instead, see \
             https://kubernetes.io/docs/concepts/workloads/controllers/cron-jobs/ for more details"
                .to_owned(),
        );
    }
}
