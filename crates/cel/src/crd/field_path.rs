//! The field that a rule's errors are about: `.spec.x` or `.map['key']`.

use capstan_api::{
    field::{Segment, render},
    schema::NodeRef,
};

/// The path as errors show it, if it leads to a field of the schema.
pub(super) fn normalize(path: &str, schema: NodeRef<'_>) -> Result<String, String> {
    let mut schema = schema;
    let mut steps: Vec<(String, bool)> = Vec::new();
    let mut tokens = tokens(path).into_iter();
    while let Some(token) = tokens.next() {
        let quoted = match token {
            "." => false,
            "[" => true,
            other => return Err(format!("expected [ or . but got: {other}")),
        };
        let name = tokens.next().ok_or("unexpected end of JSON path")?;
        let name = if quoted { unquote(name)? } else { name.to_owned() };
        let named = if schema.fields().len() > 0 {
            schema = schema.field(&name).ok_or("does not refer to a valid field")?.node;
            true
        } else {
            schema = schema.additional().ok_or("does not refer to a valid field")?;
            false
        };
        steps.push((name, named));
        if quoted {
            match tokens.next() {
                None => return Err("unexpected end of JSON path".to_owned()),
                Some("]") => {}
                Some(other) => return Err(format!("expected ] but got {other}")),
            }
        }
    }
    Ok(render(steps.iter().map(|(name, named)| if *named { Segment::Child(name) } else { Segment::Key(name) })))
}

/// Dots, brackets, quoted strings, and what stands between them.
fn tokens(path: &str) -> Vec<&str> {
    let (mut all, mut rest) = (Vec::new(), path);
    while !rest.is_empty() {
        let bytes = rest.as_bytes();
        let end = if bytes[0] == b'\'' {
            let close = (1..bytes.len()).find(|&at| bytes[at] == b'\'' && bytes[at - 1] != b'\\');
            close.map_or(bytes.len(), |close| close + 1)
        } else {
            rest.find(['.', '[', ']']).map_or(rest.len(), |at| at.max(1))
        };
        let (token, behind) = rest.split_at(end);
        all.push(token);
        rest = behind;
    }
    all
}

fn unquote(token: &str) -> Result<String, String> {
    let inside = token.strip_prefix('\'').and_then(|rest| rest.strip_suffix('\''));
    let inside = inside.ok_or_else(|| format!("expected single quoted string but got {token}"))?;
    let (mut out, mut chars) = (String::new(), inside.chars());
    while let Some(c) = chars.next() {
        if c != '\\' {
            out.push(c);
            continue;
        }
        out.push(match chars.next() {
            Some('a') => '\x07',
            Some('b') => '\x08',
            Some('f') => '\x0c',
            Some('n') => '\n',
            Some('r') => '\r',
            Some('t') => '\t',
            Some('v') => '\x0b',
            Some(same @ ('\'' | '\\')) => same,
            other => {
                return Err(format!("invalid string literal: invalid escape char \\{}", other.unwrap_or_default()));
            }
        });
    }
    Ok(out)
}
