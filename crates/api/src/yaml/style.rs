//! How a string is written so that it reads back as the string that it is.

use super::scalar::{Scalar, plain};

/// How a string is written.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Style {
    Plain,
    SingleQuoted,
    DoubleQuoted,
    /// `|`.
    Literal,
}

/// The style that Go's encoder takes for `text`; keys stay on one line.
pub(super) fn style(text: &str, key: bool) -> Style {
    // Go's encoder forgets that `<<` as a key is a merge.
    let means_itself = plain(text, true) == Scalar::Str && !is_sexagesimal(text) && !(key && text == "<<");
    let shape = Shape::of(text);
    if text.contains('\n') {
        return if shape.block && !key { Style::Literal } else { Style::DoubleQuoted };
    }
    if means_itself && shape.plain {
        Style::Plain
    } else if means_itself && shape.single_quoted && !(shape.multiline && key) {
        Style::SingleQuoted
    } else {
        Style::DoubleQuoted
    }
}

/// Which styles the letters of a text allow.
struct Shape {
    plain: bool,
    single_quoted: bool,
    block: bool,
    multiline: bool,
}

impl Shape {
    fn of(text: &str) -> Shape {
        let (mut plain, mut special) = (true, false);
        let (mut multiline, mut break_space, mut space_break) = (false, false, false);
        let mut previous = None;
        let mut chars = text.chars().peekable();
        while let Some(c) = chars.next() {
            let before_blank = chars.peek().is_none_or(|&next| is_blank(next));
            let indicates = match c {
                '#' | ',' | '[' | ']' | '{' | '}' | '&' | '*' | '!' | '|' | '>' | '\'' | '"' | '%' | '@' | '`'
                    if previous.is_none() =>
                {
                    true
                }
                '?' | '-' if previous.is_none() => before_blank,
                ':' => before_blank,
                '#' => previous.is_some_and(|previous| is_blank(previous) || is_break(previous)),
                _ => false,
            };
            plain &= !indicates;
            special |= !is_printable(c);
            multiline |= is_break(c);
            break_space |= c == ' ' && previous.is_some_and(is_break);
            space_break |= is_break(c) && previous == Some(' ');
            previous = Some(c);
        }
        let edge = |c: char| c == ' ' || is_break(c);
        let document = text.starts_with("---") || text.starts_with("...");
        Shape {
            plain: plain && !document && !multiline && !special && !text.starts_with(edge) && !text.ends_with(edge),
            single_quoted: !break_space && !space_break && !special,
            block: !text.ends_with(' ') && !space_break && !special,
            multiline,
        }
    }
}

fn is_blank(c: char) -> bool {
    matches!(c, ' ' | '\t')
}

/// What ends a line in YAML 1.1.
pub(super) fn is_break(c: char) -> bool {
    matches!(c, '\r' | '\n' | '\u{85}' | '\u{2028}' | '\u{2029}')
}

/// What can stand in YAML as it is. Go's encoder leaves out what is beyond U+FFFF. It does write U+2028 and U+2029 as
/// they are, but readers do not agree on whether these end lines.
pub(super) fn is_printable(c: char) -> bool {
    matches!(c, '\n' | ' '..='~' | '\u{a0}'..='\u{fffd}') && !matches!(c, '\u{feff}' | '\u{2028}' | '\u{2029}')
}

/// Numbers to the base of 60, as times of day look, which other readers take for numbers.
fn is_sexagesimal(text: &str) -> bool {
    let unsigned = text.strip_prefix(['+', '-']).unwrap_or(text);
    let mut parts = unsigned.split(':');
    let is_digit = |c: u8| c.is_ascii_digit() || c == b'_';
    let first = parts.next().unwrap_or_default();
    let mut rest: Vec<&str> = parts.collect();
    let Some(last) = rest.last_mut() else { return false };
    if let Some((whole, fraction)) = last.split_once('.') {
        if !fraction.bytes().all(is_digit) {
            return false;
        }
        *last = whole;
    }
    let is_part = |part: &&str| matches!(part.as_bytes(), [b'0'..=b'9'] | [b'0'..=b'5', b'0'..=b'9']);
    first.starts_with(|c: char| c.is_ascii_digit()) && first.bytes().all(is_digit) && rest.iter().all(is_part)
}
