//! Indenting JSON without reading it into a value, so that the keys stay in the order in which they were written.

/// Indents compact JSON by two spaces, as Go does; there is no newline at the end.
///
/// The bytes are taken to be JSON: only strings, brackets, commas and colons are looked at. White space between them is
/// dropped.
#[must_use]
pub fn indent(json: &[u8]) -> Vec<u8> {
    let mut out = Vec::with_capacity(json.len() * 2);
    let (mut depth, mut in_string, mut escaped) = (0_usize, false, false);
    for &c in json {
        if in_string {
            out.push(c);
            match c {
                _ if escaped => escaped = false,
                b'\\' => escaped = true,
                b'"' => in_string = false,
                _ => {}
            }
            continue;
        }
        match c {
            b' ' | b'\t' | b'\r' | b'\n' => {}
            b'{' | b'[' => {
                begin_item(&mut out, depth);
                out.push(c);
                depth += 1;
            }
            b'}' | b']' => {
                depth = depth.saturating_sub(1);
                // An empty container stays on its line.
                if !matches!(out.last(), Some(b'{' | b'[')) {
                    begin_line(&mut out, depth);
                }
                out.push(c);
            }
            b',' => {
                out.push(c);
                begin_line(&mut out, depth);
            }
            b':' => out.extend_from_slice(b": "),
            _ => {
                begin_item(&mut out, depth);
                out.push(c);
                in_string = c == b'"';
            }
        }
    }
    out
}

/// The first item of a container begins a line; the others have it from their comma.
fn begin_item(out: &mut Vec<u8>, depth: usize) {
    if matches!(out.last(), Some(b'{' | b'[')) {
        begin_line(out, depth);
    }
}

/// How deep lines are indented at most: text that nests deeper would grow with the square of its length.
const MAX_INDENT: usize = 100;

fn begin_line(out: &mut Vec<u8>, depth: usize) {
    out.push(b'\n');
    out.resize(out.len() + 2 * depth.min(MAX_INDENT), b' ');
}

#[cfg(test)]
mod tests {
    use capstan_api::json;
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn indents_as_go() {
        for (compact, expected) in [
            ("{}", "{}"),
            ("[]", "[]"),
            ("1", "1"),
            (
                r#"{"b":[],"a":{"x":[1,"y,{\"]"]}}"#,
                "{\n  \"b\": [],\n  \"a\": {\n    \"x\": [\n      1,\n      \"y,{\\\"]\"\n    ]\n  }\n}",
            ),
            ("[{},[{}]]\n", "[\n  {},\n  [\n    {}\n  ]\n]"),
        ] {
            assert_eq!(String::from_utf8(indent(compact.as_bytes())).unwrap(), expected);
        }
    }

    #[test]
    fn deep_text_stays_small() {
        let text = "[".repeat(100_000);
        assert!(indent(text.as_bytes()).len() < 202 * text.len());
    }

    proptest! {
        #[test]
        fn never_panics(bytes: Vec<u8>) {
            let _ = indent(&bytes);
        }

        #[test]
        fn means_the_same(keys in prop::collection::vec("\\PC{0,6}", 0..6), depth in 0_usize..5) {
            let mut value = keys.iter().map(|key| key.as_str().into()).collect::<Vec<_>>().into();
            for _ in 0..depth {
                value = vec![value].into();
            }
            let value: capstan_api::Value = value;
            let text = indent(json::to_string(&value).as_bytes());
            prop_assert_eq!(String::from_utf8(text).unwrap(), json::to_pretty_string(&value));
        }
    }
}
