//! What functions do.

pub mod authz;
mod convert;
mod format;
pub(crate) mod formats;
pub(crate) mod lists;
pub(crate) mod net;
mod operators;
mod quantity;
mod regexes;
pub(crate) mod semver;
mod strings;
pub(crate) mod time;
pub(crate) mod urls;

pub(crate) use format::check as check_format;

use crate::{
    plan::CallStep,
    value::{EvalError, Outcome, Val},
};

/// A call that is being made.
pub(crate) struct Call<'c, 'a> {
    pub(crate) step: &'c CallStep,
    pub(crate) args: &'c [Val<'a>],
}

/// What a function does; nothing when it does not take such arguments.
pub(crate) type Impl = for<'c, 'a> fn(&Call<'c, 'a>) -> Option<Outcome<'a>>;

/// What the function of that name does.
pub(crate) fn find(name: &str) -> Option<Impl> {
    let all: [fn(&str) -> Option<Impl>; 13] = [
        operators::find,
        convert::find,
        strings::find,
        format::find,
        lists::find,
        regexes::find,
        time::find,
        urls::find,
        net::find,
        quantity::find,
        semver::find,
        formats::find,
        authz::find,
    ];
    all.iter().find_map(|find| find(name))
}

/// Makes a call.
pub(crate) fn run<'a>(call: &Call<'_, 'a>) -> Outcome<'a> {
    (call.step.run)(call).unwrap_or_else(|| {
        let compiled = call.step.regex.is_some();
        Err(if compiled { EvalError::no_overload() } else { mismatch(&call.step.function, call.args) })
    })
}

/// What is said to arguments that a function does not take.
fn mismatch(function: &str, args: &[Val<'_>]) -> EvalError {
    let first = &args[0];
    let receives = matches!(first, Val::String(_) | Val::Duration(_) | Val::Timestamp(_));
    let number = matches!(first, Val::Int(_) | Val::Uint(_) | Val::Double(_));
    let takes = match function {
        "_+_" => number || receives || matches!(first, Val::Bytes(_) | Val::List(_)),
        "_-_" => number || matches!(first, Val::Duration(_) | Val::Timestamp(_)),
        "_*_" | "_/_" => number,
        "_%_" => matches!(first, Val::Int(_) | Val::Uint(_)),
        "-_" => matches!(first, Val::Int(_) | Val::Double(_) | Val::Bool(_) | Val::Duration(_)),
        "_<_" | "_<=_" | "_>_" | "_>=_" => crate::compare::is_comparable(first),
        "!_" | "@in" | "contains" | "startsWith" | "endsWith" => true,
        "matches" | "size" => matches!(first, Val::String(_)),
        _ => {
            let types: Vec<&str> = args.iter().map(Val::type_name).collect();
            return EvalError::new(format!("no such overload: {function}({})", types.join(", ")));
        }
    };
    if takes || receives { EvalError::no_overload() } else { EvalError::new(format!("no such overload: {function}")) }
}

/// What Go calls the type of a value.
pub(crate) fn go_type(value: &Val<'_>) -> &'static str {
    match value {
        Val::Null => "types.Null",
        Val::Bool(_) => "types.Bool",
        Val::Int(_) => "types.Int",
        Val::Uint(_) => "types.Uint",
        Val::Double(_) => "types.Double",
        Val::String(_) => "types.String",
        Val::Bytes(_) => "types.Bytes",
        Val::Duration(_) => "types.Duration",
        Val::Timestamp(_) => "types.Timestamp",
        Val::Type(_) => "*types.Type",
        Val::Optional(_) => "*types.Optional",
        other => other.type_name(),
    }
}

fn fail<'a>(message: impl Into<String>) -> Option<Outcome<'a>> {
    Some(Err(EvalError::new(message)))
}

fn int<'a>(n: impl TryInto<i64>) -> Option<Outcome<'a>> {
    Some(Ok(Val::Int(n.try_into().unwrap_or(i64::MAX))))
}

fn yes<'a>(b: bool) -> Option<Outcome<'a>> {
    Some(Ok(Val::Bool(b)))
}

fn made<'a>(text: impl Into<std::rc::Rc<str>>) -> Option<Outcome<'a>> {
    Some(Ok(Val::text(text)))
}
