//! Declared types: what a schema says about the fields of a variable, and how large values can get.

use std::collections::HashMap;

use capstan_api::{
    Value,
    schema::{Format, NodeId, NodeRef, Rules, Type as SchemaType},
};

use crate::{escape::escape, types::Type};

/// The largest request there is, in bytes. It bounds what no schema bounds.
pub const MAX_REQUEST_BYTES: i64 = 3 * 1024 * 1024;

pub(crate) const MIN_STRING: i64 = 2;
pub(crate) const MIN_BOOL: i64 = 4;
const MIN_NUMBER: i64 = 1;
const MIN_DURATION: i64 = 3;
const MIN_DATE_TIME: i64 = 21;
const MAX_DURATION: i64 = 32;
const MAX_DATE_TIME: i64 = 32;
const DATE: i64 = 12;

/// How deep lists and maps of lists and maps are typed. What is deeper is dynamic.
const MAX_TYPE_DEPTH: u32 = 100;

/// A declared type's place.
pub type DeclId = u32;

/// What a declared type is.
#[derive(Clone, Debug)]
pub(crate) enum Shape {
    /// Escaped names and types, sorted by name.
    Object(Vec<(String, DeclId)>),
    List(DeclId),
    Map(DeclId),
    Scalar,
}

/// One declared type.
#[derive(Clone, Debug)]
pub(crate) struct Decl {
    pub(crate) shape: Shape,
    pub(crate) ty: Type,
    /// The most elements, or characters.
    pub(crate) max_elements: i64,
    /// The fewest bytes in JSON.
    pub(crate) min_size: i64,
    parent: Option<DeclId>,
    step: String,
    depth: u32,
}

/// All declared types below one schema.
#[derive(Clone, Debug, Default)]
pub struct Decls {
    all: Vec<Decl>,
    of_nodes: HashMap<NodeId, DeclId>,
    keys: Option<DeclId>,
    /// Objects that have a name of their own.
    named: Vec<(&'static str, DeclId)>,
}

/// What a place in a schema is looked at as.
#[derive(Clone, Copy)]
enum Source<'a> {
    Node(NodeRef<'a>),
    /// The metadata of an object, of which only the names can be used.
    Meta,
    Text,
}

struct Place<'a> {
    source: Source<'a>,
    children: Vec<(String, usize, bool)>,
    single: Option<usize>,
}

/// Whether a schema says itself that an object has a kind, a version and names.
pub(crate) fn has_type_and_meta(node: NodeRef<'_>) -> bool {
    let text =
        |node: NodeRef<'_>, name: &str| node.field(name).is_some_and(|field| field.node.ty() == SchemaType::String);
    let meta = node.field("metadata").map(|field| field.node).filter(|meta| meta.ty() == SchemaType::Object);
    text(node, "kind")
        && text(node, "apiVersion")
        && meta.is_some_and(|meta| text(meta, "name") && text(meta, "generateName"))
}

/// The node of the values of a map, if the schema says what they are.
pub(crate) fn map_values(node: NodeRef<'_>) -> Option<NodeRef<'_>> {
    // `additionalProperties: true` is a node that says nothing but that null is a value.
    node.additional().filter(|values| {
        !(values.ty() == SchemaType::Any
            && values.is_nullable()
            && !values.preserves_unknown()
            && !values.is_int_or_string()
            && values.rules().next().is_none())
    })
}

/// The format as expressions see it.
pub(crate) fn format(node: NodeRef<'_>) -> Format {
    if node.rules().any(|rules| rules.format.is_some()) { Format::None } else { node.format() }
}

pub(crate) fn rule<T>(node: NodeRef<'_>, of: impl Fn(&Rules) -> Option<T>) -> Option<T> {
    node.rules().find_map(of)
}

fn count(n: u64) -> i64 {
    i64::try_from(n).unwrap_or(i64::MAX)
}

impl Decls {
    /// The types of a schema. `root` says whether it is that of a whole object, which has a kind and a name.
    #[must_use]
    pub fn new(schema: NodeRef<'_>, root: bool) -> Self {
        let places = lay_out(schema, root);
        let mut decls = Decls::default();
        let mut made: Vec<Option<DeclId>> = vec![None; places.len()];
        for (at, place) in places.iter().enumerate().rev() {
            made[at] = decls.make(place, &made);
            if let (Some(id), Source::Node(node)) = (made[at], place.source) {
                decls.of_nodes.insert(node.id(), id);
            }
        }
        let text = decls.scalar(Type::String, 0, MIN_STRING);
        decls.keys = Some(text);
        decls
    }

    /// Declares an object that no schema describes, by the types of its fields.
    pub fn declare<'f>(&mut self, fields: impl IntoIterator<Item = (&'f str, Type)>) -> Type {
        let declared = fields.into_iter().map(|(name, ty)| (name.to_owned(), self.scalar(ty, 0, MIN_STRING)));
        let mut declared: Vec<_> = declared.collect();
        declared.sort();
        let id = self.object_of(declared);
        self.ty(id)
    }

    /// Declares an object that expressions can call by its name.
    pub fn declare_named<'f>(&mut self, name: &'static str, fields: impl IntoIterator<Item = (&'f str, Type)>) -> Type {
        let ty = self.declare(fields);
        if let Type::Object(id) = ty {
            self.name_it(id, name);
        }
        ty
    }

    pub(crate) fn has_name(&self, id: DeclId) -> bool {
        self.named.iter().any(|(_, named)| *named == id)
    }

    /// The object of that name.
    pub(crate) fn named(&self, name: &str) -> Option<DeclId> {
        self.named.iter().find(|(known, _)| *known == name).map(|(_, id)| *id)
    }

    /// The type of a place in the schema, if it has one.
    #[must_use]
    pub fn of(&self, node: NodeRef<'_>) -> Option<DeclId> {
        self.of_nodes.get(&node.id()).copied()
    }

    pub(crate) fn get(&self, id: DeclId) -> &Decl {
        &self.all[id as usize]
    }

    /// The type as expressions have it.
    #[must_use]
    pub fn ty(&self, id: DeclId) -> Type {
        self.get(id).ty.clone()
    }

    pub(crate) fn field(&self, id: DeclId, name: &str) -> Option<DeclId> {
        match &self.get(id).shape {
            Shape::Object(fields) => {
                fields.binary_search_by(|(known, _)| known.as_str().cmp(name)).ok().map(|at| fields[at].1)
            }
            _ => None,
        }
    }

    /// The field, also where a reserved word is not escaped.
    pub(crate) fn field_or_keyword(&self, id: DeclId, name: &str) -> Option<DeclId> {
        self.field(id, name).or_else(|| {
            let escaped = escape(name).filter(|escaped| **escaped == *format!("__{name}__"))?;
            self.field(id, &escaped)
        })
    }

    /// The type at the end of a path of fields, `@items`, `@keys` and `@values`.
    pub(crate) fn at_path(&self, root: DeclId, path: &[String]) -> Option<&Decl> {
        let mut here = root;
        for step in path {
            here = match (step.as_str(), &self.get(here).shape) {
                ("@items" | "@values", Shape::List(item) | Shape::Map(item)) => *item,
                ("@keys", Shape::Map(_)) => self.keys?,
                ("@items" | "@values" | "@keys", _) => return None,
                // Whatever its name, an element that may be anything is as large as any.
                (_, Shape::Map(item)) if self.get(*item).ty == Type::Any => *item,
                (name, _) => self.field(here, name)?,
            };
        }
        Some(self.get(here))
    }

    /// The name that messages give an object.
    pub(crate) fn name(&self, id: DeclId) -> String {
        if let Some((name, _)) = self.named.iter().find(|(_, named)| *named == id) {
            return (*name).to_owned();
        }
        let (mut steps, mut here) = (Vec::new(), Some(id));
        while let Some(id) = here.filter(|id| (*id as usize) < self.all.len()) {
            let decl = self.get(id);
            steps.push(decl.step.as_str());
            here = decl.parent;
        }
        steps.pop();
        steps.push("selfType");
        steps.reverse();
        steps.join(".")
    }

    /// Lets expressions call an object by a name.
    pub(crate) fn name_it(&mut self, id: DeclId, name: &'static str) {
        self.named.push((name, id));
    }

    /// How long the keys of maps can be.
    pub(crate) fn bound_keys(&mut self, longest: i64) {
        let text = self.scalar(Type::String, longest, MIN_STRING);
        self.keys = Some(text);
    }

    pub(crate) fn add(&mut self, shape: Shape, ty: Type, max_elements: i64, min_size: i64) -> DeclId {
        let id = u32::try_from(self.all.len()).unwrap_or(u32::MAX);
        let mut depth = 0;
        let adopt = |all: &mut Vec<Decl>, child: DeclId, step: &str| {
            let child = &mut all[child as usize];
            (child.parent, child.step) = (Some(id), step.to_owned());
            child.depth
        };
        match &shape {
            Shape::Object(fields) => {
                for (name, child) in fields {
                    adopt(&mut self.all, *child, name);
                }
            }
            Shape::List(child) => depth = adopt(&mut self.all, *child, "@idx") + 1,
            Shape::Map(child) => depth = adopt(&mut self.all, *child, "@elem") + 1,
            Shape::Scalar => {}
        }
        let ty = if depth > MAX_TYPE_DEPTH { Type::Dyn } else { ty };
        let depth = depth.min(MAX_TYPE_DEPTH);
        self.all.push(Decl { shape, ty, max_elements, min_size, parent: None, step: String::new(), depth });
        id
    }

    pub(crate) fn scalar(&mut self, ty: Type, max_elements: i64, min_size: i64) -> DeclId {
        self.add(Shape::Scalar, ty, max_elements, min_size)
    }

    fn make(&mut self, place: &Place<'_>, made: &[Option<DeclId>]) -> Option<DeclId> {
        let node = match place.source {
            Source::Node(node) => node,
            Source::Text => return Some(self.scalar(Type::String, MAX_REQUEST_BYTES - 2, MIN_STRING)),
            Source::Meta => return Some(self.object(place, made)),
        };
        let max_length = rule(node, |rules| rules.max_length);
        if node.is_int_or_string() {
            let most = max_length.map_or(MAX_REQUEST_BYTES - 2, |most| count(most).saturating_mul(4));
            return Some(self.scalar(Type::Dyn, most, 1));
        }
        match node.ty() {
            SchemaType::Array => {
                let item = made[place.single?]?;
                let least = self.get(item).min_size;
                let most = rule(node, |rules| rules.max_items).map_or((MAX_REQUEST_BYTES - 2) / (least + 1), count);
                Some(self.add(Shape::List(item), Type::list(self.ty(item)), most, 2))
            }
            SchemaType::Object if place.single.is_some() => {
                let value = made[place.single?]?;
                let least = self.get(value).min_size;
                let most =
                    rule(node, |rules| rules.max_properties).map_or((MAX_REQUEST_BYTES - 2) / (least + 6), count);
                Some(self.add(Shape::Map(value), Type::map(Type::String, self.ty(value)), most, 2))
            }
            SchemaType::Object => Some(self.object(place, made)),
            SchemaType::String => Some(self.string(node, max_length)),
            SchemaType::Boolean => Some(self.scalar(Type::Bool, 0, MIN_BOOL)),
            SchemaType::Number => Some(self.scalar(Type::Double, 0, MIN_NUMBER)),
            SchemaType::Integer => Some(self.scalar(Type::Int, 0, MIN_NUMBER)),
            SchemaType::Any => None,
        }
    }

    fn string(&mut self, node: NodeRef<'_>, max_length: Option<u64>) -> DeclId {
        match format(node) {
            Format::Byte => self.scalar(Type::Bytes, max_length.map_or(MAX_REQUEST_BYTES - 2, count), MIN_STRING),
            Format::Duration => self.scalar(Type::Duration, MAX_DURATION, MIN_DURATION),
            Format::Date => self.scalar(Type::Timestamp, DATE, DATE),
            Format::DateTime | Format::MicroTime => self.scalar(Type::Timestamp, MAX_DATE_TIME, MIN_DATE_TIME),
            _ => {
                let longest = |rules: &Rules| {
                    let lengths = rules.enumeration.iter().map(|value| value.as_str().map_or(0, str::len));
                    lengths.max().map(|length| count(length as u64))
                };
                let most = match max_length {
                    Some(most) => count(most).saturating_mul(4),
                    None => rule(node, longest).unwrap_or(MAX_REQUEST_BYTES - 2),
                };
                self.scalar(Type::String, most, MIN_STRING)
            }
        }
    }

    fn object(&mut self, place: &Place<'_>, made: &[Option<DeclId>]) -> DeclId {
        let (mut fields, mut least) = (Vec::new(), 2);
        for (name, child, needed) in &place.children {
            let Some(id) = made[*child] else { continue };
            if let Some(escaped) = escape(name) {
                fields.push((escaped.into_owned(), id));
            }
            if *needed {
                least += count(name.len() as u64) + self.get(id).min_size + 4;
            }
        }
        fields.sort();
        let id = self.object_of(fields);
        self.all[id as usize].min_size = least;
        id
    }

    /// An object with these fields, sorted by name.
    pub(crate) fn object_of(&mut self, fields: Vec<(String, DeclId)>) -> DeclId {
        let id = u32::try_from(self.all.len()).unwrap_or(u32::MAX);
        self.add(Shape::Object(fields), Type::Object(id), 0, 2)
    }
}

/// Every place of a schema, parents before children.
fn lay_out(schema: NodeRef<'_>, root: bool) -> Vec<Place<'_>> {
    let place = |source| Place { source, children: Vec::new(), single: None };
    let mut places = vec![place(Source::Node(schema))];
    let mut at = 0;
    while at < places.len() {
        let whole = if at == 0 { root } else { is_embedded(places[at].source) };
        let (children, single) = below(places[at].source, whole);
        for (name, source, needed) in children {
            let child = places.len();
            places.push(place(source));
            places[at].children.push((name, child, needed));
        }
        if let Some(source) = single {
            places[at].single = Some(places.len());
            places.push(place(source));
        }
        at += 1;
    }
    places
}

fn is_embedded(source: Source<'_>) -> bool {
    matches!(source, Source::Node(node) if node.is_embedded_resource())
}

type Below<'a> = (Vec<(String, Source<'a>, bool)>, Option<Source<'a>>);

/// The fields of a place, and the place of its elements or values.
fn below(source: Source<'_>, whole: bool) -> Below<'_> {
    let text = |name: &str| (name.to_owned(), Source::Text, false);
    let node = match source {
        Source::Node(node) => node,
        Source::Text => return (Vec::new(), None),
        Source::Meta => return (vec![text("generateName"), text("name")], None),
    };
    if node.is_int_or_string() {
        return (Vec::new(), None);
    }
    match node.ty() {
        SchemaType::Array => (Vec::new(), node.items().map(Source::Node)),
        SchemaType::Object => {
            if let Some(values) = map_values(node) {
                return (Vec::new(), Some(Source::Node(values)));
            }
            let mut fields: Vec<_> = node
                .fields()
                .map(|field| {
                    let needed = field.required && field.node.default().is_none_or(Value::is_null);
                    (field.name.to_string(), Source::Node(field.node), needed)
                })
                .collect();
            if whole && !has_type_and_meta(node) {
                let required = ["apiVersion", "kind", "metadata"]
                    .map(|name| node.rules().any(|rules| rules.required.iter().any(|field| field.as_str() == name)));
                fields.retain(|(name, ..)| !matches!(name.as_str(), "kind" | "apiVersion" | "metadata"));
                fields.push(("apiVersion".to_owned(), Source::Text, required[0]));
                fields.push(("kind".to_owned(), Source::Text, required[1]));
                fields.push(("metadata".to_owned(), Source::Meta, required[2]));
            }
            (fields, None)
        }
        _ => (Vec::new(), None),
    }
}
