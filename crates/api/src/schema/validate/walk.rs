//! The walk over a value and its schema.

use super::{
    Checks, Findings,
    failure::{Failures, Kind, Mark, Taken},
    lists,
    ratchet::Ratchet,
    resource,
    scalar::Scalar,
};
use crate::{
    Value,
    field::{self, ErrorList, Segment},
    go, json,
    schema::{Format, ListType, NodeId, NodeRef, Rules, Type},
};

/// Walks, and collects what is wrong.
pub(super) struct Walker<'a> {
    checks: Checks,
    path: Vec<Segment<'a>>,
    stack: Vec<Frame<'a>>,
    /// Where the walk begins, as a path.
    base: &'a str,
    failures: Failures<'a>,
    resources: ErrorList,
    lists: ErrorList,
}

/// What a frame does next.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd)]
enum Stage {
    AnyOf,
    OneOf,
    AllOf,
    Not,
    Content,
    Items,
    Fields,
}

/// A value that is being looked at.
struct Frame<'a> {
    node: NodeRef<'a>,
    value: &'a Value,
    stage: Stage,
    /// How far the stage has come.
    index: usize,
    /// How far it has come among the known fields.
    field: usize,
    /// How many checks were right: upstream reports the alternative with most of them.
    matches: u64,
    /// The path has a segment for this value.
    stepped: bool,
    /// Inside of an alternative: it can only restrict.
    nested: bool,
    combination: &'a Rules,
    junction: Option<Box<Junction>>,
}

/// Alternatives that are being tried.
struct Junction {
    start: Mark,
    valid: usize,
    /// The matches of the first one that was right.
    first: u64,
    best: Option<(u64, Taken)>,
}

/// A value is done at once, or needs a frame.
enum Visit<'a> {
    Done(u64),
    Open(Frame<'a>),
}

static NO_RULES: std::sync::LazyLock<Rules> = std::sync::LazyLock::new(Rules::default);

fn combines(rules: &Rules) -> bool {
    !rules.any_of.is_empty() || !rules.one_of.is_empty() || !rules.all_of.is_empty() || rules.not.is_some()
}

impl<'a> Walker<'a> {
    pub(super) fn new(checks: Checks, base: &'a str) -> Self {
        let (path, stack, failures) = (Vec::new(), Vec::new(), Failures::default());
        Walker { checks, path, stack, base, failures, resources: Vec::new(), lists: Vec::new() }
    }

    /// Tolerates what is wrong where nothing has changed.
    pub(super) fn tolerating(mut self, ratchet: Option<Ratchet<'a>>) -> Self {
        self.failures.ratchet = ratchet;
        self
    }

    /// All errors: first those of OpenAPI, then those of resources, then those of lists.
    pub(super) fn run(self, node: NodeRef<'a>, value: &'a Value) -> ErrorList {
        let Findings { mut openapi, resources, lists } = self.inspect(node, value);
        openapi.extend(resources);
        openapi.extend(lists);
        openapi
    }

    /// The same, kind by kind.
    pub(super) fn inspect(mut self, node: NodeRef<'a>, value: &'a Value) -> Findings {
        if let Visit::Open(frame) = self.visit(node, value, false, false) {
            self.stack.push(frame);
        }
        while let Some(frame) = self.stack.pop() {
            self.advance(frame);
        }
        let openapi = if self.checks.openapi { self.failures.into_errors(self.base) } else { Vec::new() };
        Findings { openapi, resources: self.resources, lists: self.lists }
    }

    fn scalar(&mut self, node: NodeRef<'a>, value: &'a Value) -> Scalar<'_, 'a> {
        Scalar { node, value, path: &self.path, failures: &mut self.failures, checks: self.checks }
    }

    fn visit(&mut self, node: NodeRef<'a>, value: &'a Value, stepped: bool, nested: bool) -> Visit<'a> {
        if let Some(visit) = self.visit_plain(node, value, stepped, nested) {
            return visit;
        }
        let mut scalar = self.scalar(node, value);
        let mut matches = scalar.check_type();
        if value.is_null() {
            scalar.check_enumeration();
            return Visit::Done(matches);
        }
        let combination = node.rules().find(|rules| combines(rules));
        if combination.is_none() && !matches!(value, Value::Array(_) | Value::Object(_)) {
            matches += 2 + scalar.check_content();
            scalar.check_enumeration();
            return Visit::Done(matches + 2);
        }
        if !nested {
            self.check_whole(node, value);
        }
        let stage = if combination.is_some() { Stage::AnyOf } else { Stage::Content };
        let combination = combination.unwrap_or(&NO_RULES);
        if stage == Stage::Content {
            matches += 2;
        }
        Visit::Open(Frame {
            node,
            value,
            stage,
            index: 0,
            field: 0,
            matches,
            stepped,
            nested,
            combination,
            junction: None,
        })
    }

    /// The short way for most values: of the right type, and nothing else is said of them.
    fn visit_plain(&mut self, node: NodeRef<'a>, value: &'a Value, stepped: bool, nested: bool) -> Option<Visit<'a>> {
        if node.is_constrained() {
            return None;
        }
        let stage = match (node.ty(), node.format(), value) {
            (Type::String, Format::None, Value::String(_)) => return Some(Visit::Done(7)),
            (Type::Boolean, Format::None, Value::Bool(_)) => return Some(Visit::Done(6)),
            (Type::Integer, Format::None | Format::Int64, Value::Int(_)) => return Some(Visit::Done(8)),
            (Type::Integer, Format::Int32, Value::Int(n)) if i32::try_from(*n).is_ok() => {
                return Some(Visit::Done(8));
            }
            (Type::Array, Format::None, Value::Array(_)) => Stage::Items,
            (Type::Object, Format::None, Value::Object(_)) => Stage::Fields,
            _ => return None,
        };
        if !nested {
            self.check_whole(node, value);
        }
        // The type, the combinations that are not there, and for objects the enumeration that is not there.
        let matches = if stage == Stage::Items { 4 } else { 5 };
        let (combination, junction) = (&*NO_RULES, None);
        Some(Visit::Open(Frame {
            node,
            value,
            stage,
            index: 0,
            field: 0,
            matches,
            stepped,
            nested,
            combination,
            junction,
        }))
    }

    /// Checks what a value is besides its schema: a resource, a set, a map.
    fn check_whole(&mut self, node: NodeRef<'a>, value: &'a Value) {
        match (value, node.list_type()) {
            (Value::Object(_), _) if self.checks.resources && node.is_embedded_resource() => self.check_resource(value),
            (Value::Array(_), ListType::Atomic) => {}
            (Value::Array(items), list_type) if self.checks.lists => {
                let place = |at| self.place(Segment::Index(at));
                let mut errors = Vec::new();
                match list_type {
                    ListType::Map => lists::check_map(items, node.list_map_keys(), place, &mut errors),
                    _ => lists::check_set(items, place, &mut errors),
                }
                self.lists.append(&mut errors);
            }
            _ => {}
        }
    }

    /// Checks a resource, called one by its node or not.
    pub(super) fn check_resource(&mut self, value: &Value) {
        if let Value::Object(map) = value {
            let mut errors = Vec::new();
            resource::check(map, |field| self.place(Segment::Child(field)), &mut errors);
            self.resources.append(&mut errors);
        }
    }

    /// The path of what is at `last` of the present value.
    fn place(&self, last: Segment<'_>) -> String {
        let base = (!self.base.is_empty()).then_some(Segment::Child(self.base));
        field::render(base.into_iter().chain(self.path.iter().copied()).chain([last]))
    }

    /// Takes a frame on until it is done, or a value inside of it needs a frame of its own.
    fn advance(&mut self, mut frame: Frame<'a>) {
        loop {
            let combination = frame.combination;
            let open = match frame.stage {
                Stage::AnyOf => self.try_branches(&mut frame, &combination.any_of),
                Stage::OneOf => self.try_branches(&mut frame, &combination.one_of),
                Stage::AllOf => self.try_branches(&mut frame, &combination.all_of),
                Stage::Not => self.try_branches(&mut frame, combination.not.as_slice()),
                Stage::Content => {
                    frame.matches += self.scalar(frame.node, frame.value).check_content();
                    (frame.stage, frame.index) = (Stage::Items, 0);
                    continue;
                }
                Stage::Items => self.visit_items(&mut frame),
                Stage::Fields => self.visit_fields(&mut frame),
            };
            if let Some(inner) = open {
                self.stack.push(frame);
                self.stack.push(inner);
                return;
            }
            match frame.stage {
                Stage::Fields => break,
                Stage::Items => {
                    self.scalar(frame.node, frame.value).check_enumeration();
                    frame.matches += 1;
                }
                _ => self.end_junction(&mut frame),
            }
            frame.index = 0;
            frame.stage = match frame.stage {
                Stage::AnyOf => Stage::OneOf,
                Stage::OneOf => Stage::AllOf,
                Stage::AllOf => Stage::Not,
                Stage::Not => {
                    frame.matches += 2;
                    Stage::Content
                }
                Stage::Content | Stage::Items | Stage::Fields => Stage::Fields,
            };
        }
        if frame.stepped {
            self.path.pop();
        }
        let matches = frame.matches + 1;
        if let Some(mut outer) = self.stack.pop() {
            self.end_inner(&mut outer, matches);
            self.stack.push(outer);
        }
    }

    /// A value inside of `frame` is done.
    fn end_inner(&mut self, frame: &mut Frame<'a>, matches: u64) {
        match frame.stage {
            Stage::Content | Stage::Items | Stage::Fields => frame.matches += matches,
            _ => self.end_branch(frame, matches),
        }
    }

    fn try_branches(&mut self, frame: &mut Frame<'a>, branches: &'a [NodeId]) -> Option<Frame<'a>> {
        if branches.is_empty() {
            return None;
        }
        if frame.junction.is_none() {
            let start = self.failures.mark();
            frame.junction = Some(Box::new(Junction { start, valid: 0, first: 0, best: None }));
        }
        while frame.index < branches.len() {
            // One alternative that is right is enough for `anyOf`.
            if frame.stage == Stage::AnyOf && frame.junction.as_ref().is_some_and(|junction| junction.valid > 0) {
                break;
            }
            let branch = frame.node.combination(&branches[frame.index..=frame.index]).next()?;
            frame.index += 1;
            if let Some(junction) = &mut frame.junction {
                junction.start = self.failures.mark();
            }
            match self.visit(branch, frame.value, false, true) {
                Visit::Open(inner) => return Some(inner),
                Visit::Done(matches) => self.end_branch(frame, matches),
            }
        }
        None
    }

    fn end_branch(&mut self, frame: &mut Frame<'a>, matches: u64) {
        let Some(junction) = &mut frame.junction else { return };
        let failed = self.failures.is_worse_than(junction.start);
        if frame.stage == Stage::AllOf {
            frame.matches += matches;
            junction.valid += usize::from(!failed);
            return;
        }
        if !failed {
            if junction.valid == 0 {
                junction.first = matches;
            }
            junction.valid += 1;
            junction.best = None;
            return;
        }
        let is_better = junction.best.as_ref().is_none_or(|(best, _)| matches > *best);
        if junction.valid == 0 && is_better && frame.stage != Stage::Not {
            junction.best = Some((matches, self.failures.take(junction.start)));
        } else {
            self.failures.forget(junction.start);
        }
    }

    fn end_junction(&mut self, frame: &mut Frame<'a>) {
        let Some(junction) = frame.junction.take() else { return };
        let Junction { valid, first, best, .. } = *junction;
        let words = match (frame.stage, valid) {
            (Stage::AnyOf, 0) => "at least one schema (anyOf)".to_owned(),
            (Stage::OneOf, 0) => "one and only one schema (oneOf). Found none valid".to_owned(),
            (Stage::OneOf, 2..) => format!("one and only one schema (oneOf). Found {valid} valid alternatives"),
            (Stage::AllOf, 0) => "all the schemas (allOf). None validated".to_owned(),
            (Stage::AllOf, valid) if valid < frame.combination.all_of.len() => "all the schemas (allOf)".to_owned(),
            (Stage::Not, 1..) => "the schema (not)".to_owned(),
            (Stage::AnyOf | Stage::OneOf, _) => {
                frame.matches += first;
                return;
            }
            _ => return,
        };
        let must = if frame.stage == Stage::Not { "must not validate" } else { "must validate" };
        self.failures.add(&self.path, |name| (format!("{} {must} {words}", go::quote(name)), Kind::Nowhere));
        if let Some((matches, taken)) = best {
            self.failures.restore(taken);
            frame.matches += matches;
        }
    }

    fn visit_items(&mut self, frame: &mut Frame<'a>) -> Option<Frame<'a>> {
        let Value::Array(items) = frame.value else { return None };
        if let Some(node) = frame.node.items() {
            while let Some(item) = items.get(frame.index) {
                self.path.push(Segment::Index(frame.index));
                frame.index += 1;
                match self.visit(node, item, true, frame.nested) {
                    Visit::Open(inner) => return Some(inner),
                    Visit::Done(matches) => frame.matches += matches,
                }
                self.path.pop();
            }
        }
        frame.matches += 2;
        let size = items.len();
        for rules in frame.node.rules() {
            if let Some(min) = rules.min_items.filter(|&min| (size as u64) < min) {
                self.too_few(size, min, "items");
            }
            if let Some(max) = rules.max_items.filter(|&max| size as u64 > max) {
                self.too_many(size, max, "items");
            }
            if rules.unique_items && !are_unique(items) {
                let message = |name: &str| format!("{name} in body shouldn't contain duplicates");
                self.failures.add(&self.path, |name| (message(name), Kind::Invalid("".into())));
            }
        }
        None
    }

    fn too_few(&mut self, size: usize, min: u64, what: &str) {
        let value = Value::Int(i64::try_from(size).unwrap_or(i64::MAX));
        let message = |name: &str| format!("{name} in body should have at least {min} {what}");
        self.failures.add(&self.path, |name| (message(name), Kind::Invalid(value)));
    }

    fn too_many(&mut self, size: usize, max: u64, what: &str) {
        let message = |name: &str| format!("{name} in body should have at most {max} {what}");
        self.failures.add(&self.path, |name| (message(name), Kind::TooMany(size, max)));
    }

    fn visit_fields(&mut self, frame: &mut Frame<'a>) -> Option<Frame<'a>> {
        let Value::Object(map) = frame.value else { return None };
        if frame.index == 0 {
            for rules in frame.node.rules() {
                if let Some(min) = rules.min_properties.filter(|&min| (map.len() as u64) < min) {
                    self.too_few(map.len(), min, "properties");
                }
                if let Some(max) = rules.max_properties.filter(|&max| map.len() as u64 > max) {
                    self.too_many(map.len(), max, "properties");
                }
                if rules.no_additional {
                    self.refuse_unknown(frame.node, map);
                }
            }
        }
        let additional = frame.node.additional();
        if additional.is_some() || frame.node.fields().len() > 0 {
            while let Some((name, value)) = map.entries().get(frame.index) {
                frame.index += 1;
                let (node, segment) = match (frame.node.field_from(&mut frame.field, name), additional) {
                    (Some(field), _) => (field.node, Segment::Child(name)),
                    (None, Some(additional)) => (additional, Segment::Key(name)),
                    (None, None) => continue,
                };
                self.path.push(segment);
                match self.visit(node, value, true, frame.nested) {
                    Visit::Open(inner) => return Some(inner),
                    Visit::Done(matches) => frame.matches += matches,
                }
                self.path.pop();
            }
        }
        for rules in frame.node.rules() {
            for name in &rules.required {
                if !map.contains_key(name) {
                    self.failures.add_required(&self.path, name);
                }
            }
        }
        frame.matches += 1;
        None
    }

    fn refuse_unknown(&mut self, node: NodeRef<'a>, map: &crate::Map) {
        for name in map.keys().filter(|name| node.field(name).is_none()) {
            let message = |path: &str| format!("{path}.{name} in body is a forbidden property");
            self.failures.add(&self.path, |path| (message(path), Kind::Invalid(name.into())));
        }
    }
}

fn are_unique(items: &[Value]) -> bool {
    let mut seen = std::collections::HashSet::new();
    // An integer and a float are not the same, even if they print so.
    items.iter().all(|item| seen.insert((matches!(item, Value::Float(_)), json::to_string(item))))
}
