//! The tokens with which nodes join: kept in Secrets of `kube-system`.

use aws_lc_rs::constant_time::verify_slices_are_equal;
use capstan_api::{GroupResource, Str, Time, Value, json};
use capstan_clock::Timestamp;

use super::Authenticated;
use crate::{authorization::UserInfo, base64, objects::Objects};

const GROUP: &str = "system:bootstrappers";
const ID_LENGTH: usize = 6;
const SECRET_LENGTH: usize = 16;
const MAX_GROUP: usize = 256;

/// The node behind a token, if it is one that joins. What is wrong with a token or its Secret is nobody's business.
pub(super) fn authenticate(token: &str, objects: &dyn Objects, now: Timestamp) -> Option<Authenticated> {
    let (id, secret) = token.split_once('.')?;
    let plain = |text: &str| text.bytes().all(|byte| byte.is_ascii_lowercase() || byte.is_ascii_digit());
    if id.len() != ID_LENGTH || secret.len() != SECRET_LENGTH || !plain(id) || !plain(secret) {
        return None;
    }
    let name = format!("bootstrap-token-{id}");
    let object = objects.get(&GroupResource::new("", "secrets"), "kube-system", &name)?;
    let kept = json::parse(&object.json).ok()?;
    let data = |key: &str| -> Vec<u8> {
        let text = kept.get("data").and_then(|data| data.get(key)).and_then(Value::as_str);
        text.and_then(base64::decode).unwrap_or_default()
    };
    let is_token = kept.get("type").and_then(Value::as_str) == Some("bootstrap.kubernetes.io/token");
    if object.deletion_timestamp.is_some() || !is_token {
        return None;
    }
    verify_slices_are_equal(&data("token-secret"), secret.as_bytes()).ok()?;
    if data("token-id") != id.as_bytes()
        || is_expired(&data("expiration"), now)
        || data("usage-bootstrap-authentication") != b"true"
    {
        return None;
    }
    let mut groups = vec![Str::from(GROUP)];
    let extra = String::from_utf8(data("auth-extra-groups")).ok()?;
    for group in extra.split(',').filter(|_| !extra.is_empty()) {
        groups.push(group_name(group)?.into());
    }
    groups.sort();
    groups.dedup();
    let user = UserInfo { name: format!("system:bootstrap:{id}").into(), groups, ..UserInfo::default() };
    Some(Authenticated { user, ..Authenticated::default() })
}

/// What cannot be read has expired.
fn is_expired(expiration: &[u8], now: Timestamp) -> bool {
    if expiration.is_empty() {
        return false;
    }
    let time = str::from_utf8(expiration).ok().and_then(|text| text.parse::<Time>().ok());
    time.is_none_or(|time| time <= Time::from_unix(now.as_second(), now.subsec_nanosecond().unsigned_abs()))
}

/// `system:bootstrappers:` and at most 256 small letters, digits, colons and dashes, the last of them a letter or
/// digit.
fn group_name(group: &str) -> Option<&str> {
    let rest = group.strip_prefix(GROUP)?.strip_prefix(':')?;
    let is_end = |byte: u8| byte.is_ascii_lowercase() || byte.is_ascii_digit();
    let good = rest.len() <= MAX_GROUP
        && rest.bytes().last().is_some_and(is_end)
        && rest.bytes().all(|byte| is_end(byte) || matches!(byte, b':' | b'-'));
    good.then_some(group)
}
