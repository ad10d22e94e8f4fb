//! Expressions: whatever they are, they are read, checked, estimated and evaluated within bounds, and never panic.

#![no_main]

use capstan_cel::{Env, Program, Type, Val, check, estimate, parse};
use libfuzzer_sys::fuzz_target;

fuzz_target!(|text: &str| {
    let env = Env::default().with("x", Type::Dyn).with("s", Type::String).with("l", Type::list(Type::Int));
    let checked = match parse(text).and_then(|ast| check(ast, &env)) {
        Ok(checked) => checked,
        Err(errors) => {
            assert!(!errors.to_string().is_empty());
            return;
        }
    };
    let _ = estimate(&checked);
    let Ok(program) = Program::new(&checked) else { return };
    let list = Val::list(vec![Val::Int(3), Val::Int(1)]);
    let variables =
        [("x", Ok(Val::map([(Val::text("a"), list.clone())]))), ("s", Ok(Val::text("häll0"))), ("l", Ok(list))];
    let limit = 10_000;
    let evaluated = program.eval(&variables, limit);
    assert!(evaluated.cost <= limit || evaluated.result.is_err());
});
