//! Which object a write means: the one with this uid, in this version.

use capstan_api::{
    GroupKind, GroupResource, Map, Status,
    field::{Error, Path},
};

use super::{
    call::{Call, meta},
    write::as_it_is,
};

pub(super) fn modified(resource: &GroupResource, name: &str) -> Status {
    let words = "the object has been modified; please apply your changes to the latest version and try again";
    Status::conflict(resource, name, words)
}

/// What the store says about an object that is not the one that was meant.
pub(crate) fn wrong_object(key: &[u8], words: &str) -> String {
    let key = String::from_utf8_lossy(key);
    format!("StorageError: invalid object, Code: 4, Key: {key}, ResourceVersion: 0, AdditionalErrorMsg: {words}")
}

/// The version that an object says it has; 0 if it says none.
pub(super) fn parse_version(object: &Map) -> Result<u64, Status> {
    match meta(object, "resourceVersion") {
        "" => Ok(0),
        text => text.parse().map_err(|_| {
            as_it_is(format!("strconv.ParseUint: parsing {}: invalid syntax", capstan_api::go::quote(text)))
        }),
    }
}

/// Whether the writer has seen the object as it is now.
pub(super) fn check_version(
    call: &Call<'_>,
    (key, dry_run): (&[u8], bool),
    unconditional: bool,
    new: &Map,
    old: &Map,
    (name, same_uid): (&str, bool),
) -> Result<(), Status> {
    let group_resource = call.resource.gvr.group_resource();
    if same_uid {
        check_uid(call, (key, dry_run), new, meta(old, "uid"), name)?;
    }
    let version = parse_version(new)?;
    if version == 0 {
        if unconditional {
            return Ok(());
        }
        let path = Path::new("metadata");
        let error = Error::invalid(path.child("resourceVersion"), 0, "must be specified for an update");
        let kind = GroupKind::new(group_resource.group.clone(), group_resource.resource.clone());
        return Err(Status::invalid(&kind, name, &vec![error]));
    }
    if version.to_string() != meta(old, "resourceVersion") {
        return Err(modified(&group_resource, name));
    }
    Ok(())
}

/// Who sends a uid means the object that has it, and no other of the same name.
pub(super) fn check_uid(
    call: &Call<'_>,
    (key, dry_run): (&[u8], bool),
    new: &Map,
    old_uid: &str,
    name: &str,
) -> Result<(), Status> {
    let uid = meta(new, "uid");
    if uid.is_empty() || uid == old_uid {
        return Ok(());
    }
    let words = format!("Precondition failed: UID in precondition: {uid}, UID in object meta: {old_uid}");
    // The store that only tries does not know where everything is kept.
    let key = if dry_run { key.strip_prefix(b"/registry").unwrap_or(key) } else { key };
    Err(Status::conflict(&call.resource.gvr.group_resource(), name, wrong_object(key, &words)))
}
