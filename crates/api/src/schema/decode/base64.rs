//! Base64 as Go reads it: line breaks are skipped, and what is wrong is said by its place.

/// The bytes behind `text`.
///
/// # Errors
/// Where the text goes wrong.
pub(super) fn decode(text: &[u8]) -> Result<Vec<u8>, usize> {
    let mut bytes = Vec::with_capacity(text.len() / 4 * 3);
    let mut at = 0;
    while quantum(text, &mut at, &mut bytes)? {}
    Ok(bytes)
}

/// Reads up to four digits; says whether there may be more.
fn quantum(text: &[u8], at: &mut usize, bytes: &mut Vec<u8>) -> Result<bool, usize> {
    let (mut bits, mut digits) = (0_u32, 0);
    while digits < 4 {
        let Some(&c) = text.get(*at) else {
            return if digits == 0 { Ok(false) } else { Err(*at - digits) };
        };
        *at += 1;
        match digit(c) {
            Some(digit) => {
                bits = bits << 6 | u32::from(digit);
                digits += 1;
            }
            None if is_break(c) => {}
            None if c == b'=' && digits >= 2 => {
                if digits == 2 {
                    skip_breaks(text, at);
                    match text.get(*at) {
                        None => return Err(text.len()),
                        Some(b'=') => *at += 1,
                        Some(_) => return Err(*at - 1),
                    }
                }
                skip_breaks(text, at);
                if *at < text.len() {
                    return Err(*at);
                }
                let filled = bits << (6 * (4 - digits));
                bytes.extend_from_slice(&filled.to_be_bytes()[1..digits]);
                return Ok(false);
            }
            None => return Err(*at - 1),
        }
    }
    bytes.extend_from_slice(&bits.to_be_bytes()[1..]);
    Ok(true)
}

fn skip_breaks(text: &[u8], at: &mut usize) {
    while text.get(*at).is_some_and(|&c| is_break(c)) {
        *at += 1;
    }
}

fn is_break(c: u8) -> bool {
    matches!(c, b'\n' | b'\r')
}

fn digit(c: u8) -> Option<u8> {
    match c {
        b'A'..=b'Z' => Some(c - b'A'),
        b'a'..=b'z' => Some(c - b'a' + 26),
        b'0'..=b'9' => Some(c - b'0' + 52),
        b'+' => Some(62),
        b'/' => Some(63),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::decode;

    #[test]
    fn reads_what_go_reads() {
        for (text, expected) in [
            ("", Ok("")),
            ("YQ==", Ok("a")),
            ("YR==", Ok("a")),
            ("YWI=", Ok("ab")),
            ("Y\nW\rJj\n", Ok("abc")),
            ("YQ=\n=\n", Ok("a")),
            ("_", Err(0)),
            ("YQ", Err(0)),
            ("YWJjYQ", Err(4)),
            ("YQ=", Err(3)),
            ("YQ=a", Err(2)),
            ("YQ==a", Err(4)),
            ("=", Err(0)),
            ("Y===", Err(1)),
            ("YWJ j", Err(3)),
        ] {
            assert_eq!(decode(text.as_bytes()), expected.map(|bytes| bytes.as_bytes().to_vec()), "{text:?}");
        }
    }
}
