//! Which types fit where, and what that says about types that are not known yet.

use crate::types::Type;

/// What is known about the types that are found out while checking.
#[derive(Debug, Default)]
pub(crate) struct Known {
    types: Vec<Option<Type>>,
    /// What was known before, to take back what a wrong guess added.
    trail: Vec<(u32, Option<Type>)>,
}

impl Known {
    /// A type that nothing is known about.
    pub(crate) fn fresh(&mut self) -> Type {
        self.types.push(None);
        Type::Param(u32::try_from(self.types.len() - 1).unwrap_or(u32::MAX))
    }

    fn find(&self, param: u32) -> Option<&Type> {
        self.types.get(param as usize).and_then(Option::as_ref)
    }

    fn learn(&mut self, param: u32, ty: Type) {
        let old = self.types[param as usize].replace(ty);
        self.trail.push((param, old));
    }

    fn undo(&mut self, to: usize) {
        while self.trail.len() > to {
            let (param, old) = self.trail.pop().expect("the trail is longer than that");
            self.types[param as usize] = old;
        }
    }

    /// Whether `from` fits `to`; nothing is learnt if it does not.
    pub(crate) fn assignable(&mut self, from: &Type, to: &Type) -> bool {
        let before = self.trail.len();
        let fits = self.fits(from, to);
        if !fits {
            self.undo(before);
        }
        fits
    }

    /// Whether all fit.
    pub(crate) fn all_assignable(&mut self, from: &[Type], to: &[Type]) -> bool {
        let before = self.trail.len();
        let fits = from.len() == to.len() && from.iter().zip(to).all(|(from, to)| self.fits(from, to));
        if !fits {
            self.undo(before);
        }
        fits
    }

    fn fits(&mut self, from: &Type, to: &Type) -> bool {
        if let Type::Param(param) = to {
            let (valid, had) = self.substitutes(from, *param);
            if valid {
                return true;
            }
            if had {
                return false;
            }
        }
        if let Type::Param(param) = from {
            return self.substitutes(to, *param).0;
        }
        match (from, to) {
            (a, b) if a.is_dyn_or_error() || b.is_dyn_or_error() => true,
            (Type::Null, other) | (other, Type::Null) => {
                let nullable = matches!(other, Type::Opaque(..) | Type::Object(_) | Type::Struct(_));
                nullable || matches!(other, Type::Duration | Type::Timestamp | Type::Null)
            }
            (Type::Type(_), Type::Type(_)) => true,
            (Type::List(a), Type::List(b)) => self.fits(a, b),
            (Type::Map(a), Type::Map(b)) => self.fits(&a.0, &b.0) && self.fits(&a.1, &b.1),
            (Type::Opaque(a, x), Type::Opaque(b, y)) => {
                a == b && x.len() == y.len() && x.iter().zip(y.iter()).all(|(x, y)| self.fits(x, y))
            }
            (a, b) => a == b,
        }
    }

    /// Whether `ty` can be what `param` is, and whether something was known about `param` before.
    fn substitutes(&mut self, ty: &Type, param: u32) -> (bool, bool) {
        if *ty == Type::Param(param) {
            return (true, true);
        }
        if let Some(known) = self.find(param).cloned() {
            if *ty == known {
                return (true, true);
            }
            if self.fits(ty, &known) {
                let general = most_general(ty, &known);
                if self.not_within(param, &general) {
                    self.learn(param, general);
                }
                return (true, true);
            }
            return (false, true);
        }
        if self.not_within(param, ty) {
            self.learn(param, ty.clone());
            return (true, false);
        }
        (false, false)
    }

    fn not_within(&self, param: u32, ty: &Type) -> bool {
        match ty {
            Type::Param(other) if *other == param => false,
            Type::Param(other) => self.find(*other).is_none_or(|known| self.not_within(param, known)),
            other => other.params().into_iter().all(|inside| self.not_within(param, inside)),
        }
    }

    /// The type with all that is known put in. What is not known becomes dyn if `finish` says so.
    pub(crate) fn substitute(&self, ty: &Type, finish: bool) -> Type {
        match ty {
            Type::Param(param) => match self.find(*param) {
                Some(known) => self.substitute(known, finish),
                None if finish => Type::Dyn,
                None => ty.clone(),
            },
            other => other.with_params(|inside| self.substitute(inside, finish)),
        }
    }
}

/// The more general of two types that fit each other.
pub(crate) fn most_general(a: &Type, b: &Type) -> Type {
    if equal_or_less_specific(a, b) { a.clone() } else { b.clone() }
}

fn equal_or_less_specific(a: &Type, b: &Type) -> bool {
    match (a, b) {
        (Type::Dyn | Type::Any | Type::Param(_), _) => true,
        (_, Type::Dyn | Type::Any | Type::Param(_)) => false,
        (Type::Type(_), Type::Type(_)) => true,
        (Type::List(a), Type::List(b)) => equal_or_less_specific(a, b),
        (Type::Map(a), Type::Map(b)) => equal_or_less_specific(&a.0, &b.0) && equal_or_less_specific(&a.1, &b.1),
        (Type::Opaque(a, x), Type::Opaque(b, y)) => {
            a == b && x.len() == y.len() && x.iter().zip(y.iter()).all(|(x, y)| equal_or_less_specific(x, y))
        }
        (a, b) => a == b,
    }
}
