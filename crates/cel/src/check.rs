//! Checking types: what every part of an expression is, and which function a call means.

use std::{collections::HashMap, sync::Arc};

use crate::{
    ast::{Ast, Expr, ExprId, Fold, Literal},
    decl::{DeclId, Decls},
    error::Errors,
    library::{self, Function, Overload},
    literals, mutation,
    types::Type,
    unify::{Known, most_general},
};

/// Of how many types a type may be made. What is larger is dynamic.
const MAX_TYPE_SIZE: usize = 2000;

/// What expressions are checked against: the variables, and the types that schemas declare.
#[derive(Clone, Debug, Default)]
pub struct Env {
    variables: HashMap<String, Type>,
    pub(crate) decls: Arc<Decls>,
    pub(crate) root: Option<DeclId>,
    mutation: bool,
}

impl Env {
    /// An environment with the types of `decls`; sizes are estimated as if every variable was of the type `root`.
    #[must_use]
    pub fn new(decls: Arc<Decls>, root: Option<DeclId>) -> Self {
        Env { variables: HashMap::new(), decls, root, mutation: false }
    }

    /// Adds a variable.
    #[must_use]
    pub fn with(mut self, name: &str, ty: Type) -> Self {
        self.variables.insert(name.to_owned(), ty);
        self
    }

    /// Adds the types and functions of mutating policies.
    #[must_use]
    pub fn with_mutation(mut self) -> Self {
        self.mutation = true;
        self
    }

    fn function(&self, name: &str) -> Option<&'static Function> {
        library::function(name).filter(|function| self.mutation || !function.name.starts_with("jsonpatch."))
    }

    /// The type that a name stands for.
    fn type_named(&self, name: &str) -> Option<Type> {
        library::type_named(name)
            .or_else(|| self.decls.named(name).map(Type::Object))
            .or_else(|| mutation::type_named(name).filter(|_| self.mutation))
    }
}

/// What a name or a call stands for.
#[derive(Clone, Debug)]
pub(crate) enum Reference {
    Ident(String),
    Overloads(Vec<&'static Overload>),
}

/// An expression whose types are right.
#[derive(Clone, Debug)]
pub struct Checked {
    pub(crate) ast: Ast,
    pub(crate) types: Vec<Type>,
    pub(crate) references: Vec<Option<Reference>>,
    pub(crate) decls: Arc<Decls>,
    pub(crate) root: Option<DeclId>,
}

impl Checked {
    /// The type of the result.
    #[must_use]
    pub fn output(&self) -> &Type {
        self.ty(self.ast.root)
    }

    /// The name of a type as it is declared.
    #[must_use]
    pub fn name_of(&self, ty: &Type) -> String {
        ty.declared(&self.decls)
    }

    /// The type of the result as it is declared.
    #[must_use]
    pub fn output_name(&self) -> String {
        self.output().declared(&self.decls)
    }

    /// Whether a variable is used.
    #[must_use]
    pub fn uses(&self, variable: &str) -> bool {
        self.references
            .iter()
            .flatten()
            .any(|reference| matches!(reference, Reference::Ident(name) if name == variable))
    }

    pub(crate) fn ty(&self, id: ExprId) -> &Type {
        &self.types[id as usize]
    }

    pub(crate) fn overloads(&self, id: ExprId) -> &[&'static Overload] {
        match &self.references[id as usize] {
            Some(Reference::Overloads(overloads)) => overloads,
            _ => &[],
        }
    }
}

/// Finds the types of an expression.
///
/// # Errors
/// All that does not fit.
pub fn check(ast: Ast, env: &Env) -> Result<Checked, Errors> {
    let size = ast.nodes.len();
    let errors = Errors::new(&ast.text);
    let mut checker = Checker {
        env,
        errors,
        known: Known::default(),
        types: vec![Type::Error; size],
        references: vec![None; size],
        scopes: Vec::new(),
        ast,
    };
    checker.check(checker.ast.root);
    let Checker { ast, known, types, references, mut errors, .. } = checker;
    let types: Vec<Type> = types.iter().map(|ty| known.substitute(ty, true)).collect();
    let checked = Checked { ast, types, references, decls: env.decls.clone(), root: env.root };
    if errors.is_empty() {
        literals::validate(&checked, &mut errors);
    }
    if errors.is_empty() { Ok(checked) } else { Err(errors) }
}

struct Checker<'e> {
    env: &'e Env,
    ast: Ast,
    errors: Errors,
    known: Known,
    types: Vec<Type>,
    references: Vec<Option<Reference>>,
    scopes: Vec<(String, Type)>,
}

impl Checker<'_> {
    fn error(&mut self, id: ExprId, message: String) {
        let at = self.ast.at(id);
        self.errors.report(Some(at), message);
    }

    fn show(&self, ty: &Type) -> String {
        ty.show(&self.env.decls)
    }

    fn get(&self, id: ExprId) -> Type {
        self.types[id as usize].clone()
    }

    fn set(&mut self, id: ExprId, ty: Type) {
        // Maps of maps could double a type with every step.
        self.types[id as usize] = if ty.is_within(MAX_TYPE_SIZE) { ty } else { Type::Dyn };
    }

    /// The tree's height is bounded, and so is this.
    fn check(&mut self, id: ExprId) {
        match self.ast.expr(id) {
            Expr::Bad => {}
            Expr::Literal(literal) => {
                let ty = match literal {
                    Literal::Null => Type::Null,
                    Literal::Bool(_) => Type::Bool,
                    Literal::Int(_) => Type::Int,
                    Literal::Uint(_) => Type::Uint,
                    Literal::Double(_) => Type::Double,
                    Literal::String(_) => Type::String,
                    Literal::Bytes(_) => Type::Bytes,
                };
                self.set(id, ty);
            }
            Expr::Ident(name) => {
                let name = name.clone();
                self.ident(id, &name);
            }
            Expr::Select { operand, field, test } => {
                let (operand, field, test) = (*operand, field.clone(), *test);
                self.select(id, operand, &field, test);
            }
            Expr::Call { .. } => self.call(id),
            Expr::List { .. } => self.list(id),
            Expr::Map { .. } => self.map(id),
            Expr::Struct { .. } => self.message(id),
            Expr::Fold(fold) => {
                let fold = fold.clone();
                self.fold(id, &fold);
            }
        }
    }

    fn lookup(&self, name: &str) -> Option<(String, Type)> {
        let name = name.strip_prefix('.').unwrap_or(name);
        let local = self.scopes.iter().rev().find(|(known, _)| known == name).map(|(_, ty)| ty);
        let found = local.or_else(|| self.env.variables.get(name)).cloned();
        let found = found.or_else(|| self.env.type_named(name).map(|ty| Type::Type(Some(Arc::new(ty)))));
        found.map(|ty| (name.to_owned(), ty))
    }

    fn ident(&mut self, id: ExprId, name: &str) {
        match self.lookup(name) {
            Some((name, ty)) => self.refer(id, name, ty),
            None => self.undeclared(id, name),
        }
    }

    fn refer(&mut self, id: ExprId, name: String, ty: Type) {
        self.set(id, ty);
        self.references[id as usize] = Some(Reference::Ident(name));
    }

    fn undeclared(&mut self, id: ExprId, name: &str) {
        self.set(id, Type::Error);
        self.error(id, format!("undeclared reference to '{name}' (in container '')"));
    }

    fn select(&mut self, id: ExprId, operand: ExprId, field: &str, test: bool) {
        if !test && let Some((name, ty)) = self.ast.qualified(id).and_then(|name| self.lookup(&name)) {
            return self.refer(id, name, ty);
        }
        let ty = self.select_field(id, operand, field, false);
        let ty = if test { Type::Bool } else { self.known.substitute(&ty, false) };
        self.set(id, ty);
    }

    fn select_field(&mut self, id: ExprId, operand: ExprId, field: &str, optional: bool) -> Type {
        self.check(operand);
        let operand = self.known.substitute(&self.get(operand), false);
        let inside = operand.unwrap_optional();
        let target = inside.unwrap_or(&operand);
        let result = match target {
            Type::Map(both) => both.1.clone(),
            Type::Object(decl) => match self.env.decls.field_or_keyword(*decl, field) {
                Some(found) => self.env.decls.ty(found),
                None => {
                    self.error(id, format!("undefined field '{field}'"));
                    Type::Error
                }
            },
            Type::Struct(name) if **name != *mutation::NO_TYPE => match mutation::field(name, field) {
                Some(found) => found,
                None => {
                    self.error(id, format!("unexpected failed resolution of '{name}'"));
                    Type::Error
                }
            },
            Type::Param(_) => {
                self.known.assignable(&Type::Dyn, target);
                Type::Dyn
            }
            Type::Dyn | Type::Any | Type::Error => Type::Dyn,
            other => {
                let message = format!("type '{}' does not support field selection", self.show(other));
                self.error(id, message);
                Type::Dyn
            }
        };
        if inside.is_some() || optional { Type::optional(result) } else { result }
    }

    fn call(&mut self, id: ExprId) {
        let Expr::Call { function, target, args } = self.ast.expr(id).clone() else { return };
        if function == "_?._" {
            let Expr::Literal(Literal::String(field)) = self.ast.expr(args[1]).clone() else { return };
            let ty = self.select_field(id, args[0], &field, true);
            let ty = self.known.substitute(&ty, false);
            self.set(id, ty);
            self.references[id as usize] =
                library::function("_?._").map(|function| Reference::Overloads(function.overloads.iter().collect()));
            return;
        }
        for arg in &args {
            self.check(*arg);
        }
        let Some(target) = target else {
            match self.env.function(&function) {
                None => self.undeclared(id, &function),
                Some(found) => self.resolve(id, found, None, &args),
            }
            return;
        };
        let qualified =
            self.ast.qualified(target).and_then(|prefix| self.env.function(&format!("{prefix}.{function}")));
        if let Some(found) = qualified {
            self.ast.nodes[id as usize] =
                Expr::Call { function: found.name.to_owned(), target: None, args: args.clone() };
            return self.resolve(id, found, None, &args);
        }
        self.check(target);
        match self.env.function(&function) {
            None => self.undeclared(id, &function),
            Some(found) => self.resolve(id, found, Some(target), &args),
        }
    }

    fn resolve(&mut self, id: ExprId, function: &'static Function, target: Option<ExprId>, args: &[ExprId]) {
        let types: Vec<Type> = target.iter().chain(args).map(|&arg| self.get(arg)).collect();
        if matches!(function.name, "_&&_" | "_||_") {
            return self.logic(id, function, args, &types);
        }
        let (mut result, mut found): (Option<Type>, Vec<&'static Overload>) = (None, Vec::new());
        for overload in &function.overloads {
            if overload.member != target.is_some() {
                continue;
            }
            let mut letters: Vec<(char, Type)> = Vec::new();
            let known = &mut self.known;
            let wanted: Vec<Type> = overload.args.iter().map(|ty| instantiate(ty, &mut letters, known)).collect();
            let returns = instantiate(&overload.result, &mut letters, known);
            if !self.known.all_assignable(&types, &wanted) {
                continue;
            }
            found.push(overload);
            let returns = self.known.substitute(&returns, false);
            result = Some(match result {
                None => returns,
                Some(before) if !before.is_dyn() && before != returns => Type::Dyn,
                Some(before) => before,
            });
        }
        match result {
            Some(ty) => {
                self.set(id, ty);
                self.references[id as usize] = Some(Reference::Overloads(found));
            }
            None => {
                self.set(id, Type::Error);
                let mut shown: Vec<String> =
                    types.iter().map(|ty| self.show(&self.known.substitute(ty, true))).collect();
                let on = if target.is_some() { format!("{}.", shown.remove(0)) } else { String::new() };
                let (name, args) = (function.name, shown.join(", "));
                self.error(id, format!("found no matching overload for '{name}' applied to '{on}({args})'"));
            }
        }
    }

    fn logic(&mut self, id: ExprId, function: &'static Function, args: &[ExprId], types: &[Type]) {
        let mut fits = true;
        for (arg, ty) in args.iter().zip(types) {
            if !self.known.assignable(ty, &Type::Bool) {
                let message = format!("expected type 'bool' but found '{}'", self.show(ty));
                self.error(*arg, message);
                fits = false;
            }
        }
        self.set(id, if fits { Type::Bool } else { Type::Error });
        if fits {
            self.references[id as usize] = Some(Reference::Overloads(function.overloads.iter().collect()));
        }
    }

    /// What an optional element adds to a list or a map.
    fn element(&mut self, id: ExprId, optional: bool) -> Type {
        let ty = self.get(id);
        if !optional {
            return ty;
        }
        match ty.unwrap_optional() {
            Some(inside) => inside.clone(),
            None => {
                if !ty.is_dyn() {
                    let (wanted, found) = (self.show(&Type::optional(ty.clone())), self.show(&ty));
                    self.error(id, format!("expected type '{wanted}' but found '{found}'"));
                }
                ty
            }
        }
    }

    fn join(&mut self, id: ExprId, before: Option<Type>, now: Type) -> Type {
        let Some(before) = before else { return now };
        if self.known.assignable(&before, &now) { most_general(&before, &now) } else { self.not_alike(id) }
    }

    /// Elements of different types make a list or a map dynamic. Whether that is allowed is looked at later.
    fn not_alike(&mut self, _: ExprId) -> Type {
        Type::Dyn
    }

    fn list(&mut self, id: ExprId) {
        let Expr::List { items } = self.ast.expr(id).clone() else { return };
        let mut joined = None;
        for (item, optional) in items {
            self.check(item);
            let ty = self.element(item, optional);
            joined = Some(self.join(item, joined, ty));
        }
        let item = joined.unwrap_or_else(|| self.known.fresh());
        self.set(id, Type::list(item));
    }

    fn map(&mut self, id: ExprId) {
        let Expr::Map { entries } = self.ast.expr(id).clone() else { return };
        let (mut keys, mut values) = (None, None);
        for entry in entries {
            self.check(entry.key);
            let ty = self.get(entry.key);
            keys = Some(self.join(entry.key, keys, ty));
            self.check(entry.value);
            let ty = self.element(entry.value, entry.optional);
            values = Some(self.join(entry.value, values, ty));
        }
        let key = keys.unwrap_or_else(|| self.known.fresh());
        let value = values.unwrap_or_else(|| self.known.fresh());
        self.set(id, Type::map(key, value));
    }

    fn message(&mut self, id: ExprId) {
        let Expr::Struct { name, fields } = self.ast.expr(id).clone() else { return };
        let Some((name, ty)) = self.lookup(&name) else {
            return self.undeclared(id, &name);
        };
        let bare = |ty: &Type, decls: &Decls| ty.declared(decls).split('(').next().unwrap_or_default().to_owned();
        let made = match &ty {
            Type::Type(Some(of)) if matches!(**of, Type::Object(_) | Type::Struct(_)) => (**of).clone(),
            Type::Type(Some(of)) => {
                self.error(id, format!("'{}' is not a message type", bare(of, &self.env.decls)));
                Type::Error
            }
            Type::Error => Type::Error,
            other => {
                self.error(id, format!("'{}' is not a type", bare(other, &self.env.decls)));
                Type::Error
            }
        };
        self.set(id, made.clone());
        for field in fields {
            self.check(field.value);
            let wanted = match &made {
                Type::Object(decl) => {
                    self.env.decls.field_or_keyword(*decl, &field.name).map(|id| self.env.decls.ty(id))
                }
                Type::Struct(name) => mutation::field(name, &field.name),
                _ => None,
            };
            let Some(wanted) = wanted else {
                let message = match ty {
                    Type::Type(_) => format!("undefined field '{}'", field.name),
                    _ => format!("unexpected failed resolution of '{name}'"),
                };
                self.errors.report(Some(field.at), message);
                continue;
            };
            let given = self.element(field.value, field.optional);
            if !self.known.assignable(&wanted, &given) {
                let (wanted, given) = (self.show(&wanted), self.show(&given));
                let message =
                    format!("expected type of field '{}' is '{wanted}' but provided type is '{given}'", field.name);
                self.errors.report(Some(field.at), message);
            }
        }
    }

    fn fold(&mut self, id: ExprId, fold: &Fold) {
        self.check(fold.range);
        self.check(fold.init);
        let range = self.known.substitute(&self.get(fold.range), false);
        let accu = self.get(fold.init);
        let outer = self.scopes.len();
        self.scopes.push((fold.accu.clone(), accu.clone()));
        let (var, var2) = match &range {
            Type::List(item) if fold.var2.is_some() => (Type::Int, (**item).clone()),
            Type::List(item) => ((**item).clone(), Type::Dyn),
            Type::Map(both) => (both.0.clone(), both.1.clone()),
            Type::Dyn | Type::Error | Type::Param(_) => {
                self.known.assignable(&Type::Dyn, &range);
                (Type::Dyn, Type::Dyn)
            }
            other => {
                let shown = self.show(other);
                let message = format!(
                    "expression of type '{shown}' cannot be range of a comprehension (must be list, map, or dynamic)"
                );
                self.error(fold.range, message);
                (Type::Error, Type::Error)
            }
        };
        self.scopes.push((fold.var.clone(), var));
        if let Some(name) = &fold.var2 {
            self.scopes.push((name.clone(), var2));
        }
        self.check(fold.condition);
        self.assert(fold.condition, &Type::Bool);
        self.check(fold.step);
        self.assert(fold.step, &accu);
        self.scopes.truncate(outer + 1);
        self.check(fold.result);
        self.scopes.truncate(outer);
        let ty = self.known.substitute(&self.get(fold.result), false);
        self.set(id, ty);
    }

    fn assert(&mut self, id: ExprId, wanted: &Type) {
        let found = self.get(id);
        if !self.known.assignable(wanted, &found) {
            let (wanted, found) = (self.show(wanted), self.show(&found));
            self.error(id, format!("expected type '{wanted}' but found '{found}'"));
        }
    }
}

/// The type of an overload with types that are to be found out in place of its parameters.
fn instantiate(ty: &Type, letters: &mut Vec<(char, Type)>, known: &mut Known) -> Type {
    match ty {
        Type::Letter(letter) => match letters.iter().find(|(name, _)| name == letter) {
            Some((_, ty)) => ty.clone(),
            None => {
                let fresh = known.fresh();
                letters.push((*letter, fresh.clone()));
                fresh
            }
        },
        other => other.with_params(|inside| instantiate(inside, letters, known)),
    }
}
