//! Patterns against what Go accepts.

use super::*;
use crate::schema::cases;

#[test]
fn as_go() {
    for group in cases::groups(include_str!("cases.txt")) {
        match (compile(group.head), group.lines[..] == [""; 0]) {
            (Ok(regex), false) => {
                for (matches, text) in group.answers() {
                    assert_eq!(regex.is_match(&text), matches, "{}: {text:?}", group.head);
                }
            }
            (Err(error), _) => assert_eq!(group.lines, [error.as_str()], "{}", group.head),
            (Ok(_), true) => panic!("{}: nothing to check", group.head),
        }
    }
}

#[test]
fn large_ones_are_refused() {
    let wide = r"\pL{1000}".repeat(50);
    assert_eq!(compile(&wide).unwrap_err(), error_text("expression too large", &wide));
    let deep = "(".repeat(10_000) + &")".repeat(10_000);
    assert_eq!(compile(&deep).unwrap_err(), error_text("expression nests too deeply", &deep));
}

proptest::proptest! {
    #[test]
    fn never_panics(pattern in r"[ab\\pLdwsbQEx0-9()\[\]{}?*+|^$.:<>P\-,i]{0,24}", text in ".{0,8}") {
        if let Ok(regex) = compile(&pattern) {
            regex.is_match(&text);
        }
    }
}
