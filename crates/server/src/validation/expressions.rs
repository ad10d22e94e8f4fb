//! Expressions of policies, webhooks and device selectors: they must compile, and give what is asked of them.

use std::sync::{Arc, LazyLock};

use capstan_api::field::{Error, ErrorList, Path};
use capstan_cel::{Checked, Decls, Env, Program, Type, check, parse};

/// What the expressions of a place can speak of. Objects are of any type: what they are depends on the request.
pub(super) struct Place(Env);

/// Match conditions of webhooks.
pub(super) static WEBHOOK: LazyLock<Place> = LazyLock::new(|| admission(Has::default(), None));

/// What expressions can speak of beside the request and its objects.
#[derive(Clone, Copy, Default)]
pub(super) struct Has {
    pub(super) params: bool,
    /// Objects and patches can be made.
    pub(super) patches: bool,
    pub(super) no_authorizer: bool,
}

/// What is about requests. A policy may have variables of these types.
pub(super) fn admission(has: Has, variables: Option<&[(&str, Type)]>) -> Place {
    let mut decls = Decls::default();
    let (request, namespace) = (request(&mut decls), namespace(&mut decls));
    let variables = variables.map(|variables| decls.declare_named("kubernetes.variables", variables.iter().cloned()));
    let of_library = |name: &str| Type::Struct(format!("kubernetes.authorization.{name}").into());
    let mut env = Env::new(Arc::new(decls), None)
        .with("object", Type::Dyn)
        .with("oldObject", Type::Dyn)
        .with("request", request)
        .with("namespaceObject", namespace);
    if !has.no_authorizer {
        env = env
            .with("authorizer", of_library("Authorizer"))
            .with("authorizer.requestResource", of_library("ResourceCheck"));
    }
    if has.params {
        env = env.with("params", Type::Dyn);
    }
    if let Some(variables) = variables {
        env = env.with("variables", variables);
    }
    Place(if has.patches { env.with_mutation() } else { env })
}

/// What others know of a variable of this type: that of an object is not kept.
pub(super) fn of_variable(ty: &Type) -> Type {
    match ty {
        Type::List(item) => Type::list(of_variable(item)),
        Type::Map(both) => Type::map(of_variable(&both.0), of_variable(&both.1)),
        Type::Object(_) | Type::Struct(_) | Type::Opaque(..) | Type::Type(_) => Type::Dyn,
        other => other.clone(),
    }
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
    let kind = decls.declare_named("kubernetes.GroupVersionKind", fields("group:string version:string kind:string"));
    let resource =
        decls.declare_named("kubernetes.GroupVersionResource", fields("group:string version:string resource:string"));
    let user = decls
        .declare_named("kubernetes.UserInfo", fields("username:string uid:string groups:[]string extra:{}[]string"));
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
    decls.declare_named("kubernetes.AdmissionRequest", plain.chain(parts))
}

fn namespace(decls: &mut Decls) -> Type {
    let metadata = decls.declare_named(
        "kubernetes.NamespaceMetadata",
        fields(
            "name:string generateName:string namespace:string labels:{}string annotations:{}string UID:string \
         creationTimestamp:time deletionGracePeriodSeconds:int deletionTimestamp:time generation:int \
         resourceVersion:string finalizers:[]string",
        ),
    );
    let spec = decls.declare_named("kubernetes.NamespaceSpec", fields("finalizers:[]string"));
    let condition = decls.declare_named(
        "kubernetes.NamespaceCondition",
        fields("status:string type:string lastTransitionTime:time message:string reason:string"),
    );
    let status = decls
        .declare_named("kubernetes.NamespaceStatus", [("phase", Type::String), ("conditions", Type::list(condition))]);
    decls.declare_named("kubernetes.Namespace", [("metadata", metadata), ("spec", spec), ("status", status)])
}

/// Compiles the selector of a device.
pub(super) fn device(text: &str, path: &Path<'_>, errors: &mut ErrorList) {
    match capstan_cel::device::compile(text) {
        Ok(checked) => {
            let before = errors.len();
            runs(&checked, path, errors);
            if errors.len() == before && capstan_cel::device::is_too_complex(&checked) {
                errors.push(Error::forbidden(path, "too complex, exceeds cost limit"));
            }
        }
        Err(detail) => errors.push(Error::invalid(path, text, detail)),
    }
}

/// What is constant in it has to work out.
fn runs(checked: &Checked, path: &Path<'_>, errors: &mut ErrorList) {
    if let Err(error) = Program::new(checked) {
        errors.push(Error::internal(path, format!("program instantiation failed: {error}")));
    }
}

/// Compiles an expression whose result is to be of one of these types, or of any when there are none. Of what is wrong,
/// nothing is known.
pub(super) fn expression(text: &str, place: &Place, wanted: &[Type], path: &Path<'_>, errors: &mut ErrorList) -> Type {
    let checked = match parse(text).and_then(|ast| check(ast, &place.0)) {
        Ok(checked) => checked,
        Err(problems) => {
            errors.push(Error::invalid(path, text, format!("compilation failed: {problems}")));
            return Type::Dyn;
        }
    };
    if wanted.is_empty() || wanted.contains(checked.output()) {
        runs(&checked, path, errors);
        return checked.output().clone();
    }
    let names: Vec<String> = wanted.iter().map(|ty| checked.name_of(ty)).collect();
    let wanted = match names.as_slice() {
        [one] => one.clone(),
        names => format!("one of [{}]", names.join(" ")),
    };
    errors.push(Error::invalid(path, text, format!("must evaluate to {wanted} but got {}", checked.output_name())));
    Type::Dyn
}
