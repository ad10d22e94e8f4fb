//! The arena: nodes, what they say, and how to look at them.

use std::{
    cmp::Ordering,
    fmt,
    num::NonZeroU32,
    sync::{Arc, OnceLock},
};

use crate::{Name, Value};

/// The types of values.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub enum Type {
    /// Whatever it is: no type is given.
    #[default]
    Any,
    /// An object with known fields, a map of equal values, or both.
    Object,
    /// A list.
    Array,
    /// A string.
    String,
    /// An integer.
    Integer,
    /// A number.
    Number,
    /// `true` or `false`.
    Boolean,
}

/// The formats that mean something to Kubernetes; others are ignored, as upstream ignores them.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
#[expect(missing_docs, reason = "each is the format of that name")]
pub enum Format {
    #[default]
    None,
    Int32,
    Int64,
    Float,
    Double,
    Byte,
    Date,
    DateTime,
    /// Kubernetes' own: a `Quantity`.
    Quantity,
    /// Kubernetes' own: a number or a string.
    IntOrString,
    /// A time with microseconds.
    MicroTime,
    Duration,
    Password,
    BsonObjectId,
    Uri,
    Email,
    Hostname,
    Ipv4,
    Ipv6,
    Cidr,
    Mac,
    Uuid,
    Uuid3,
    Uuid4,
    Uuid5,
    Isbn,
    Isbn10,
    Isbn13,
    CreditCard,
    Ssn,
    HexColor,
    RgbColor,
    K8sShortName,
    K8sLongName,
}

/// How the elements of a list belong together.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub enum ListType {
    /// As one value.
    #[default]
    Atomic,
    /// As a set of scalars.
    Set,
    /// As a map from the values of the key fields.
    Map,
}

/// How the fields of an object belong together.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub enum MapType {
    /// Each is on its own.
    #[default]
    Granular,
    /// As one value.
    Atomic,
}

/// What a strategic merge patch does with a field.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub struct PatchStrategy {
    /// Lists are merged element by element.
    pub merge: bool,
    /// Fields that the patch does not name are dropped.
    pub retain_keys: bool,
    /// An object is taken from the patch whole.
    pub replace: bool,
}

/// What stands in the JSON of a field that was never set, as Go encodes its structs.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub enum Absent {
    /// Nothing.
    #[default]
    Omitted,
    /// The zero value of the type: `""`, `0`, `false`, `{}`.
    Zero,
    /// `null`.
    Null,
}

/// A node's place: a definition, and a node in it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct NodeId(NonZeroU32);

impl NodeId {
    const NODE_BITS: u32 = 20;

    /// How many definitions an arena can have.
    pub const MAX_DEFINITIONS: usize = 1 << (32 - Self::NODE_BITS);
    /// How many nodes a definition can have.
    pub const MAX_NODES: usize = 1 << Self::NODE_BITS;

    /// The first node of the first definition.
    const ROOT: NodeId = NodeId(NonZeroU32::MIN);

    /// Node `node` of definition `definition`; nothing when there can be no such.
    #[must_use]
    pub const fn new(definition: usize, node: usize) -> Option<Self> {
        if definition >= Self::MAX_DEFINITIONS || node >= Self::MAX_NODES {
            return None;
        }
        // One more than the bits say, so that an optional id takes no more room; the very last node has no id.
        match NonZeroU32::MIN.checked_add((definition as u32) << Self::NODE_BITS | node as u32) {
            Some(id) => Some(NodeId(id)),
            None => None,
        }
    }

    const fn bits(self) -> usize {
        self.0.get() as usize - 1
    }

    const fn definition(self) -> usize {
        self.bits() >> Self::NODE_BITS
    }

    const fn node(self) -> usize {
        self.bits() & (Self::MAX_NODES - 1)
    }
}

/// One node: what is said of a value in one place.
///
/// A node with a `target` says about its place (default, patch strategy, list type …) what it says itself; what the
/// value looks like is said by the target, the first node of another definition.
#[derive(Clone, Debug, Default)]
pub struct Node {
    /// The type, unless there is a target.
    pub ty: Type,
    /// The format.
    pub format: Format,
    /// How elements belong together, if it is a list.
    pub list_type: ListType,
    /// How fields belong together, if it is an object.
    pub map_type: MapType,
    /// `null` is a value of its own here.
    pub nullable: bool,
    /// Fields that are not known stay.
    pub preserve_unknown: bool,
    /// An object with `apiVersion`, `kind` and `metadata` of its own.
    pub embedded_resource: bool,
    /// Somewhere at or below this node there is a default.
    pub defaults_below: bool,
    /// What is encoded when the field was never set. A zero value is the default, unless there is another.
    pub absent: Absent,
    /// A zero value or an empty list or map that was set is not encoded, as if it was never set.
    pub drops_zero: bool,
    /// In protobuf the list is the field 1 of a message of its own.
    pub wrapped: bool,
    /// What a strategic merge patch does here.
    pub patch_strategy: PatchStrategy,
    /// The definition that says what the value looks like.
    pub target: Option<NodeId>,
    /// The known fields, sorted by name.
    pub fields: Box<[NodeField]>,
    /// The node of a list's elements, of a map's values, or of the object that a value of any type, or a boolean,
    /// may be instead.
    pub child: Option<NodeId>,
    /// What few nodes say.
    pub rules: Option<Box<Rules>>,
    /// What few nodes of built-in types say.
    pub facts: Option<Box<Facts>>,
    /// The rules restrict values other than by required fields: most nodes' do not, and are passed over. Set when the
    /// arena takes the node.
    pub constrained: bool,
}

/// What few nodes of built-in types say. They have no [`Rules`]: what a built-in type allows is said by code.
#[derive(Clone, Debug, Default)]
pub struct Facts {
    /// The default.
    pub default: Option<Value>,
    /// The fields by which the elements of a `ListType::Map` are told apart.
    pub list_map_keys: Box<[Name]>,
    /// The field by which a strategic merge patch tells elements apart.
    pub merge_key: Option<Name>,
    /// All values that are published.
    pub enumeration: Box<[Value]>,
}

/// A known field of an object.
#[derive(Clone, Debug)]
pub struct NodeField {
    /// Its name.
    pub name: Name,
    /// What is said of its value.
    pub node: NodeId,
    /// Its number in protobuf, 0 when it has none. The upper byte is for messages that JSON does not show: the number of the
    /// one that the field is in, and in the highest four bits the number of the one around that.
    pub number: u16,
    /// It must be there.
    pub required: bool,
    /// It may have a default. Set when the arena takes the node.
    pub defaulted: bool,
}

/// What few nodes say: defaults, keys and bounds.
#[derive(Clone, Debug, Default)]
pub struct Rules {
    /// The default.
    pub default: Option<Value>,
    /// Required fields, in the order in which the schema names them; also those that are not among the known fields.
    pub required: Box<[Name]>,
    /// The fields by which the elements of a `ListType::Map` are told apart.
    pub list_map_keys: Box<[Name]>,
    /// The field by which a strategic merge patch tells elements apart.
    pub merge_key: Option<Name>,
    /// All values there are.
    pub enumeration: Box<[Value]>,
    /// The smallest number, and whether it is itself excluded.
    pub minimum: Option<(f64, bool)>,
    /// The largest number, and whether it is itself excluded.
    pub maximum: Option<(f64, bool)>,
    /// What a number must be a multiple of.
    pub multiple_of: Option<f64>,
    /// The shortest string.
    pub min_length: Option<u64>,
    /// The longest string.
    pub max_length: Option<u64>,
    /// What a string must match.
    pub pattern: Option<regex::Regex>,
    /// The pattern as it was written.
    pub pattern_text: Option<Name>,
    /// The fewest elements.
    pub min_items: Option<u64>,
    /// The most elements.
    pub max_items: Option<u64>,
    /// No two elements are equal.
    pub unique_items: bool,
    /// The fewest fields.
    pub min_properties: Option<u64>,
    /// The most fields.
    pub max_properties: Option<u64>,
    /// Each of these must hold too.
    pub all_of: Box<[NodeId]>,
    /// At least one of these must hold.
    pub any_of: Box<[NodeId]>,
    /// Exactly one of these must hold.
    pub one_of: Box<[NodeId]>,
    /// This must not hold.
    pub not: Option<NodeId>,
    /// The name of the type, for messages: `PodSpec`.
    pub type_name: Option<Name>,
    /// The format as it was written, where the node's own does not say it: another spelling, that of an int-or-string,
    /// or one that does not count.
    pub format: Option<Name>,
    /// The node of a map's values where `child` is that of a list's elements, or the other way round. Few say both.
    pub other_child: Option<NodeId>,
    /// Fields that are not known are refused: `additionalProperties: false`.
    pub no_additional: bool,
    /// The rules of `x-kubernetes-validations` as they were written.
    pub validations: Box<[Value]>,
}

impl Rules {
    /// Whether there is anything here at all.
    pub(crate) fn say_something(&self) -> bool {
        self.constrain()
            || !self.required.is_empty()
            || self.default.is_some()
            || !self.list_map_keys.is_empty()
            || self.merge_key.is_some()
            || self.type_name.is_some()
            || self.other_child.is_some()
            || !self.validations.is_empty()
    }

    /// Whether anything here can make a value wrong, other than that a field is missing.
    fn constrain(&self) -> bool {
        let bounds = [
            self.min_length,
            self.max_length,
            self.min_items,
            self.max_items,
            self.min_properties,
            self.max_properties,
        ];
        let combinations = [&self.all_of, &self.any_of, &self.one_of];
        !self.enumeration.is_empty()
            || self.minimum.is_some()
            || self.maximum.is_some()
            || self.multiple_of.is_some()
            || bounds.iter().any(Option::is_some)
            || self.pattern.is_some()
            || self.unique_items
            || combinations.iter().any(|nodes| !nodes.is_empty())
            || self.not.is_some()
            || self.format.is_some()
            || self.no_additional
    }
}

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

/// Definitions, each loaded when first looked at.
struct Arena {
    definitions: Box<[OnceLock<Definition>]>,
    load: fn(usize) -> Definition,
    notes: Option<&'static Notes>,
}

impl Arena {
    fn node(&self, id: NodeId) -> &Node {
        let definition = id.definition();
        &self.definitions[definition].get_or_init(|| (self.load)(definition)).nodes[id.node()]
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
        let definitions = (0..definitions.min(NodeId::MAX_DEFINITIONS)).map(|_| OnceLock::new()).collect();
        Schema { arena: Arc::new(Arena { definitions, load, notes }), root: NodeId::ROOT }
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
        let Arena { definitions, load, notes } = &*self.arena;
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
    fn new(arena: &'a Arena, id: NodeId) -> Self {
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
        if self.place.map_type == MapType::Atomic { MapType::Atomic } else { self.shape.map_type }
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
