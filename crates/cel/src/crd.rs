//! The rules of custom resources: `x-kubernetes-validations`.

mod field_path;
mod limits;
mod rule;
mod validate;

use std::{
    collections::{HashMap, HashSet},
    sync::Arc,
};

use capstan_api::{
    Value,
    schema::{NodeId, NodeRef},
};

pub use limits::{MAX_EXPRESSION_COST, MAX_SCHEMA_COST, check_rule_texts, check_rules};
pub use rule::{CompiledRule, Rule, compile_rules};
pub use validate::RUNTIME_COST_BUDGET;

use crate::{decl::Decls, escape::escape};

/// All rules of a schema, compiled.
#[derive(Debug)]
pub struct Validator {
    /// The rules of each node of the schema.
    rules: HashMap<NodeId, Vec<CompiledRule>>,
    /// The nodes at which or below which there are rules.
    ways: HashSet<NodeId>,
    /// Whether the schema is that of a whole object.
    root: bool,
}

/// A place whose rules are to be compiled: who says the rules, and whose value they are about.
struct Pair<'a> {
    says: NodeRef<'a>,
    about: NodeRef<'a>,
    parent: Option<usize>,
    root: bool,
}

impl Validator {
    /// Compiles the rules of a schema; nothing when it has none. `root` says whether it is that of a whole object.
    #[must_use]
    pub fn new(schema: NodeRef<'_>, root: bool) -> Option<Self> {
        let decls = Arc::new(Decls::new(schema, root));
        let mut validator = Validator { rules: HashMap::new(), ways: HashSet::new(), root };
        let mut pairs = vec![Pair { says: schema, about: schema, parent: None, root: true }];
        let mut at = 0;
        while at < pairs.len() {
            let (says, about) = (pairs[at].says, pairs[at].about);
            let written: Vec<&Value> = says.rules().flat_map(|rules| rules.validations.iter()).collect();
            if !written.is_empty() {
                let compiled = compile_rules(about, &decls, decls.of(about), written);
                validator.rules.entry(about.id()).or_default().extend(compiled);
                let mut up = Some(at);
                while let Some(here) = up {
                    validator.ways.insert(pairs[here].about.id());
                    up = pairs[here].parent;
                }
            }
            add_below(&mut pairs, at, &decls);
            at += 1;
        }
        (!validator.rules.is_empty()).then_some(validator)
    }
}

/// Adds the pairs below one.
fn add_below<'a>(pairs: &mut Vec<Pair<'a>>, at: usize, decls: &Decls) {
    let Pair { says, about, root, .. } = pairs[at];
    let mut add = |says, about, root| pairs.push(Pair { says, about, parent: Some(at), root });
    if let (Some(says), Some(about)) = (says.items(), about.items()) {
        add(says, about, false);
    }
    if let (Some(says), Some(about)) = (says.additional(), about.additional()) {
        add(says, about, false);
    }
    for field in says.fields() {
        // Fields whose type is not known cannot be looked at by rules, and so have none.
        if let Some(about) = about.field(field.name.as_str()).map(|field| field.node)
            && (decls.of(about).is_some() || escape(field.name.as_str()).is_none())
        {
            add(field.node, about, false);
        }
    }
    for rules in says.rules() {
        for part in says.combination(&rules.all_of) {
            add(part, about, root);
        }
    }
}
