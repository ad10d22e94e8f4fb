//! One rule: how it is written and what it compiles to.

use std::sync::Arc;

use capstan_api::{Value, schema::NodeRef};

use super::field_path;
use crate::{
    check::{Checked, Env, check},
    decl::{DeclId, Decls, MAX_REQUEST_BYTES},
    estimate::estimate,
    parser::parse,
    plan::Program,
    types::Type,
};

/// A rule as it is written.
#[derive(Clone, Debug, Default)]
pub struct Rule {
    /// The expression that must be true.
    pub rule: String,
    /// What is said when it is not.
    pub message: String,
    /// An expression for what is said when it is not.
    pub message_expression: String,
    /// What kind of error it is.
    pub reason: Option<String>,
    /// The field that the error is about.
    pub field_path: String,
    /// Whether `oldSelf` is optional, so that the rule is also looked at when there is no old value.
    pub optional_old_self: Option<bool>,
}

impl Rule {
    /// Reads a rule. What is of the wrong type is as if it was not there; the schema's shape is looked at elsewhere.
    #[must_use]
    pub fn read(written: &Value) -> Self {
        let text = |key: &str| written.get(key).and_then(Value::as_str).unwrap_or_default().to_owned();
        Rule {
            rule: text("rule"),
            message: text("message"),
            message_expression: text("messageExpression"),
            reason: written.get("reason").and_then(Value::as_str).map(str::to_owned),
            field_path: text("fieldPath"),
            optional_old_self: written.get("optionalOldSelf").and_then(Value::as_bool),
        }
    }

    /// What messages call the rule.
    pub(super) fn shown(&self) -> &str {
        if self.message.is_empty() { self.rule.trim() } else { self.message.trim() }
    }
}

/// A rule that has been compiled, or what is wrong with it.
#[derive(Debug)]
pub struct CompiledRule {
    /// The rule as it is written.
    pub rule: Rule,
    /// The expression; nothing when there is an error, or the rule is empty.
    pub program: Option<Program>,
    /// What is wrong with the rule.
    pub error: Option<String>,
    /// Whether it looks at the old value: a transition rule.
    pub uses_old_self: bool,
    /// The most that it can cost.
    pub max_cost: u64,
    /// How many values there can be that it is about, if nothing else bounds them.
    pub max_cardinality: u64,
    /// The expression for the message.
    pub message_program: Option<Program>,
    /// What is wrong with the expression for the message.
    pub message_error: Option<String>,
    /// The most that the message can cost.
    pub message_max_cost: u64,
    /// The field that errors are about, below the value itself.
    pub field_path: Option<String>,
}

/// Compiles rules about the values of a place in a schema.
#[must_use]
pub fn compile_rules<'v>(
    schema: NodeRef<'_>,
    decls: &Arc<Decls>,
    decl: Option<DeclId>,
    written: impl IntoIterator<Item = &'v Value>,
) -> Vec<CompiledRule> {
    written.into_iter().map(|written| compile(schema, decls, decl, Rule::read(written))).collect()
}

fn compile(schema: NodeRef<'_>, decls: &Arc<Decls>, decl: Option<DeclId>, rule: Rule) -> CompiledRule {
    let mut compiled = CompiledRule {
        program: None,
        error: None,
        uses_old_self: false,
        max_cost: 0,
        max_cardinality: 0,
        message_program: None,
        message_error: None,
        message_max_cost: 0,
        field_path: None,
        rule,
    };
    let Some(decl) = decl else {
        compiled.error = Some("failed to convert to declType for CEL validation rules".to_owned());
        return compiled;
    };
    if compiled.rule.rule.trim().is_empty() {
        return compiled;
    }
    let ty = decls.ty(decl);
    let old = if compiled.rule.optional_old_self == Some(true) { Type::optional(ty.clone()) } else { ty.clone() };
    let env = Env::new(decls.clone(), Some(decl)).with("self", ty).with("oldSelf", old);
    let (checked, program) =
        match expression(&compiled.rule.rule, &env, &Type::Bool, "", "cel expression must evaluate to a bool") {
            Ok(both) => both,
            Err(error) => {
                compiled.error = Some(error);
                return compiled;
            }
        };
    compiled.uses_old_self = checked.uses("oldSelf");
    compiled.max_cost = estimate(&checked).max;
    compiled.max_cardinality = (MAX_REQUEST_BYTES / (decls.get(decl).min_size + 1)).cast_unsigned();
    compiled.program = Some(program);
    if !compiled.rule.message_expression.is_empty() {
        const TEXT: &str = "messageExpression must evaluate to a string";
        match expression(&compiled.rule.message_expression, &env, &Type::String, "messageExpression ", TEXT) {
            Ok((checked, program)) => {
                compiled.message_max_cost = estimate(&checked).max;
                compiled.message_program = Some(program);
            }
            Err(error) => {
                compiled.message_error = Some(error);
                return compiled;
            }
        }
    }
    if !compiled.rule.field_path.is_empty() {
        compiled.field_path = field_path::normalize(&compiled.rule.field_path, schema).ok();
    }
    compiled
}

fn expression(
    text: &str,
    env: &Env,
    wanted: &Type,
    prefix: &str,
    otherwise: &str,
) -> Result<(Checked, Program), String> {
    let checked = parse(text)
        .and_then(|ast| check(ast, env))
        .map_err(|errors| format!("{prefix}compilation failed: {errors}"))?;
    if checked.output() != wanted {
        return Err(otherwise.to_owned());
    }
    let name = if prefix.is_empty() { "program " } else { prefix };
    let program = Program::new(&checked).map_err(|error| format!("{name}instantiation failed: {error}"))?;
    Ok((checked, program))
}
