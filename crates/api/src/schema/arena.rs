//! The arena: definitions, loaded when first looked at, and the schema that is one of its nodes.

use std::{
    fmt,
    sync::{Arc, OnceLock},
};

use super::{Facts, Node, NodeId, NodeRef, Rules};
use crate::Value;

/// Nodes that are loaded together: a whole schema of a user's kind, or one type of the built-in ones. The first is its
/// root.
#[derive(Debug)]
pub struct Definition {
    /// The nodes.
    pub nodes: Box<[Node]>,
}

/// What only messages need to know about definitions: it is asked for, not kept.
#[derive(Debug)]
pub struct Notes {
    /// The name of a definition's type, with its package: `core.v1.PodSpec`.
    pub type_name: fn(usize) -> Option<&'static str>,
    /// How Go sees the field of that name in a definition.
    pub go_field: fn(usize, &str) -> Option<GoField>,
}

/// How Go sees a field.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct GoField {
    /// The structs that Go embeds on the way to the field, the outermost first.
    pub embedded: Vec<&'static str>,
    /// The field's type, without pointers: `v1.ResourceList`.
    pub ty: String,
    /// The same without the names that Go gives to lists, maps and scalars: `map[string]resource.Quantity`.
    pub plain: String,
}

impl Definition {
    /// Sees to what nodes of the only definition of a schema say about themselves.
    fn settled(mut self) -> Self {
        let has_default = |node: &Node| node.rules.as_ref().is_some_and(|rules| rules.default.is_some());
        let defaulted: Vec<bool> = self.nodes.iter().map(has_default).collect();
        for node in &mut self.nodes {
            node.constrained = node.rules.as_ref().is_some_and(|rules| rules.constrain());
            for field in &mut node.fields {
                field.defaulted = defaulted.get(field.node.node()).is_none_or(|&has| has);
            }
        }
        self
    }
}

/// A field's number in protobuf, and where the field stands among the fields in the order of their names.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Numbered {
    /// The numbers on the way to the field, a byte each, the outermost highest: `3` is `0x03_00_00`, `1/2` is
    /// `0x01_02_00`. Their order is that of the fields in a message.
    pub(crate) path: u32,
    pub(crate) position: usize,
}

/// Definitions, each loaded when first looked at.
pub(super) struct Arena {
    definitions: Box<[OnceLock<Definition>]>,
    /// The fields of each definition's root by their numbers; made for those that are sent as protobuf.
    numbers: Box<[OnceLock<Box<[Numbered]>>]>,
    load: fn(usize) -> Definition,
    pub(super) notes: Option<&'static Notes>,
}

impl Arena {
    pub(super) fn node(&self, id: NodeId) -> &Node {
        let definition = id.definition();
        &self.definitions[definition].get_or_init(|| (self.load)(definition)).nodes[id.node()]
    }

    /// The fields of a definition's root in the order of their numbers; those without a number are not among them.
    pub(super) fn numbers(&self, id: NodeId) -> &[Numbered] {
        if id.node() != 0 {
            return &[];
        }
        self.numbers[id.definition()].get_or_init(|| {
            let fields = self.node(id).fields.iter().enumerate().filter(|(_, field)| field.number != 0);
            let numbered = fields.map(|(position, field)| {
                let number = u32::from(field.number);
                let path = match [number >> 12, number >> 8 & 0xf, number & 0xff] {
                    [0, 0, own] => own << 16,
                    [0, outer, own] => outer << 16 | own << 8,
                    [outer, inner, own] => outer << 16 | inner << 8 | own,
                };
                Numbered { path, position }
            });
            let mut numbered: Box<[_]> = numbered.collect();
            numbered.sort_unstable_by_key(|field| field.path);
            numbered
        })
    }
}

/// A compiled schema. A clone shares the nodes.
#[derive(Clone)]
pub struct Schema {
    arena: Arc<Arena>,
    root: NodeId,
}

impl fmt::Debug for Schema {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Schema").field("root", &self.root).finish_non_exhaustive()
    }
}

impl Schema {
    /// A schema of one definition, all there from the start. `nodes[0]` is the root.
    #[must_use]
    pub fn from_nodes(nodes: Vec<Node>) -> Self {
        let definition = OnceLock::from(Definition { nodes: nodes.into() }.settled());
        let arena = Arena {
            definitions: Box::new([definition]),
            numbers: Box::new([OnceLock::new()]),
            load: |_| unreachable!("there is just one definition"),
            notes: None,
        };
        Schema { arena: Arc::new(arena), root: NodeId::ROOT }
    }

    /// A schema of `definitions` that `load` gets when they are first looked at. The root is the first one's.
    #[must_use]
    pub fn lazy(definitions: usize, load: fn(usize) -> Definition) -> Self {
        Self::from_arena(definitions, load, None)
    }

    /// As [`lazy`](Schema::lazy), with `notes` for messages.
    #[must_use]
    pub fn lazy_with_notes(definitions: usize, load: fn(usize) -> Definition, notes: &'static Notes) -> Self {
        Self::from_arena(definitions, load, Some(notes))
    }

    fn from_arena(definitions: usize, load: fn(usize) -> Definition, notes: Option<&'static Notes>) -> Self {
        let definitions: Box<[_]> = (0..definitions.min(NodeId::MAX_DEFINITIONS)).map(|_| OnceLock::new()).collect();
        let numbers = std::iter::repeat_with(OnceLock::new).take(definitions.len()).collect();
        Schema { arena: Arc::new(Arena { definitions, numbers, load, notes }), root: NodeId::ROOT }
    }

    /// The same arena seen from another root.
    #[must_use]
    pub fn rooted_at(&self, root: NodeId) -> Self {
        Schema { arena: self.arena.clone(), root }
    }

    /// A built-in schema in an arena of its own, with nothing loaded; any other one as it is.
    #[must_use]
    pub fn unloaded(&self) -> Self {
        if self.arena.notes.is_none() {
            return self.clone();
        }
        let Arena { definitions, load, notes, .. } = &*self.arena;
        Self::from_arena(definitions.len(), *load, *notes).rooted_at(self.root)
    }

    /// The node that describes the whole object.
    #[must_use]
    pub fn root(&self) -> NodeRef<'_> {
        NodeRef::new(&self.arena, self.root)
    }

    /// How many definitions have been loaded.
    #[must_use]
    pub fn loaded(&self) -> usize {
        self.definitions().count()
    }

    /// How many bytes the loaded definitions and the arena take, compiled patterns aside.
    #[must_use]
    pub fn heap_size(&self) -> usize {
        size_of::<Arena>()
            + size_of_val(&*self.arena.definitions)
            + self.definitions().flat_map(|definition| &definition.nodes).map(Node::size).sum::<usize>()
    }

    fn definitions(&self) -> impl Iterator<Item = &Definition> {
        self.arena.definitions.iter().filter_map(OnceLock::get)
    }
}

impl Node {
    /// How many bytes the node takes with all that belongs to it.
    fn size(&self) -> usize {
        fn values<'a>(values: impl Iterator<Item = &'a Value>) -> usize {
            let long = values.filter_map(Value::as_str).map(str::len).filter(|&len| len > size_of::<crate::Str>());
            long.sum()
        }
        let rules = self.rules.as_deref().map_or(0, |rules| {
            size_of::<Rules>()
                + size_of_val(&*rules.required)
                + size_of_val(&*rules.list_map_keys)
                + size_of_val(&*rules.enumeration)
                + values(rules.enumeration.iter().chain(&rules.default))
        });
        let facts = self.facts.as_deref().map_or(0, |facts| {
            size_of::<Facts>()
                + size_of_val(&*facts.list_map_keys)
                + size_of_val(&*facts.enumeration)
                + values(facts.enumeration.iter().chain(&facts.default))
        });
        size_of::<Node>() + size_of_val(&*self.fields) + rules + facts
    }
}
