//! The Common Expression Language as Kubernetes uses it.
//!
//! Expressions are read ([`parse`]), checked against the types of an environment ([`check`]), estimated
//! ([`estimate`]) and evaluated ([`Program`]), all within bounds that are known before. The rules of
//! a custom resource's schema have their own way in: [`crd`].
//!
//! Not for: deciding what happens when an expression says no; the server does.

mod ast;
mod check;
mod compare;
mod cost;
pub mod crd;
mod decl;
pub mod device;
mod error;
mod escape;
mod estimate;
mod eval;
mod functions;
#[cfg(test)]
mod golden_tests;
mod lexer;
mod library;
mod literals;
mod macros;
mod mutation;
mod parser;
mod plan;
mod types;
mod unescape;
mod unify;
mod value;
mod view;

pub use ast::Ast;
pub use check::{Checked, Env, check};
pub use decl::{DeclId, Decls, MAX_REQUEST_BYTES};
pub use error::{Errors, Issue, MAX_ERRORS};
pub use escape::{escape, unescape};
pub use estimate::{CostEstimate, estimate};
pub use eval::{Evaluated, PER_CALL_LIMIT, Variables};
pub use functions::authz;
pub use parser::{MAX_CODE_POINTS, MAX_RECURSION, parse, parse_with_bindings};
pub use plan::Program;
pub use types::Type;
pub use value::{EvalError, List, MadeMap, Map, Text, Val};
pub use view::{ListView, MapView, Shape, view};
