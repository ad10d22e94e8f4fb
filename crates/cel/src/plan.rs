//! From a checked expression to steps that can be run. What is constant is found out here, because it costs nothing.

use crate::{
    ast::{Expr, ExprId, Literal},
    check::{Checked, Reference},
    eval::{self, Evaluator},
    functions::{self, Impl},
    types::Type,
    value::Val,
};

/// A step's place.
pub(crate) type StepId = u32;

/// What a path of fields and indices begins with.
#[derive(Debug)]
pub(crate) enum Root {
    Variable(String),
    Step(StepId),
}

/// A field or an index.
#[derive(Debug)]
pub(crate) struct Qualifier {
    pub(crate) by: By,
    pub(crate) optional: bool,
}

#[derive(Debug)]
pub(crate) enum By {
    Field(String),
    /// A constant or anything else that is evaluated.
    Step(StepId),
}

/// A comprehension.
#[derive(Debug)]
pub(crate) struct FoldStep {
    pub(crate) range: StepId,
    pub(crate) var: String,
    pub(crate) var2: Option<String>,
    pub(crate) accu: String,
    pub(crate) init: StepId,
    pub(crate) condition: StepId,
    pub(crate) step: StepId,
    pub(crate) result: StepId,
}

/// One step.
#[derive(Debug)]
pub(crate) enum Step {
    Literal(Literal),
    /// A type, by its name.
    Type(String),
    /// Something constant: it is the same every time, and free.
    Constant(StepId),
    Path {
        root: Root,
        qualifiers: Vec<Qualifier>,
    },
    /// Whether the last field of a path is there.
    Present {
        root: Root,
        qualifiers: Vec<Qualifier>,
    },
    Conditional {
        condition: StepId,
        yes: StepId,
        no: StepId,
        qualifiers: Vec<Qualifier>,
    },
    And([StepId; 2]),
    Or([StepId; 2]),
    Equal {
        args: [StepId; 2],
        not: bool,
    },
    /// Whether a value is among constants.
    Among {
        value: StepId,
        list: StepId,
    },
    Otherwise {
        optional: StepId,
        other: StepId,
        unwrap: bool,
    },
    Call(CallStep),
    List(Vec<(StepId, bool)>),
    Map(Vec<(StepId, StepId, bool)>),
    /// An object with its fields.
    Struct(Vec<(String, StepId, bool)>),
    Fold(Box<FoldStep>),
    /// What cannot be run; checking has refused it.
    Never,
}

/// A call.
#[derive(Debug)]
pub(crate) struct CallStep {
    pub(crate) function: String,
    /// The overload, unless that is decided at run time.
    pub(crate) overload: &'static str,
    pub(crate) args: Vec<StepId>,
    pub(crate) run: Impl,
    pub(crate) regex: Option<regex::Regex>,
}

/// An expression that can be evaluated.
#[derive(Debug)]
pub struct Program {
    pub(crate) steps: Vec<Step>,
    pub(crate) root: StepId,
}

impl Program {
    /// Plans an expression.
    ///
    /// # Errors
    /// Something constant in it does not work out.
    pub fn new(checked: &Checked) -> Result<Program, String> {
        let mut planner = Planner { checked, program: Program { steps: Vec::new(), root: 0 } };
        planner.program.root = planner.plan(checked.ast.root)?;
        Ok(planner.program)
    }

    pub(crate) fn step(&self, id: StepId) -> &Step {
        &self.steps[id as usize]
    }
}

struct Planner<'c> {
    checked: &'c Checked,
    program: Program,
}

const CONVERSIONS: [&str; 10] =
    ["bool", "bytes", "double", "duration", "dyn", "int", "string", "timestamp", "type", "uint"];

impl Planner<'_> {
    fn add(&mut self, step: Step) -> StepId {
        self.program.steps.push(step);
        u32::try_from(self.program.steps.len() - 1).unwrap_or(u32::MAX)
    }

    fn is_constant(&self, id: StepId) -> bool {
        matches!(self.program.step(id), Step::Literal(_) | Step::Type(_) | Step::Constant(_))
    }

    /// The tree's height is bounded, and so is this.
    fn plan(&mut self, id: ExprId) -> Result<StepId, String> {
        if let Some(Reference::Ident(name)) = &self.checked.references[id as usize] {
            let step = match self.checked.ty(id) {
                Type::Type(Some(_)) if crate::library::type_named(name).is_some() => Step::Type(name.clone()),
                // Objects can be made by the names of their types, but nothing else can be done with those.
                Type::Type(Some(of)) if self.names_message(name, of) => {
                    return Err(format!("reference to undefined type: {name}"));
                }
                _ => Step::Path { root: Root::Variable(name.clone()), qualifiers: Vec::new() },
            };
            return Ok(self.add(step));
        }
        let ast = &self.checked.ast;
        let step = match ast.expr(id) {
            Expr::Bad => Step::Never,
            Expr::Struct { fields, .. } => {
                let mut steps = Vec::with_capacity(fields.len());
                for field in fields {
                    steps.push((field.name.clone(), self.plan(field.value)?, field.optional));
                }
                Step::Struct(steps)
            }
            Expr::Literal(literal) => Step::Literal(literal.clone()),
            Expr::Ident(name) => Step::Path { root: Root::Variable(name.clone()), qualifiers: Vec::new() },
            Expr::Select { operand, field, test } => {
                let operand = self.plan(*operand)?;
                let qualifier = Qualifier { by: By::Field(field.clone()), optional: false };
                return Ok(self.qualify(operand, qualifier, *test));
            }
            Expr::Call { function, target, args } => {
                let mut steps = Vec::with_capacity(args.len() + 1);
                for arg in target.iter().chain(args) {
                    steps.push(self.plan(*arg)?);
                }
                return self.call(id, function, steps);
            }
            Expr::List { items } => {
                let mut steps = Vec::with_capacity(items.len());
                for (item, optional) in items {
                    steps.push((self.plan(*item)?, *optional));
                }
                let constant = steps.iter().all(|(item, _)| self.is_constant(*item));
                return Ok(self.maybe_constant(Step::List(steps), constant));
            }
            Expr::Map { entries } => {
                let mut steps = Vec::with_capacity(entries.len());
                for entry in entries {
                    steps.push((self.plan(entry.key)?, self.plan(entry.value)?, entry.optional));
                }
                let constant = steps.iter().all(|(key, value, _)| self.is_constant(*key) && self.is_constant(*value));
                return Ok(self.maybe_constant(Step::Map(steps), constant));
            }
            Expr::Fold(fold) => Step::Fold(Box::new(FoldStep {
                init: self.plan(fold.init)?,
                range: self.plan(fold.range)?,
                condition: self.plan(fold.condition)?,
                step: self.plan(fold.step)?,
                result: self.plan(fold.result)?,
                var: fold.var.clone(),
                var2: fold.var2.clone(),
                accu: fold.accu.clone(),
            })),
        };
        Ok(self.add(step))
    }

    fn names_message(&self, name: &str, of: &Type) -> bool {
        matches!(of, Type::Object(_) | Type::Struct(_)) && of.declared(&self.checked.decls) == name
    }

    fn maybe_constant(&mut self, step: Step, constant: bool) -> StepId {
        let id = self.add(step);
        if constant { self.add(Step::Constant(id)) } else { id }
    }

    /// Adds a field or an index to a path, or begins one.
    fn qualify(&mut self, operand: StepId, qualifier: Qualifier, test: bool) -> StepId {
        let here = std::mem::replace(&mut self.program.steps[operand as usize], Step::Never);
        let step = match here {
            Step::Path { root, mut qualifiers } => {
                qualifiers.push(qualifier);
                if test { Step::Present { root, qualifiers } } else { Step::Path { root, qualifiers } }
            }
            Step::Conditional { condition, yes, no, mut qualifiers } if !test => {
                qualifiers.push(qualifier);
                Step::Conditional { condition, yes, no, qualifiers }
            }
            other => {
                self.program.steps[operand as usize] = other;
                let (root, qualifiers) = (Root::Step(operand), vec![qualifier]);
                if test { Step::Present { root, qualifiers } } else { Step::Path { root, qualifiers } }
            }
        };
        self.add(step)
    }

    fn call(&mut self, id: ExprId, function: &str, args: Vec<StepId>) -> Result<StepId, String> {
        let overload = match self.checked.overloads(id) {
            [one] => one.id,
            _ => "",
        };
        let step = match (function, &args[..]) {
            ("_&&_", &[a, b]) => Step::And([a, b]),
            ("_||_", &[a, b]) => Step::Or([a, b]),
            ("_?_:_", &[condition, yes, no]) => Step::Conditional { condition, yes, no, qualifiers: Vec::new() },
            ("_==_", &[a, b]) => Step::Equal { args: [a, b], not: false },
            ("_!=_", &[a, b]) => Step::Equal { args: [a, b], not: true },
            ("_[_]" | "_[?_]" | "_?._", &[operand, index]) => {
                let optional = function != "_[_]";
                return Ok(self.qualify(operand, Qualifier { by: By::Step(index), optional }, false));
            }
            ("or" | "orValue", &[optional, other]) => {
                Step::Otherwise { optional, other, unwrap: function == "orValue" }
            }
            ("@in", &[value, list]) if overload == "in_list" && self.is_constant(list) => {
                if let Some(step) = self.among(value, list) {
                    return Ok(step);
                }
                self.call_step(function, overload, args)?
            }
            _ => {
                let constant = CONVERSIONS.contains(&function) && args.len() == 1 && self.is_constant(args[0]);
                let step = self.call_step(function, overload, args)?;
                let call = self.add(step);
                if !constant {
                    return Ok(call);
                }
                self.try_constant(call)?;
                return Ok(self.add(Step::Constant(call)));
            }
        };
        Ok(self.add(step))
    }

    fn call_step(&self, function: &str, overload: &'static str, args: Vec<StepId>) -> Result<Step, String> {
        let mut regex = None;
        if matches!(function, "matches" | "find" | "findAll")
            && let Some(Step::Literal(Literal::String(pattern))) = args.get(1).map(|arg| self.program.step(*arg))
        {
            regex = Some(capstan_api::schema::pattern::compile(pattern)?);
        }
        let run = functions::find(function).ok_or_else(|| format!("no such overload: {function}"))?;
        Ok(Step::Call(CallStep { function: function.to_owned(), overload, args, run, regex }))
    }

    /// Evaluates something constant, to see whether it works out.
    fn try_constant(&self, id: StepId) -> Result<(), String> {
        let mut evaluator = Evaluator::new(&self.program, &eval::NO_VARIABLES, u64::MAX);
        evaluator.eval(id, None).map(|_| ()).map_err(|error| error.to_string())
    }

    /// Looking for a value among constants is free, if they are of simple types.
    fn among(&mut self, value: StepId, list: StepId) -> Option<StepId> {
        let simple = {
            let mut evaluator = Evaluator::new(&self.program, &eval::NO_VARIABLES, u64::MAX);
            let Ok(Val::List(items)) = evaluator.eval(list, None) else { return None };
            if items.is_empty() {
                None
            } else {
                let is_simple = |item: &Val<'_>| {
                    matches!(item, Val::Bool(_) | Val::Double(_) | Val::Int(_) | Val::Uint(_) | Val::String(_))
                };
                Some(items.all().ok()?.iter().all(is_simple))
            }
        };
        match simple {
            None => Some(self.add(Step::Literal(Literal::Bool(false)))),
            Some(true) => Some(self.add(Step::Among { value, list })),
            Some(false) => None,
        }
    }
}
