//! Macros: calls that are rewritten while the text is read.

use crate::{
    ast::{Expr, ExprId, Fold, Literal},
    parser::Tree,
};

/// The name of the accumulator; no text can spell it.
pub(crate) const ACCU: &str = "@result";
const OLD_ACCU: &str = "__result__";
/// The iteration variable of what iterates nothing.
const UNUSED: &str = "#unused";
const SORT_INPUT: &str = "@__sortBy_input__";

/// What is wrong with a macro, and where.
type Wrong = (u32, String);

/// What a call becomes if it is a macro.
pub(crate) fn expand(
    tree: &mut Tree,
    at: u32,
    function: &str,
    target: Option<ExprId>,
    args: &[ExprId],
) -> Option<Result<ExprId, Wrong>> {
    let mut make = Maker { tree, at };
    let Some(target) = target else {
        return match (function, args) {
            ("has", &[arg]) => Some(make.has(arg)),
            _ => None,
        };
    };
    Some(match (function, args) {
        ("all" | "exists" | "exists_one", &[var, predicate]) => make
            .simple_name(var, "argument must be a simple name")
            .map(|var| make.quantifier(function, target, var, None, predicate)),
        ("all" | "exists" | "exists_one" | "existsOne", &[var, var2, predicate]) => {
            make.names(var, var2).map(|(var, var2)| make.quantifier(function, target, var, Some(var2), predicate))
        }
        ("map", &[var, ref rest @ ..]) if matches!(rest.len(), 1 | 2) => make.map(target, var, rest),
        ("filter", &[var, predicate]) => make.filter(target, var, predicate),
        ("transformList" | "transformMap" | "transformMapEntry", &[var, var2, ref rest @ ..])
            if matches!(rest.len(), 1 | 2) =>
        {
            make.names(var, var2).map(|names| make.transform(function, target, names, rest))
        }
        ("optMap" | "optFlatMap", &[var, body]) => make.opt_map(function, target, var, body),
        ("sortBy", &[var, key]) => make.sort_by(target, var, key),
        ("bind", &[var, value, body]) if make.tree.bindings && make.name_of(target).as_deref() == Some("cel") => {
            make.cel_bind(var, value, body)
        }
        _ => return None,
    })
}

struct Maker<'a> {
    tree: &'a mut Tree,
    at: u32,
}

impl Maker<'_> {
    fn add(&mut self, expr: Expr) -> ExprId {
        self.tree.add(self.at, expr)
    }

    fn literal(&mut self, literal: Literal) -> ExprId {
        self.add(Expr::Literal(literal))
    }

    fn accu(&mut self) -> ExprId {
        self.ident(ACCU)
    }

    fn ident(&mut self, name: &str) -> ExprId {
        self.add(Expr::Ident(name.to_owned()))
    }

    fn call(&mut self, function: &str, args: Vec<ExprId>) -> ExprId {
        self.add(Expr::Call { function: function.to_owned(), target: None, args })
    }

    fn member(&mut self, function: &str, target: ExprId, args: Vec<ExprId>) -> ExprId {
        self.add(Expr::Call { function: function.to_owned(), target: Some(target), args })
    }

    fn list(&mut self, items: Vec<ExprId>) -> ExprId {
        self.add(Expr::List { items: items.into_iter().map(|item| (item, false)).collect() })
    }

    fn wrong<T>(&self, id: ExprId, message: impl Into<String>) -> Result<T, Wrong> {
        Err((self.tree.at[id as usize], message.into()))
    }

    fn name_of(&self, id: ExprId) -> Option<String> {
        match &self.tree.nodes[id as usize] {
            Expr::Ident(name) => Some(name.clone()),
            _ => None,
        }
    }

    fn simple_name(&self, id: ExprId, otherwise: &str) -> Result<String, Wrong> {
        match self.name_of(id) {
            None => self.wrong(id, otherwise),
            Some(name) if name == ACCU || name == OLD_ACCU => {
                self.wrong(id, "iteration variable overwrites accumulator variable")
            }
            Some(name) => Ok(name),
        }
    }

    fn names(&self, first: ExprId, second: ExprId) -> Result<(String, String), Wrong> {
        const SIMPLE: &str = "argument must be a simple name";
        let (Some(one), Some(two)) = (self.name_of(first), self.name_of(second)) else {
            return self.wrong(if self.name_of(first).is_none() { first } else { second }, SIMPLE);
        };
        if one == two {
            return self.wrong(second, format!("duplicate variable name: {one}"));
        }
        Ok((self.simple_name(first, SIMPLE)?, self.simple_name(second, SIMPLE)?))
    }

    fn has(&mut self, arg: ExprId) -> Result<ExprId, Wrong> {
        match self.tree.nodes[arg as usize].clone() {
            Expr::Select { operand, field, .. } => Ok(self.add(Expr::Select { operand, field, test: true })),
            _ => self.wrong(arg, "invalid argument to has() macro"),
        }
    }

    fn quantifier(
        &mut self,
        kind: &str,
        range: ExprId,
        var: String,
        var2: Option<String>,
        predicate: ExprId,
    ) -> ExprId {
        let (init, condition, step, result);
        match kind {
            "all" => {
                init = self.literal(Literal::Bool(true));
                let accu = self.accu();
                condition = self.call("@not_strictly_false", vec![accu]);
                let accu = self.accu();
                step = self.call("_&&_", vec![accu, predicate]);
                result = self.accu();
            }
            "exists" => {
                init = self.literal(Literal::Bool(false));
                let accu = self.accu();
                let not = self.call("!_", vec![accu]);
                condition = self.call("@not_strictly_false", vec![not]);
                let accu = self.accu();
                step = self.call("_||_", vec![accu, predicate]);
                result = self.accu();
            }
            _ => {
                init = self.literal(Literal::Int(0));
                condition = self.literal(Literal::Bool(true));
                let (accu, one) = (self.accu(), self.literal(Literal::Int(1)));
                let more = self.call("_+_", vec![accu, one]);
                let accu = self.accu();
                step = self.call("_?_:_", vec![predicate, more, accu]);
                let (accu, one) = (self.accu(), self.literal(Literal::Int(1)));
                result = self.call("_==_", vec![accu, one]);
            }
        }
        self.fold(Fold { range, var, var2, accu: ACCU.to_owned(), init, condition, step, result })
    }

    fn fold(&mut self, fold: Fold) -> ExprId {
        self.add(Expr::Fold(Box::new(fold)))
    }

    /// A comprehension that collects; `filter` says for which elements.
    fn collect(
        &mut self,
        range: ExprId,
        (var, var2): (String, Option<String>),
        init: ExprId,
        mut step: ExprId,
        filter: Option<ExprId>,
    ) -> ExprId {
        let condition = self.literal(Literal::Bool(true));
        if let Some(filter) = filter {
            let accu = self.accu();
            step = self.call("_?_:_", vec![filter, step, accu]);
        }
        let result = self.accu();
        self.fold(Fold { range, var, var2, accu: ACCU.to_owned(), init, condition, step, result })
    }

    fn append(&mut self, item: ExprId) -> ExprId {
        let (accu, item) = (self.accu(), self.list(vec![item]));
        self.call("_+_", vec![accu, item])
    }

    fn map(&mut self, range: ExprId, var: ExprId, rest: &[ExprId]) -> Result<ExprId, Wrong> {
        let name = self.simple_name(var, "argument is not an identifier")?;
        let (filter, body) = if let [filter, body] = *rest { (Some(filter), body) } else { (None, rest[0]) };
        let init = self.list(Vec::new());
        let step = self.append(body);
        Ok(self.collect(range, (name, None), init, step, filter))
    }

    fn filter(&mut self, range: ExprId, var: ExprId, predicate: ExprId) -> Result<ExprId, Wrong> {
        let name = self.simple_name(var, "argument is not an identifier")?;
        let init = self.list(Vec::new());
        let step = self.append(var);
        Ok(self.collect(range, (name, None), init, step, Some(predicate)))
    }

    fn transform(&mut self, kind: &str, range: ExprId, (var, var2): (String, String), rest: &[ExprId]) -> ExprId {
        let (filter, body) = if let [filter, body] = *rest { (Some(filter), body) } else { (None, rest[0]) };
        let (init, step);
        match kind {
            "transformList" => {
                init = self.list(Vec::new());
                step = self.append(body);
            }
            "transformMap" => {
                init = self.add(Expr::Map { entries: Vec::new() });
                let (accu, key) = (self.accu(), self.ident(&var));
                step = self.call("cel.@mapInsert", vec![accu, key, body]);
            }
            _ => {
                init = self.add(Expr::Map { entries: Vec::new() });
                let accu = self.accu();
                step = self.call("cel.@mapInsert", vec![accu, body]);
            }
        }
        self.collect(range, (var, Some(var2)), init, step, filter)
    }

    /// `name` stands for `value` within `body`.
    fn bind(&mut self, name: String, value: ExprId, body: ExprId) -> ExprId {
        let range = self.list(Vec::new());
        let condition = self.literal(Literal::Bool(false));
        let step = self.ident(&name);
        self.fold(Fold {
            range,
            var: UNUSED.to_owned(),
            var2: None,
            accu: name,
            init: value,
            condition,
            step,
            result: body,
        })
    }

    fn cel_bind(&mut self, var: ExprId, value: ExprId, body: ExprId) -> Result<ExprId, Wrong> {
        match self.name_of(var) {
            Some(name) => Ok(self.bind(name, value, body)),
            None => self.wrong(var, "cel.bind() variable names must be simple identifiers"),
        }
    }

    fn opt_map(&mut self, kind: &str, target: ExprId, var: ExprId, body: ExprId) -> Result<ExprId, Wrong> {
        let Some(name) = self.name_of(var) else {
            return self.wrong(var, format!("{kind}() variable name must be a simple identifier"));
        };
        let has = self.member("hasValue", target, Vec::new());
        let copy = self.tree.copy(target);
        let value = self.member("value", copy, Vec::new());
        let mut bound = self.bind(name, value, body);
        if kind == "optMap" {
            bound = self.call("optional.of", vec![bound]);
        }
        let none = self.call("optional.none", Vec::new());
        Ok(self.call("_?_:_", vec![has, bound, none]))
    }

    fn sort_by(&mut self, target: ExprId, var: ExprId, key: ExprId) -> Result<ExprId, Wrong> {
        if matches!(
            self.tree.nodes[target as usize],
            Expr::Literal(_) | Expr::Map { .. } | Expr::Struct { .. } | Expr::Bad
        ) {
            const KINDS: &str =
                "sortBy can only be applied to a list, identifier, comprehension, call or select expression";
            return self.wrong(target, KINDS);
        }
        let input = self.ident(SORT_INPUT);
        let keys = self.map(input, var, &[key])?;
        let input = self.ident(SORT_INPUT);
        let sorted = self.member("@sortByAssociatedKeys", input, vec![keys]);
        Ok(self.bind(SORT_INPUT.to_owned(), target, sorted))
    }
}
