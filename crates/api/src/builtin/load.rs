//! From the text of a type to its nodes.

use super::{
    index::{TYPES, find_type, type_block, type_head, type_name},
    text::{self, EMBEDDED, Field, UNION},
};
use crate::{
    Name, json,
    schema::{
        Absent, Definition, Facts, Format, GoField, ListType, MapType, Node, NodeField, NodeId, Notes, PatchStrategy,
        Type,
    },
};

/// How many definitions there are: the types, and one of shared nodes.
pub(super) const DEFINITIONS: usize = TYPES + 1;

/// The definition of the shared nodes.
const SHARED: usize = TYPES;

/// Types whose nodes are shared by all fields that say no more than this. Each has four nodes, one for each
/// [`Absent`](text::Absent).
const SHARED_TYPES: [&str; 22] = [
    "string",
    "bool",
    "int32",
    "int64",
    "double",
    "bytes",
    "time",
    "micro-time",
    "quantity",
    "int-or-string",
    "raw",
    "json",
    "schema-or-bool",
    "schema-or-list",
    "schema-or-strings",
    "[]string",
    "[]string list=atomic",
    "[]string list=set",
    "{}string",
    "{}quantity",
    "{}bytes",
    "[]int32 list=atomic",
];

/// The type that `schema-or-bool` and its like may be.
const JSON_SCHEMA: &str = "apiextensions.v1.JSONSchemaProps";

/// What messages ask about types.
pub(super) static NOTES: Notes =
    Notes { type_name: |definition| (definition < TYPES).then(|| type_name(definition)), go_field };

fn id(definition: usize, node: usize) -> NodeId {
    NodeId::new(definition, node).expect("the table is small")
}

/// The root node of a type.
pub(super) fn root(ty: usize) -> NodeId {
    id(ty, 0)
}

/// Loads a definition.
pub(super) fn load(definition: usize) -> Definition {
    let mut nodes = Nodes { definition, nodes: Vec::new() };
    if definition == SHARED {
        for (at, ty) in SHARED_TYPES.iter().enumerate() {
            for (position, word) in ["", " pointer", " zero", " null"].into_iter().enumerate() {
                let line = format!(" - - {ty}{word}");
                let field = Field::parse(&line).expect("the list of shared types is right");
                let node = nodes.shape(field.ty, &field);
                debug_assert_eq!(nodes.nodes.len(), at * 4 + position, "elements of shared types are shared");
                nodes.nodes.push(with_absent(node, &field));
            }
        }
    } else {
        nodes.type_nodes(definition);
    }
    Definition { nodes: nodes.nodes.into() }
}

/// The shared node of the type at `at`.
fn shared(at: usize, absent: text::Absent) -> NodeId {
    id(SHARED, at * 4 + absent as usize)
}

/// The node with what the field says about being never set.
fn with_absent(node: Node, field: &Field<'_>) -> Node {
    let absent = match field.absent {
        text::Absent::Zero => Absent::Zero,
        text::Absent::Null => Absent::Null,
        text::Absent::Dropped | text::Absent::Pointer => Absent::Omitted,
    };
    Node {
        absent,
        drops_zero: field.absent == text::Absent::Dropped && node.target.is_none(),
        defaults_below: node.defaults_below || absent != Absent::Omitted,
        ..node
    }
}

/// Whether a field that is not set gets a value when the object is defaulted.
fn is_defaulted(field: &Field<'_>) -> bool {
    matches!(field.absent, text::Absent::Zero | text::Absent::Null) || shown_default(field).is_some()
}

/// The default of a field; one that is dropped again when it is encoded is none.
fn shown_default<'a>(field: &Field<'a>) -> Option<&'a str> {
    field.default.filter(|default| field.absent != text::Absent::Dropped || !text::is_zero(default))
}

/// Lists that get their defaults only when they were never set: an empty one is refused later, not filled.
const EMPTY_COUNTS: [(&str, &str); 1] = [("autoscaling.v2.HPAScalingRules", "policies")];

/// The fields of a type.
fn fields(ty: usize) -> impl Iterator<Item = Field<'static>> {
    let name = type_name(ty);
    let counts: Vec<&str> = EMPTY_COUNTS.iter().filter(|(of, _)| *of == name).map(|(_, field)| *field).collect();
    let lines = type_block(ty).skip(1).filter(|line| !line.starts_with(EMBEDDED) && !line.starts_with(UNION));
    lines.map(move |line| {
        let field = Field::parse(line).expect("codegen has written the table");
        if counts.contains(&field.name) { Field { absent: text::Absent::Pointer, ..field } } else { field }
    })
}

/// The nodes of a definition while it is loaded.
struct Nodes {
    definition: usize,
    nodes: Vec<Node>,
}

impl Nodes {
    fn push(&mut self, node: Node) -> NodeId {
        self.nodes.push(node);
        id(self.definition, self.nodes.len() - 1)
    }

    /// The type itself, then the type as a field of others that is always encoded, then its fields.
    fn type_nodes(&mut self, ty: usize) {
        let head = type_head(ty);
        self.nodes.push(Node::default());
        self.nodes.push(Node {
            target: Some(id(ty, 0)),
            absent: Absent::Zero,
            defaults_below: true,
            ..Node::default()
        });
        let fields = fields(ty).map(|field| NodeField {
            name: Name::from_static(field.name),
            number: number(field.number),
            required: field.required,
            node: self.place(&field),
            defaulted: is_defaulted(&field),
        });
        let fields = fields.collect();
        self.nodes[0] = Node {
            ty: Type::Object,
            map_type: if head.atomic { MapType::Atomic } else { MapType::Granular },
            defaults_below: head.defaults,
            fields,
            ..Node::default()
        };
    }

    /// The node of a field: a shared one if it says nothing special.
    fn place(&mut self, field: &Field<'static>) -> NodeId {
        let default = shown_default(field);
        let said = [default, field.map, field.patch, field.key, field.enumeration];
        if said.iter().all(Option::is_none) {
            if let Some(at) = find_shared(field) {
                return shared(at, field.absent);
            }
            match (find_type(field.ty), field.absent) {
                (Some(ty), text::Absent::Dropped) => return id(ty, 0),
                (Some(ty), text::Absent::Zero) => return id(ty, 1),
                _ => {}
            }
        }
        let mut node = self.shape(field.ty, field);
        let mut facts = node.facts.take().map_or_else(Facts::default, |facts| *facts);
        facts.default = default.map(parse);
        facts.merge_key = field.key.map(Name::from_static);
        if let Some(keys) = field.list.and_then(|list| list.strip_prefix("map:")) {
            facts.list_map_keys = keys.split(',').map(Name::from_static).collect();
        }
        let patch = field.patch.unwrap_or_default();
        let has_facts = facts.default.is_some()
            || facts.merge_key.is_some()
            || !facts.list_map_keys.is_empty()
            || !facts.enumeration.is_empty();
        let node = with_absent(node, field);
        self.push(Node {
            map_type: match field.map {
                Some("atomic") => MapType::Atomic,
                Some("granular") => MapType::Split,
                _ => node.map_type,
            },
            defaults_below: node.defaults_below || default.is_some(),
            patch_strategy: PatchStrategy {
                merge: patch.split(',').any(|word| word == "merge"),
                retain_keys: patch.split(',').any(|word| word == "retainKeys"),
                replace: patch.split(',').any(|word| word == "replace"),
            },
            facts: has_facts.then(|| Box::new(facts)),
            ..node
        })
    }

    /// A node that says what values of the type look like. Elements of lists and maps get nodes of their own or shared
    /// ones.
    fn shape(&mut self, ty: &str, field: &Field<'_>) -> Node {
        let (ty, wrapped) = ty.strip_prefix('*').map_or((ty, false), |ty| (ty, true));
        if let Some(element) = ty.strip_prefix("[]").or(ty.strip_prefix("{}")) {
            let is_list = ty.starts_with('[');
            let element = Field { ty: element, enumeration: field.enumeration, ..Field::default() };
            let (child, defaults_below) = self.element(&element);
            let list_type = match field.list {
                Some("set") => ListType::Set,
                Some(list) if list.starts_with("map") => ListType::Map,
                _ => ListType::Atomic,
            };
            return Node {
                ty: if is_list { Type::Array } else { Type::Object },
                list_type,
                wrapped,
                child: Some(child),
                defaults_below,
                ..Node::default()
            };
        }
        if let Some(ty) = find_type(ty) {
            return Node { target: Some(id(ty, 0)), defaults_below: type_head(ty).defaults, ..Node::default() };
        }
        let facts = field.enumeration.map(parse).map(|values| {
            let enumeration = values.as_array().into_iter().flatten().cloned().collect();
            Box::new(Facts { enumeration, ..Facts::default() })
        });
        Node { facts, ..scalar(ty) }
    }

    /// The node of a list's or map's elements, and whether there are defaults below it.
    fn element(&mut self, element: &Field<'_>) -> (NodeId, bool) {
        match find_type(element.ty) {
            Some(ty) => (id(ty, 0), type_head(ty).defaults),
            None => match find_shared(element).filter(|_| element.enumeration.is_none()) {
                Some(at) => (shared(at, text::Absent::Pointer), false),
                None => {
                    let node = self.shape(element.ty, element);
                    (self.push(node), false)
                }
            },
        }
    }
}

/// The node of a scalar.
fn scalar(ty: &str) -> Node {
    let (ty, format) = match ty {
        "string" => (Type::String, Format::None),
        "bool" => (Type::Boolean, Format::None),
        "int32" => (Type::Integer, Format::Int32),
        "int64" => (Type::Integer, Format::Int64),
        "double" => (Type::Number, Format::Double),
        "bytes" => (Type::String, Format::Byte),
        "time" => (Type::String, Format::DateTime),
        "micro-time" => (Type::String, Format::MicroTime),
        "quantity" => (Type::String, Format::Quantity),
        "int-or-string" => (Type::Any, Format::IntOrString),
        _ => {
            let schema = || find_type(JSON_SCHEMA).map(root);
            let (ty, child) = match ty {
                "schema-or-bool" => (Type::Boolean, schema()),
                "schema-or-list" => (Type::Any, schema()),
                _ => (Type::Any, None),
            };
            return Node { ty, preserve_unknown: true, child, ..Node::default() };
        }
    };
    Node { ty, format, ..Node::default() }
}

/// The shared nodes for what `field` says of its type.
fn find_shared(field: &Field<'_>) -> Option<usize> {
    SHARED_TYPES.iter().position(|shared| match shared.split_once(" list=") {
        Some((ty, list)) => ty == field.ty && field.list == Some(list),
        None => *shared == field.ty && field.list.is_none(),
    })
}

/// The number in protobuf as nodes have it: the field's own in the lower byte, four bits for each message around it.
fn number(text: &str) -> u16 {
    text.split('/').map(|part| part.parse().unwrap_or(0)).fold(0, |outer: u16, part: u16| match outer {
        0 => part,
        // The number before was a message's: it moves up.
        _ => (outer & 0xff) << 8 | (outer & 0xf00) << 4 | part,
    })
}

fn parse(text: &str) -> crate::Value {
    json::parse(text.as_bytes()).expect("codegen has written the table")
}

/// How Go sees the field of that name.
fn go_field(definition: usize, name: &str) -> Option<GoField> {
    let field = fields_of(definition)?.find(|field| field.name == name)?;
    let mut embedded: Vec<(&str, &str)> = type_block(definition)
        .filter_map(|line| line.strip_prefix(EMBEDDED)?.split_once(' '))
        .filter(|(place, _)| field.number.strip_prefix(place).is_some_and(|rest| rest.starts_with('/')))
        .collect();
    embedded.sort_unstable();
    if type_head(definition).kind && matches!(name, "apiVersion" | "kind") {
        embedded.push(("", "TypeMeta"));
    }
    let plain = text::go_type(field.ty);
    Some(GoField {
        embedded: embedded.into_iter().map(|(_, name)| name).collect(),
        ty: field.go.map_or_else(|| plain.clone(), str::to_owned),
        plain,
    })
}

fn fields_of(definition: usize) -> Option<impl Iterator<Item = Field<'static>>> {
    (definition < TYPES).then(|| fields(definition))
}
