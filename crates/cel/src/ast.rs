//! The tree of an expression: nodes in an arena, so that nothing about it needs the stack.

/// A node's place in the arena.
pub(crate) type ExprId = u32;

/// A literal.
#[derive(Clone, Debug, PartialEq)]
pub(crate) enum Literal {
    Null,
    Bool(bool),
    Int(i64),
    Uint(u64),
    Double(f64),
    String(String),
    Bytes(Vec<u8>),
}

/// A comprehension: what all macros over lists and maps become.
#[derive(Clone, Debug)]
pub(crate) struct Fold {
    pub(crate) range: ExprId,
    pub(crate) var: String,
    pub(crate) var2: Option<String>,
    pub(crate) accu: String,
    pub(crate) init: ExprId,
    pub(crate) condition: ExprId,
    pub(crate) step: ExprId,
    pub(crate) result: ExprId,
}

/// An entry of a map literal.
#[derive(Clone, Debug)]
pub(crate) struct Entry {
    pub(crate) key: ExprId,
    pub(crate) value: ExprId,
    pub(crate) optional: bool,
}

/// A field of a message literal. It stands where its colon does.
#[derive(Clone, Debug)]
pub(crate) struct Field {
    pub(crate) name: String,
    pub(crate) value: ExprId,
    pub(crate) optional: bool,
    pub(crate) at: u32,
}

/// One node.
#[derive(Clone, Debug)]
pub(crate) enum Expr {
    /// What could not be read; there is an error for it.
    Bad,
    Literal(Literal),
    Ident(String),
    Select {
        operand: ExprId,
        field: String,
        test: bool,
    },
    Call {
        function: String,
        target: Option<ExprId>,
        args: Vec<ExprId>,
    },
    List {
        items: Vec<(ExprId, bool)>,
    },
    Map {
        entries: Vec<Entry>,
    },
    /// A message with the values of its fields.
    Struct {
        name: String,
        fields: Vec<Field>,
    },
    Fold(Box<Fold>),
}

/// A parsed expression.
#[derive(Clone, Debug)]
pub struct Ast {
    pub(crate) text: String,
    pub(crate) nodes: Vec<Expr>,
    /// Where each node stands in the text, in characters.
    pub(crate) at: Vec<u32>,
    pub(crate) root: ExprId,
}

impl Ast {
    pub(crate) fn expr(&self, id: ExprId) -> &Expr {
        &self.nodes[id as usize]
    }

    pub(crate) fn at(&self, id: ExprId) -> u32 {
        self.at[id as usize]
    }

    /// The dotted name that a chain of selections spells, if it is one.
    pub(crate) fn qualified(&self, id: ExprId) -> Option<String> {
        let mut parts = Vec::new();
        let mut here = id;
        loop {
            match self.expr(here) {
                Expr::Ident(name) => {
                    parts.push(name.as_str());
                    parts.reverse();
                    return Some(parts.join("."));
                }
                Expr::Select { operand, field, test: false } => {
                    parts.push(field);
                    here = *operand;
                }
                _ => return None,
            }
        }
    }

    /// The nodes right below one.
    pub(crate) fn children(&self, id: ExprId) -> Vec<ExprId> {
        match self.expr(id) {
            Expr::Bad | Expr::Literal(_) | Expr::Ident(_) => Vec::new(),
            Expr::Select { operand, .. } => vec![*operand],
            Expr::Call { target, args, .. } => target.iter().chain(args).copied().collect(),
            Expr::List { items } => items.iter().map(|(item, _)| *item).collect(),
            Expr::Map { entries } => entries.iter().flat_map(|entry| [entry.key, entry.value]).collect(),
            Expr::Struct { fields, .. } => fields.iter().map(|field| field.value).collect(),
            Expr::Fold(fold) => vec![fold.range, fold.init, fold.condition, fold.step, fold.result],
        }
    }

    /// The expression as it was written.
    #[must_use]
    pub fn text(&self) -> &str {
        &self.text
    }
}
