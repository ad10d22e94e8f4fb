//! From subschemas to nodes.

use std::collections::{HashMap, HashSet};

use super::{
    Patterns,
    raw::{Raw, Step, Tree},
};
use crate::{
    Name, Value,
    schema::{Format, ListType, MapType, Node, NodeField, NodeId, Rules, Schema, Type},
};

/// Makes the arena. Each subschema becomes the node of the same number; one more stands for values of maps that may be
/// anything.
pub(super) fn build<'a>(tree: &Tree<'a>, patterns: &Patterns<'a>) -> Schema {
    let mut builder = Builder { tree, names: HashMap::new(), patterns };
    let mut nodes: Vec<Node> = (0..tree.raws.len()).map(|at| builder.node(at)).collect();
    // A value that nothing is said of: its fields are pruned, its nulls stay.
    nodes.push(Node { nullable: true, ..Node::default() });
    for at in (0..tree.raws.len()).rev() {
        let raw = &tree.raws[at];
        nodes[at].defaults_below |= raw.get("default").is_some();
        if at > 0 && raw.is_structure() && nodes[at].defaults_below {
            nodes[raw.parent].defaults_below = true;
        }
    }
    Schema::from_nodes(nodes)
}

struct Builder<'t, 'a> {
    tree: &'t Tree<'a>,
    names: HashMap<&'a str, Name>,
    patterns: &'t Patterns<'a>,
}

fn id(at: usize) -> NodeId {
    NodeId::new(0, at).expect("the tree has no more subschemas than an arena has nodes")
}

impl<'a> Builder<'_, 'a> {
    fn name(&mut self, text: &'a str) -> Name {
        self.names.entry(text).or_insert_with(|| Name::from(text)).clone()
    }

    fn names(&mut self, texts: impl Iterator<Item = &'a str>) -> Box<[Name]> {
        texts.map(|text| self.name(text)).collect()
    }

    fn node(&mut self, at: usize) -> Node {
        let raw = self.tree.raws[at];
        let int_or_string = raw.flag("x-kubernetes-int-or-string");
        let ty = type_of(&raw);
        let format = format_of(&raw, int_or_string);
        let mut rules = self.rules(&raw, int_or_string);
        let mut node = Node {
            ty,
            format: if int_or_string { Format::IntOrString } else { format },
            list_type: match raw.text("x-kubernetes-list-type") {
                "set" => ListType::Set,
                "map" => ListType::Map,
                _ => ListType::Atomic,
            },
            map_type: match raw.text("x-kubernetes-map-type") {
                "atomic" => MapType::Atomic,
                _ => MapType::Granular,
            },
            nullable: raw.flag("nullable"),
            preserve_unknown: raw.flag("x-kubernetes-preserve-unknown-fields"),
            embedded_resource: raw.flag("x-kubernetes-embedded-resource"),
            ..Node::default()
        };
        self.children(at, &mut node, &mut rules);
        node.rules = rules.say_something().then(|| Box::new(rules));
        node
    }

    fn children(&mut self, at: usize, node: &mut Node, rules: &mut Rules) {
        let tree = self.tree;
        let required: HashSet<&str> = tree.raws[at].texts("required").collect();
        let (mut fields, mut items, mut additional) = (Vec::new(), None, None);
        let (mut all_of, mut any_of, mut one_of) = (Vec::new(), Vec::new(), Vec::new());
        for (child, raw) in tree.children(at) {
            match raw.step {
                Step::Property(name) => {
                    let required = required.contains(name);
                    fields.push(NodeField {
                        name: self.name(name),
                        node: id(child),
                        number: 0,
                        required,
                        defaulted: false,
                    });
                }
                Step::Items => items = Some(id(child)),
                Step::Additional => additional = Some(id(child)),
                Step::Not => rules.not = Some(id(child)),
                Step::AllOf(_) => all_of.push(id(child)),
                Step::AnyOf(_) => any_of.push(id(child)),
                Step::OneOf(_) => one_of.push(id(child)),
                _ => {}
            }
        }
        if let Some(Value::Bool(allowed)) = tree.raws[at].get("additionalProperties")
            && tree.raws[at].is_structure()
        {
            additional = Some(id(tree.raws.len()));
            rules.no_additional = !allowed;
        }
        (rules.all_of, rules.any_of, rules.one_of) = (all_of.into(), any_of.into(), one_of.into());
        node.fields = fields.into();
        (node.child, rules.other_child) =
            if node.ty == Type::Object { (additional, items) } else { (items, additional) };
    }

    fn rules(&mut self, raw: &Raw<'a>, int_or_string: bool) -> Rules {
        let bound = |keyword, exclusive| raw.number(keyword).map(|bound| (bound, raw.flag(exclusive)));
        let format = format_of(raw, int_or_string);
        let spelled = raw.text("format");
        // Formats that do not count are kept too: upstream forgets to ignore them in defaults.
        let another = !spelled.is_empty() && (int_or_string || format.name() != spelled);
        let pattern = raw.text("pattern");
        Rules {
            default: raw.get("default").cloned(),
            required: self.names(raw.texts("required")),
            list_map_keys: self.names(raw.texts("x-kubernetes-list-map-keys")),
            enumeration: raw.list("enum").to_vec().into(),
            minimum: bound("minimum", "exclusiveMinimum"),
            maximum: bound("maximum", "exclusiveMaximum"),
            multiple_of: raw.number("multipleOf"),
            min_length: raw.count("minLength"),
            max_length: raw.count("maxLength"),
            pattern: self.patterns.get(pattern).and_then(|compiled| compiled.as_ref().ok()).cloned(),
            pattern_text: (!pattern.is_empty()).then(|| self.name(pattern)),
            min_items: raw.count("minItems"),
            max_items: raw.count("maxItems"),
            unique_items: raw.flag("uniqueItems"),
            min_properties: raw.count("minProperties"),
            max_properties: raw.count("maxProperties"),
            format: another.then(|| self.name(spelled)),
            validations: raw.list("x-kubernetes-validations").to_vec().into(),
            ..Rules::default()
        }
    }
}

fn type_of(raw: &Raw<'_>) -> Type {
    match raw.ty() {
        "object" => Type::Object,
        "array" => Type::Array,
        "string" => Type::String,
        "integer" => Type::Integer,
        "number" => Type::Number,
        "boolean" => Type::Boolean,
        _ => Type::Any,
    }
}

/// Formats count with the types that they belong to, others are as if they were not said.
fn format_of(raw: &Raw<'_>, int_or_string: bool) -> Format {
    let format = Format::parse(raw.text("format"));
    let known = match raw.ty() {
        _ if int_or_string => format.is_of_strings(),
        "" | "string" => format.is_of_strings(),
        "integer" => matches!(raw.text("format"), "int32" | "int64"),
        "number" => matches!(raw.text("format"), "float" | "double"),
        _ => false,
    };
    if known { format } else { Format::None }
}
