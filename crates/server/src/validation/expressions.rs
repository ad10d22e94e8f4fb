//! Expressions of policies, webhooks and device selectors: they must compile, and give what is asked of them.

use std::sync::{Arc, LazyLock};

use capstan_api::field::{Error, ErrorList, Path};
use capstan_cel::{Decls, Env, Type, check, parse};

/// What the expressions of a place can speak of. Objects are of any type: what they are depends on the request.
pub(super) struct Place(LazyLock<Env>);

const ADMISSION: [&str; 4] = ["object", "oldObject", "request", "authorizer"];

/// Match conditions of webhooks.
pub(super) static WEBHOOK: Place = Place(LazyLock::new(|| admission(&[])));
/// Everything in a policy without parameters.
pub(super) static POLICY: Place = Place(LazyLock::new(|| admission(&["namespaceObject", "variables"])));
/// Everything in a policy with parameters.
pub(super) static POLICY_WITH_PARAMS: Place =
    Place(LazyLock::new(|| admission(&["namespaceObject", "variables", "params"])));
/// Selectors of devices.
pub(super) static DEVICE: Place = Place(LazyLock::new(|| environment(["device"].into_iter())));

fn environment<'a>(names: impl Iterator<Item = &'a str>) -> Env {
    names.fold(Env::new(Arc::new(Decls::default()), None), |env, name| env.with(name, Type::Dyn))
}

fn admission(more: &[&str]) -> Env {
    environment(ADMISSION.iter().chain(more).copied())
}

/// Compiles the selector of a device, whose attributes may be of any type.
pub(super) fn device(text: &str, place: &Place, path: &Path<'_>, errors: &mut ErrorList) {
    match parse(text).and_then(|ast| check(ast, &place.0)) {
        Ok(checked) if matches!(checked.output(), Type::Bool | Type::Dyn) => {}
        Ok(checked) => {
            let detail = format!("must evaluate to bool or the unknown type, not {}", checked.output_name());
            errors.push(Error::invalid(path, text, detail));
        }
        Err(problems) => errors.push(Error::invalid(path, text, format!("compilation failed: {problems}"))),
    }
}

/// Compiles an expression whose result is to be of one of these types, or of any when there are none.
pub(super) fn expression(text: &str, place: &Place, wanted: &[Type], path: &Path<'_>, errors: &mut ErrorList) {
    let mut wrong = |detail: String| errors.push(Error::invalid(path, text, detail));
    let checked = match parse(text).and_then(|ast| check(ast, &place.0)) {
        Ok(checked) => checked,
        Err(errors) => return wrong(format!("compilation failed: {errors}")),
    };
    if wanted.is_empty() || wanted.contains(checked.output()) {
        return;
    }
    let names: Vec<&str> = wanted
        .iter()
        .map(|ty| match ty {
            Type::Bool => "bool",
            Type::Null => "null_type",
            _ => "string",
        })
        .collect();
    match names.as_slice() {
        [one] => wrong(format!("must evaluate to {one} but got {}", checked.output_name())),
        names => {
            wrong(format!("must evaluate to one of [{}] but got {}", names.join(" "), checked.output_name()));
        }
    }
}
