//! Expressions of policies, webhooks and device selectors: they must compile, and give what is asked of them.

use std::sync::{Arc, LazyLock};

use capstan_api::field::{Error, ErrorList, Path};
use capstan_cel::{Decls, Env, Type, check, parse};

/// What the expressions of a place can speak of. Objects are of any type: what they are depends on the request.
pub(super) struct Place(Env);

/// Match conditions of webhooks.
pub(super) static WEBHOOK: LazyLock<Place> = LazyLock::new(|| admission(false, None));
/// Selectors of devices.
pub(super) static DEVICE: LazyLock<Place> =
    LazyLock::new(|| Place(Env::new(Arc::new(Decls::default()), None).with("device", Type::Dyn)));

/// What is about requests. A policy may have parameters, and variables of these types.
pub(super) fn admission(params: bool, variables: Option<&[(&str, Type)]>) -> Place {
    let mut decls = Decls::default();
    let (request, namespace) = (request(&mut decls), namespace(&mut decls));
    let variables = variables.map(|variables| decls.declare(variables.iter().cloned()));
    let of_library = |name: &str| Type::Struct(format!("kubernetes.authorization.{name}").into());
    let env = Env::new(Arc::new(decls), None)
        .with("object", Type::Dyn)
        .with("oldObject", Type::Dyn)
        .with("request", request)
        .with("namespaceObject", namespace)
        .with("authorizer", of_library("Authorizer"))
        .with("authorizer.requestResource", of_library("ResourceCheck"));
    let env = if params { env.with("params", Type::Dyn) } else { env };
    Place(match variables {
        Some(variables) => env.with("variables", variables),
        None => env,
    })
}

/// An object of fields, each `name:type`; `[]` before a type is a list and `{}` a map.
fn fields(text: &'static str) -> impl Iterator<Item = (&'static str, Type)> {
    fn of(text: &str) -> Type {
        match (text, text.strip_prefix("[]"), text.strip_prefix("{}")) {
            (_, Some(items), _) => Type::list(of(items)),
            (_, _, Some(values)) => Type::map(Type::String, of(values)),
            ("bool", ..) => Type::Bool,
            ("int", ..) => Type::Int,
            ("time", ..) => Type::Timestamp,
            ("dyn", ..) => Type::Dyn,
            _ => Type::String,
        }
    }
    text.split_whitespace().filter_map(|field| field.split_once(':')).map(|(name, ty)| (name, of(ty)))
}

fn request(decls: &mut Decls) -> Type {
    let kind = decls.declare(fields("group:string version:string kind:string"));
    let resource = decls.declare(fields("group:string version:string resource:string"));
    let user = decls.declare(fields("username:string uid:string groups:[]string extra:{}[]string"));
    let plain = fields(
        "subResource:string requestSubResource:string name:string namespace:string operation:string dryRun:bool \
         options:dyn",
    );
    let parts = [
        ("kind", kind.clone()),
        ("requestKind", kind),
        ("resource", resource.clone()),
        ("requestResource", resource),
        ("userInfo", user),
    ];
    decls.declare(plain.chain(parts))
}

fn namespace(decls: &mut Decls) -> Type {
    let metadata = decls.declare(fields(
        "name:string generateName:string namespace:string labels:{}string annotations:{}string UID:string \
         creationTimestamp:time deletionGracePeriodSeconds:int deletionTimestamp:time generation:int \
         resourceVersion:string finalizers:[]string",
    ));
    let spec = decls.declare(fields("finalizers:[]string"));
    let condition =
        decls.declare(fields("status:string type:string lastTransitionTime:time message:string reason:string"));
    let status = decls.declare([("phase", Type::String), ("conditions", Type::list(condition))]);
    decls.declare([("metadata", metadata), ("spec", spec), ("status", status)])
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

/// Compiles an expression whose result is to be of one of these types, or of any when there are none. Of what is wrong,
/// nothing is known.
pub(super) fn expression(text: &str, place: &Place, wanted: &[Type], path: &Path<'_>, errors: &mut ErrorList) -> Type {
    let mut wrong = |detail: String| {
        errors.push(Error::invalid(path, text, detail));
        Type::Dyn
    };
    let checked = match parse(text).and_then(|ast| check(ast, &place.0)) {
        Ok(checked) => checked,
        Err(errors) => return wrong(format!("compilation failed: {errors}")),
    };
    if wanted.is_empty() || wanted.contains(checked.output()) {
        return checked.output().clone();
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
        names => wrong(format!("must evaluate to one of [{}] but got {}", names.join(" "), checked.output_name())),
    }
}
