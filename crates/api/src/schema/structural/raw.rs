//! An OpenAPI v3 schema laid out flat: every subschema in the order in which a reader meets it, with the way back to
//! its parent.
//!
//! Later passes are loops over the list, so that a schema that nests 10,000 deep costs no stack.

use crate::{Map, Str, Value, field};

/// How one gets from a schema to a subschema.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) enum Step<'a> {
    Root,
    Property(&'a str),
    Items,
    Additional,
    Not,
    AllOf(usize),
    OneOf(usize),
    AnyOf(usize),
    /// Kinds of subschemas that are never structural: just looked at to say so.
    Definition(&'a str),
    ItemsAt(usize),
    Dependency(&'a str),
}

/// What part of a schema a subschema belongs to.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) enum Part {
    /// The structure: reached by `properties`, `items` and `additionalProperties` alone.
    Structure,
    /// Inside of `allOf`, `anyOf`, `oneOf` or `not`: may only restrict values.
    Nested,
    /// Reached through a keyword that is not supported.
    Loose,
}

/// One subschema.
#[derive(Clone, Copy, Debug)]
pub(super) struct Raw<'a> {
    pub(super) parent: usize,
    pub(super) step: Step<'a>,
    pub(super) part: Part,
    /// Where the subschemas below this one end.
    pub(super) end: usize,
    pub(super) props: &'a Map,
}

static EMPTY: Map = Map::new();

/// Reads keywords. A `null` keyword is not there, as in Go; one of a wrong type has been refused before.
impl<'a> Raw<'a> {
    pub(super) fn get(&self, keyword: &str) -> Option<&'a Value> {
        present(self.props.get(keyword))
    }

    pub(super) fn text(&self, keyword: &str) -> &'a str {
        self.get(keyword).and_then(Value::as_str).unwrap_or_default()
    }

    pub(super) fn ty(&self) -> &'a str {
        self.text("type")
    }

    pub(super) fn flag(&self, keyword: &str) -> bool {
        self.get(keyword).and_then(Value::as_bool).unwrap_or_default()
    }

    pub(super) fn number(&self, keyword: &str) -> Option<f64> {
        self.get(keyword).and_then(Value::as_f64)
    }

    /// A count; a negative one is no different from 0.
    pub(super) fn count(&self, keyword: &str) -> Option<u64> {
        self.get(keyword).and_then(Value::as_i64).map(|count| u64::try_from(count).unwrap_or(0))
    }

    pub(super) fn list(&self, keyword: &str) -> &'a [Value] {
        self.get(keyword).and_then(Value::as_array).map_or(&[], |items| items)
    }

    pub(super) fn texts(&self, keyword: &str) -> impl Iterator<Item = &'a str> + use<'a> {
        self.list(keyword).iter().filter_map(Value::as_str)
    }

    pub(super) fn entries(&self, keyword: &str) -> &'a [(Str, Value)] {
        self.get(keyword).and_then(Value::as_object).map_or(&[], Map::entries)
    }

    /// The subschema under `keyword`.
    pub(super) fn schema(&self, keyword: &str) -> Option<Raw<'a>> {
        self.get(keyword).and_then(Value::as_object).map(Raw::alone)
    }

    /// The property `name`.
    pub(super) fn property(&self, name: &str) -> Option<Raw<'a>> {
        let property = self.get("properties")?.get(name)?;
        Some(Raw::alone(property.as_object().unwrap_or(&EMPTY)))
    }

    /// A schema without its place, to ask for keywords.
    fn alone(props: &'a Map) -> Self {
        Raw { parent: 0, step: Step::Root, part: Part::Structure, end: 0, props }
    }

    pub(super) fn is_structure(&self) -> bool {
        self.part == Part::Structure
    }
}

fn present(value: Option<&Value>) -> Option<&Value> {
    value.filter(|value| !value.is_null())
}

/// The subschemas, the root first.
#[derive(Debug)]
pub(super) struct Tree<'a> {
    pub(super) raws: Vec<Raw<'a>>,
    base: &'a str,
}

/// More subschemas than an arena has room for.
#[derive(Debug)]
pub(super) struct TooMany;

impl<'a> Tree<'a> {
    /// Lays out `schema`, which is to be found at the path `base`.
    pub(super) fn new(schema: &'a Map, base: &'a str, most: usize) -> Result<Self, TooMany> {
        let mut raws: Vec<Raw<'a>> = Vec::new();
        let mut waiting = vec![Raw::alone(schema)];
        let mut children = Vec::new();
        while let Some(raw) = waiting.pop() {
            let at = raws.len();
            if at >= most {
                return Err(TooMany);
            }
            raws.push(Raw { end: at + 1, ..raw });
            add_children(&raw, at, &mut children);
            waiting.extend(children.drain(..).rev());
        }
        for at in (1..raws.len()).rev() {
            let parent = raws[at].parent;
            raws[parent].end = raws[parent].end.max(raws[at].end);
        }
        Ok(Tree { raws, base })
    }

    /// The path of a subschema.
    pub(super) fn path(&self, mut at: usize) -> String {
        let mut steps = Vec::new();
        while at > 0 {
            steps.push(self.raws[at].step);
            at = self.raws[at].parent;
        }
        let mut path = self.base.to_owned();
        for step in steps.into_iter().rev() {
            append(&mut path, step);
        }
        path
    }

    /// The path of a keyword of a subschema.
    pub(super) fn child(&self, at: usize, keyword: &str) -> String {
        format!("{}.{keyword}", self.path(at))
    }

    /// The direct children of a subschema.
    pub(super) fn children(&self, at: usize) -> impl Iterator<Item = (usize, &Raw<'a>)> {
        let mut next = at + 1;
        std::iter::from_fn(move || {
            (next < self.raws[at].end).then(|| {
                let child = next;
                next = self.raws[child].end;
                (child, &self.raws[child])
            })
        })
    }
}

/// Appends a step to a path, as field paths print it.
pub(super) fn append(path: &mut String, step: Step<'_>) {
    use field::Segment::{Child, Index, Key};
    let (keyword, inner) = match step {
        Step::Root => return,
        Step::Property(name) => ("properties", Some(Key(name))),
        Step::Items => ("items", None),
        Step::Additional => ("additionalProperties", None),
        Step::Not => ("not", None),
        Step::AllOf(at) => ("allOf", Some(Index(at))),
        Step::OneOf(at) => ("oneOf", Some(Index(at))),
        Step::AnyOf(at) => ("anyOf", Some(Index(at))),
        Step::Definition(name) => ("definitions", Some(Key(name))),
        Step::ItemsAt(at) => ("items", Some(Index(at))),
        Step::Dependency(name) => ("dependencies", Some(Key(name))),
    };
    path.push('.');
    path.push_str(&field::render([Child(keyword)].into_iter().chain(inner)));
}

/// The subschemas of one schema, in the order in which upstream looks at them.
fn add_children<'a>(raw: &Raw<'a>, parent: usize, out: &mut Vec<Raw<'a>>) {
    let mut add = |step, part, value: &'a Value| {
        let part = if raw.part == Part::Structure { part } else { raw.part.max(part) };
        if let Some(props) = value.as_object().or(value.is_null().then_some(&EMPTY)) {
            out.push(Raw { parent, step, part, end: 0, props });
        }
    };
    if let Some(additional) = raw.get("additionalProperties") {
        // Below a junctor there must be none; what it says is not looked at.
        let part = if raw.is_structure() { Part::Structure } else { Part::Loose };
        add(Step::Additional, part, additional);
    }
    for (name, property) in raw.entries("properties") {
        add(Step::Property(name), Part::Structure, property);
    }
    if let Some(not) = raw.get("not") {
        add(Step::Not, Part::Nested, not);
    }
    for (at, schema) in raw.list("allOf").iter().enumerate() {
        add(Step::AllOf(at), Part::Nested, schema);
    }
    for (at, schema) in raw.list("oneOf").iter().enumerate() {
        add(Step::OneOf(at), Part::Nested, schema);
    }
    for (at, schema) in raw.list("anyOf").iter().enumerate() {
        add(Step::AnyOf(at), Part::Nested, schema);
    }
    for (name, definition) in raw.entries("definitions") {
        add(Step::Definition(name), Part::Loose, definition);
    }
    match raw.get("items") {
        Some(Value::Array(items)) => {
            for (at, schema) in items.iter().enumerate() {
                add(Step::ItemsAt(at), Part::Loose, schema);
            }
        }
        Some(items) => add(Step::Items, Part::Structure, items),
        None => {}
    }
    for (name, dependency) in raw.entries("dependencies") {
        if !dependency.is_null() {
            add(Step::Dependency(name), Part::Loose, dependency);
        }
    }
}

impl Part {
    /// The part that is farther from the structure.
    fn max(self, other: Part) -> Part {
        if self == Part::Loose || other == Part::Loose { Part::Loose } else { Part::Nested }
    }
}

/// What a keyword's value must be.
#[derive(Clone, Copy)]
enum Shape {
    Text,
    Flag,
    Integer,
    Number,
    Texts,
    Values,
    Schema,
    Schemas,
    SchemaMap,
    SchemaOrFlag,
    SchemaOrSchemas,
    Map,
}

const KEYWORDS: [(&str, Shape); 41] = [
    ("id", Shape::Text),
    ("$schema", Shape::Text),
    ("$ref", Shape::Text),
    ("description", Shape::Text),
    ("type", Shape::Text),
    ("format", Shape::Text),
    ("title", Shape::Text),
    ("maximum", Shape::Number),
    ("exclusiveMaximum", Shape::Flag),
    ("minimum", Shape::Number),
    ("exclusiveMinimum", Shape::Flag),
    ("maxLength", Shape::Integer),
    ("minLength", Shape::Integer),
    ("pattern", Shape::Text),
    ("maxItems", Shape::Integer),
    ("minItems", Shape::Integer),
    ("uniqueItems", Shape::Flag),
    ("multipleOf", Shape::Number),
    ("enum", Shape::Values),
    ("maxProperties", Shape::Integer),
    ("minProperties", Shape::Integer),
    ("required", Shape::Texts),
    ("items", Shape::SchemaOrSchemas),
    ("allOf", Shape::Schemas),
    ("oneOf", Shape::Schemas),
    ("anyOf", Shape::Schemas),
    ("not", Shape::Schema),
    ("properties", Shape::SchemaMap),
    ("additionalProperties", Shape::SchemaOrFlag),
    ("patternProperties", Shape::SchemaMap),
    ("dependencies", Shape::Map),
    ("additionalItems", Shape::SchemaOrFlag),
    ("definitions", Shape::SchemaMap),
    ("externalDocs", Shape::Map),
    ("nullable", Shape::Flag),
    ("x-kubernetes-preserve-unknown-fields", Shape::Flag),
    ("x-kubernetes-embedded-resource", Shape::Flag),
    ("x-kubernetes-int-or-string", Shape::Flag),
    ("x-kubernetes-list-map-keys", Shape::Texts),
    ("x-kubernetes-list-type", Shape::Text),
    ("x-kubernetes-map-type", Shape::Text),
];

impl Shape {
    fn fits(self, value: &Value) -> bool {
        let schema = |value: &Value| matches!(value, Value::Object(_) | Value::Null);
        let all = |value: &Value, right: fn(&Value) -> bool| value.as_array().is_some_and(|all| all.iter().all(right));
        match self {
            Shape::Text => value.as_str().is_some(),
            Shape::Flag => value.as_bool().is_some(),
            Shape::Integer => value.as_i64().is_some(),
            Shape::Number => value.as_f64().is_some(),
            Shape::Texts => all(value, |value| value.as_str().is_some()),
            Shape::Values => value.as_array().is_some(),
            Shape::Schema | Shape::Map => value.as_object().is_some(),
            Shape::Schemas => value.as_array().is_some_and(|all| all.iter().all(schema)),
            Shape::SchemaMap => value.as_object().is_some_and(|all| all.values().all(schema)),
            Shape::SchemaOrFlag => matches!(value, Value::Object(_) | Value::Bool(_)),
            Shape::SchemaOrSchemas => Shape::Schema.fits(value) || Shape::Schemas.fits(value),
        }
    }

    fn name(self) -> &'static str {
        match self {
            Shape::Text => "a string",
            Shape::Flag => "a boolean",
            Shape::Integer => "an integer",
            Shape::Number => "a number",
            Shape::Texts => "a list of strings",
            Shape::Values => "a list",
            Shape::Schema => "a schema",
            Shape::Schemas => "a list of schemas",
            Shape::SchemaMap => "a map of schemas",
            Shape::SchemaOrFlag => "a boolean or a schema",
            Shape::SchemaOrSchemas => "a schema or a list of schemas",
            Shape::Map => "an object",
        }
    }
}

/// What is wrong with the types of a subschema's keywords. Upstream's decoder refuses these before anybody looks at the
/// schema; so will ours, but nothing here relies on it.
pub(super) fn check_shapes(tree: &Tree<'_>, at: usize, errors: &mut field::ErrorList) {
    let raw = &tree.raws[at];
    for (keyword, shape) in KEYWORDS {
        if let Some(value) = raw.get(keyword)
            && !shape.fits(value)
        {
            let detail = format!("must be {}", shape.name());
            errors.push(field::Error::type_invalid(tree.child(at, keyword), value.clone(), detail));
        }
    }
}
