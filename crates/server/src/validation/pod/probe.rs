//! Probes and hooks of containers.

use capstan_api::{
    Map,
    field::{Error, ErrorList, Path},
    validation::is_http_header_name,
};

use crate::validation::{
    read::{int, list, object, objects, text},
    rules::{invalid, nonnegative, port, required},
};

const NUMBERS: &[&str] =
    &["initialDelaySeconds", "timeoutSeconds", "periodSeconds", "successThreshold", "failureThreshold"];

/// A probe; only a readiness probe may need more than one success.
pub(super) fn probe(probe: &Map, readiness: bool, path: &Path<'_>, errors: &mut ErrorList) {
    handler(probe, &["exec", "httpGet", "tcpSocket", "grpc"], None, path, errors);
    nonnegative(errors, probe, NUMBERS, path);
    let grace = int(probe, "terminationGracePeriodSeconds");
    let grace_path = path.child("terminationGracePeriodSeconds");
    if let Some(seconds) = grace.filter(|seconds| *seconds <= 0) {
        errors.push(Error::invalid(grace_path, seconds, "must be greater than 0"));
    }
    if readiness {
        if let Some(seconds) = grace {
            errors.push(Error::invalid(grace_path, seconds, "must not be set for readinessProbes"));
        }
    } else if let Some(successes) = Some(int(probe, "successThreshold").unwrap_or(0)).filter(|n| *n != 1) {
        errors.push(Error::invalid(path.child("successThreshold"), successes, "must be 1"));
    }
}

/// Hooks of a container in the pod of `spec`.
pub(super) fn lifecycle(lifecycle: &Map, spec: &Map, path: &Path<'_>, errors: &mut ErrorList) {
    let grace = int(spec, "terminationGracePeriodSeconds");
    for key in ["postStart", "preStop"] {
        if let Some(hook) = object(lifecycle, key) {
            handler(hook, &["exec", "httpGet", "tcpSocket", "sleep"], grace, &path.child(key), errors);
        }
    }
}

fn handler(handler: &Map, kinds: &[&str], grace: Option<i64>, path: &Path<'_>, errors: &mut ErrorList) {
    let mut set = kinds.iter().filter_map(|key| Some((*key, object(handler, key)?)));
    let Some((key, first)) = set.next() else {
        errors.push(Error::required(path, "must specify a handler type"));
        return;
    };
    action(key, first, grace, &path.child(key), errors);
    for (key, _) in set {
        errors.push(Error::forbidden(path.child(key), "may not specify more than 1 handler type"));
    }
}

fn action(key: &str, action: &Map, grace: Option<i64>, path: &Path<'_>, errors: &mut ErrorList) {
    match key {
        "exec" if list(action, "command").is_empty() => errors.push(Error::required(path.child("command"), "")),
        "httpGet" => {
            required(errors, action, "path", path, |_| Vec::new());
            port(errors, action, "port", path);
            let scheme = text(action, "scheme");
            if !["HTTP", "HTTPS"].contains(&scheme) {
                errors.push(Error::not_supported(path.child("scheme"), scheme, &["HTTP", "HTTPS"]));
            }
            for (_, header) in objects(action, "httpHeaders") {
                let name = text(header, "name");
                invalid(errors, &path.child("httpHeaders"), name, is_http_header_name(name));
            }
        }
        "tcpSocket" | "grpc" => port(errors, action, "port", path),
        "sleep" => {
            let seconds = int(action, "seconds").unwrap_or(0);
            if let Some(grace) = grace.filter(|grace| !(0..=*grace).contains(&seconds)) {
                let detail = format!("must be non-negative and less than terminationGracePeriodSeconds ({grace})");
                errors.push(Error::invalid(path, seconds, detail));
            }
        }
        _ => {}
    }
}
