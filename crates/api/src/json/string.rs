//! The inside of JSON strings: finding their end, undoing their escapes.

use std::borrow::Cow;

/// A string of the text, without its quotes.
#[derive(Clone, Copy)]
pub(super) struct Piece {
    pub(super) start: usize,
    pub(super) end: usize,
    /// Whether it has no escapes.
    pub(super) plain: bool,
}

/// The first place from `at` on that is a quote, a backslash or a control character, or the end.
#[inline]
pub(super) fn plain_end(bytes: &[u8], mut at: usize) -> usize {
    while let Some(word) = bytes.get(at..).and_then(|rest| rest.first_chunk()) {
        let found = special(u64::from_le_bytes(*word));
        if found != 0 {
            return at + found.trailing_zeros() as usize / 8;
        }
        at += 8;
    }
    let rest = bytes.get(at..).unwrap_or_default();
    at + rest.iter().position(|&c| c == b'"' || c == b'\\' || c < 0x20).unwrap_or(rest.len())
}

/// Eight bytes at once: the highest bit of a byte is set if it is a quote, a backslash or a control character. Bytes
/// above the first such one may be set by mistake, as the subtraction borrows from them; the first one is always right.
fn special(word: u64) -> u64 {
    const ONES: u64 = 0x0101_0101_0101_0101;
    let zero = |w: u64| w.wrapping_sub(ONES) & !w;
    let control = word.wrapping_sub(ONES * 0x20) & !word;
    (zero(word ^ (ONES * 0x22)) | zero(word ^ (ONES * 0x5c)) | control) & (ONES * 0x80)
}

/// The string behind `raw`, whose escapes have been checked. A byte that is not UTF-8 becomes U+FFFD, each its own.
pub(super) fn decode(raw: &[u8]) -> Cow<'_, str> {
    if !raw.contains(&b'\\') {
        return lossy(raw);
    }
    let mut out = Vec::with_capacity(raw.len());
    let mut at = 0;
    loop {
        let plain = plain_end(raw, at);
        out.extend_from_slice(&raw[at..plain]);
        let Some(&letter) = raw.get(plain + 1) else { break };
        at = plain + 2;
        out.push(match letter {
            b'b' => 8,
            b'f' => 12,
            b'n' => b'\n',
            b'r' => b'\r',
            b't' => b'\t',
            b'u' => {
                let (c, read) = code_point(&raw[at..]);
                at += read;
                out.extend_from_slice(c.encode_utf8(&mut [0; 4]).as_bytes());
                continue;
            }
            other => other,
        });
    }
    Cow::Owned(String::from_utf8(out).unwrap_or_else(|bad| lossy(bad.as_bytes()).into_owned()))
}

/// Text out of bytes as Go makes it: each byte that is not UTF-8 becomes U+FFFD.
pub(crate) fn lossy(raw: &[u8]) -> Cow<'_, str> {
    if let Ok(text) = str::from_utf8(raw) {
        return Cow::Borrowed(text);
    }
    let mut out = String::with_capacity(raw.len());
    for chunk in raw.utf8_chunks() {
        out.push_str(chunk.valid());
        out.extend(chunk.invalid().iter().map(|_| char::REPLACEMENT_CHARACTER));
    }
    Cow::Owned(out)
}

/// The character whose four hexadecimal digits begin `raw`, with its second half if it has one, and how many bytes that
/// took.
fn code_point(raw: &[u8]) -> (char, usize) {
    let hex = |digits: &[u8]| digits.iter().fold(0, |n, &d| n * 16 + char::from(d).to_digit(16).unwrap_or(0));
    let first = hex(&raw[..4]);
    if let (0xd800..0xdc00, Some([b'\\', b'u', rest @ ..])) = (first, raw.get(4..10)) {
        let second = hex(rest);
        if let 0xdc00..0xe000 = second {
            let c = 0x10000 + ((first - 0xd800) << 10) + (second - 0xdc00);
            return (char::from_u32(c).unwrap_or(char::REPLACEMENT_CHARACTER), 10);
        }
    }
    (char::from_u32(first).unwrap_or(char::REPLACEMENT_CHARACTER), 4)
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    proptest! {
        #[test]
        fn the_quick_search_finds_what_the_slow_one_finds(bytes: Vec<u8>, from in 0..20usize) {
            let from = from.min(bytes.len());
            let slow = bytes[from..].iter().position(|&c| c == b'"' || c == b'\\' || c < 0x20);
            prop_assert_eq!(plain_end(&bytes, from), slow.map_or(bytes.len(), |at| from + at));
        }
    }
}
