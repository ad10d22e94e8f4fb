//! What an expression can cost at most, before anything is run: from the sizes that schemas allow.

mod calls;
mod sizes;

use std::collections::HashMap;

use crate::{
    ast::{Expr, ExprId, Fold, Literal},
    check::Checked,
    cost::{LIST, MAP, STRUCT},
    library,
    macros::ACCU,
    types::Type,
};
pub use sizes::CostEstimate;
use sizes::SizeEstimate;

/// Estimates what an expression costs.
#[must_use]
pub fn estimate(checked: &Checked) -> CostEstimate {
    let mut coster = Coster {
        checked,
        paths: HashMap::new(),
        locals: HashMap::new(),
        sizes: HashMap::new(),
        entry_sizes: HashMap::new(),
    };
    coster.cost(checked.ast.root)
}

/// What is known of the elements of a list or a map.
#[derive(Clone, Copy, Debug)]
struct EntrySize {
    list: bool,
    key: SizeEstimate,
    value: SizeEstimate,
}

impl EntrySize {
    fn union(self, other: EntrySize) -> EntrySize {
        EntrySize { list: self.list, key: self.key.union(other.key), value: self.value.union(other.value) }
    }
}

/// What is known of a variable of a comprehension.
#[derive(Clone, Debug)]
struct Local {
    path: Vec<String>,
    size: Option<SizeEstimate>,
    entry_size: Option<EntrySize>,
}

/// A part of an expression, as estimates of calls see it.
struct Part<'c> {
    id: Option<ExprId>,
    path: Vec<String>,
    ty: &'c Type,
    size: Option<SizeEstimate>,
}

struct Coster<'c> {
    checked: &'c Checked,
    /// The way through the schema to what an expression is, if it is part of a variable.
    paths: HashMap<ExprId, Vec<String>>,
    locals: HashMap<String, Vec<Local>>,
    sizes: HashMap<ExprId, SizeEstimate>,
    entry_sizes: HashMap<ExprId, EntrySize>,
}

fn longer(path: Vec<String>, step: &str) -> Vec<String> {
    let mut path = path;
    path.push(step.to_owned());
    path
}

impl<'c> Coster<'c> {
    fn expr(&self, id: ExprId) -> &'c Expr {
        self.checked.ast.expr(id)
    }

    /// The tree's height is bounded, and so is this.
    fn cost(&mut self, id: ExprId) -> CostEstimate {
        match self.expr(id) {
            Expr::Bad | Expr::Literal(_) => CostEstimate::fixed(0),
            Expr::Ident(name) => {
                let path = self.local(name).map_or_else(|| vec![name.clone()], |local| local.path.clone());
                self.paths.insert(id, path);
                CostEstimate::fixed(1)
            }
            Expr::Select { operand, field, test } => self.select(id, *operand, field, *test),
            Expr::Call { .. } => self.call(id),
            Expr::List { items } => self.list(id, items),
            Expr::Map { .. } => self.map(id),
            Expr::Struct { fields, .. } => {
                let costs = fields.iter().map(|field| self.cost(field.value));
                costs.fold(CostEstimate::fixed(STRUCT), CostEstimate::add)
            }
            Expr::Fold(fold) if self.is_bind(fold) => self.bind(id, fold),
            Expr::Fold(fold) => self.fold(id, fold),
        }
    }

    fn local(&self, name: &str) -> Option<&Local> {
        self.locals.get(name).and_then(|locals| locals.last())
    }

    fn push(&mut self, name: &str, local: Local) {
        self.locals.entry(name.to_owned()).or_default().push(local);
    }

    fn pop(&mut self, name: &str) {
        if let Some(locals) = self.locals.get_mut(name) {
            locals.pop();
        }
    }

    fn select(&mut self, id: ExprId, operand: ExprId, field: &str, test: bool) -> CostEstimate {
        if let Some(crate::check::Reference::Ident(name)) = &self.checked.references[id as usize] {
            self.paths.insert(id, vec![name.clone()]);
            return CostEstimate::fixed(1);
        }
        let mut sum = self.cost(operand);
        if test {
            return sum;
        }
        if matches!(self.checked.ty(operand), Type::Map(_) | Type::Object(_) | Type::Struct(_) | Type::Param(_)) {
            sum = sum.add(CostEstimate::fixed(1));
        }
        let path = longer(self.path(operand), field);
        self.paths.insert(id, path);
        sum
    }

    fn list(&mut self, id: ExprId, items: &[(ExprId, bool)]) -> CostEstimate {
        let mut sum = CostEstimate::fixed(LIST);
        let mut value = SizeEstimate { min: if items.is_empty() { 0 } else { u64::MAX }, max: 0 };
        for (item, _) in items {
            sum = sum.add(self.cost(*item));
            value = value.union(self.size_or_unknown(*item));
        }
        self.entry_sizes.insert(id, EntrySize { list: true, key: SizeEstimate::fixed(1), value });
        sum
    }

    fn map(&mut self, id: ExprId) -> CostEstimate {
        let Expr::Map { entries } = self.expr(id) else { return CostEstimate::fixed(0) };
        let mut sum = CostEstimate::fixed(MAP);
        let none = SizeEstimate { min: if entries.is_empty() { 0 } else { u64::MAX }, max: 0 };
        let (mut key, mut value) = (none, none);
        for entry in entries {
            sum = sum.add(self.cost(entry.key)).add(self.cost(entry.value));
            key = key.union(self.size_or_unknown(entry.key));
            value = value.union(self.size_or_unknown(entry.value));
        }
        self.entry_sizes.insert(id, EntrySize { list: false, key, value });
        sum
    }

    fn is_bind(&self, fold: &Fold) -> bool {
        matches!(self.expr(fold.range), Expr::List { items } if items.is_empty())
            && matches!(self.expr(fold.condition), Expr::Literal(Literal::Bool(false)))
    }

    fn bind(&mut self, id: ExprId, fold: &'c Fold) -> CostEstimate {
        let sum = self.cost(fold.range).add(self.cost(fold.init));
        self.push_accu(fold);
        let sum = sum.add(self.cost(fold.result));
        self.pop(&fold.accu);
        self.copy_sizes(id, fold.result);
        sum
    }

    fn push_accu(&mut self, fold: &Fold) {
        let (path, entry_size) = (self.path(fold.init), self.entry_size(fold.init));
        let size = self.size(fold.init);
        self.push(&fold.accu, Local { path, size, entry_size });
    }

    fn copy_sizes(&mut self, to: ExprId, from: ExprId) {
        if let Some(size) = self.size(from) {
            self.sizes.insert(to, size);
        }
        if let Some(size) = self.entry_size(from) {
            self.entry_sizes.insert(to, size);
        }
    }

    fn fold(&mut self, id: ExprId, fold: &'c Fold) -> CostEstimate {
        let mut sum = self.cost(fold.range).add(self.cost(fold.init));
        self.push_accu(fold);
        let entry = self.entry_size(fold.range);
        let list = entry.map_or_else(|| matches!(self.checked.ty(fold.range), Type::List(_)), |entry| entry.list);
        let path = self.path(fold.range);
        let (key, value) = (entry.map(|entry| entry.key), entry.map(|entry| entry.value));
        let values = if list { "@items" } else { "@values" };
        let local = |step: &str, size| Local { path: longer(path.clone(), step), size, entry_size: None };
        if let Some(var2) = &fold.var2 {
            self.push(&fold.var, local(if list { "@indices" } else { "@keys" }, key));
            self.push(var2, local(values, value));
        } else if list {
            self.push(&fold.var, local("@items", value));
        } else {
            self.push(&fold.var, local("@keys", key));
        }
        let condition = self.cost(fold.condition);
        let step = self.cost(fold.step);
        self.pop(&fold.var);
        if let Some(var2) = &fold.var2 {
            self.pop(var2);
        }
        sum = sum.add(self.cost(fold.result));
        self.pop(&fold.accu);
        let rounds = self.size_or_unknown(fold.range);
        sum = sum.add(rounds.times_cost(step.add(condition)));
        match self.expr(fold.init) {
            Expr::Literal(_) => {
                if let Some(size) = self.size(fold.init) {
                    self.sizes.insert(id, size);
                }
            }
            Expr::List { .. } | Expr::Map { .. } => {
                self.sizes.insert(id, rounds);
                if let Some(entry) = self.entry_size(fold.step) {
                    self.entry_sizes.insert(id, entry);
                }
            }
            _ => {}
        }
        sum
    }

    fn path(&self, id: ExprId) -> Vec<String> {
        if let Expr::Ident(name) = self.expr(id)
            && let Some(local) = self.local(name)
        {
            return local.path.clone();
        }
        self.paths.get(&id).cloned().unwrap_or_default()
    }

    fn part(&mut self, id: ExprId) -> Part<'c> {
        let mut path = self.path(id);
        if path.first().is_some_and(|first| first == ACCU) {
            path.clear();
        }
        Part { id: Some(id), path, ty: self.checked.ty(id), size: self.size(id) }
    }

    /// The size that the schema allows at the end of a path. Every variable is taken to be the root, and so are the
    /// names of types, unless the root has a name itself.
    fn schema_size(&self, path: &[String]) -> Option<SizeEstimate> {
        let root = self.checked.root?;
        if self.checked.decls.has_name(root) && library::type_named(path.first()?).is_some() {
            return None;
        }
        let decl = self.checked.decls.at_path(root, path.get(1..)?)?;
        Some(SizeEstimate { min: 0, max: decl.max_elements.cast_unsigned() })
    }

    fn size_or_unknown(&mut self, id: ExprId) -> SizeEstimate {
        self.size(id).unwrap_or(SizeEstimate::UNKNOWN)
    }

    fn size(&mut self, id: ExprId) -> Option<SizeEstimate> {
        if let Some(size) = self.sizes.get(&id) {
            return Some(*size);
        }
        if let Some(size) = literal_size(self.expr(id)) {
            return Some(SizeEstimate::fixed(size));
        }
        if let Some(size) = self.schema_size(&self.path(id)) {
            self.sizes.insert(id, size);
            return Some(size);
        }
        if is_scalar(self.checked.ty(id)) {
            return Some(SizeEstimate::fixed(1));
        }
        match self.expr(id) {
            Expr::Ident(name) => self.local(name).and_then(|local| local.size),
            _ => None,
        }
    }

    fn entry_size(&self, id: ExprId) -> Option<EntrySize> {
        if let Some(size) = self.entry_sizes.get(&id) {
            return Some(*size);
        }
        match self.expr(id) {
            Expr::Ident(name) => self.local(name).and_then(|local| local.entry_size),
            _ => None,
        }
    }
}

fn literal_size(expr: &Expr) -> Option<u64> {
    Some(match expr {
        Expr::Literal(Literal::String(text)) => text.chars().count() as u64,
        Expr::Literal(Literal::Bytes(bytes)) => bytes.len() as u64,
        Expr::Literal(_) => 1,
        Expr::List { items } => items.len() as u64,
        Expr::Map { entries } => entries.len() as u64,
        _ => return None,
    })
}

fn is_scalar(ty: &Type) -> bool {
    match ty {
        Type::Bool | Type::Double | Type::Duration | Type::Int | Type::Timestamp | Type::Uint => true,
        other => other.unwrap_optional().is_some_and(is_scalar),
    }
}
