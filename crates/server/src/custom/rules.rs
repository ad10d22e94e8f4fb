//! The seam for the rules of `x-kubernetes-validations`, which are written in CEL.
//!
//! [`Rules::compile`] gets a schema with the rules as they are written, and [`Rules::check`] is asked about every write
//! of an object whose schema has any. Until there is a CEL engine, rules are kept and everything is accepted.

use capstan_api::{
    Map,
    field::ErrorList,
    schema::{NodeRef, Schema},
};

/// The compiled rules of a schema.
pub(super) struct Rules;

impl Rules {
    /// The rules of a schema, if there are any.
    pub(super) fn compile(schema: &Schema) -> Option<Rules> {
        has_rules(schema.root()).then_some(Rules)
    }

    /// What the rules say about an object that is to replace `old`, if there is an old one.
    #[expect(clippy::unused_self, reason = "the seam for a CEL engine")]
    pub(super) fn check(&self, _object: &Map, _old: Option<&Map>) -> ErrorList {
        ErrorList::new()
    }
}

/// Whether a schema has rules anywhere.
fn has_rules(root: NodeRef<'_>) -> bool {
    let mut waiting = vec![root];
    while let Some(node) = waiting.pop() {
        if node.rules().any(|rules| !rules.validations.is_empty()) {
            return true;
        }
        waiting.extend(node.fields().map(|field| field.node));
        waiting.extend(node.items());
        waiting.extend(node.additional());
    }
    false
}
