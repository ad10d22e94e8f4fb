//! Strings.

use super::{Call, Impl, fail, int, made, yes};
use crate::value::{List, Outcome, Val};

pub(super) fn find(name: &str) -> Option<Impl> {
    Some(match name {
        "contains" => |call| two(call).and_then(|(a, b)| yes(a.contains(b))),
        "startsWith" => |call| two(call).and_then(|(a, b)| yes(a.starts_with(b))),
        "endsWith" => |call| two(call).and_then(|(a, b)| yes(a.ends_with(b))),
        "charAt" => |call| match call.args {
            [Val::String(text), Val::Int(index)] => match usize::try_from(*index) {
                Ok(at) if at <= text.chars().count() => {
                    made(text.chars().nth(at).map(String::from).unwrap_or_default())
                }
                _ => fail(format!("index out of range: {index}")),
            },
            _ => None,
        },
        "indexOf" => |call| match call.args {
            [Val::List(list), item] => Some(position(list, item, false)),
            [Val::String(text), Val::String(part)] => index_of(text, part, 0),
            [Val::String(text), Val::String(part), Val::Int(from)] => index_of(text, part, *from),
            _ => None,
        },
        "lastIndexOf" => |call| match call.args {
            [Val::List(list), item] => Some(position(list, item, true)),
            [Val::String(text), Val::String(part)] => {
                let count = i64::try_from(text.chars().count()).unwrap_or(i64::MAX);
                if part.is_empty() {
                    return int(count);
                }
                if text.len() < part.len() {
                    return int(-1);
                }
                last_index_of(text, part, count - 1)
            }
            [Val::String(text), Val::String(part), Val::Int(from)] => last_index_of(text, part, *from),
            _ => None,
        },
        "lowerAscii" => |call| call.args[0].as_str().and_then(|text| made(text.to_ascii_lowercase())),
        "upperAscii" => |call| call.args[0].as_str().and_then(|text| made(text.to_ascii_uppercase())),
        "trim" => |call| call.args[0].as_str().and_then(|text| made(text.trim_matches(is_space))),
        "strings.quote" => |call| call.args[0].as_str().and_then(|text| made(quote(text))),
        "replace" => |call| match call.args {
            [Val::String(text), Val::String(old), Val::String(new)] => made(text.replace(&**old, new)),
            [Val::String(text), Val::String(old), Val::String(new), Val::Int(n)] => match usize::try_from(*n) {
                Ok(n) => made(text.replacen(&**old, new, n)),
                Err(_) => made(text.replace(&**old, new)),
            },
            _ => None,
        },
        "split" => |call| match call.args {
            [Val::String(text), Val::String(by)] => parts(text, by, -1),
            [Val::String(text), Val::String(by), Val::Int(n)] => parts(text, by, *n),
            _ => None,
        },
        "substring" => |call| match call.args {
            [Val::String(text), Val::Int(from)] => {
                let count = i64::try_from(text.chars().count()).unwrap_or(i64::MAX);
                if !(0..=count).contains(from) {
                    return fail(format!("index out of range: {from}"));
                }
                substring(text, *from, count)
            }
            [Val::String(text), Val::Int(from), Val::Int(to)] => substring(text, *from, *to),
            _ => None,
        },
        "join" => |call| match call.args {
            [Val::List(list)] => join(list, ""),
            [Val::List(list), Val::String(by)] => join(list, by),
            _ => None,
        },
        "jsonpatch.escapeKey" => {
            |call| call.args[0].as_str().and_then(|text| made(text.replace('~', "~0").replace('/', "~1")))
        }
        _ => return None,
    })
}

fn two<'c>(call: &'c Call<'_, '_>) -> Option<(&'c str, &'c str)> {
    match call.args {
        [Val::String(a), Val::String(b)] => Some((a, b)),
        _ => None,
    }
}

fn is_space(c: char) -> bool {
    c.is_whitespace()
}

fn position<'a>(list: &List<'a>, item: &Val<'a>, last: bool) -> Outcome<'a> {
    let mut found = -1;
    for (index, element) in (0_i64..).zip(list.iter()) {
        if element.is_ok_and(|element| crate::compare::equal(&element, item) == Ok(true)) {
            found = index;
            if !last {
                break;
            }
        }
    }
    Ok(Val::Int(found))
}

fn index_of<'a>(text: &str, part: &str, from: i64) -> Option<Outcome<'a>> {
    if part.is_empty() {
        return int(from);
    }
    let Ok(skip) = usize::try_from(from) else { return fail(format!("index out of range: {from}")) };
    let Some((start, _)) = text.char_indices().nth(skip) else { return int(-1) };
    match text[start..].find(part) {
        Some(at) => int(skip + text[start..start + at].chars().count()),
        None => int(-1),
    }
}

fn last_index_of<'a>(text: &str, part: &str, from: i64) -> Option<Outcome<'a>> {
    if part.is_empty() {
        return int(from);
    }
    let Ok(last) = usize::try_from(from) else { return fail(format!("index out of range: {from}")) };
    // The match may begin at that character at the latest.
    let Some((start, _)) = text.char_indices().nth(last) else { return int(-1) };
    let end = (start + part.len()).min(text.len());
    let end = (end..=text.len()).find(|&at| text.is_char_boundary(at)).unwrap_or(text.len());
    match text[..end].rfind(part) {
        Some(at) => int(text[..at].chars().count()),
        None => int(-1),
    }
}

fn substring<'a>(text: &str, from: i64, to: i64) -> Option<Outcome<'a>> {
    if from > to {
        return fail(format!("invalid substring range. start: {from}, end: {to}"));
    }
    let count = i64::try_from(text.chars().count()).unwrap_or(i64::MAX);
    for index in [from, to] {
        if !(0..=count).contains(&index) {
            return fail(format!("index out of range: {index}"));
        }
    }
    let (from, to) = (usize::try_from(from).unwrap_or(0), usize::try_from(to).unwrap_or(0));
    made(text.chars().skip(from).take(to - from).collect::<String>())
}

fn parts<'a>(text: &str, by: &str, n: i64) -> Option<Outcome<'a>> {
    let strings = |parts: Vec<String>| Some(Ok(Val::list(parts.into_iter().map(Val::text).collect())));
    let most = match usize::try_from(n) {
        Ok(0) => return strings(Vec::new()),
        Ok(n) => n,
        Err(_) => usize::MAX,
    };
    if by.is_empty() {
        let mut rest = text.chars();
        let mut all: Vec<String> = rest.by_ref().take(most - 1).map(String::from).collect();
        let tail = rest.as_str();
        if !tail.is_empty() {
            all.push(tail.to_owned());
        }
        return strings(all);
    }
    strings(text.splitn(most, by).map(str::to_owned).collect())
}

fn join<'a>(list: &List<'a>, by: &str) -> Option<Outcome<'a>> {
    let mut out = String::new();
    for (index, item) in list.iter().enumerate() {
        if index > 0 {
            out.push_str(by);
        }
        match item {
            Ok(Val::String(text)) => out.push_str(&text),
            Ok(other) => return fail(format!("join: invalid input: {}", other.show())),
            Err(error) => return fail(format!("join: invalid input: {error}")),
        }
    }
    made(out)
}

fn quote(text: &str) -> String {
    let mut out = String::with_capacity(text.len() + 2);
    out.push('"');
    for c in text.chars() {
        match c {
            '\x07' => out.push_str("\\a"),
            '\x08' => out.push_str("\\b"),
            '\x0c' => out.push_str("\\f"),
            '\n' => out.push_str("\\n"),
            '\r' => out.push_str("\\r"),
            '\t' => out.push_str("\\t"),
            '\x0b' => out.push_str("\\v"),
            '\\' => out.push_str("\\\\"),
            '"' => out.push_str("\\\""),
            c => out.push(c),
        }
    }
    out.push('"');
    out
}
