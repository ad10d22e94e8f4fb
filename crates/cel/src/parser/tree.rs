//! The nodes of a tree while it is being made, with what bounds its height.

use crate::ast::{Expr, ExprId};

/// The nodes so far.
pub(crate) struct Tree {
    pub(crate) nodes: Vec<Expr>,
    pub(crate) at: Vec<u32>,
    /// How deep selections, calls and operators nest below each node, as upstream counts them.
    pub(super) depth: Vec<u16>,
    pub(super) height: Vec<u16>,
    /// Whether `cel.bind` is a macro.
    pub(crate) bindings: bool,
}

impl Tree {
    /// Adds a node.
    pub(crate) fn add(&mut self, at: u32, expr: Expr) -> ExprId {
        let id = u32::try_from(self.nodes.len()).unwrap_or(u32::MAX);
        self.nodes.push(expr);
        self.at.push(at);
        let (mut depth, mut height) = (0, 0);
        for child in self.children(id) {
            depth = depth.max(self.depth[child as usize]);
            height = height.max(self.height[child as usize]);
        }
        self.depth.push(depth);
        self.height.push(height.saturating_add(1));
        id
    }

    fn children(&self, id: ExprId) -> Vec<ExprId> {
        // Borrowed through a temporary tree would copy; the match is the same as that of a finished tree.
        match &self.nodes[id as usize] {
            Expr::Bad | Expr::Literal(_) | Expr::Ident(_) => Vec::new(),
            Expr::Select { operand, .. } => vec![*operand],
            Expr::Call { target, args, .. } => target.iter().chain(args).copied().collect(),
            Expr::List { items } => items.iter().map(|(item, _)| *item).collect(),
            Expr::Map { entries } => entries.iter().flat_map(|entry| [entry.key, entry.value]).collect(),
            Expr::Struct { fields, .. } => fields.iter().map(|field| field.value).collect(),
            Expr::Fold(fold) => vec![fold.range, fold.init, fold.condition, fold.step, fold.result],
        }
    }

    /// Copies a node and all below it.
    pub(crate) fn copy(&mut self, id: ExprId) -> ExprId {
        // The tree's height is bounded, and so is this.
        let at = self.at[id as usize];
        let mut expr = self.nodes[id as usize].clone();
        match &mut expr {
            Expr::Bad | Expr::Literal(_) | Expr::Ident(_) => {}
            Expr::Select { operand, .. } => *operand = self.copy(*operand),
            Expr::Call { target, args, .. } => {
                *target = target.map(|target| self.copy(target));
                for arg in args {
                    *arg = self.copy(*arg);
                }
            }
            Expr::List { items } => items.iter_mut().for_each(|(item, _)| *item = self.copy(*item)),
            Expr::Map { entries } => {
                for entry in entries {
                    entry.key = self.copy(entry.key);
                    entry.value = self.copy(entry.value);
                }
            }
            Expr::Struct { fields, .. } => fields.iter_mut().for_each(|field| field.value = self.copy(field.value)),
            Expr::Fold(fold) => {
                fold.range = self.copy(fold.range);
                fold.init = self.copy(fold.init);
                fold.condition = self.copy(fold.condition);
                fold.step = self.copy(fold.step);
                fold.result = self.copy(fold.result);
            }
        }
        let copy = self.add(at, expr);
        self.depth[copy as usize] = self.depth[id as usize];
        copy
    }
}
