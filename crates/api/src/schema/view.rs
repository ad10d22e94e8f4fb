//! Looking at nodes: the one way in which everything walks a schema.

use std::{cmp::Ordering, fmt};

use super::{
    Absent, Format, GoField, ListType, MapType, Node, NodeField, NodeId, PatchStrategy, Rules, Type,
    arena::{Arena, Numbered},
};
use crate::{Name, Value};

/// The zero value of a type, as far as it is encoded.
fn zero(node: &Node) -> Option<&'static Value> {
    static EMPTY: Value = Value::String(crate::Str::const_new(""));
    static NONE: Value = Value::String(crate::Str::const_new("0"));
    static NUMBER: Value = Value::Int(0);
    static FALSE: Value = Value::Bool(false);
    static OBJECT: Value = Value::Object(crate::Map::new());
    match (node.ty, node.format) {
        (Type::String, Format::Quantity) => Some(&NONE),
        (Type::String, Format::DateTime | Format::MicroTime) => None,
        (Type::String, _) => Some(&EMPTY),
        (Type::Integer | Type::Number, _) | (Type::Any, Format::IntOrString) => Some(&NUMBER),
        (Type::Boolean, _) => Some(&FALSE),
        (Type::Object, _) if node.child.is_none() => Some(&OBJECT),
        _ => None,
    }
}

/// A look at one node.
#[derive(Clone, Copy)]
pub struct NodeRef<'a> {
    arena: &'a Arena,
    id: NodeId,
    shape_id: NodeId,
    /// What is said about the place.
    place: &'a Node,
    /// What is said about the value's shape.
    shape: &'a Node,
}

impl fmt::Debug for NodeRef<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("NodeRef").field("id", &self.id).field("ty", &self.ty()).finish_non_exhaustive()
    }
}

/// A look at a known field.
#[derive(Clone, Copy, Debug)]
pub struct FieldRef<'a> {
    /// Its name.
    pub name: &'a Name,
    /// What is said of its value.
    pub node: NodeRef<'a>,
    /// Its number in protobuf, 0 when it has none.
    pub number: u16,
    /// The numbers of the messages that it is in and that JSON does not show, the outermost first; 0 for none.
    pub within: [u16; 2],
    /// It must be there.
    pub required: bool,
}

impl<'a> NodeRef<'a> {
    pub(super) fn new(arena: &'a Arena, id: NodeId) -> Self {
        let place = arena.node(id);
        let (shape_id, shape) = place.target.map_or((id, place), |target| (target, arena.node(target)));
        NodeRef { arena, id, shape_id, place, shape }
    }

    fn at(self, id: NodeId) -> Self {
        NodeRef::new(self.arena, id)
    }

    fn field_ref(self, field: &'a NodeField) -> FieldRef<'a> {
        let (number, within) = (field.number & 0xff, [field.number >> 12, field.number >> 8 & 0xf]);
        FieldRef { name: &field.name, node: self.at(field.node), number, within, required: field.required }
    }

    /// Where this node is; the same place has the same id within one schema.
    #[must_use]
    pub fn id(self) -> NodeId {
        self.id
    }

    /// The type.
    #[must_use]
    pub fn ty(self) -> Type {
        self.shape.ty
    }

    /// The format.
    #[must_use]
    pub fn format(self) -> Format {
        self.shape.format
    }

    /// Whether a number and a string are both right.
    #[must_use]
    pub fn is_int_or_string(self) -> bool {
        self.shape.format == Format::IntOrString
    }

    /// How elements belong together.
    #[must_use]
    pub fn list_type(self) -> ListType {
        self.shape.list_type
    }

    /// How fields belong together; said by the place or by the shape.
    #[must_use]
    pub fn map_type(self) -> MapType {
        match self.place.map_type {
            MapType::Atomic => MapType::Atomic,
            MapType::Granular => self.shape.map_type,
            MapType::Split => MapType::Granular,
        }
    }

    /// Whether `null` is a value of its own here.
    #[must_use]
    pub fn is_nullable(self) -> bool {
        self.place.nullable || self.shape.nullable
    }

    /// Whether fields that are not known stay.
    #[must_use]
    pub fn preserves_unknown(self) -> bool {
        self.shape.preserve_unknown
    }

    /// Whether this is an object with `apiVersion`, `kind` and `metadata` of its own.
    #[must_use]
    pub fn is_embedded_resource(self) -> bool {
        self.shape.embedded_resource
    }

    /// Whether a default is to be found here or below.
    #[must_use]
    pub fn has_defaults_below(self) -> bool {
        self.place.defaults_below || self.shape.defaults_below
    }

    /// What a strategic merge patch does here.
    #[must_use]
    pub fn patch_strategy(self) -> PatchStrategy {
        self.place.patch_strategy
    }

    /// The field by which a strategic merge patch tells elements apart.
    #[must_use]
    pub fn merge_key(self) -> Option<&'a Name> {
        let rules = self.place.rules.as_ref().and_then(|rules| rules.merge_key.as_ref());
        rules.or_else(|| self.place.facts.as_ref()?.merge_key.as_ref())
    }

    /// The default; the zero value of a built-in type where Go always encodes it.
    #[must_use]
    pub fn default(self) -> Option<&'a Value> {
        let rules = self.place.rules.as_ref().and_then(|rules| rules.default.as_ref());
        let facts = || self.place.facts.as_ref()?.default.as_ref();
        rules.or_else(facts).or_else(|| zero(self.shape).filter(|_| self.place.absent == Absent::Zero))
    }

    /// What is encoded of a field that was never set.
    #[must_use]
    pub fn absent(self) -> Absent {
        self.place.absent
    }

    /// Whether a zero value, or an empty list or map, counts as never set.
    #[must_use]
    pub fn drops_zero(self) -> bool {
        self.place.drops_zero
    }

    /// The zero value of the type, if it is encoded as anything but `null`.
    #[must_use]
    pub fn zero(self) -> Option<&'static Value> {
        zero(self.shape)
    }

    /// Whether the list is a message of its own in protobuf.
    #[must_use]
    pub fn is_wrapped(self) -> bool {
        self.place.wrapped
    }

    /// The known fields in the order of their numbers in protobuf.
    pub(crate) fn numbers(self) -> &'a [Numbered] {
        self.arena.numbers(self.shape_id)
    }

    /// The name of the type: `PodSpec`.
    #[must_use]
    pub fn type_name(self) -> Option<&'a str> {
        match self.shape.rules.as_ref().and_then(|rules| rules.type_name.as_ref()) {
            Some(name) => Some(name),
            None => self.full_type_name()?.rsplit('.').next(),
        }
    }

    /// The name of the type with its package, if it is a built-in one: `core.v1.PodSpec`.
    #[must_use]
    pub fn full_type_name(self) -> Option<&'static str> {
        let notes = self.arena.notes.filter(|_| self.shape_id.node() == 0)?;
        (notes.type_name)(self.shape_id.definition())
    }

    /// How Go sees the field `name`, if this is a built-in type.
    #[must_use]
    pub fn go_field(self, name: &str) -> Option<GoField> {
        (self.arena.notes?.go_field)(self.shape_id.definition(), name)
    }

    /// What few nodes say about values: bounds, enumerations, combinations. Those of the place itself come first.
    pub fn rules(self) -> impl Iterator<Item = &'a Rules> {
        let shape = (!std::ptr::eq(self.place, self.shape)).then_some(self.shape);
        [Some(self.place), shape].into_iter().flatten().filter_map(|node| node.rules.as_deref())
    }

    /// The fields by which the elements of a `ListType::Map` are told apart.
    #[must_use]
    pub fn list_map_keys(self) -> &'a [Name] {
        let rules = self.shape.rules.as_ref().map(|rules| &rules.list_map_keys);
        rules.or_else(|| self.shape.facts.as_ref().map(|facts| &facts.list_map_keys)).map_or(&[], |keys| keys)
    }

    /// The values that are published for a built-in type. They bind nobody: newer versions may have more.
    #[must_use]
    pub fn published_values(self) -> &'a [Value] {
        self.place.facts.as_ref().map_or(&[], |facts| &facts.enumeration)
    }

    /// Whether the rules restrict values.
    pub(crate) fn is_constrained(self) -> bool {
        self.place.constrained || self.shape.constrained
    }

    /// The known field `name`.
    #[must_use]
    pub fn field(self, name: &str) -> Option<FieldRef<'a>> {
        self.position(name).map(|position| self.field_at(position))
    }

    /// Where the known field `name` stands among [`fields`](NodeRef::fields).
    #[must_use]
    pub(crate) fn position(self, name: &str) -> Option<usize> {
        self.shape.fields.binary_search_by(|field| field.name.as_str().cmp(name)).ok()
    }

    /// The known field at that position.
    pub(crate) fn field_at(self, position: usize) -> FieldRef<'a> {
        self.field_ref(&self.shape.fields[position])
    }

    /// The known field `name`, looked for from a place on that names in their order move along.
    pub(crate) fn field_from(self, from: &mut usize, name: &str) -> Option<FieldRef<'a>> {
        self.find_from(from, name).then(|| self.field_ref(&self.shape.fields[*from]))
    }

    /// Whether there is a known field `name`, looked for in the same way.
    pub(crate) fn find_from(self, from: &mut usize, name: &str) -> bool {
        let rest = &self.shape.fields[*from..];
        let found = rest.binary_search_by(|field| compare(&field.name, name));
        *from += found.unwrap_or_else(|at| at);
        found.is_ok()
    }

    /// The known fields that may have a default.
    pub(crate) fn defaulted_fields(self) -> impl Iterator<Item = FieldRef<'a>> {
        self.shape.fields.iter().filter(|field| field.defaulted).map(move |field| self.field_ref(field))
    }

    /// The names of the known fields that must be there.
    pub(crate) fn required_fields(self) -> impl Iterator<Item = &'a Name> {
        self.shape.fields.iter().filter(|field| field.required).map(|field| &field.name)
    }

    /// The known fields in the order of their names.
    pub fn fields(self) -> impl ExactSizeIterator<Item = FieldRef<'a>> {
        self.shape.fields.iter().map(move |field| self.field_ref(field))
    }

    fn other_child(self) -> Option<NodeId> {
        self.shape.rules.as_ref()?.other_child
    }

    /// The node of a list's elements.
    #[must_use]
    pub fn items(self) -> Option<NodeRef<'a>> {
        let id = if self.shape.ty == Type::Object { self.other_child() } else { self.shape.child };
        id.map(|id| self.at(id))
    }

    /// The node of the object that a value of any type, or a boolean, may be instead. Only built-in types have such.
    #[must_use]
    pub fn alternative(self) -> Option<NodeRef<'a>> {
        let either = self.arena.notes.is_some() && matches!(self.shape.ty, Type::Any | Type::Boolean);
        self.shape.child.filter(|_| either).map(|id| self.at(id))
    }

    /// The node of a map's values.
    #[must_use]
    pub fn additional(self) -> Option<NodeRef<'a>> {
        let id = if self.shape.ty == Type::Object { self.shape.child } else { self.other_child() };
        id.map(|id| self.at(id))
    }

    /// The nodes of a combination (`all_of` …) of this node's rules.
    pub fn combination(self, ids: &'a [NodeId]) -> impl ExactSizeIterator<Item = NodeRef<'a>> {
        ids.iter().map(move |&id| self.at(id))
    }
}

/// Compares names; most differ in their first letter.
fn compare(a: &str, b: &str) -> Ordering {
    match (a.as_bytes().first(), b.as_bytes().first()) {
        (Some(a), Some(b)) if a != b => a.cmp(b),
        _ => a.cmp(b),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::schema::{Definition, Schema};

    fn string() -> Node {
        Node { ty: Type::String, ..Node::default() }
    }

    #[test]
    fn a_place_and_its_shape_both_have_a_say() {
        fn load(definition: usize) -> Definition {
            let at = |definition, node| NodeId::new(definition, node).unwrap();
            let field = |name, node| NodeField {
                name: Name::from_static(name),
                node,
                number: 1,
                required: false,
                defaulted: false,
            };
            let nodes = match definition {
                0 => vec![
                    Node { ty: Type::Object, fields: [field("spec", at(0, 1))].into(), ..Node::default() },
                    Node {
                        target: Some(at(1, 0)),
                        rules: Some(Box::new(Rules { default: Some(Map::new().into()), ..Rules::default() })),
                        ..Node::default()
                    },
                ],
                _ => {
                    vec![Node { ty: Type::Object, fields: [field("a", at(1, 1))].into(), ..Node::default() }, string()]
                }
            };
            Definition { nodes: nodes.into() }
        }
        use crate::Map;
        let schema = Schema::lazy(3, load);
        assert_eq!(schema.loaded(), 0);
        let spec = schema.root().field("spec").unwrap().node;
        assert_eq!(spec.default(), Some(&Map::new().into()));
        assert_eq!(spec.ty(), Type::Object);
        assert_eq!(spec.field("a").unwrap().node.ty(), Type::String);
        assert!(spec.field("b").is_none());
        assert_eq!(schema.loaded(), 2);
    }

    #[test]
    fn nodes_stay_small() {
        assert!(size_of::<Node>() <= 64, "{}", size_of::<Node>());
        assert!(size_of::<NodeField>() <= 32, "{}", size_of::<NodeField>());
    }
}
