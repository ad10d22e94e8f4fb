//! Numbers that may be percentages.

use capstan_api::IntOrString as Ours;
use k8s_openapi::apimachinery::pkg::util::intstr::IntOrString;

/// The number, or so many percent of `total`. What makes no sense, which the server does not let through, is 0.
pub(crate) fn scaled(value: Option<&IntOrString>, total: i32, round_up: bool) -> i32 {
    let ours = match value {
        None => return 0,
        Some(IntOrString::Int(number)) => Ours::Int(*number),
        Some(IntOrString::String(text)) => Ours::from(text.as_str()),
    };
    ours.scaled(total.into(), round_up).ok().and_then(|number| i32::try_from(number).ok()).unwrap_or_default()
}
