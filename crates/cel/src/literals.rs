//! What is looked at once the types are right: literals that can be seen to be wrong before anything is run.

use capstan_api::{Duration, schema::pattern};

use crate::{
    ast::{Expr, ExprId, Literal},
    check::Checked,
    error::Errors,
    functions,
    types::Type,
};

/// Reports all literals that are wrong.
pub(crate) fn validate(checked: &Checked, errors: &mut Errors) {
    let mut walk = Walk { checked, errors };
    // Each node with whether it is within the arguments of a formatting call, where elements need not be alike.
    let mut todo = vec![(checked.ast.root, false)];
    while let Some((id, within_format)) = todo.pop() {
        walk.call(id);
        if !within_format {
            walk.aggregate(id);
        }
        let formats = matches!(checked.ast.expr(id), Expr::Call { function, .. } if function == "format");
        todo.extend(checked.ast.children(id).into_iter().rev().map(|child| (child, within_format || formats)));
    }
}

struct Walk<'c, 'e> {
    checked: &'c Checked,
    errors: &'e mut Errors,
}

impl Walk<'_, '_> {
    fn report(&mut self, id: ExprId, message: String) {
        self.errors.report(Some(self.checked.ast.at(id)), message);
    }

    fn call(&mut self, id: ExprId) {
        let Expr::Call { function, target, args } = self.checked.ast.expr(id) else { return };
        if let (Some(&arg), true) = (args.first(), matches!(function.as_str(), "duration" | "timestamp" | "matches"))
            && let Expr::Literal(literal) = self.checked.ast.expr(arg)
        {
            let right = match (function.as_str(), literal) {
                ("duration", Literal::String(text)) => text.parse::<Duration>().is_ok(),
                ("duration", _) => false,
                ("timestamp", Literal::String(text)) => {
                    functions::time::parse(text).is_ok_and(|stamp| stamp.in_range().is_some())
                }
                ("timestamp", Literal::Int(seconds)) => functions::time::Stamp::new(*seconds, 0, 0).is_some(),
                ("matches", Literal::String(text)) => pattern::compile(text).is_ok(),
                _ => true,
            };
            if !right {
                self.report(arg, format!("invalid {function} argument"));
            }
        }
        if function == "format"
            && let (Some(target), [list]) = (target, &args[..])
            && let Expr::Literal(Literal::String(format)) = self.checked.ast.expr(*target)
            && let Expr::List { items } = self.checked.ast.expr(*list)
        {
            let items: Vec<ExprId> = items.iter().map(|(item, _)| *item).collect();
            self.format(id, format, &items);
        }
    }

    fn format(&mut self, id: ExprId, format: &str, items: &[ExprId]) {
        let runtime_name = |ty: &Type| -> &'static str {
            match ty {
                Type::Dyn | Type::Any => "dyn",
                Type::Bool => "bool",
                Type::Int => "int",
                Type::Uint => "uint",
                Type::Double => "double",
                Type::String => "string",
                Type::Bytes => "bytes",
                Type::Null => "null_type",
                Type::Duration => "google.protobuf.Duration",
                Type::Timestamp => "google.protobuf.Timestamp",
                Type::List(_) => "list",
                Type::Map(_) => "map",
                Type::Type(_) => "type",
                Type::Opaque(name, _) if **name == *"net.IP" => "net.IP",
                Type::Opaque(name, _) if **name == *"net.CIDR" => "net.CIDR",
                Type::Opaque(..) => "optional_type",
                Type::Struct(name) if name.ends_with("Quantity") => "kubernetes.Quantity",
                Type::Struct(name) if name.ends_with("URL") => "kubernetes.URL",
                Type::Struct(name) if name.ends_with("Semver") => "kubernetes.Semver",
                _ => "object",
            }
        };
        let types: Vec<(Type, &'static str)> = items
            .iter()
            .map(|&item| {
                let ty = self.checked.ty(item).clone();
                let name = runtime_name(&ty);
                (ty, name)
            })
            .collect();
        if let Err((about, message)) = functions::check_format(format, &types) {
            self.report(about.map_or(id, |index| items[index]), message);
        }
    }

    /// Elements of lists and maps must be of one type.
    fn aggregate(&mut self, id: ExprId) {
        match self.checked.ast.expr(id) {
            Expr::List { items } => {
                let mut first: Option<Type> = None;
                for &(item, optional) in items {
                    let ty = self.element(item, optional);
                    match &first {
                        None => first = Some(ty),
                        Some(first) if *first != ty => {
                            let message = self.mismatch(first, &ty);
                            return self.report(item, message);
                        }
                        Some(_) => {}
                    }
                }
            }
            Expr::Map { entries } => {
                let mut first: Option<(Type, Type)> = None;
                for entry in entries {
                    let (key, value) = (self.element(entry.key, false), self.element(entry.value, entry.optional));
                    let Some((keys, values)) = &first else {
                        first = Some((key, value));
                        continue;
                    };
                    if *keys != key {
                        let message = self.mismatch(keys, &key);
                        self.report(entry.key, message);
                    }
                    if *values != value {
                        let message = self.mismatch(values, &value);
                        self.report(entry.value, message);
                    }
                }
            }
            _ => {}
        }
    }

    fn element(&self, id: ExprId, optional: bool) -> Type {
        let ty = self.checked.ty(id);
        ty.unwrap_optional().filter(|_| optional).unwrap_or(ty).clone()
    }

    fn mismatch(&self, wanted: &Type, found: &Type) -> String {
        let decls = &self.checked.decls;
        format!("expected type '{}' but found '{}'", wanted.show(decls), found.show(decls))
    }
}
