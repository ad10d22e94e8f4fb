//! Our patches against what upstream's libraries answered: `testdata/patches`.

use std::{collections::BTreeMap, fmt::Display};

use super::{json_patch::JsonPatch, merge, strategic};
use crate::{
    Map, Name, Value, json,
    schema::{Format, Node, NodeField, NodeId, PatchStrategy, Rules, Schema, Type},
};

/// Runs `ours` on every case of a file and compares.
///
/// A case has `out` if upstream succeeded, `err` if it failed, `panic` if it did that; then we must fail, in whatever
/// words.
fn check<E: Display>(file: &str, ours: impl Fn(&Map) -> Result<Value, E>) {
    let path = format!("{}/testdata/patches/{file}", env!("CARGO_MANIFEST_DIR"));
    let text = std::fs::read_to_string(&path).unwrap();
    let mut differences = Vec::new();
    let mut cases = 0;
    for line in text.lines() {
        cases += 1;
        let Value::Object(case) = json::parse(line.as_bytes()).unwrap() else { panic!("{line}") };
        let ours = ours(&case).map_err(|error| error.to_string());
        let same = match (&ours, case.get("out"), case.get("err")) {
            (Ok(ours), Some(out), _) => ours == out,
            (Err(ours), _, Some(error)) => Some(ours.as_str()) == error.as_str(),
            (Err(_), None, None) => case.contains_key("panic"),
            _ => false,
        };
        if !same {
            differences.push(format!("{line}\n  ours: {ours:?}"));
        }
    }
    assert!(cases > 50, "{path} has too few cases");
    let count = differences.len();
    differences.truncate(10);
    assert!(count == 0, "{count} of {cases} differ:\n{}", differences.join("\n"));
}

fn object(case: &Map, field: &str) -> Map {
    case.get(field).and_then(Value::as_object).unwrap().clone()
}

#[test]
fn json_patches() {
    check("json_patch.jsonl", |case| {
        let patch = JsonPatch::from_value(case.get("patch").unwrap().clone()).map_err(|error| error.to_string())?;
        patch.apply(case.get("doc").unwrap().clone()).map_err(|error| error.to_string())
    });
}

#[test]
fn merge_patches() {
    check("merge.jsonl", |case| merge::apply(case.get("doc").unwrap().clone(), case.get("patch").unwrap().clone()));
}

#[test]
fn merge_patches_made() {
    check("merge_diff.jsonl", |case| {
        let (original, modified) = (object(case, "original"), object(case, "modified"));
        Ok::<_, String>(Value::from(match case.contains_key("current") {
            true => merge::three_way(&original, &modified, &object(case, "current")),
            false => merge::diff(&original, &modified),
        }))
    });
}

#[test]
fn strategic_patches() {
    let schemas = Schemas::load();
    check("strategic.jsonl", |case| {
        let schema = schemas.of(case.get("kind").and_then(Value::as_str).unwrap());
        strategic::apply(object(case, "doc"), object(case, "patch"), schema.root()).map(Value::from)
    });
}

#[test]
fn strategic_patches_made() {
    let schemas = Schemas::load();
    check("strategic_diff.jsonl", |case| {
        let schema = schemas.of(case.get("kind").and_then(Value::as_str).unwrap());
        let (original, modified) = (object(case, "original"), object(case, "modified"));
        if !case.contains_key("current") {
            return strategic::diff(&original, &modified, schema.root()).map(Value::from).map_err(|e| e.to_string());
        }
        let overwrite = case.get("overwrite").and_then(Value::as_bool).unwrap();
        let patch = strategic::three_way(&original, &modified, &object(case, "current"), schema.root(), overwrite);
        patch.map(Value::from).map_err(|error| match error {
            strategic::Error::Conflict(..) => "conflict".into(),
            other => other.to_string(),
        })
    });
}

/// The schemas of some kinds, with just what patches ask for, from `schema.json`: a field is `Type`, `[Type]` or
/// `{Type}`, its patch strategy and its merge key.
pub(super) struct Schemas {
    schema: Schema,
    roots: BTreeMap<String, NodeId>,
}

impl Schemas {
    pub(super) fn load() -> Self {
        let text = include_bytes!("../../testdata/patches/schema.json");
        let Value::Object(types) = json::parse(text).unwrap() else { unreachable!() };
        let id = |at| NodeId::new(0, at).unwrap();
        let roots: BTreeMap<String, NodeId> =
            types.keys().enumerate().map(|(at, name)| (name.to_owned(), id(at))).collect();
        let mut nodes: Vec<Node> = types
            .iter()
            .map(|(name, fields)| Node {
                ty: if fields.as_object().is_some() { Type::Object } else { Type::Any },
                rules: Some(Box::new(Rules { type_name: Some(name.into()), ..Rules::default() })),
                ..Node::default()
            })
            .collect();
        for (at, fields) in types.values().enumerate() {
            let fields = fields.as_object().into_iter().flat_map(Map::iter);
            let fields = fields.map(|(name, says)| {
                let node = node(says.as_str().unwrap(), &roots, &mut nodes);
                nodes.push(node);
                NodeField { name: name.into(), node: id(nodes.len() - 1), number: 0, required: false }
            });
            nodes[at].fields = fields.collect::<Vec<_>>().into();
        }
        Schemas { schema: Schema::from_nodes(nodes), roots }
    }

    pub(super) fn of(&self, kind: &str) -> Schema {
        self.schema.rooted_at(self.roots[kind])
    }
}

fn node(says: &str, roots: &BTreeMap<String, NodeId>, nodes: &mut Vec<Node>) -> Node {
    let mut words = says.split(' ');
    let ty = words.next().unwrap();
    let mut child = |inner: &str| {
        let inner = node(inner, roots, nodes);
        nodes.push(inner);
        NodeId::new(0, nodes.len() - 1)
    };
    let list = ty.strip_prefix('[').and_then(|ty| ty.strip_suffix(']'));
    let map = ty.strip_prefix('{').and_then(|ty| ty.strip_suffix('}'));
    let mut node = match (ty, list, map) {
        (_, Some(inner), _) => Node { ty: Type::Array, child: child(inner), ..Node::default() },
        (_, _, Some(inner)) => Node { ty: Type::Object, child: child(inner), ..Node::default() },
        ("string", ..) => Node { ty: Type::String, ..Node::default() },
        ("bytes", ..) => Node { ty: Type::String, format: Format::Byte, ..Node::default() },
        ("boolean", ..) => Node { ty: Type::Boolean, ..Node::default() },
        ("number", ..) => Node { ty: Type::Number, ..Node::default() },
        ("int32", ..) => Node { ty: Type::Integer, format: Format::Int32, ..Node::default() },
        ("int64", ..) => Node { ty: Type::Integer, format: Format::Int64, ..Node::default() },
        ("any", ..) => Node::default(),
        (ty, ..) => Node { target: Some(roots[ty]), ..Node::default() },
    };
    for word in words {
        match word.strip_prefix("key=") {
            Some(key) => {
                node.rules = Some(Box::new(Rules { merge_key: Some(Name::from(key)), ..Rules::default() }));
            }
            None => {
                let has = |name| word.split(',').any(|word| word == name);
                node.patch_strategy =
                    PatchStrategy { merge: has("merge"), retain_keys: has("retainKeys"), replace: has("replace") };
            }
        }
    }
    node
}
