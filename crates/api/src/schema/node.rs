//! Nodes and what they say.

use std::num::NonZeroU32;

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
    /// Each is on its own here, although the shape says otherwise.
    Split,
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
    pub(super) const ROOT: NodeId = NodeId(NonZeroU32::MIN);

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

    pub(super) const fn definition(self) -> usize {
        self.bits() >> Self::NODE_BITS
    }

    pub(super) const fn node(self) -> usize {
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
    /// Its number in protobuf, 0 when it has none. The upper byte is for messages that JSON does not show: the number
    /// of the one that the field is in, and in the highest four bits the number of the one around that.
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
    pub(super) fn constrain(&self) -> bool {
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
