//! What calls can cost, and how large their results can be.

use super::{
    Coster, EntrySize, Part, longer,
    sizes::{CostEstimate, SizeEstimate},
};
use crate::{
    ast::{Expr, ExprId, Literal},
    cost::{AUTHORIZATION, CHARACTER, LIST, REGEX_CHARACTER, STRUCT},
    types::Type,
};

/// A call's cost and the size of its result, where something is known of it.
type Estimate = (CostEstimate, Option<SizeEstimate>);

/// The longest expression of a named format, and its longest name.
const FORMAT_REGEX: f64 = 128.0;
const FORMAT_NAME: u64 = 64;

const ONE: CostEstimate = CostEstimate { min: 1, max: 1 };

impl<'c> Coster<'c> {
    pub(super) fn call(&mut self, id: ExprId) -> CostEstimate {
        let Expr::Call { function, target, args } = self.expr(id) else { return CostEstimate::fixed(0) };
        if function == "dyn" && args.len() == 1 {
            let cost = self.cost(args[0]);
            self.copy_sizes(id, args[0]);
            return ONE.add(cost);
        }
        let mut costs = Vec::with_capacity(args.len());
        let mut parts = Vec::with_capacity(args.len());
        for arg in args {
            costs.push(self.cost(*arg));
            parts.push(self.part(*arg));
        }
        let overloads = self.checked.overloads(id);
        if overloads.is_empty() {
            return CostEstimate::fixed(0);
        }
        let mut sum = CostEstimate::fixed(0);
        let mut on = None;
        if let Some(target) = target {
            sum = self.cost(*target);
            on = Some(self.part(*target));
        }
        let mut total = CostEstimate { min: u64::MAX, max: 0 };
        let mut size: Option<SizeEstimate> = None;
        for overload in overloads {
            let (cost, result) = self.overload(id, function, overload.id, on.as_ref(), &parts, &costs);
            total = total.union(cost);
            size = match (size, result) {
                (Some(size), Some(result)) => Some(size.union(result)),
                (size, result) => size.or(result),
            };
            let step = match overload.id {
                "index_list" => Some("@items"),
                "index_map" => Some("@values"),
                _ => None,
            };
            if let (Some(step), Some(&first)) = (step, args.first()) {
                size = self.entry_size(first).map(|entry| entry.value);
                let path = longer(self.path(first), step);
                self.paths.insert(id, path);
            }
            if size.is_none() {
                size = self.size(id);
            }
        }
        if let Some(size) = size {
            self.sizes.insert(id, size);
        }
        sum.add(total)
    }

    fn overload(
        &mut self,
        id: ExprId,
        function: &str,
        overload: &str,
        target: Option<&Part<'c>>,
        args: &[Part<'c>],
        costs: &[CostEstimate],
    ) -> Estimate {
        let sum = costs.iter().fold(CostEstimate::fixed(0), |sum, cost| sum.add(*cost));
        let own = self.of_lists(overload, target, args).or_else(|| self.of_function(function, overload, target, args));
        if let Some((cost, size)) = own {
            return (cost.add(sum), size);
        }
        match overload {
            "logical_or" | "logical_and" => {
                return (CostEstimate { min: costs[0].min, max: costs[0].add(costs[1]).max }, None);
            }
            "conditional" => {
                let size = computed(&args[1]).union(computed(&args[2]));
                if let (Some(a), Some(b)) = (self.entry_of(&args[1]), self.entry_of(&args[2])) {
                    self.entry_sizes.insert(id, a.union(b));
                }
                return (costs[0].add(costs[1].union(costs[2])), Some(size));
            }
            _ => {}
        }
        let (cost, size) = self.standard(id, overload, target, args).unwrap_or((ONE, None));
        (cost.add(sum), size)
    }

    fn entry_of(&self, part: &Part<'c>) -> Option<EntrySize> {
        part.id.and_then(|id| self.entry_size(id))
    }

    fn standard(
        &mut self,
        id: ExprId,
        overload: &str,
        target: Option<&Part<'c>>,
        args: &[Part<'c>],
    ) -> Option<Estimate> {
        Some(match (overload, target, args) {
            ("string_format", Some(target), _) => (computed(target).times_factor(CHARACTER), None),
            ("string_to_bytes", _, [arg]) => {
                let size = computed(arg);
                (size.times_factor(CHARACTER), Some(SizeEstimate { min: size.min, max: size.max.wrapping_mul(4) }))
            }
            ("bytes_to_string", _, [arg]) => {
                let size = computed(arg);
                (size.times_factor(CHARACTER), Some(SizeEstimate { min: size.min / 4, max: size.max }))
            }
            ("strings_quote", _, [arg]) => {
                let size = computed(arg);
                let quoted =
                    SizeEstimate { min: size.min.wrapping_add(2), max: size.max.wrapping_mul(2).wrapping_add(2) };
                (size.times_factor(CHARACTER), Some(quoted))
            }
            ("starts_with_string" | "ends_with_string", _, [arg]) => (computed(arg).times_factor(CHARACTER), None),
            ("in_list", _, [_, list]) => (computed(list).times_factor(1.0), None),
            ("matches_string", Some(target), [pattern]) => (regex(computed(target), computed(pattern)), None),
            ("contains_string", Some(target), [part]) => {
                (computed(target).times_factor(CHARACTER).times(computed(part).times_factor(CHARACTER)), None)
            }
            ("add_string" | "add_bytes" | "add_list", _, [a, b]) => {
                let size = computed(a).add(computed(b));
                if let (Some(a), Some(b)) = (self.entry_of(a), self.entry_of(b)) {
                    self.entry_sizes.insert(id, a.union(b));
                }
                (if overload == "add_list" { ONE } else { size.times_factor(CHARACTER) }, Some(size))
            }
            (
                "less_string"
                | "greater_string"
                | "less_equals_string"
                | "greater_equals_string"
                | "less_bytes"
                | "greater_bytes"
                | "less_equals_bytes"
                | "greater_equals_bytes"
                | "equals"
                | "not_equals",
                _,
                [a, b],
            ) => {
                let max = computed(a).max.min(computed(b).max);
                (CostEstimate { min: u64::from(max > 0), max }.times_factor(CHARACTER), None)
            }
            _ => return None,
        })
    }

    /// The size as it is known, or as the schema allows it.
    fn known(&self, part: &Part<'c>) -> SizeEstimate {
        part.size.or_else(|| self.schema_size(&part.path)).unwrap_or(SizeEstimate::UNKNOWN)
    }

    /// The elements of a list.
    fn elements(&self, list: &Part<'c>) -> Option<Part<'c>> {
        let ty = match list.ty {
            Type::List(item) => &**item,
            Type::Map(both) => &both.0,
            Type::Opaque(_, params) => params.first()?,
            _ => return None,
        };
        let path = if list.path.is_empty() { Vec::new() } else { longer(list.path.clone(), "@items") };
        Some(Part { id: None, path, ty, size: None })
    }

    fn int_or(&self, part: &Part<'c>, otherwise: u64) -> u64 {
        match part.id.map(|id| self.expr(id)) {
            Some(Expr::Literal(Literal::Int(n))) => u64::try_from(*n).unwrap_or(0),
            _ => otherwise,
        }
    }

    fn of_lists(&self, overload: &str, target: Option<&Part<'c>>, args: &[Part<'c>]) -> Option<Estimate> {
        let product = |factor: f64| {
            let size = self.known(&args[0]).times(self.known(&args[1]));
            (size.times_factor(factor).add(ONE), None)
        };
        let allocating = |factor: f64, size: SizeEstimate| {
            (size.times_factor(factor).add(ONE).add(CostEstimate::fixed(LIST)), Some(size))
        };
        #[expect(clippy::cast_precision_loss, reason = "as upstream")]
        Some(match overload {
            "list_sets_contains_list" | "list_sets_intersects_list" => product(1.0),
            "list_sets_equivalent_list" => product(2.0),
            "list_slice" => {
                let (start, end) = (self.int_or(&args[0], 0), self.int_or(&args[1], self.known(target?).max));
                allocating(1.0, SizeEstimate::fixed(end.wrapping_sub(start)))
            }
            "lists_range" => allocating(1.0, SizeEstimate::fixed(self.int_or(&args[0], u64::MAX))),
            "list_reverse" => allocating(1.0, self.known(target?)),
            "list_flatten" => allocating(1.0, self.known(target?)),
            "list_flatten_int" => allocating(self.int_or(&args[0], u64::MAX) as f64, self.known(target?)),
            "list_distinct" => {
                let size = self.known(target?);
                allocating(2.0, size.times(size))
            }
            _ => {
                let (list, of) = match overload.strip_suffix("_sort") {
                    Some(of) => (target?, of),
                    None => (args.first()?, overload.strip_suffix("_sortByAssociatedKeys")?),
                };
                let text = matches!(of, "list_string" | "list_bytes");
                let size = self.known(list);
                allocating(if text { 2.0 + CHARACTER } else { 2.0 }, size.times(size))
            }
        })
    }

    fn of_function(
        &self,
        function: &str,
        overload: &str,
        target: Option<&Part<'c>>,
        args: &[Part<'c>],
    ) -> Option<Estimate> {
        let first = || args.first().map(|arg| self.known(arg));
        let by_character = |size: SizeEstimate| (size.times_factor(CHARACTER), None);
        Some(match function {
            "check" => (CostEstimate::fixed(AUTHORIZATION), None),
            "serviceAccount" | "path" | "group" | "resource" | "subresource" | "namespace" | "name" | "allowed"
            | "reason" | "error" | "errored" => (ONE, None),
            "fieldSelector" | "labelSelector" => (selector(first()?), None),
            "isSorted" | "sum" | "max" | "min" | "indexOf" | "lastIndexOf" => (self.traversal(target?), None),
            "url" | "jsonpatch.escapeKey" => (first()?.times_factor(CHARACTER), first()),
            "lowerAscii" | "upperAscii" | "substring" | "trim" => {
                let size = self.known(target?);
                (size.times_factor(CHARACTER), Some(size))
            }
            "replace" => self.replace(target?, args)?,
            "split" => {
                let size = self.known(target?);
                let max = args.get(1).map_or(size.max, |most| match most.id.map(|id| self.expr(id)) {
                    Some(Expr::Literal(Literal::Int(n))) => n.cast_unsigned(),
                    _ => size.max,
                });
                (size.times_factor(2.0 * CHARACTER), Some(SizeEstimate { min: 0, max }))
            }
            "join" => self.join(target?, args),
            "find" | "findAll" => {
                let size = self.known(target?);
                (regex(size, first()?), Some(SizeEstimate { min: 0, max: size.max }))
            }
            "ip" if overload == "cidr_ip" => (ONE, None),
            "ip" | "cidr" | "isIP" | "isCIDR" | "quantity" | "isQuantity" | "semver" | "isSemver" => {
                by_character(first()?)
            }
            "ip.isCanonical" => (first()?.times_factor(2.0 * CHARACTER), None),
            "masked"
            | "prefixLength"
            | "family"
            | "isUnspecified"
            | "isLoopback"
            | "isLinkLocalMulticast"
            | "isLinkLocalUnicast"
            | "isGlobalUnicast"
            | "format.named"
            | "sign"
            | "asInteger"
            | "isInteger"
            | "asApproximateFloat"
            | "isGreaterThan"
            | "isLessThan"
            | "compareTo"
            | "add"
            | "sub"
            | "major"
            | "minor"
            | "patch"
            | "getScheme"
            | "getHostname"
            | "getHost"
            | "getPort"
            | "getEscapedPath"
            | "getQuery" => (ONE, None),
            "containsIP" | "containsCIDR" => {
                let address = SizeEstimate { min: 4, max: 16 };
                let mut cost = address.add(address).times_factor(CHARACTER);
                if function == "containsCIDR" {
                    cost = cost.add(address.times_factor(CHARACTER)).add(ONE);
                }
                if matches!(overload, "cidr_contains_ip_string" | "cidr_contains_cidr_string") {
                    cost = cost.add(first()?.times_factor(CHARACTER));
                }
                (cost, None)
            }
            "validate" => (first()?.times_factor(CHARACTER).times_factor(FORMAT_REGEX * REGEX_CHARACTER), None),
            "_==_" => return equality(args),
            _ => return None,
        })
    }

    fn traversal(&self, target: &Part<'c>) -> CostEstimate {
        let size = self.known(target);
        let Some(element) = self.elements(target) else { return size.times_factor(CHARACTER) };
        let mut each = ONE;
        if matches!(element.ty, Type::String | Type::Bytes) {
            each = each.add(self.known(&element).times_factor(CHARACTER));
        }
        size.times_cost(each)
    }

    fn replace(&self, target: &Part<'c>, args: &[Part<'c>]) -> Option<Estimate> {
        let [old, new, ..] = args else { return None };
        let (size, old, new) = (self.known(target), self.known(old), self.known(new));
        let (mut count, mut kept) = (SizeEstimate::fixed(0), SizeEstimate::fixed(0));
        if old.min == 0 {
            (count.max, kept.max) = (size.max.saturating_add(1), size.max);
        } else if new.max <= old.min {
            kept.max = size.max;
        } else {
            count.max = divide(size.max, old.min);
        }
        if old.max == 0 {
            (count.min, kept.min) = (size.min.saturating_add(1), size.min);
        } else if old.max <= new.min {
            kept.min = size.min;
        } else {
            count.min = divide(size.min, old.max);
        }
        Some((size.times_factor(2.0 * CHARACTER), Some(count.times(new).add(kept))))
    }

    fn join(&self, target: &Part<'c>, args: &[Part<'c>]) -> Estimate {
        let count = self.known(target);
        let mut size = SizeEstimate::fixed(0);
        if let Some(element) = self.elements(target) {
            size = count.times(self.known(&element));
        }
        if let Some(by) = args.first() {
            let between = SizeEstimate { min: count.min.saturating_sub(1), max: count.max.saturating_sub(1) };
            size = size.add(self.known(by).times(between));
        }
        (size.times_factor(CHARACTER), Some(size))
    }
}

/// The size as the expression tells it.
fn computed(part: &Part<'_>) -> SizeEstimate {
    part.size.unwrap_or(SizeEstimate::UNKNOWN)
}

#[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, clippy::cast_precision_loss, reason = "as upstream")]
fn divide(size: u64, by: u64) -> u64 {
    (size as f64 / by as f64).ceil() as u64
}

fn regex(text: SizeEstimate, pattern: SizeEstimate) -> CostEstimate {
    let text = text.add(SizeEstimate::fixed(1)).times_factor(CHARACTER);
    text.times(pattern.times_factor(REGEX_CHARACTER))
}

#[expect(clippy::cast_precision_loss, reason = "small constants")]
fn selector(length: SizeEstimate) -> CostEstimate {
    let requirements = length.times_factor(0.5).times_factor((LIST + STRUCT) as f64);
    CostEstimate::fixed(LIST).add(length.times_factor(CHARACTER)).add(requirements)
}

/// Comparing values of libraries costs little.
fn equality(args: &[Part<'_>]) -> Option<Estimate> {
    let [a, b] = args else { return None };
    if a.ty != b.ty {
        return None;
    }
    match a.ty {
        Type::Opaque(name, _) if matches!(&**name, "net.IP" | "net.CIDR") => Some((ONE, None)),
        Type::Struct(name) => Some(match &**name {
            "kubernetes.NamedFormat" => (CostEstimate { min: 1, max: FORMAT_NAME }.times_factor(CHARACTER), None),
            "kubernetes.URL" => {
                let max = b.size.map_or(1, |size| size.max);
                (CostEstimate { min: 1, max }.times_factor(CHARACTER), None)
            }
            _ => (ONE, None),
        }),
        _ => None,
    }
}
