//! Expressions whose types, results, errors and costs upstream's own implementation told.

use std::sync::Arc;

use capstan_api::{Value, json, schema};

use crate::{
    Decls, Env, PER_CALL_LIMIT, Program, Shape, Type, Val, check, crd, escape, estimate, parse, value::go_float, view,
};

const FIXTURE: &str = include_str!("../tests/golden/fixture.json");
const EXPRESSIONS: &str = include_str!("../tests/golden/expressions.txt");

fn quote(text: &str) -> String {
    let mut bytes = Vec::new();
    json::write(&Value::from(text), &mut bytes);
    String::from_utf8(bytes).unwrap()
}

fn show(value: &Val<'_>) -> String {
    match value {
        Val::Null => "null".to_owned(),
        Val::Uint(n) => format!("{n}u"),
        Val::Double(d) => format!("double({})", go_float(*d)),
        Val::String(text) => quote(text),
        Val::Bytes(bytes) => format!("b({})", bytes.iter().map(|b| format!("{b:02x}")).collect::<String>()),
        Val::Duration(_) => format!("duration({})", value.show()),
        Val::Timestamp(stamp) => format!("timestamp({})", crate::functions::time::Stamp { offset: 0, ..*stamp }),
        Val::Type(name) => format!("type({name})"),
        Val::Optional(None) => "optional.none".to_owned(),
        Val::Optional(Some(inside)) => format!("optional({})", show(inside)),
        Val::List(list) => {
            format!("[{}]", list.iter().map(|item| show(&item.unwrap())).collect::<Vec<_>>().join(", "))
        }
        Val::Map(map) => {
            let pair = |key: Val<'_>| format!("{}: {}", show(&key), show(&map.find(&key).unwrap().unwrap()));
            let mut pairs: Vec<String> = map.keys().into_iter().map(pair).collect();
            pairs.sort();
            format!("{{{}}}", pairs.join(", "))
        }
        Val::Quantity(quantity) => format!("kubernetes.Quantity({quantity})"),
        Val::Semver(version) => format!("kubernetes.Semver({version})"),
        Val::Url(url) => format!("kubernetes.URL({})", url.text),
        Val::Ip(ip) => format!("net.IP({ip})"),
        Val::Cidr(cidr) => format!("net.CIDR({cidr})"),
        Val::Format(_) => "kubernetes.NamedFormat".to_owned(),
        other => other.show(),
    }
}

fn bound(cost: u64) -> String {
    if cost == u64::MAX { "max".to_owned() } else { cost.to_string() }
}

/// What we make of an expression, in the columns of the golden file.
fn run(text: &str, env: &Env, object: &Value, schema: &schema::Schema) -> String {
    let checked = match parse(text).and_then(|ast| check(ast, env)) {
        Ok(checked) => checked,
        Err(errors) => return format!("E\t{}", quote(&errors.to_string())),
    };
    let ty = checked.output_name();
    let cost = estimate(&checked);
    let cost = format!("{}-{}", bound(cost.min), bound(cost.max));
    let program = match Program::new(&checked) {
        Ok(program) => program,
        Err(error) => return format!("P\t{ty}\t{}\t{cost}", quote(&error)),
    };
    let variables = [("self", view(object, Shape::Whole(schema.root()))), ("x", Ok(Val::text("ex")))];
    let evaluated = program.eval(&variables, PER_CALL_LIMIT);
    match evaluated.result {
        Ok(value) => format!("V\t{ty}\t{}\t{cost}\t{}", show(&value), evaluated.cost),
        Err(error) => format!("X\t{ty}\t{}\t{cost}\t{}", quote(&error.to_string()), evaluated.cost),
    }
}

/// A line that begins like this is the rest of a JSON string.
fn text_of(column: &str) -> String {
    match column.strip_prefix("\"\\q") {
        Some(rest) => json::parse(format!("\"{rest}").as_bytes()).unwrap().as_str().unwrap().to_owned(),
        None => column.to_owned(),
    }
}

#[test]
fn expressions() {
    let fixture = json::parse(FIXTURE.as_bytes()).unwrap();
    let schema = schema::structural::compile(fixture.get("schema").unwrap(), "schema").unwrap();
    let decls = Arc::new(Decls::new(schema.root(), true));
    let root = decls.of(schema.root());
    let env = Env::new(decls.clone(), root).with("self", decls.ty(root.unwrap())).with("x", Type::Dyn);
    let object = fixture.get("object").unwrap();
    let (mut wrong, mut all) = (Vec::new(), 0);
    for line in EXPRESSIONS.lines() {
        let (expression, expected) = line.split_once('\t').unwrap();
        let found = run(&text_of(expression), &env, object, &schema);
        all += 1;
        if found != expected {
            wrong.push(format!("{expression}\n  want {expected}\n  have {found}"));
        }
    }
    assert!(wrong.is_empty(), "{} of {all} differ:\n{}", wrong.len(), wrong.join("\n"));
}

const RULES: &str = include_str!("../tests/golden/rules.jsonl");

/// Adds what the rules of a place compile to, and of all places below it.
fn compiled(path: &str, node: schema::NodeRef<'_>, decls: &Arc<Decls>, out: &mut Vec<String>) {
    let written: Vec<&Value> = node.rules().flat_map(|rules| rules.validations.iter()).collect();
    let decl = decls.of(node);
    if decl.is_none() && !written.is_empty() {
        out.push(format!("{path}: compile: failed to convert to declType for CEL validation rules"));
    }
    for (index, rule) in crd::compile_rules(node, decls, decl, written).iter().enumerate() {
        let mut text = format!(
            "{path}[{index}]: old={} cost={} card={} msgcost={} path={}",
            rule.uses_old_self,
            rule.max_cost,
            rule.max_cardinality,
            rule.message_max_cost,
            rule.field_path.as_deref().unwrap_or_default()
        );
        rule.error.iter().for_each(|error| text.push_str(&format!(" error={error}")));
        rule.message_error.iter().for_each(|error| text.push_str(&format!(" msgerror={error}")));
        out.push(text);
    }
    if let Some(items) = node.items() {
        compiled(&format!("{path}[]"), items, decls, out);
    }
    if let Some(values) = node.additional() {
        compiled(&format!("{path}{{}}"), values, decls, out);
    }
    for field in node.fields().filter(|field| escape(field.name.as_str()).is_some() && decls.of(field.node).is_some()) {
        compiled(&format!("{path}.{}", field.name), field.node, decls, out);
    }
}

fn run_rules(case: &Value) -> Vec<String> {
    let root = case.get("root").and_then(Value::as_bool).unwrap_or_default();
    let schema = schema::structural::compile(case.get("schema").unwrap(), "schema").unwrap();
    let mut out = Vec::new();
    compiled("$", schema.root(), &Arc::new(Decls::new(schema.root(), root)), &mut out);
    if let Some(validator) = crd::Validator::new(schema.root(), root) {
        let budget = case.get("budget").and_then(Value::as_i64).unwrap_or(crd::RUNTIME_COST_BUDGET);
        let (value, old) = (case.get("object").unwrap(), case.get("old").filter(|old| !old.is_null()));
        let (errors, rest) = validator.validate(schema.root(), "root", value, old, budget);
        let mut errors: Vec<String> = errors.iter().map(|error| format!("invalid: {error}")).collect();
        errors.sort();
        out.extend(errors);
        out.push(format!("spent {}", budget - rest));
    }
    out
}

#[test]
fn rules() {
    let (mut wrong, mut all) = (Vec::new(), 0);
    for line in RULES.lines() {
        let case = json::parse(line.as_bytes()).unwrap();
        let expected = case.get("expect").unwrap().as_array().unwrap();
        let expected: Vec<&str> = expected.iter().map(|line| line.as_str().unwrap()).collect();
        let found = run_rules(&case);
        all += 1;
        if found != expected {
            let name = case.get("name").unwrap().as_str().unwrap();
            wrong.push(format!("{name}\n  want {}\n  have {}", expected.join("\n       "), found.join("\n       ")));
        }
    }
    assert!(wrong.is_empty(), "{} of {all} differ:\n{}", wrong.len(), wrong.join("\n"));
}

/// Texts that want to use up the stack, the memory or the time.
#[test]
fn hostile() {
    let fails = |text: String, message: &str| {
        let found = parse(&text).unwrap_err().to_string();
        assert!(found.contains(message), "{message}: {}", found.chars().take(200).collect::<String>());
    };
    let repeat = |text: &str, count: usize| text.repeat(count);
    fails(repeat("(", 100_000), "expression recursion limit exceeded: 250");
    fails(repeat("[", 100_000), "expression recursion limit exceeded: 250");
    fails(repeat("{1:", 30_000), "expression recursion limit exceeded: 250");
    fails(repeat("f(", 50_000), "expression recursion limit exceeded: 250");
    fails(repeat("a?b:", 20_000), "expression recursion limit exceeded: 250");
    fails(format!("{}1", repeat("1+", 49_000)), "max recursion depth exceeded");
    fails(format!("a{}", repeat(".b", 49_000)), "max recursion depth exceeded");
    fails(format!("a{}", repeat("[0]", 30_000)), "max recursion depth exceeded");
    fails(repeat("1", 100_001), "expression code point size exceeds limit: size: 100001, limit 100000");
    fails(repeat("@", 99_999), "\n1 more errors were truncated");
    // A long chain is a low tree.
    let chain = format!("true{}", repeat("&&true", 16_000));
    let env = Env::default();
    let checked = check(parse(&chain).unwrap(), &env).unwrap();
    let program = Program::new(&checked).unwrap();
    assert!(matches!(program.eval(&[], PER_CALL_LIMIT).result, Ok(Val::Bool(true))));
    // As high as trees get.
    for (open, close) in [("[", "]"), ("(1+", ")"), ("!(true||", ")"), ("[1].all(x,", ")"), ("true?1:(", ")")] {
        for count in [10, 80, 120, 130, 180, 240, 249] {
            let text = format!("{}true{}", repeat(open, count), repeat(close, count));
            let Ok(ast) = parse(&text) else { break };
            let Ok(checked) = check(ast, &env) else { continue };
            let _ = estimate(&checked);
            let _ = Program::new(&checked).map(|program| program.eval(&[], PER_CALL_LIMIT).cost);
        }
    }
    // A type that doubles with every step.
    let doubling = format!("[1]{}", repeat(".map(a, {a: a})", 60));
    let _ = parse(&doubling).and_then(|ast| check(ast, &env));
    // Costs end what would take too long.
    let loops = "lists.range(1000).all(a, lists.range(1000).all(b, lists.range(1000).all(c, a + b + c >= 0)))";
    let program = Program::new(&check(parse(loops).unwrap(), &env).unwrap()).unwrap();
    assert_eq!(program.eval(&[], PER_CALL_LIMIT).result.unwrap_err(), crate::EvalError::CostLimit);
}
