//! Looking at an object: every rule for every value that it is about, within one budget.

use std::{cell::OnceCell, collections::HashMap, rc::Rc};

use capstan_api::{
    Array, Value,
    field::{Error, ErrorList, Segment, render},
    schema::{ListType, NodeRef, Type, validate::is_same},
};

use super::{CompiledRule, Validator};
use crate::{
    eval::{PER_CALL_LIMIT, Variables},
    value::{EvalError, Val},
    view::{Shape, view},
};

/// What all rules together may cost for one object.
pub const RUNTIME_COST_BUDGET: i64 = 10_000_000;
/// The longest message that an expression may make, in bytes.
const MAX_MESSAGE: usize = 5 * 1024;

const OUT_OF_BUDGET: &str =
    "validation failed due to running out of cost budget, no further validation rules will be run";

/// A value that waits for its rules.
struct Waiting<'a> {
    node: NodeRef<'a>,
    value: &'a Value,
    old: Option<&'a Value>,
    /// What of before it is compared with to see whether something has changed: its own value, or of what is around it
    /// that which is nearest and can be told apart.
    before: Option<Rc<Before<'a>>>,
    path: Option<Rc<Way<'a>>>,
    root: bool,
}

/// A value and what it was. Many values may look at one, so it is compared once.
struct Before<'a> {
    node: NodeRef<'a>,
    new: &'a Value,
    old: &'a Value,
    same: OnceCell<bool>,
}

impl<'a> Before<'a> {
    fn of(node: NodeRef<'a>, new: &'a Value, old: Option<&'a Value>) -> Option<Rc<Self>> {
        old.map(|old| Rc::new(Before { node, new, old, same: OnceCell::new() }))
    }

    fn is_same(&self) -> bool {
        *self.same.get_or_init(|| is_same(self.node, self.new, self.old))
    }
}

/// The way to a value.
struct Way<'a> {
    parent: Option<Rc<Way<'a>>>,
    segment: Segment<'a>,
}

fn show(base: &str, path: Option<&Rc<Way<'_>>>) -> String {
    let (mut segments, mut here) = (Vec::new(), path);
    while let Some(way) = here {
        segments.push(way.segment);
        here = way.parent.as_ref();
    }
    let base = (!base.is_empty()).then_some(Segment::Child(base));
    render(base.into_iter().chain(segments.into_iter().rev()))
}

/// The variables of a rule.
struct Selves<'a> {
    own: Result<Val<'a>, EvalError>,
    old: Option<Result<Val<'a>, EvalError>>,
}

impl<'a> Variables<'a> for Selves<'a> {
    fn get(&self, name: &str) -> Option<Result<Val<'a>, EvalError>> {
        match name {
            "self" => Some(self.own.clone()),
            "oldSelf" => self.old.clone(),
            _ => None,
        }
    }
}

/// No more rules are looked at.
struct Spent;

struct Run<'v> {
    base: &'v str,
    errors: ErrorList,
    /// What is wrong with what has not changed, when that is forgiven.
    forgiven: Option<ErrorList>,
    budget: i64,
}

impl Validator {
    /// Looks at an object, which is to be found at the path `base`, and says what is wrong and what is left of the
    /// budget; a negative rest means that the budget ran out.
    ///
    /// The schema must be the one that the validator was made from.
    #[must_use]
    pub fn validate<'a>(
        &'a self,
        schema: NodeRef<'a>,
        base: &str,
        value: &'a Value,
        old: Option<&'a Value>,
        budget: i64,
    ) -> (ErrorList, i64) {
        let mut run = Run { base, errors: Vec::new(), forgiven: None, budget };
        let rest = run.all(self, schema, value, old);
        (run.errors, rest)
    }

    /// Looks at an object that replaces another. Rules that are about the new value alone are forgiven where it is the
    /// old one: their errors are the second list.
    #[must_use]
    pub fn validate_update<'a>(
        &'a self,
        schema: NodeRef<'a>,
        value: &'a Value,
        old: &'a Value,
        budget: i64,
    ) -> (ErrorList, ErrorList) {
        let mut run = Run { base: "", errors: Vec::new(), forgiven: Some(Vec::new()), budget };
        run.all(self, schema, value, Some(old));
        (run.errors, run.forgiven.unwrap_or_default())
    }
}

/// Adds the values inside that there are rules for.
fn add_below<'a>(validator: &Validator, at: &Waiting<'a>, todo: &mut Vec<Waiting<'a>>) {
    let mut add = |node: NodeRef<'a>, value, old: Option<&'a Value>, segment| {
        if validator.ways.contains(&node.id()) {
            // Which version an object was in before cannot be seen any more.
            let version = at.path.is_none() && matches!(segment, Segment::Child("apiVersion" | "kind"));
            let before = Before::of(node, value, old).or_else(|| at.before.clone()).filter(|_| !version);
            let path = Some(Rc::new(Way { parent: at.path.clone(), segment }));
            todo.push(Waiting { node, value, old, before, path, root: node.is_embedded_resource() });
        }
    };
    match at.value {
        Value::Array(items) => {
            let Some(node) = at.node.items() else { return };
            let old = at.old.and_then(Value::as_array).map(|old| by_key(at.node, old)).unwrap_or_default();
            for (index, item) in items.iter().enumerate() {
                let old = key_of(at.node, item).and_then(|key| old.get(&key).copied());
                add(node, item, old, Segment::Index(index));
            }
        }
        Value::Object(map) => {
            let old = at.old.and_then(Value::as_object);
            if let Some(node) = at.node.additional() {
                for (key, value) in map.iter() {
                    add(node, value, old.and_then(|old| old.get(key)), Segment::Key(key));
                }
            }
            for (key, value) in map.iter() {
                if let Some(field) = at.node.field(key) {
                    add(field.node, value, old.and_then(|old| old.get(key)), Segment::Child(key));
                }
            }
        }
        _ => {}
    }
}

/// By what an element of a list with keys is known again.
fn key_of(node: NodeRef<'_>, item: &Value) -> Option<String> {
    if node.list_type() != ListType::Map || node.list_map_keys().is_empty() {
        return None;
    }
    let part = |value: &Value| match value {
        Value::Bool(_) | Value::Int(_) | Value::Float(_) | Value::String(_) => {
            Some(format!("{} {}", value.type_name(), capstan_api::go::show(value)))
        }
        _ => None,
    };
    let parts: Option<Vec<String>> =
        node.list_map_keys().iter().map(|key| item.get(key.as_str()).and_then(part)).collect();
    parts.map(|parts| parts.join("\0"))
}

fn by_key<'a>(node: NodeRef<'_>, items: &'a Array) -> HashMap<String, &'a Value> {
    let mut all = HashMap::new();
    for item in items {
        if let Some(key) = key_of(node, item) {
            all.entry(key).or_insert(item);
        }
    }
    all
}

fn type_name(ty: Type) -> &'static str {
    match ty {
        Type::Any => "",
        Type::Object => "object",
        Type::Array => "array",
        Type::String => "string",
        Type::Integer => "integer",
        Type::Number => "number",
        Type::Boolean => "boolean",
    }
}

impl Run<'_> {
    /// Looks at all there is, and says what is left of the budget.
    fn all<'a>(
        &mut self,
        validator: &'a Validator,
        node: NodeRef<'a>,
        value: &'a Value,
        old: Option<&'a Value>,
    ) -> i64 {
        let before = Before::of(node, value, old);
        let mut todo = vec![Waiting { node, value, old, before, path: None, root: validator.root }];
        while let Some(waiting) = todo.pop() {
            if waiting.value.is_null() {
                continue;
            }
            if self.look(validator, &waiting).is_err() {
                return -1;
            }
            let first = todo.len();
            add_below(validator, &waiting, &mut todo);
            todo[first..].reverse();
        }
        self.budget
    }

    /// A rule is not true. One that is about the value alone is forgiven where the value is what it was.
    fn add(&mut self, compiled: &CompiledRule, at: &Waiting<'_>, error: Error) {
        match &mut self.forgiven {
            Some(forgiven) if !compiled.uses_old_self && at.before.as_ref().is_some_and(|before| before.is_same()) => {
                forgiven.push(error);
            }
            _ => self.errors.push(error),
        }
    }

    fn invalid(&mut self, at: &Waiting<'_>, detail: impl Into<String>) {
        let path = show(self.base, at.path.as_ref());
        self.errors.push(Error::invalid(path, type_name(at.node.ty()), detail));
    }

    fn look<'a>(&mut self, validator: &'a Validator, at: &Waiting<'a>) -> Result<(), Spent> {
        let Some(rules) = validator.rules.get(&at.node.id()) else { return Ok(()) };
        if self.budget <= 0 {
            self.invalid(at, OUT_OF_BUDGET);
            return Err(Spent);
        }
        let shape = if at.root { Shape::Whole(at.node) } else { Shape::Node(at.node) };
        let own = view(at.value, shape);
        let old = at.old.filter(|old| !old.is_null()).map(|old| view(old, shape));
        for rule in rules {
            self.rule(rule, at, &own, old.as_ref())?;
        }
        Ok(())
    }

    fn rule<'a>(
        &mut self,
        compiled: &'a CompiledRule,
        at: &Waiting<'a>,
        own: &Result<Val<'a>, EvalError>,
        old: Option<&Result<Val<'a>, EvalError>>,
    ) -> Result<(), Spent> {
        if let Some(error) = &compiled.error {
            self.invalid(at, format!("rule compile error: {error}"));
            return Ok(());
        }
        let Some(program) = &compiled.program else { return Ok(()) };
        let optional = compiled.rule.optional_old_self == Some(true);
        if compiled.uses_old_self && old.is_none() && !optional {
            return Ok(());
        }
        let plain = Selves { own: own.clone(), old: old.cloned() };
        let evaluated = if optional && compiled.uses_old_self {
            let old = match old {
                None => Ok(Val::Optional(None)),
                Some(old) => old.clone().map(Val::some),
            };
            program.eval(&Selves { own: own.clone(), old: Some(old) }, PER_CALL_LIMIT)
        } else {
            program.eval(&plain, PER_CALL_LIMIT)
        };
        match i64::try_from(evaluated.cost) {
            Ok(cost) if cost <= self.budget => self.budget -= cost,
            _ => {
                self.invalid(at, OUT_OF_BUDGET);
                return Err(Spent);
            }
        }
        let shown = compiled.rule.shown();
        match evaluated.result {
            Ok(Val::Bool(true)) => Ok(()),
            Ok(_) => self.broken(compiled, at, &plain),
            Err(EvalError::CostLimit) => {
                let error = EvalError::CostLimit;
                self.invalid(
                    at,
                    format!("'{error}': no further validation rules will be run due to call cost exceeds limit for rule: {shown}"),
                );
                Err(Spent)
            }
            Err(error) => {
                let error = error.to_string();
                self.invalid(
                    at,
                    if error.starts_with("no such overload") {
                        format!(
                            "'{error}': call arguments did not match a supported operator, function or macro signature \
                             for rule: {shown}"
                        )
                    } else {
                        format!("{error} evaluating rule: {shown}")
                    },
                );
                Ok(())
            }
        }
    }

    /// A rule is not true: says so.
    fn broken<'a>(&mut self, compiled: &'a CompiledRule, at: &Waiting<'a>, selves: &Selves<'a>) -> Result<(), Spent> {
        let mut path = show(self.base, at.path.as_ref());
        if let Some(below) = compiled.field_path.as_ref().filter(|below| !below.is_empty()) {
            path = format!("{path}.{below}");
        }
        let mut detail = None;
        if let Some(program) = &compiled.message_program {
            let evaluated = program.eval(selves, PER_CALL_LIMIT);
            let text = &compiled.rule.message_expression;
            let stop = match i64::try_from(evaluated.cost) {
                Ok(cost) if cost <= self.budget => {
                    self.budget -= cost;
                    matches!(evaluated.result, Err(EvalError::CostLimit)).then(|| {
                        let quoted = capstan_api::go::quote(text);
                        format!(
                            "no further validation rules will be run due to call cost exceeds limit for \
                             messageExpression: {quoted}"
                        )
                    })
                }
                _ => Some(
                    "messageExpression evaluation failed due to running out of cost budget, no further validation \
                     rules will be run"
                        .to_owned(),
                ),
            };
            if let Some(stop) = stop {
                self.add(compiled, at, Error::invalid(path, type_name(at.node.ty()), stop));
                return Err(Spent);
            }
            // A message that cannot be used is passed over.
            detail = match evaluated.result {
                Ok(Val::String(text)) => Some(text.trim().to_owned())
                    .filter(|text| !text.is_empty() && text.len() <= MAX_MESSAGE && !text.contains('\n')),
                _ => None,
            };
        }
        let detail = detail.unwrap_or_else(|| match compiled.rule.message.is_empty() {
            true => format!("failed rule: {}", compiled.rule.shown()),
            false => compiled.rule.message.trim().to_owned(),
        });
        let whole = matches!(at.node.ty(), Type::Object | Type::Array);
        let mut error = match compiled.rule.reason.as_deref() {
            Some("FieldValueForbidden") => Error::forbidden(path, detail),
            Some("FieldValueRequired") => Error::required(path, detail),
            Some("FieldValueDuplicate") => Error::duplicate(path, at.value.clone()),
            _ => Error::invalid(path, at.value.clone(), detail),
        };
        if whole {
            error.bad_value = None;
        }
        self.add(compiled, at, error);
        Ok(())
    }
}
