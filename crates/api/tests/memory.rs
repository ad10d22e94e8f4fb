//! How much memory the built-in table takes, counted exactly: a program that uses three kinds pays for three.

use capstan_api::{
    builtin,
    names::GroupVersionKind,
    schema::{NodeRef, Schema},
};

/// Looks at every node that can be reached, so that it gets loaded.
fn touch(schema: &Schema) {
    let (mut seen, mut open) = (std::collections::HashSet::new(), vec![schema.root()]);
    while let Some(node) = open.pop() {
        if seen.insert(node.id()) {
            let fields = node.fields().map(|field| field.node);
            let below: [Option<NodeRef<'_>>; 3] = [node.items(), node.additional(), node.alternative()];
            open.extend(fields.chain(below.into_iter().flatten()));
        }
    }
}

#[test]
fn three_kinds_cost_less_than_100_kb_and_all_less_than_2_mb() {
    // One test function, because all schemas share one arena.
    let three = [("", "Pod"), ("apps", "Deployment"), ("", "Service")];
    let schemas =
        three.map(|(group, kind)| builtin::schema(&GroupVersionKind::from_static(group, "v1", kind)).unwrap());
    println!("empty: {} bytes", schemas[0].heap_size());
    schemas.iter().for_each(touch);
    let (loaded, size) = (schemas[0].loaded(), schemas[0].heap_size());
    println!("three kinds: {loaded} definitions, {size} bytes");
    assert!(size < 100_000, "{size}");

    for (name, _) in builtin::types() {
        touch(&builtin::type_schema(name).unwrap());
    }
    let (loaded, all) = (schemas[0].loaded(), schemas[0].heap_size());
    println!("all: {loaded} definitions, {all} bytes");
    assert_eq!(loaded, builtin::types().len() + 1);
    assert!(all < 2_000_000, "{all}");
}
