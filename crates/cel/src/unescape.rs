//! String and bytes literals: taking quotes and escapes away.

/// The text of a string literal, with its quotes, as bytes: those of a string are UTF-8.
pub(crate) fn unescape(literal: &str, bytes: bool) -> Result<Vec<u8>, &'static str> {
    let literal = literal.replace("\r\n", "\n").replace('\r', "\n");
    let (raw, quoted) = match literal.strip_prefix(['r', 'R']) {
        Some(rest) => (true, rest),
        None => (false, literal.as_str()),
    };
    let quotes = if quoted.len() >= 6 && (quoted.starts_with("'''") || quoted.starts_with("\"\"\"")) { 3 } else { 1 };
    let text = quoted.get(quotes..quoted.len().saturating_sub(quotes)).ok_or("unable to unescape string")?;
    if raw || !text.contains('\\') {
        return Ok(text.as_bytes().to_vec());
    }
    let mut out = Vec::with_capacity(text.len());
    let mut rest = text.chars();
    while let Some(c) = rest.next() {
        if c == '\\' {
            escape(&mut rest, bytes, &mut out)?;
        } else {
            push(c, &mut out);
        }
    }
    Ok(out)
}

fn push(c: char, out: &mut Vec<u8>) {
    out.extend_from_slice(c.encode_utf8(&mut [0; 4]).as_bytes());
}

fn escape(rest: &mut std::str::Chars<'_>, bytes: bool, out: &mut Vec<u8>) -> Result<(), &'static str> {
    const WRONG: &str = "unable to unescape string";
    let c = rest.next().ok_or("unable to unescape string, found '\\' as last character")?;
    let plain = match c {
        'a' => Some('\x07'),
        'b' => Some('\x08'),
        'f' => Some('\x0c'),
        'n' => Some('\n'),
        'r' => Some('\r'),
        't' => Some('\t'),
        'v' => Some('\x0b'),
        '\\' | '\'' | '"' | '`' | '?' => Some(c),
        _ => None,
    };
    if let Some(plain) = plain {
        push(plain, out);
        return Ok(());
    }
    let (mut value, digits, radix) = match c {
        'x' | 'X' => (0, 2, 16),
        'u' | 'U' if bytes => return Err(WRONG),
        'u' => (0, 4, 16),
        'U' => (0, 8, 16),
        '0'..='3' => (c.to_digit(8).unwrap_or(0), 2, 8),
        _ => return Err(WRONG),
    };
    for _ in 0..digits {
        value = value << u32::trailing_zeros(radix) | rest.next().and_then(|c| c.to_digit(radix)).ok_or(WRONG)?;
    }
    if bytes {
        out.push(u8::try_from(value).map_err(|_| WRONG)?);
    } else {
        push(char::from_u32(value).ok_or("invalid unicode code point")?, out);
    }
    Ok(())
}
