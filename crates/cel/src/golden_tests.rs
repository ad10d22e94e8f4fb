//! Expressions whose types, results, errors and costs upstream's own implementation told.

use std::sync::Arc;

use capstan_api::{Value, json, schema};

use crate::{
    Decls, Env, PER_CALL_LIMIT, Program, Shape, Type, Val, check, estimate, parse,
    value::go_float,
    view,
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
