//! What is wrong with the rules of a schema themselves: their texts, and what they can cost.

use std::{collections::BTreeSet, sync::Arc};

use capstan_api::{
    Map, Value,
    field::{Error, ErrorList},
    go,
    schema::{ListType, NodeRef, Schema, Type, structural},
};

use super::{CompiledRule, compile_rules, field_path};
use crate::decl::{Decls, rule};

/// The most that one expression may cost.
pub const MAX_EXPRESSION_COST: u64 = 10_000_000;
/// The most that all rules of a schema may cost.
pub const MAX_SCHEMA_COST: u64 = 100_000_000;
/// How many rules are named when all together cost too much.
const MOST_EXPENSIVE: usize = 4;

/// How deep fields that rules report are looked for in schemas that are wrong: each level is looked at by itself.
const MAX_DEPTH: usize = 32;

const REASONS: [&str; 4] = ["FieldValueDuplicate", "FieldValueForbidden", "FieldValueInvalid", "FieldValueRequired"];

/// Where a schema's rules are looked at.
struct Place<'a> {
    node: NodeRef<'a>,
    path: String,
    /// How many values there can be here; not bounded if nothing is said.
    cardinality: Option<u64>,
    /// The part of the schema in which elements cannot be known again.
    uncorrelatable: Option<String>,
}

#[derive(Default)]
struct Total {
    cost: u64,
    most: Vec<(u64, String)>,
}

impl Total {
    fn add(&mut self, path: String, cost: u64) {
        self.cost = self.cost.saturating_add(cost);
        if cost >= MAX_SCHEMA_COST / 100 {
            self.most.push((cost, path));
            self.most.sort_by_key(|(cost, _)| std::cmp::Reverse(*cost));
            self.most.truncate(MOST_EXPENSIVE);
        }
    }
}

/// Looks at all rules of the schema of a custom resource, which is to be found at `path`. Where something else is wrong
/// with the schema, at a rule's place or inside of it, only the rule's text is looked at.
#[must_use]
pub fn check_rules(schema: NodeRef<'_>, path: &str, wrong: &[Error]) -> ErrorList {
    let mut todo = vec![Place { node: schema, path: path.to_owned(), cardinality: Some(1), uncorrelatable: None }];
    let mut places = Vec::new();
    while let Some(place) = todo.pop() {
        add_below(&place, &mut todo);
        if written(&place).next().is_some() {
            places.push(place);
        }
    }
    // What is inside comes before what it is in.
    places.reverse();
    let texts = places.iter().flat_map(|place| {
        let rules: Vec<&Value> = written(place).collect();
        check_texts(&place.path, &rules, |path| field_path::normalize(path, place.node).is_ok())
    });
    let mut errors: ErrorList = texts.collect();
    let decls = Arc::new(Decls::new(schema, true));
    let (mut compiling, mut total) = (Vec::new(), Total::default());
    // In order, so that what is inside of a place stands right behind it: there can be many of both.
    let wrong: BTreeSet<&str> = wrong.iter().chain(&errors).map(|error| error.field.as_str()).collect();
    for place in &places {
        if is_any_within(&wrong, &place.path) {
            continue;
        }
        let compiled = compile_rules(place.node, &decls, decls.of(place.node), written(place));
        for (index, (compiled, written)) in compiled.iter().zip(written(place)).enumerate() {
            check_compiled(place, index, compiled, written, &mut compiling, &mut total);
        }
    }
    errors.extend(compiling);
    if total.cost > MAX_SCHEMA_COST {
        for (_, path) in total.most {
            const PART: &str =
                "contributed to estimated rule cost total exceeding cost limit for entire OpenAPIv3 schema";
            errors.push(Error::forbidden(path, PART));
        }
        const WHOLE: &str = "x-kubernetes-validations estimated rule cost total for entire OpenAPIv3 schema";
        errors.push(Error::forbidden(path, exceeds(WHOLE, total.cost, MAX_SCHEMA_COST)));
    }
    errors
}

/// The rules of a place as they are written.
fn written<'a>(place: &Place<'a>) -> impl Iterator<Item = &'a Value> + use<'a> {
    place.node.rules().flat_map(|rules| rules.validations.iter())
}

/// Whether one of these fields is at a place of a schema, or inside of it.
fn is_any_within(fields: &BTreeSet<&str>, path: &str) -> bool {
    let mut behind = fields.range(path..).map_while(|field| field.strip_prefix(path));
    behind.any(|rest| rest.is_empty() || rest.starts_with(['.', '[']))
}

fn add_below<'a>(place: &Place<'a>, todo: &mut Vec<Place<'a>>) {
    let node = place.node;
    let elements = match node.ty() {
        Type::Array => rule(node, |rules| rules.max_items),
        Type::Object if node.additional().is_some() => rule(node, |rules| rules.max_properties),
        _ => Some(1),
    };
    let cardinality = place.cardinality.zip(elements).map(|(places, elements)| places.saturating_mul(elements));
    let mut add = |node, path: String, uncorrelatable| todo.push(Place { node, path, cardinality, uncorrelatable });
    if let Some(items) = node.items() {
        let path = format!("{}.items", place.path);
        let known = node.list_type() == ListType::Map;
        let lost = (!known).then(|| place.path.clone());
        add(items, path, place.uncorrelatable.clone().or(lost));
    }
    if let Some(values) = node.additional() {
        add(values, format!("{}.additionalProperties", place.path), place.uncorrelatable.clone());
    }
    // All maps can be correlated: both of their types keep what belongs to a key under it.
    for field in node.fields() {
        add(field.node, format!("{}.properties[{}]", place.path, field.name), place.uncorrelatable.clone());
    }
}

/// Looks at the texts of all rules of a schema that is wrong elsewhere, so that nobody can know its types.
#[must_use]
pub fn check_rule_texts(schema: &Value, path: &str) -> ErrorList {
    let mut found = Vec::new();
    let mut todo = vec![(schema, path.to_owned(), 0)];
    while let Some((schema, path, depth)) = todo.pop() {
        let rules = schema.get("x-kubernetes-validations").and_then(Value::as_array);
        let rules: Vec<&Value> = rules.into_iter().flatten().filter(|rule| rule.as_object().is_some()).collect();
        if !rules.is_empty() {
            // What is wrong itself takes any path, and so does what is too deep to be looked at level by level.
            let fits = |path: &str| {
                let compiled = if depth < MAX_DEPTH { alone(schema) } else { None };
                let own = compiled.as_ref().and_then(|whole| Some(whole.root().field("self")?.node));
                own.is_none_or(|own| field_path::normalize(path, own).is_ok())
            };
            found.push(check_texts(&path, &rules, fits));
        }
        for part in ["additionalProperties", "items"] {
            todo.extend(schema.get(part).map(|below| (below, format!("{path}.{part}"), depth + 1)));
        }
        for (name, field) in schema.get("properties").and_then(Value::as_object).into_iter().flat_map(Map::iter) {
            todo.push((field, format!("{path}.properties[{name}]"), depth + 1));
        }
    }
    // What is inside comes before what it is in.
    found.into_iter().rev().flatten().collect()
}

/// A part of a schema by itself, as the field `self` of an object; nothing if it is wrong.
fn alone(part: &Value) -> Option<Schema> {
    let object = |key: &str, value: Value| Map::from_iter([(key.into(), value)]);
    let mut whole = object("properties", object("self", part.clone()).into());
    whole.insert("type", "object");
    structural::compile(&whole.into(), "").ok()
}

/// What is wrong with the rules of a place, of which `fits` says whether they can report a field.
fn check_texts(at: &str, written: &[&Value], fits: impl Fn(&str) -> bool) -> ErrorList {
    let mut errors = Vec::new();
    for (index, written) in written.iter().enumerate() {
        let path = |field: &str| format!("{at}.x-kubernetes-validations[{index}].{field}");
        let rule = super::Rule::read(written);
        let (text, message) = (rule.rule.trim(), rule.message.trim());
        if text.is_empty() {
            errors.push(Error::required(path("rule"), "rule is not specified"));
        } else if !rule.message.is_empty() && message.is_empty() {
            errors.push(Error::invalid(path("message"), rule.message.as_str(), "must be non-empty if specified"));
        } else if message.contains('\n') {
            errors.push(Error::invalid(path("message"), rule.message.as_str(), "must not contain line breaks"));
        } else if text.contains('\n') && message.is_empty() {
            const LINES: &str = "message must be specified if rule contains line breaks";
            errors.push(Error::required(path("message"), LINES));
        }
        if !rule.message_expression.is_empty() && rule.message_expression.trim().is_empty() {
            const EMPTY: &str = "messageExpression must be non-empty if specified";
            errors.push(Error::required(path("messageExpression"), EMPTY));
        }
        if let Some(reason) = rule.reason.as_deref().filter(|reason| !REASONS.contains(reason)) {
            errors.push(Error::not_supported(path("reason"), reason, &REASONS));
        }
        if rule.field_path.is_empty() {
            continue;
        }
        let mut wrong = |detail: &str| errors.push(Error::invalid(path("fieldPath"), rule.field_path.as_str(), detail));
        if rule.field_path.trim().is_empty() {
            wrong("must be non-empty if specified");
        }
        if rule.field_path.contains('\n') {
            wrong("must not contain line breaks");
        }
        if !fits(&rule.field_path) {
            wrong("must be a valid path");
        }
    }
    errors
}

/// A rule as Go prints its struct.
fn shown(written: &Value) -> String {
    let fields = [
        ("Rule", "rule", "\"\""),
        ("Message", "message", "\"\""),
        ("MessageExpression", "messageExpression", "\"\""),
        ("Reason", "reason", "null"),
        ("FieldPath", "fieldPath", "\"\""),
        ("OptionalOldSelf", "optionalOldSelf", "null"),
    ];
    let field = |(name, key, missing): (&str, &str, &str)| {
        let value = written.get(key).filter(|value| !value.is_null());
        format!("\"{name}\":{}", value.map_or_else(|| missing.to_owned(), |value| go::escape_html(&value.to_string())))
    };
    format!("{{{}}}", fields.map(field).join(","))
}

fn check_compiled(
    place: &Place<'_>,
    index: usize,
    compiled: &CompiledRule,
    written: &Value,
    errors: &mut ErrorList,
    total: &mut Total,
) {
    let path = |field: &str| format!("{}.x-kubernetes-validations[{index}].{field}", place.path);
    let cost = compiled.max_cost.saturating_mul(place.cardinality.unwrap_or(compiled.max_cardinality));
    if cost > MAX_EXPRESSION_COST {
        errors.push(Error::forbidden(path("rule"), exceeds("estimated rule cost", cost, MAX_EXPRESSION_COST)));
    }
    total.add(path("rule"), cost);
    if let Some(error) = &compiled.error {
        errors.push(Error::invalid_shown(path("rule"), shown(written), error.as_str()));
    }
    if let Some(error) = &compiled.message_error {
        errors.push(Error::invalid_shown(path("messageExpression"), shown(written), error.as_str()));
    } else if compiled.message_program.is_some() {
        let cost = compiled.message_max_cost;
        if cost > MAX_EXPRESSION_COST {
            let detail = exceeds("estimated messageExpression cost", cost, MAX_EXPRESSION_COST);
            errors.push(Error::forbidden(path("messageExpression"), detail));
        }
        total.add(path("messageExpression"), cost);
    }
    if compiled.uses_old_self {
        if let Some(within) = &place.uncorrelatable {
            let detail = format!("oldSelf cannot be used on the uncorrelatable portion of the schema within {within}");
            errors.push(Error::invalid(path("rule"), compiled.rule.rule.as_str(), detail));
        }
    } else if let Some(optional) = compiled.rule.optional_old_self {
        errors.push(Error::invalid(path("optionalOldSelf"), optional, "may not be set if oldSelf is not used in rule"));
    }
}

#[expect(clippy::cast_precision_loss, reason = "a factor for people to read")]
fn exceeds(what: &str, cost: u64, limit: u64) -> String {
    let factor = cost as f64 / limit as f64;
    let factor = match factor {
        _ if factor > 100.0 => "more than 100x".to_owned(),
        // Digits enough not to say that it is once the budget.
        _ if factor < 1.5 => format!("{factor:.6}x"),
        _ => format!("{factor:.1}x"),
    };
    format!(
        "{what} exceeds budget by factor of {factor} (try simplifying the rule, or adding maxItems, maxProperties, and \
         maxLength where arrays, maps, and strings are declared)"
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn texts_are_looked_at_whatever_else_is_wrong() {
        let schema = br#"{"type":"object","x-kubernetes-list-type":"x","x-kubernetes-validations":[{"rule":"a","reason":"x"}],
            "properties":{"a":{"type":"string","x-kubernetes-validations":[{"rule":" ","fieldPath":".a.b"}]},
            "b":{"type":"array","items":{"type":"object","x-kubernetes-validations":[{"rule":"1 + 'a'","message":"a\nb"}]}}}}"#;
        let errors = check_rule_texts(&capstan_api::json::parse(schema).expect("it is JSON"), "s");
        let fields: Vec<&str> = errors.iter().map(|error| error.field.as_str()).collect();
        assert_eq!(
            fields,
            [
                "s.properties[a].x-kubernetes-validations[0].rule",
                "s.properties[a].x-kubernetes-validations[0].fieldPath",
                "s.properties[b].items.x-kubernetes-validations[0].message",
                "s.x-kubernetes-validations[0].reason",
            ]
        );
    }

    /// Types are looked at where nothing is wrong, at a rule's place or inside of it; what is inside comes first.
    #[test]
    fn rules_are_compiled_where_nothing_else_is_wrong() {
        let schema = br#"{"type":"object","x-kubernetes-validations":[{"rule":"self.no"}],"properties":{
            "a":{"type":"object","uniqueItems":true,"x-kubernetes-validations":[{"rule":"self.no"}]},
            "b":{"type":"object","x-kubernetes-validations":[{"rule":"self.no"}],"properties":{
                "c":{"type":"string","x-kubernetes-validations":[{"rule":" "}]}}},
            "bc":{"type":"string","x-kubernetes-validations":[{"rule":"self.no"}]},
            "d":{"type":"object","x-kubernetes-validations":[{"rule":"self.no"}],"properties":{
                "e":{"type":"string","x-kubernetes-validations":[{"rule":"self + 1"}]}}}}}"#;
        let found = structural::inspect(&capstan_api::json::parse(schema).expect("it is JSON"), "s");
        let compiled = found.schema.expect("it is structural");
        let fields = |wrong: &[Error]| -> Vec<String> {
            let errors = check_rules(compiled.root(), "s", wrong);
            errors.iter().map(|error| error.field.replace(".x-kubernetes-validations[0].rule", "")).collect()
        };
        assert_eq!(found.keywords[0].field, "s.properties[a].uniqueItems");
        assert_eq!(
            fields(&found.keywords),
            ["s.properties[b].properties[c]", "s.properties[bc]", "s.properties[d].properties[e]", "s.properties[d]"]
        );
        assert_eq!(fields(&[])[1], "s.properties[a]");
    }
}
