//! The language of device selectors: one variable, the device, and names for values.

use std::sync::{Arc, LazyLock};

use crate::{
    check::{Checked, Env, check},
    decl::Decls,
    parser::parse_with_bindings,
    types::{self, Type},
};

static DEVICE: LazyLock<Env> = LazyLock::new(|| {
    let by_domain = |value: Type| Type::map(Type::String, Type::map(Type::String, value));
    let mut decls = Decls::default();
    let device = decls.declare_named(
        "kubernetes.DRADevice",
        [
            ("driver", Type::String),
            ("allowMultipleAllocations", Type::Bool),
            ("attributes", by_domain(Type::Any)),
            ("capacity", by_domain(types::parse("Quantity"))),
        ],
    );
    Env::new(Arc::new(decls), None).with("device", device)
});

/// Compiles the selector of a device. Attributes may be of any type, and one may be the answer.
///
/// # Errors
/// What is wrong with it, in words for its author.
pub fn compile(text: &str) -> Result<Checked, String> {
    let checked = parse_with_bindings(text)
        .and_then(|ast| check(ast, &DEVICE))
        .map_err(|errors| format!("compilation failed: {errors}"))?;
    match checked.output() {
        Type::Bool | Type::Any => Ok(checked),
        _ => Err(format!("must evaluate to bool or the unknown type, not {}", checked.output_name())),
    }
}
