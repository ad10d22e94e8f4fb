//! What calls cost at run time.

use crate::value::{EvalError, Map, Val};

/// The cost of making a list.
pub(crate) const LIST: u64 = 10;
/// The cost of making a map.
pub(crate) const MAP: u64 = 30;
/// The cost of making an object.
pub(crate) const STRUCT: u64 = 40;
/// The cost of a character that is looked at.
pub(crate) const CHARACTER: f64 = 0.1;
/// The cost of a character of a regular expression, for each character that it is matched with.
pub(crate) const REGEX_CHARACTER: f64 = 0.25;
/// What asking the authorizer costs.
pub(crate) const AUTHORIZATION: u64 = 350_000;

/// How deep nested lists and maps are looked at to find their cost.
const MAX_DEPTH: u32 = 200;

type Arg<'a> = Result<Val<'a>, EvalError>;

#[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, clippy::cast_precision_loss, reason = "as upstream")]
fn times(size: u64, factor: f64) -> u64 {
    (size as f64 * factor).ceil() as u64
}

#[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, clippy::cast_precision_loss, reason = "as upstream")]
fn times_down(size: u64, factor: f64) -> u64 {
    (size as f64 * factor) as u64
}

/// The size, of one for what has none.
fn size(arg: &Arg<'_>) -> u64 {
    arg.as_ref().ok().and_then(Val::size).unwrap_or(1)
}

/// The size with that of what an optional holds.
fn inner_size(arg: &Arg<'_>) -> u64 {
    match arg {
        Ok(Val::Optional(Some(value))) => inner_size(&Ok(Val::clone(value))),
        other => size(other),
    }
}

/// What comparing costs.
pub(crate) fn equality(a: &Arg<'_>, b: &Arg<'_>, not: bool) -> u64 {
    let simple = matches!(
        a,
        Ok(Val::Quantity(_)
            | Val::Ip(_)
            | Val::Cidr(_)
            | Val::Format(_)
            | Val::Url(_)
            | Val::Semver(_)
            | Val::Authz(_))
    );
    if simple && !not { 1 } else { times(inner_size(a).min(inner_size(b)), CHARACTER) }
}

/// What looking at all of a value costs.
fn traversal(value: &Val<'_>, depth: u32) -> u64 {
    if depth > MAX_DEPTH {
        return 1;
    }
    match value {
        Val::String(text) => times_down(text.len() as u64, CHARACTER),
        Val::Bytes(bytes) => times_down(bytes.len() as u64, CHARACTER),
        Val::List(list) => list.iter().map(|item| item.map_or(1, |item| traversal(&item, depth + 1))).sum(),
        Val::Map(map) => of_entries(map, depth),
        _ => 1,
    }
}

fn of_entries(map: &Map<'_>, depth: u32) -> u64 {
    let value = |key: &Val<'_>| map.find(key).map_or(1, |value| value.map_or(1, |value| traversal(&value, depth + 1)));
    map.keys().iter().map(|key| traversal(key, depth + 1) + value(key)).sum()
}

fn allocation(factor: f64, size: u64) -> u64 {
    if factor < 0.0 {
        // A negative number becomes a very large one upstream, and the sum flows over.
        return 0_u64.wrapping_sub(times_down(size, -factor)).wrapping_add(1 + LIST);
    }
    times_down(size, factor).saturating_add(1 + LIST)
}

/// The cost of comparing all elements of a list with each other.
fn self_comparison(arg: &Arg<'_>) -> u64 {
    let count = size(arg);
    let first = match arg {
        Ok(Val::List(list)) => list.get(0).and_then(Result::ok),
        _ => None,
    };
    let factor = if matches!(first, Some(Val::String(_) | Val::Bytes(_))) { 2.0 + CHARACTER } else { 2.0 };
    allocation(factor, count.saturating_mul(count))
}

/// The cost of parsing a selector of so many characters.
pub(crate) fn selector(length: u64) -> u64 {
    let requirements = times(length, 0.5);
    #[expect(clippy::cast_precision_loss, reason = "small constants")]
    let each = (LIST + STRUCT) as f64;
    LIST + times(length, CHARACTER) + times(requirements, each)
}

/// What a call cost.
pub(crate) fn call(function: &str, overload: &str, args: &[Arg<'_>], result: &Arg<'_>) -> u64 {
    by_overload_of_lists(overload, args, result)
        .or_else(|| by_function(function, overload, args, result))
        .unwrap_or_else(|| by_overload(overload, args))
}

fn by_overload_of_lists(overload: &str, args: &[Arg<'_>], result: &Arg<'_>) -> Option<u64> {
    let product = |factor: f64| 1 + times_down(size(&args[0]).saturating_mul(size(&args[1])), factor);
    Some(match overload {
        "list_sets_contains_list" | "list_sets_intersects_list" => product(1.0),
        "list_sets_equivalent_list" => product(2.0),
        "list_slice" | "lists_range" | "list_reverse" => allocation(1.0, size(result)),
        "list_flatten" => allocation(1.0, size(&args[0])),
        #[expect(clippy::cast_precision_loss, reason = "as upstream")]
        "list_flatten_int" => match &args[1] {
            Ok(Val::Int(depth)) => allocation(*depth as f64, size(&args[0])),
            _ => 1 + LIST,
        },
        "list_distinct" => self_comparison(&args[0]),
        _ if overload.starts_with("list_") && overload.ends_with("_sort") => self_comparison(&args[0]),
        _ if overload.ends_with("_sortByAssociatedKeys") => self_comparison(&args[1]),
        _ => return None,
    })
}

fn by_function(function: &str, overload: &str, args: &[Arg<'_>], result: &Arg<'_>) -> Option<u64> {
    let first = || size(&args[0]);
    let regex = |text: u64, pattern: u64| times(1 + text, CHARACTER).saturating_mul(times(pattern, REGEX_CHARACTER));
    Some(match function {
        "check" => AUTHORIZATION,
        "serviceAccount" | "path" | "group" | "resource" | "subresource" | "namespace" | "name" | "allowed"
        | "reason" | "error" | "errored" => 1,
        "fieldSelector" | "labelSelector" => selector(size(&args[1])),
        "isSorted" | "sum" | "max" | "min" | "indexOf" | "lastIndexOf" => {
            args[0].as_ref().map_or(1, |value| traversal(value, 0))
        }
        "url"
        | "lowerAscii"
        | "upperAscii"
        | "substring"
        | "trim"
        | "jsonpatch.escapeKey"
        | "cidr"
        | "isIP"
        | "isCIDR"
        | "quantity"
        | "isQuantity"
        | "semver"
        | "isSemver" => times(first(), CHARACTER),
        "replace" | "split" | "ip.isCanonical" => times(first(), 2.0 * CHARACTER),
        "join" => times(size(result), 2.0 * CHARACTER),
        "find" | "findAll" => regex(first(), size(&args[1])),
        "ip" if overload == "cidr_ip" => 1,
        "ip" => times(first(), CHARACTER),
        "masked"
        | "prefixLength"
        | "family"
        | "isUnspecified"
        | "isLoopback"
        | "isLinkLocalMulticast"
        | "isLinkLocalUnicast"
        | "isGlobalUnicast"
        | "format.named"
        | "sign"
        | "asInteger"
        | "isInteger"
        | "asApproximateFloat"
        | "isGreaterThan"
        | "isLessThan"
        | "compareTo"
        | "add"
        | "sub"
        | "major"
        | "minor"
        | "patch"
        | "getScheme"
        | "getHostname"
        | "getHost"
        | "getPort"
        | "getEscapedPath"
        | "getQuery" => 1,
        "containsIP" | "containsCIDR" => {
            let base = times(first() * 2, CHARACTER);
            let mask = if function == "containsCIDR" { times(first(), CHARACTER) + 1 } else { 0 };
            let text = matches!(overload, "cidr_contains_ip_string" | "cidr_contains_cidr_string");
            base + mask + if text { times(size(&args[1]), CHARACTER) } else { 0 }
        }
        "validate" => match &args[0] {
            Ok(Val::Format(format)) => regex(size(&args[1]), format.regex_size()),
            _ => return None,
        },
        _ => return None,
    })
}

fn by_overload(overload: &str, args: &[Arg<'_>]) -> u64 {
    let arg = |index: usize| args.get(index).map_or(1, inner_size);
    match overload {
        "starts_with_string" | "ends_with_string" | "string_to_bytes" | "bytes_to_string" | "strings_quote"
        | "string_format" => times(arg(0), CHARACTER),
        "in_list" => arg(1),
        "less_string"
        | "greater_string"
        | "less_equals_string"
        | "greater_equals_string"
        | "less_bytes"
        | "greater_bytes"
        | "less_equals_bytes"
        | "greater_equals_bytes" => times(arg(0).min(arg(1)), CHARACTER),
        "add_string" | "add_bytes" => times(arg(0) + arg(1), CHARACTER),
        "matches_string" => times(1 + arg(0), CHARACTER).saturating_mul(times(arg(1), REGEX_CHARACTER)),
        "contains_string" => times(arg(0), CHARACTER).saturating_mul(times(arg(1), CHARACTER)),
        _ => 1,
    }
}
