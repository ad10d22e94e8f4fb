//! Running an expression: values, errors, and what it costs.

use std::{cell::RefCell, rc::Rc};

use crate::{
    ast::Literal,
    compare, cost,
    functions::{self, Call},
    macros::ACCU,
    plan::{By, CallStep, FoldStep, Program, Qualifier, Root, Step, StepId},
    value::{EvalError, List, Map, Outcome, Text, Val},
};

/// What one evaluation may cost.
pub const PER_CALL_LIMIT: u64 = 1_000_000;

/// What the variables of an expression are.
pub trait Variables<'a> {
    /// The value of a variable, if there is such a variable.
    fn get(&self, name: &str) -> Option<Result<Val<'a>, EvalError>>;
}

impl<'a> Variables<'a> for [(&str, Result<Val<'a>, EvalError>)] {
    fn get(&self, name: &str) -> Option<Result<Val<'a>, EvalError>> {
        self.iter().find(|(known, _)| *known == name).map(|(_, value)| value.clone())
    }
}

impl<'a, const N: usize> Variables<'a> for [(&str, Result<Val<'a>, EvalError>); N] {
    fn get(&self, name: &str) -> Option<Result<Val<'a>, EvalError>> {
        Variables::get(self.as_slice(), name)
    }
}

/// No variables at all.
pub(crate) struct NoVariables;
pub(crate) static NO_VARIABLES: NoVariables = NoVariables;

impl<'a> Variables<'a> for NoVariables {
    fn get(&self, _: &str) -> Option<Result<Val<'a>, EvalError>> {
        None
    }
}

/// What came out of an evaluation, and what it cost.
#[derive(Debug)]
pub struct Evaluated<'a> {
    /// The value, or why there is none.
    pub result: Result<Val<'a>, EvalError>,
    /// What it cost.
    pub cost: u64,
}

impl Program {
    /// Evaluates the expression. It stops when it costs more than `limit`.
    pub fn eval<'a>(&'a self, variables: &dyn Variables<'a>, limit: u64) -> Evaluated<'a> {
        let mut evaluator = Evaluator::new(self, variables, limit);
        let result = evaluator.eval(self.root, None);
        Evaluated { result, cost: evaluator.cost }
    }
}

/// The variables of a comprehension.
pub(crate) struct Scope<'s, 'a> {
    parent: Option<&'s Scope<'s, 'a>>,
    fold: &'a FoldStep,
    state: RefCell<State<'a>>,
}

struct State<'a> {
    accu: Option<Outcome<'a>>,
    var: Outcome<'a>,
    var2: Outcome<'a>,
    /// The loop is over: only the accumulator is left.
    over: bool,
}

pub(crate) struct Evaluator<'v, 'a> {
    program: &'a Program,
    variables: &'v dyn Variables<'a>,
    cost: u64,
    limit: u64,
    /// Something constant is evaluated: nothing is charged.
    free: u32,
}

type Inside<'s, 'a> = Option<&'s Scope<'s, 'a>>;

/// Where a step of a path leads.
enum Found<'a> {
    Value(Val<'a>),
    Absent,
}

impl<'v, 'a> Evaluator<'v, 'a> {
    pub(crate) fn new(program: &'a Program, variables: &'v dyn Variables<'a>, limit: u64) -> Self {
        Evaluator { program, variables, cost: 0, limit, free: 0 }
    }

    fn charge(&mut self, cost: u64) -> Result<(), EvalError> {
        if self.free == 0 {
            self.cost = self.cost.saturating_add(cost);
            if self.cost > self.limit {
                return Err(EvalError::CostLimit);
            }
        }
        Ok(())
    }

    /// Charges, and then gives the outcome, unless the charge was too much.
    fn charged(&mut self, cost: u64, outcome: Outcome<'a>) -> Outcome<'a> {
        self.charge(cost)?;
        outcome
    }

    /// Plans are as high as trees, whose height is bounded, and so is this.
    pub(crate) fn eval(&mut self, id: StepId, scope: Inside<'_, 'a>) -> Outcome<'a> {
        match self.program.step(id) {
            Step::Never => Err(EvalError::no_overload()),
            Step::Literal(literal) => Ok(literal_value(literal)),
            Step::Type(name) => Ok(Val::Type(Rc::from(name.as_str()))),
            Step::Constant(inner) => {
                self.free += 1;
                let outcome = self.eval(*inner, scope);
                self.free -= 1;
                outcome
            }
            Step::Path { .. } => {
                let outcome = self.resolve(id, scope);
                if matches!(outcome, Err(EvalError::CostLimit)) {
                    return outcome;
                }
                self.charged(1, outcome)
            }
            Step::Conditional { .. } => self.resolve(id, scope),
            Step::Present { root, qualifiers } => self.present(root, qualifiers, scope),
            Step::And(terms) => self.logic(*terms, false, scope),
            Step::Or(terms) => self.logic(*terms, true, scope),
            Step::Equal { args, not } => self.equal(*args, *not, scope),
            Step::Among { value, list } => self.among(*value, *list, scope),
            Step::Otherwise { optional, other, unwrap } => self.otherwise(*optional, *other, *unwrap, scope),
            Step::Call(call) => self.call(call, scope),
            Step::List(items) => self.list(items, scope),
            Step::Map(entries) => self.map(entries, scope),
            Step::Struct(fields) => self.object(fields, scope),
            Step::Fold(fold) => self.fold(fold, scope),
        }
    }

    /// The value of a path, without the charge for looking at it as a whole.
    fn resolve(&mut self, id: StepId, scope: Inside<'_, 'a>) -> Outcome<'a> {
        match self.program.step(id) {
            Step::Path { root, qualifiers } => {
                let value = self.root(root, scope)?;
                self.qualify(value, qualifiers, scope)
            }
            Step::Conditional { condition, yes, no, qualifiers } => {
                let branch = match self.eval(*condition, scope)? {
                    Val::Bool(true) => *yes,
                    Val::Bool(false) => *no,
                    _ => return Err(EvalError::no_overload()),
                };
                let value = self.resolve(branch, scope)?;
                self.qualify(value, qualifiers, scope)
            }
            _ => self.eval(id, scope),
        }
    }

    fn root(&mut self, root: &'a Root, scope: Inside<'_, 'a>) -> Outcome<'a> {
        match root {
            Root::Step(step) => self.eval(*step, scope),
            Root::Variable(name) => self.variable(name, scope),
        }
    }

    fn variable(&mut self, name: &str, scope: Inside<'_, 'a>) -> Outcome<'a> {
        let mut here = scope;
        while let Some(scope) = here {
            if name == scope.fold.accu {
                if scope.state.borrow().accu.is_none() {
                    let init = self.eval(scope.fold.init, scope.parent);
                    if matches!(init, Err(EvalError::CostLimit)) {
                        return init;
                    }
                    scope.state.borrow_mut().accu = Some(init);
                }
                return scope.state.borrow().accu.clone().unwrap_or_else(|| Err(EvalError::no_overload()));
            }
            let state = scope.state.borrow();
            if !state.over {
                if name == scope.fold.var {
                    return state.var.clone();
                }
                if scope.fold.var2.as_deref() == Some(name) {
                    return state.var2.clone();
                }
            }
            drop(state);
            here = scope.parent;
        }
        self.variables.get(name).unwrap_or_else(|| Err(EvalError::new(format!("no such attribute(s): {name}"))))
    }

    fn qualify(&mut self, value: Val<'a>, qualifiers: &'a [Qualifier], scope: Inside<'_, 'a>) -> Outcome<'a> {
        if qualifiers.is_empty() {
            return Ok(value);
        }
        let (mut here, mut optional) = match value {
            Val::Optional(None) => return Ok(value),
            Val::Optional(Some(inside)) => (Rc::unwrap_or_clone(inside), true),
            other => (other, false),
        };
        for qualifier in qualifiers {
            optional |= qualifier.optional;
            let key = self.key(qualifier, scope)?;
            let found = find(&here, &key, optional);
            here = match found {
                Err(error) if optional => return Err(error),
                Err(error) => return self.charged(1, Err(error)),
                Ok(Found::Absent) => return Ok(Val::Optional(None)),
                Ok(Found::Value(value)) => self.charged(1, Ok(value))?,
            };
        }
        Ok(if optional { Val::some(here) } else { here })
    }

    fn key(&mut self, qualifier: &'a Qualifier, scope: Inside<'_, 'a>) -> Outcome<'a> {
        match &qualifier.by {
            By::Field(name) => Ok(Val::String(Text::Borrowed(name))),
            By::Step(step) => self.resolve(*step, scope),
        }
    }

    fn present(&mut self, root: &'a Root, qualifiers: &'a [Qualifier], scope: Inside<'_, 'a>) -> Outcome<'a> {
        let (last, before) = qualifiers.split_last().expect("a presence test is of a field");
        let value = self.root(root, scope)?;
        let mut value = self.qualify(value, before, scope)?;
        let mut optional = false;
        if let Val::Optional(inside) = value {
            let Some(inside) = inside else { return Ok(Val::Bool(false)) };
            (value, optional) = (Rc::unwrap_or_clone(inside), true);
        }
        let key = self.key(last, scope)?;
        match find(&value, &key, true) {
            Err(error) => self.charged(u64::from(!optional), Err(error)),
            Ok(Found::Absent) => self.charged(u64::from(!optional), Ok(Val::Bool(false))),
            Ok(Found::Value(_)) => self.charged(1, Ok(Val::Bool(true))),
        }
    }

    fn logic(&mut self, terms: [StepId; 2], decisive: bool, scope: Inside<'_, 'a>) -> Outcome<'a> {
        let mut failure = None;
        for term in terms {
            let error = match self.eval(term, scope) {
                Ok(Val::Bool(value)) if value == decisive => return Ok(Val::Bool(decisive)),
                Ok(Val::Bool(_)) => continue,
                Ok(_) => EvalError::no_overload(),
                Err(EvalError::CostLimit) => return Err(EvalError::CostLimit),
                Err(error) => error,
            };
            failure.get_or_insert(error);
        }
        failure.map_or(Ok(Val::Bool(!decisive)), Err)
    }

    fn equal(&mut self, [a, b]: [StepId; 2], not: bool, scope: Inside<'_, 'a>) -> Outcome<'a> {
        let a = limit(self.eval(a, scope))?;
        let b = limit(self.eval(b, scope))?;
        let cost = cost::equality(&a, &b, not);
        let outcome = match (a, b) {
            (Err(error), _) | (_, Err(error)) => Err(error),
            (Ok(a), Ok(b)) => match compare::equal(&a, &b) {
                Ok(equal) => Ok(Val::Bool(equal != not)),
                // What cannot be compared is different.
                Err(_) if not => Ok(Val::Bool(true)),
                Err(error) => Err(error),
            },
        };
        self.charged(cost, outcome)
    }

    fn among(&mut self, value: StepId, list: StepId, scope: Inside<'_, 'a>) -> Outcome<'a> {
        let value = self.eval(value, scope)?;
        let Val::List(items) = self.eval(list, scope)? else { return Err(EvalError::no_overload()) };
        let found = items.iter().flatten().any(|item| compare::equal(&item, &value) == Ok(true));
        Ok(Val::Bool(found))
    }

    fn otherwise(&mut self, optional: StepId, other: StepId, unwrap: bool, scope: Inside<'_, 'a>) -> Outcome<'a> {
        match self.eval(optional, scope)? {
            Val::Optional(None) => self.eval(other, scope),
            Val::Optional(Some(value)) if unwrap => Ok(Rc::unwrap_or_clone(value)),
            value => Ok(value),
        }
    }

    fn call(&mut self, call: &'a CallStep, scope: Inside<'_, 'a>) -> Outcome<'a> {
        if matches!(call.function.as_str(), "_+_" | "cel.@mapInsert")
            && let Some(outcome) = self.accumulate(call, scope)
        {
            return outcome;
        }
        let mut args: Vec<Outcome<'a>> = Vec::with_capacity(call.args.len());
        // Calls of one or two arguments evaluate them all; those of more stop at the first error, and are not charged.
        let lazy = call.args.len() > 2 || call.regex.is_some() || call.function == "format";
        for arg in &call.args {
            let value = limit(self.eval(*arg, scope))?;
            if let (true, Err(error)) = (lazy && args.len() + 1 < call.args.len(), &value) {
                return Err(error.clone());
            }
            args.push(value);
        }
        self.run(call, args)
    }

    fn run(&mut self, call: &'a CallStep, args: Vec<Outcome<'a>>) -> Outcome<'a> {
        let outcome = if call.function == "@not_strictly_false" {
            match &args[0] {
                Ok(Val::Bool(value)) => Ok(Val::Bool(*value)),
                _ => Ok(Val::Bool(true)),
            }
        } else {
            match args.iter().find_map(|arg| arg.as_ref().err()) {
                Some(error) => Err(error.clone()),
                None => {
                    let values: Vec<Val<'a>> = args.iter().flatten().cloned().collect();
                    functions::run(&Call { step: call, args: &values })
                }
            }
        };
        let cost = cost::call(&call.function, call.overload, &args, &outcome);
        self.charged(cost, outcome)
    }

    /// Adds to the accumulator of a comprehension in place: copying it each time would take time without bound.
    fn accumulate(&mut self, call: &'a CallStep, scope: Inside<'_, 'a>) -> Option<Outcome<'a>> {
        let inside = scope.filter(|scope| scope.fold.accu == ACCU)?;
        match self.program.step(*call.args.first()?) {
            Step::Path { root: Root::Variable(name), qualifiers } if name == ACCU && qualifiers.is_empty() => {}
            _ => return None,
        }
        if let Err(EvalError::CostLimit) = self.variable(ACCU, scope) {
            return Some(Err(EvalError::CostLimit));
        }
        if !matches!(inside.state.borrow().accu, Some(Ok(Val::List(List::Made(_)) | Val::Map(Map::Made(_))))) {
            return None;
        }
        if let Err(error) = self.charge(1) {
            return Some(Err(error));
        }
        let mut added = Vec::with_capacity(2);
        let last = call.args.len() - 1;
        for (index, arg) in call.args.iter().enumerate().skip(1) {
            match self.eval(*arg, scope) {
                Ok(value) => added.push(value),
                Err(EvalError::CostLimit) => return Some(Err(EvalError::CostLimit)),
                // A call whose last argument is not reached is not charged.
                Err(error) => return Some(self.charged(u64::from(index == last), Err(error))),
            }
        }
        let accu = inside.state.borrow_mut().accu.replace(Ok(Val::Null));
        let outcome = match (accu, &added[..]) {
            (Some(Ok(Val::List(List::Made(mut items)))), [Val::List(more)]) => more.all().map(|more| {
                Rc::make_mut(&mut items).extend(more);
                Val::List(List::Made(items))
            }),
            (Some(Ok(Val::Map(Map::Made(mut map)))), [key, value]) => {
                functions::lists::insert(&mut map, key.clone(), value.clone()).map(|()| Val::Map(Map::Made(map)))
            }
            (Some(Ok(Val::Map(Map::Made(mut map)))), [Val::Map(more)]) => {
                let insert = |key: Val<'a>| match more.find(&key) {
                    Some(value) => functions::lists::insert(&mut map, key, value?),
                    None => Ok(()),
                };
                more.keys().into_iter().try_for_each(insert).map(|()| Val::Map(Map::Made(map)))
            }
            _ => Err(EvalError::no_overload()),
        };
        Some(self.charged(1, outcome))
    }

    fn list(&mut self, items: &'a [(StepId, bool)], scope: Inside<'_, 'a>) -> Outcome<'a> {
        let outcome = self.items(items, scope);
        let outcome = limit(outcome)?;
        self.charged(cost::LIST, outcome)
    }

    fn items(&mut self, items: &'a [(StepId, bool)], scope: Inside<'_, 'a>) -> Outcome<'a> {
        let mut values = Vec::with_capacity(items.len());
        for (item, optional) in items {
            match (self.eval(*item, scope)?, optional) {
                (value, false) => values.push(value),
                (Val::Optional(None), true) => {}
                (Val::Optional(Some(value)), true) => values.push(Rc::unwrap_or_clone(value)),
                (other, true) => {
                    let message = "cannot initialize optional list element from non-optional value";
                    return Err(EvalError::new(format!("{message} {}", other.show())));
                }
            }
        }
        Ok(Val::list(values))
    }

    fn map(&mut self, entries: &'a [(StepId, StepId, bool)], scope: Inside<'_, 'a>) -> Outcome<'a> {
        let outcome = self.entries(entries, scope);
        let outcome = limit(outcome)?;
        self.charged(cost::MAP, outcome)
    }

    fn entries(&mut self, entries: &'a [(StepId, StepId, bool)], scope: Inside<'_, 'a>) -> Outcome<'a> {
        let mut pairs = Vec::with_capacity(entries.len());
        for (key, value, optional) in entries {
            let key = self.eval(*key, scope)?;
            match (self.eval(*value, scope)?, optional) {
                (value, false) => pairs.push((key, value)),
                (Val::Optional(None), true) => {}
                (Val::Optional(Some(value)), true) => pairs.push((key, Rc::unwrap_or_clone(value))),
                (other, true) => {
                    let (key, value) = (key.show(), other.show());
                    return Err(EvalError::new(format!(
                        "cannot initialize optional entry '{key}' from non-optional value {value}"
                    )));
                }
            }
        }
        Ok(Val::map(pairs))
    }

    fn object(&mut self, fields: &'a [(String, StepId, bool)], scope: Inside<'_, 'a>) -> Outcome<'a> {
        let outcome = self.fields(fields, scope);
        let outcome = limit(outcome)?;
        self.charged(cost::STRUCT, outcome)
    }

    fn fields(&mut self, fields: &'a [(String, StepId, bool)], scope: Inside<'_, 'a>) -> Outcome<'a> {
        let mut pairs = Vec::with_capacity(fields.len());
        for (name, value, optional) in fields {
            let key = Val::String(Text::Borrowed(name));
            match (self.eval(*value, scope)?, optional) {
                (value, false) => pairs.push((key, value)),
                (Val::Optional(None), true) => {}
                (Val::Optional(Some(value)), true) => pairs.push((key, Rc::unwrap_or_clone(value))),
                (other, true) => {
                    let value = other.show();
                    return Err(EvalError::new(format!(
                        "cannot initialize optional entry '{name}' from non-optional value {value}"
                    )));
                }
            }
        }
        Ok(Val::map(pairs))
    }

    fn fold(&mut self, fold: &'a FoldStep, scope: Inside<'_, 'a>) -> Outcome<'a> {
        let range = self.eval(fold.range, scope)?;
        let none = || Err(EvalError::no_overload());
        let state = RefCell::new(State { accu: None, var: none(), var2: none(), over: false });
        let inner = Scope { parent: scope, fold, state };
        match &range {
            Val::List(items) => {
                for index in 0..items.len() {
                    let item = items.get(index).unwrap_or_else(none);
                    let position = Ok(Val::Int(i64::try_from(index).unwrap_or(i64::MAX)));
                    let vars = if fold.var2.is_some() { (position, item) } else { (item, none()) };
                    if !self.iterate(&inner, vars)? {
                        break;
                    }
                }
            }
            Val::Map(map) => {
                for key in map.keys() {
                    let value = if fold.var2.is_some() { map.find(&key).unwrap_or_else(none) } else { none() };
                    if !self.iterate(&inner, (Ok(key), value))? {
                        break;
                    }
                }
            }
            other => {
                let go = functions::go_type(other);
                return Err(EvalError::new(match fold.var2 {
                    Some(_) => format!("unsupported comprehension range type: {go}"),
                    None => format!("got '{go}', expected iterable type"),
                }));
            }
        }
        inner.state.borrow_mut().over = true;
        self.eval(fold.result, Some(&inner))
    }

    /// One round of a loop; says whether there is another.
    fn iterate(&mut self, scope: &Scope<'_, 'a>, (var, var2): (Outcome<'a>, Outcome<'a>)) -> Result<bool, EvalError> {
        {
            let mut state = scope.state.borrow_mut();
            (state.var, state.var2) = (var, var2);
        }
        let condition = limit(self.eval(scope.fold.condition, Some(scope)))?;
        if matches!(condition, Ok(Val::Bool(false))) {
            return Ok(false);
        }
        let accu = limit(self.eval(scope.fold.step, Some(scope)))?;
        scope.state.borrow_mut().accu = Some(accu);
        Ok(true)
    }
}

/// Lets the end of the budget through, and keeps other errors as outcomes.
fn limit<T>(outcome: Result<T, EvalError>) -> Result<Result<T, EvalError>, EvalError> {
    match outcome {
        Err(EvalError::CostLimit) => Err(EvalError::CostLimit),
        other => Ok(other),
    }
}

fn literal_value(literal: &Literal) -> Val<'_> {
    match literal {
        Literal::Null => Val::Null,
        Literal::Bool(b) => Val::Bool(*b),
        Literal::Int(n) => Val::Int(*n),
        Literal::Uint(n) => Val::Uint(*n),
        Literal::Double(d) => Val::Double(*d),
        Literal::String(text) => Val::String(Text::Borrowed(text)),
        Literal::Bytes(bytes) => Val::Bytes(bytes.as_slice().into()),
    }
}

/// A field or an element. What is not there is absent if it `may_lack`, otherwise an error.
fn find<'a>(value: &Val<'a>, key: &Val<'_>, may_lack: bool) -> Result<Found<'a>, EvalError> {
    let missing = |what: &str| {
        if may_lack { Ok(Found::Absent) } else { Err(EvalError::new(format!("{what}: {}", key.show()))) }
    };
    match value {
        Val::Map(map) => match map.find(key) {
            Some(found) => found.map(Found::Value),
            None => missing("no such key"),
        },
        Val::List(list) => {
            let index = functions::lists::index(key)?;
            match usize::try_from(index).ok().and_then(|index| list.get(index)) {
                Some(found) => found.map(Found::Value),
                None => missing("index out of bounds"),
            }
        }
        _ => missing("no such key"),
    }
}
