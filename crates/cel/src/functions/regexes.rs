//! Regular expressions.

use std::borrow::Cow;

use capstan_api::schema::pattern;
use regex::Regex;

use super::{Call, Impl, fail, made, yes};
use crate::value::{Outcome, Val};

pub(super) fn find(name: &str) -> Option<Impl> {
    Some(match name {
        "matches" => |call| match call.args {
            [Val::String(text), Val::String(pattern)] => match compiled(call, pattern) {
                Ok(regex) => yes(regex.is_match(text)),
                Err(error) => fail(error),
            },
            _ => None,
        },
        "find" => |call| match call.args {
            [Val::String(text), Val::String(pattern)] => match compiled(call, pattern) {
                Ok(regex) => made(regex.find(text).map_or("", |found| found.as_str())),
                Err(error) => fail(format!("Illegal regex: {error}")),
            },
            _ => None,
        },
        "findAll" => |call| match call.args {
            [Val::String(text), Val::String(pattern)] => find_all(call, text, pattern, -1),
            [Val::String(text), Val::String(pattern), Val::Int(most)] => find_all(call, text, pattern, *most),
            _ => None,
        },
        _ => return None,
    })
}

/// The expression, compiled before if it is constant.
fn compiled<'c>(call: &Call<'c, '_>, text: &str) -> Result<Cow<'c, Regex>, String> {
    match &call.step.regex {
        Some(regex) => Ok(Cow::Borrowed(regex)),
        None => pattern::compile(text).map(Cow::Owned),
    }
}

fn find_all<'a>(call: &Call<'_, 'a>, text: &str, pattern: &str, most: i64) -> Option<Outcome<'a>> {
    match compiled(call, pattern) {
        Ok(regex) => {
            let most = usize::try_from(most).unwrap_or(usize::MAX);
            Some(Ok(Val::list(regex.find_iter(text).take(most).map(|found| Val::text(found.as_str())).collect())))
        }
        Err(error) => fail(format!("Illegal regex: {error}")),
    }
}
