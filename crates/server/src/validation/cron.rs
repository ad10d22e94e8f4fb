//! Cron jobs.

use capstan_api::{
    Map,
    field::{Error, ErrorList, Path},
};

use super::{
    job,
    read::{at, flag, is_set, object, text},
    rules::{nonnegative, one_of, show_selector},
    schedule::{is_zone, schedule_error},
};

const SPEC: Path<'static> = Path::new("spec");
/// The names of a cron job's jobs have eleven more characters.
const MAX_NAME: usize = 52;
/// The longest part of the name of a time zone.
const MAX_ZONE_PART: usize = 14;

pub(super) fn cron_job(cron: &Map, errors: &mut ErrorList) {
    spec(at(cron, "spec"), None, errors);
    let name = text(at(cron, "metadata"), "name");
    if name.len() > MAX_NAME {
        let detail = format!("must be no more than {MAX_NAME} characters");
        errors.push(Error::invalid("metadata.name", name, detail));
    }
}

pub(super) fn update(new: &Map, old: &Map, errors: &mut ErrorList) {
    spec(at(new, "spec"), Some(at(old, "spec")), errors);
}

fn spec(spec: &Map, old: Option<&Map>, errors: &mut ErrorList) {
    match text(spec, "schedule") {
        "" => errors.push(Error::required(SPEC.child("schedule"), "")),
        schedule => schedule_format(schedule, spec, old, errors),
    }
    nonnegative(errors, spec, &["startingDeadlineSeconds"], &SPEC);
    if is_set(spec, "timeZone") && old.is_none_or(|old| old.get("timeZone") != spec.get("timeZone")) {
        time_zone(text(spec, "timeZone"), errors);
    }
    one_of(errors, spec, "concurrencyPolicy", &SPEC, &["Allow", "Forbid", "Replace"]);
    let path = SPEC.child("jobTemplate");
    let path = path.child("spec");
    let template = at(at(spec, "jobTemplate"), "spec");
    job::spec(template, &path, errors);
    if let Some(selector) = object(template, "selector") {
        let detail = "`selector` will be auto-generated";
        errors.push(Error::invalid_shown(path.child("selector"), show_selector(Some(selector)), detail));
    }
    if flag(template, "manualSelector") {
        errors.push(Error::not_supported(path.child("manualSelector"), true, &["nil", "false"]));
    }
    nonnegative(errors, spec, &["successfulJobsHistoryLimit", "failedJobsHistoryLimit"], &SPEC);
}

fn schedule_format(schedule: &str, spec: &Map, old: Option<&Map>, errors: &mut ErrorList) {
    let mut wrong = |detail: String| errors.push(Error::invalid(SPEC.child("schedule"), schedule, detail));
    if let Some(error) = schedule_error(schedule) {
        wrong(error);
    }
    // What has a zone in its schedule may keep it.
    let zoned = |schedule: &str| schedule.contains("TZ");
    match (zoned(schedule), old.is_some_and(|old| zoned(text(old, "schedule")))) {
        (true, true) if is_set(spec, "timeZone") => {
            wrong("cannot use both timeZone field and TZ or CRON_TZ in schedule".to_owned());
        }
        (true, false) => wrong("cannot use TZ or CRON_TZ in schedule, use timeZone field instead".to_owned()),
        _ => {}
    }
}

fn time_zone(zone: &str, errors: &mut ErrorList) {
    let mut wrong = |detail: String| errors.push(Error::invalid(SPEC.child("timeZone"), zone, detail));
    if zone.is_empty() {
        return wrong("timeZone must be nil or non-empty string".to_owned());
    }
    let is_part = |part: &str| {
        !matches!(part, "" | "." | "..")
            && !part.starts_with('-')
            && part.len() <= MAX_ZONE_PART
            && part.bytes().all(|c| c.is_ascii_alphanumeric() || b".-_+".contains(&c))
    };
    if !zone.split('/').all(is_part) {
        return wrong(format!("unknown time zone {zone}"));
    }
    if zone.eq_ignore_ascii_case("Local") {
        let detail = "timeZone must be an explicit time zone as defined in https://www.iana.org/time-zones";
        wrong(detail.to_owned());
    }
    if !is_zone(zone) {
        wrong(format!("unknown time zone {zone}"));
    }
}
