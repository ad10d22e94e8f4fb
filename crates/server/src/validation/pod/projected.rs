//! Volumes that are put together from several sources.

use std::collections::BTreeSet;

use capstan_api::{
    Map,
    field::{Error, ErrorList, Path},
};

use super::{
    env,
    volumes::{file_path, item, mode},
};
use crate::validation::{
    read::{int, object, objects, text},
    rules::required,
};

const MIN_SECONDS: i64 = 10 * 60;
const MAX_SECONDS: i64 = 1 << 32;

pub(super) fn sources(projection: &Map, path: &Path<'_>, errors: &mut ErrorList) {
    let sources_path = path.child("sources");
    let mut taken = BTreeSet::new();
    for (i, source) in objects(projection, "sources") {
        let source_path = sources_path.index(i);
        let mut count = 0;
        for key in ["secret", "configMap"] {
            let Some(one) = object(source, key) else { continue };
            count += 1;
            required(errors, one, "name", &source_path.child(key), |_| Vec::new());
            let items_path = source_path.child(key);
            let items_path = items_path.child("items");
            for (i, entry) in objects(one, "items") {
                item(entry, &items_path.index(i), errors);
                conflict(text(entry, "path"), text(one, "name"), &mut taken, path, errors);
            }
        }
        if let Some(downward) = object(source, "downwardAPI") {
            count += 1;
            for (_, file) in objects(downward, "items") {
                downward_file(file, &source_path.child("downwardAPI"), errors);
                conflict(text(file, "path"), text(file, "path"), &mut taken, path, errors);
            }
        }
        if let Some(token) = object(source, "serviceAccountToken") {
            count += 1;
            service_account_token(token, &source_path.child("serviceAccountToken"), path, errors);
        }
        if ["clusterTrustBundle", "podCertificate"].iter().any(|key| object(source, key).is_some()) {
            count += 1;
        }
        if count > 1 {
            errors.push(Error::forbidden(source_path, "may not specify more than 1 volume type per source"));
        }
    }
}

/// Two sources cannot have the same file.
fn conflict<'a>(place: &'a str, shown: &str, taken: &mut BTreeSet<&'a str>, path: &Path<'_>, errors: &mut ErrorList) {
    if !place.is_empty() && !taken.insert(place) {
        errors.push(Error::invalid(path, shown, "conflicting duplicate paths"));
    }
}

fn service_account_token(token: &Map, path: &Path<'_>, volume: &Path<'_>, errors: &mut ErrorList) {
    let seconds = int(token, "expirationSeconds").unwrap_or(0);
    if seconds < MIN_SECONDS {
        let detail = "may not specify a duration less than 10 minutes";
        errors.push(Error::invalid(path.child("expirationSeconds"), seconds, detail));
    }
    if seconds > MAX_SECONDS {
        let detail = "may not specify a duration larger than 2^32 seconds";
        errors.push(Error::invalid(path.child("expirationSeconds"), seconds, detail));
    }
    // Told of the volume, as upstream does.
    match text(token, "path") {
        "" => errors.push(Error::required(volume.child("path"), "")),
        place => file_path(place, &volume.child("path"), errors),
    }
}

/// A file that tells about the pod. All of them are told of by the place of their list, as upstream does.
pub(super) fn downward_file(file: &Map, path: &Path<'_>, errors: &mut ErrorList) {
    required(errors, file, "path", path, |_| Vec::new());
    file_path(text(file, "path"), &path.child("path"), errors);
    match (object(file, "fieldRef"), object(file, "resourceFieldRef")) {
        (Some(field), resource) => {
            env::field_ref(field, env::VOLUME_FIELDS, &path.child("fieldRef"), errors);
            if resource.is_some() {
                let detail = "fieldRef and resourceFieldRef can not be specified simultaneously";
                errors.push(Error::invalid(path, "resource", detail));
            }
        }
        (None, Some(resource)) => env::resource_ref(resource, true, &path.child("resourceFieldRef"), errors),
        (None, None) => errors.push(Error::required(path, "one of fieldRef and resourceFieldRef is required")),
    }
    mode(file, "mode", path, errors);
}
