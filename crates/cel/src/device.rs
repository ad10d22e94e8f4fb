//! The language of device selectors: one variable, the device, and names for values.

use std::sync::{Arc, LazyLock};

use crate::{
    check::{Checked, Env, check},
    decl::{DeclId, Decls, MIN_BOOL, MIN_STRING, Shape},
    estimate::estimate,
    parser::parse_with_bindings,
    types::{self, Type},
};

/// What a selector may cost.
pub const MAX_COST: u64 = 1_000_000;

/// How long the names of drivers and domains are.
const MAX_DOMAIN: i64 = 63;
/// How long the value of an attribute is.
const MAX_VALUE: i64 = 64;
/// How many attributes and capacities a device has.
const MAX_ATTRIBUTES: i64 = 32;
/// The fewest bytes of a quantity.
const MIN_QUANTITY: i64 = 8;

static DEVICE: LazyLock<Env> = LazyLock::new(|| {
    let mut decls = Decls::default();
    decls.bound_keys(MAX_DOMAIN);
    let driver = decls.scalar(Type::String, MAX_DOMAIN, MIN_STRING);
    let multiple = decls.scalar(Type::Bool, 1, MIN_BOOL);
    let attribute = decls.scalar(Type::Any, MAX_VALUE, 1);
    let quantity = decls.scalar(types::parse("Quantity"), 0, MIN_QUANTITY);
    let map_of = |decls: &mut Decls, item: DeclId| {
        let ty = Type::map(Type::String, decls.ty(item));
        decls.add(Shape::Map(item), ty, MAX_ATTRIBUTES, 2)
    };
    let mut by_domain = |item: DeclId| {
        let by_name = map_of(&mut decls, item);
        map_of(&mut decls, by_name)
    };
    let (attributes, capacity) = (by_domain(attribute), by_domain(quantity));
    let fields = [
        ("allowMultipleAllocations", multiple),
        ("attributes", attributes),
        ("capacity", capacity),
        ("driver", driver),
    ];
    let fields = fields.map(|(name, id)| (name.to_owned(), id)).to_vec();
    let device = decls.object_of(fields);
    decls.name_it(device, "kubernetes.DRADevice");
    let ty = decls.ty(device);
    Env::new(Arc::new(decls), Some(device)).with("device", ty)
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

/// Whether a selector may cost more than it may.
#[must_use]
pub fn is_too_complex(checked: &Checked) -> bool {
    estimate(checked).max > MAX_COST
}
