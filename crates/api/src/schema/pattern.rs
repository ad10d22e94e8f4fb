//! Patterns: regular expressions in Go's syntax, refused in Go's words.
//!
//! Go and the `regex` crate agree on what an expression means (RE2) but not on every letter of how it is written: Go's
//! `\d`, `\w` and `\b` are ASCII, `{,3}` and `[a[b]` are plain letters, repetitions end at 1000. So the text is read by
//! Go's rules and written anew for the crate. What differs: groups nest 250 deep at most (Go: 1000), `\B` looks at all
//! letters, not just ASCII, and scripts may also be called by their short names.

use std::{collections::HashSet, fmt::Write as _, sync::LazyLock};

use regex::{Regex, RegexBuilder};

/// The largest count of a repetition, also when repetitions nest.
const MAX_REPEAT: u32 = 1000;
/// How deep groups nest; the compiler of the `regex` crate recurses.
const MAX_NESTING: u32 = 250;
/// How many bytes a compiled pattern takes at most.
const MAX_COMPILED: usize = 10 << 20;

/// Compiles a pattern.
///
/// # Errors
/// Go's message for what is wrong with it.
pub fn compile(pattern: &str) -> Result<Regex, String> {
    let translated = Translator::new(pattern).run()?;
    RegexBuilder::new(&translated).nest_limit(2 * MAX_NESTING).size_limit(MAX_COMPILED).build().map_err(|error| {
        let what = match error {
            regex::Error::CompiledTooBig(_) => "expression too large",
            _ => "expression nests too deeply",
        };
        error_text(what, pattern)
    })
}

fn error_text(what: &str, expression: &str) -> String {
    format!("error parsing regexp: {what}: `{expression}`")
}

const MISSING_ARGUMENT: &str = "missing argument to repetition operator";
const INVALID_RANGE: &str = "invalid character class range";
const INVALID_ESCAPE: &str = "invalid escape sequence";
const INVALID_REPEAT: &str = "invalid repeat count";

/// The flags `i`, `m`, `s` and `U`.
type Flags = [bool; 4];
const FLAG_LETTERS: [char; 4] = ['i', 'm', 's', 'U'];

/// An open group.
struct Group {
    flags: Flags,
    /// The largest product of nested repetitions so far.
    repeats: u32,
}

struct Translator<'a> {
    whole: &'a str,
    rest: &'a str,
    out: String,
    flags: Flags,
    groups: Vec<Group>,
    /// The repetitions of the last atom, if there is one to repeat.
    atom: Option<u32>,
    /// The largest product of nested repetitions in the present group.
    repeats: u32,
    /// New flags, written before what comes next: a repetition still belongs to what was before them.
    pending: String,
}

type Step<T = ()> = Result<T, String>;

impl<'a> Translator<'a> {
    fn new(whole: &'a str) -> Self {
        let out = String::with_capacity(2 * whole.len());
        Translator {
            whole,
            rest: whole,
            out,
            flags: [false; 4],
            groups: Vec::new(),
            atom: None,
            repeats: 1,
            pending: String::new(),
        }
    }

    fn run(mut self) -> Step<String> {
        // What stands before the present place, if it was a repetition: two in a row are an error.
        let mut last_repeat: Option<&'a str> = None;
        while let Some(c) = self.rest.chars().next() {
            let before = self.rest;
            let mut repeat = None;
            match c {
                '(' if before.starts_with("(?") => self.flags_or_group()?,
                '(' => {
                    self.skip(1);
                    self.open("(?:")?;
                }
                '|' => {
                    self.skip(1);
                    self.push_atom(|out| out.push('|'));
                    self.atom = None;
                }
                ')' => self.close()?,
                '^' | '$' | '.' => {
                    self.skip(1);
                    self.push_atom(|out| out.push(c));
                }
                '[' => self.class()?,
                '*' | '+' | '?' => {
                    self.skip(1);
                    self.repeat(before, None, last_repeat)?;
                    repeat = Some(before);
                }
                '{' => match parse_repeat(before) {
                    None => {
                        self.skip(1);
                        self.push_atom(|out| literal(out, '{'));
                    }
                    Some((min, max, length)) => {
                        self.skip(length);
                        let fits = |n: Option<u32>| n.is_some_and(|n| n <= MAX_REPEAT);
                        let ordered = max.is_none_or(|max| fits(max) && min <= max);
                        if !fits(min) || !ordered {
                            return Err(error_text(INVALID_REPEAT, &before[..length]));
                        }
                        let largest = max.flatten().or(if max.is_some() { None } else { min }).unwrap_or_default();
                        self.repeat(before, Some((&before[..length], largest)), last_repeat)?;
                        repeat = Some(before);
                    }
                },
                '\\' => self.escape()?,
                c => {
                    self.skip(c.len_utf8());
                    self.push_atom(|out| literal(out, c));
                }
            }
            last_repeat = repeat;
        }
        if self.groups.is_empty() { Ok(self.out) } else { Err(error_text("missing closing )", self.whole)) }
    }

    fn skip(&mut self, bytes: usize) {
        self.rest = &self.rest[bytes..];
    }

    fn push_atom(&mut self, write: impl FnOnce(&mut String)) {
        self.out.push_str(&std::mem::take(&mut self.pending));
        write(&mut self.out);
        self.atom = Some(1);
    }

    fn open(&mut self, text: &str) -> Step {
        if self.groups.len() >= MAX_NESTING as usize {
            return Err(error_text("expression nests too deeply", self.whole));
        }
        self.groups.push(Group { flags: self.flags, repeats: self.repeats });
        self.push_atom(|out| out.push_str(text));
        (self.atom, self.repeats) = (None, 1);
        Ok(())
    }

    fn close(&mut self) -> Step {
        let group = self.groups.pop().ok_or_else(|| error_text("unexpected )", self.whole))?;
        self.skip(1);
        self.push_atom(|out| out.push(')'));
        self.atom = Some(self.repeats);
        self.repeats = self.repeats.max(group.repeats);
        self.flags = group.flags;
        Ok(())
    }

    /// A repetition operator: `*`, `+`, `?`, or a counted one with its text and its largest count.
    fn repeat(&mut self, before: &'a str, counted: Option<(&str, u32)>, last_repeat: Option<&'a str>) -> Step {
        let operator = counted.map_or(&before[..1], |(text, _)| text).to_owned();
        let lazy = self.rest.starts_with('?');
        if lazy {
            self.skip(1);
        }
        let shown = |from: &str, rest: &str| from[..from.len() - rest.len()].to_owned();
        if let Some(last) = last_repeat {
            return Err(error_text("invalid nested repetition operator", &shown(last, self.rest)));
        }
        let Some(inner) = self.atom else {
            return Err(error_text(MISSING_ARGUMENT, &shown(before, self.rest)));
        };
        let count = counted.map_or(1, |(_, count)| count);
        let product = count.saturating_mul(inner);
        if count >= 2 && product > MAX_REPEAT {
            return Err(error_text(INVALID_REPEAT, &shown(before, self.rest)));
        }
        self.out.push_str(&operator);
        if lazy {
            self.out.push('?');
        }
        self.atom = Some(product.max(1));
        self.repeats = self.repeats.max(product);
        Ok(())
    }

    /// `(?…`: a group with a name, with flags, or flags alone.
    fn flags_or_group(&mut self) -> Step {
        let text = self.rest;
        let named = if text.len() > 4 && text.starts_with("(?P<") {
            Some(4)
        } else {
            (text.len() > 3 && text.starts_with("(?<")).then_some(3)
        };
        if let Some(start) = named {
            let Some(end) = text.find('>') else {
                return Err(error_text("invalid named capture", text));
            };
            let name = text.get(start..end).unwrap_or_default();
            if name.is_empty() || !name.bytes().all(|b| b == b'_' || b.is_ascii_alphanumeric()) {
                return Err(error_text("invalid named capture", &text[..=end]));
            }
            self.skip(end + 1);
            // Nobody asks for captures, and the crate refuses a name that comes twice.
            return self.open("(?:");
        }
        let (mut flags, mut on, mut saw_flag) = (self.flags, true, false);
        self.skip(2);
        while let Some(c) = self.rest.chars().next() {
            self.skip(c.len_utf8());
            match c {
                '-' if on => (on, saw_flag) = (false, false),
                ':' | ')' if on || saw_flag => {
                    let letters = |wanted| {
                        FLAG_LETTERS.iter().zip(flags).filter(move |(_, on)| *on == wanted).map(|(letter, _)| letter)
                    };
                    let mut written = String::from("(?");
                    written.extend(letters(true));
                    if flags.contains(&false) {
                        written.push('-');
                        written.extend(letters(false));
                    }
                    written.push(c);
                    if c == ':' {
                        self.open(&written)?;
                    } else {
                        self.pending = written;
                    }
                    self.flags = flags;
                    return Ok(());
                }
                c => match FLAG_LETTERS.iter().position(|&letter| letter == c) {
                    Some(flag) => (flags[flag], saw_flag) = (on, true),
                    None => break,
                },
            }
        }
        Err(error_text("invalid or unsupported Perl syntax", &text[..text.len() - self.rest.len()]))
    }

    /// `\…` outside of a class.
    fn escape(&mut self) -> Step {
        let simple = match self.rest.as_bytes().get(1) {
            Some(b'A') => "\\A",
            Some(b'z') => "\\z",
            Some(b'b') => "(?-u:\\b)",
            Some(b'B') => "(?:\\B)",
            Some(b'C') => return Err(error_text(INVALID_ESCAPE, "\\C")),
            Some(b'Q') => {
                let (quoted, rest) = self.rest[2..].split_once("\\E").unwrap_or((&self.rest[2..], ""));
                for c in quoted.chars() {
                    self.push_atom(|out| literal(out, c));
                }
                self.rest = rest;
                return Ok(());
            }
            _ => {
                if let Some(set) = self.escaped_set()? {
                    self.push_atom(|out| {
                        out.push('[');
                        out.push_str(&set);
                        out.push(']');
                    });
                } else {
                    let c = self.escaped_char()?;
                    self.push_atom(|out| match char::from_u32(c) {
                        Some(c) => literal(out, c),
                        None => out.push_str(NOTHING),
                    });
                }
                return Ok(());
            }
        };
        self.skip(2);
        self.push_atom(|out| out.push_str(simple));
        Ok(())
    }

    /// `\d`, `\pL` and the like, as what stands inside of a class.
    fn escaped_set(&mut self) -> Step<Option<String>> {
        let letter = match self.rest.as_bytes() {
            [b'\\', letter, ..] => *letter,
            _ => return Ok(None),
        };
        let set = match letter.to_ascii_lowercase() {
            b'd' => "0-9",
            b's' => "\\t\\n\\x0C\\r\\x20",
            b'w' => "0-9A-Za-z_",
            b'p' => return self.unicode_set().map(Some),
            _ => return Ok(None),
        };
        self.skip(2);
        Ok(Some(if letter.is_ascii_lowercase() { set.to_owned() } else { format!("[^{set}]") }))
    }

    fn unicode_set(&mut self) -> Step<String> {
        let text = self.rest;
        let mut negated = text.starts_with("\\P");
        let (shown, name) = match text[2..].chars().next() {
            // Go finds the first brace anywhere behind.
            Some('{') => match text.find('}') {
                Some(end) => (&text[..=end], &text[3..end]),
                None => return Err(error_text(INVALID_RANGE, text)),
            },
            Some(c) => (&text[..2 + c.len_utf8()], &text[2..2 + c.len_utf8()]),
            None => return Err(error_text(INVALID_RANGE, text)),
        };
        let name = name.strip_prefix('^').map_or(name, |name| {
            negated = !negated;
            name
        });
        let plain = !name.is_empty() && name.bytes().all(|b| b.is_ascii_alphanumeric() || b"_- ".contains(&b));
        let written = format!("\\{}{{{name}}}", if negated { 'P' } else { 'p' });
        if !plain || Regex::new(&written).is_err() {
            return Err(error_text(INVALID_RANGE, shown));
        }
        self.skip(shown.len());
        Ok(written)
    }

    /// A character after `\`; it may be half of a surrogate pair, which nothing matches.
    fn escaped_char(&mut self) -> Step<u32> {
        let text = self.rest;
        self.skip(1);
        let Some(c) = self.rest.chars().next() else {
            return Err(error_text("trailing backslash at end of expression", ""));
        };
        self.skip(c.len_utf8());
        let octal = |rest: &str| rest.bytes().next().filter(|b| (b'0'..=b'7').contains(b));
        let value = match c {
            c if c.is_ascii() && !c.is_ascii_alphanumeric() => Some(u32::from(c)),
            '0'..='7' if c == '0' || octal(self.rest).is_some() => {
                let mut value = u32::from(c) - u32::from('0');
                for _ in 0..2 {
                    if let Some(digit) = octal(self.rest) {
                        value = value * 8 + u32::from(digit - b'0');
                        self.skip(1);
                    } else {
                        break;
                    }
                }
                Some(value)
            }
            'x' => self.hex(),
            'a' => Some(7),
            'f' => Some(12),
            'n' => Some(10),
            'r' => Some(13),
            't' => Some(9),
            'v' => Some(11),
            _ => None,
        };
        value.ok_or_else(|| error_text(INVALID_ESCAPE, &text[..text.len() - self.rest.len()]))
    }

    /// What follows `\x`: two digits, or any number of them in braces.
    fn hex(&mut self) -> Option<u32> {
        let braced = self.rest.starts_with('{');
        if braced {
            self.skip(1);
        }
        let (mut value, mut digits, mut wrong) = (0, 0, false);
        while let Some(c) = self.rest.chars().next() {
            self.skip(c.len_utf8());
            if braced && c == '}' {
                return (digits > 0).then_some(value);
            }
            match c.to_digit(16) {
                Some(digit) => value = value * 16 + digit,
                None if braced => return None,
                None => wrong = true,
            }
            digits += 1;
            if value > u32::from(char::MAX) {
                return None;
            }
            if !braced && digits == 2 {
                return (!wrong).then_some(value);
            }
        }
        None
    }

    fn class(&mut self) -> Step {
        let text = self.rest;
        self.skip(1);
        let mut out = String::from("[");
        if self.rest.starts_with('^') {
            self.skip(1);
            out.push('^');
        }
        let (mut first, mut empty) = (true, true);
        while first || !self.rest.starts_with(']') {
            first = false;
            if self.rest.len() > 2
                && self.rest.starts_with("[:")
                && let Some(end) = self.rest[2..].find(":]")
            {
                let name = &self.rest[..end + 4];
                if !POSIX.contains(name) {
                    return Err(error_text(INVALID_RANGE, name));
                }
                out.push_str(name);
                empty = false;
                self.skip(name.len());
                continue;
            }
            if let Some(set) = self.escaped_set()? {
                out.push_str(&set);
                empty = false;
                continue;
            }
            let range = self.rest;
            let low = self.class_char(text)?;
            let mut high = low;
            if self.rest.len() >= 2 && self.rest.starts_with('-') && !self.rest.starts_with("-]") {
                self.skip(1);
                high = self.class_char(text)?;
                if high < low {
                    return Err(error_text(INVALID_RANGE, &range[..range.len() - self.rest.len()]));
                }
            }
            // Halves of surrogate pairs are characters for Go; no text has any.
            let low = if char::from_u32(low).is_none() { 0xE000 } else { low };
            let high = if char::from_u32(high).is_none() { 0xD7FF } else { high };
            if low <= high {
                empty = false;
                write!(out, "\\x{{{low:X}}}-\\x{{{high:X}}}").expect("memory takes all");
            }
        }
        self.skip(1);
        if empty {
            out = if out == "[" { NOTHING.to_owned() } else { ANYTHING.to_owned() };
        } else {
            out.push(']');
        }
        self.push_atom(|all| all.push_str(&out));
        Ok(())
    }

    fn class_char(&mut self, class: &str) -> Step<u32> {
        match self.rest.chars().next() {
            None => Err(error_text("missing closing ]", class)),
            Some('\\') => self.escaped_char(),
            Some(c) => {
                self.skip(c.len_utf8());
                Ok(u32::from(c))
            }
        }
    }
}

/// Matches no character.
const NOTHING: &str = "[^\\x{0}-\\x{10FFFF}]";
/// Matches any character.
const ANYTHING: &str = "[\\x{0}-\\x{10FFFF}]";

static POSIX: LazyLock<HashSet<String>> = LazyLock::new(|| {
    let names = "alnum alpha ascii blank cntrl digit graph lower print punct space upper word xdigit";
    names.split(' ').flat_map(|name| [format!("[:{name}:]"), format!("[:^{name}:]")]).collect()
});

/// Writes a character that stands for itself.
fn literal(out: &mut String, c: char) {
    if c.is_ascii() && !c.is_ascii_alphanumeric() {
        write!(out, "\\x{{{:X}}}", u32::from(c)).expect("memory takes all");
    } else {
        out.push(c);
    }
}

/// `{min}`, `{min,}` or `{min,max}`: the least, the most (nothing: without end) and the length of the text. A count
/// that is far too large is nothing itself.
type Repeat = (Option<u32>, Option<Option<u32>>, usize);

fn parse_repeat(text: &str) -> Option<Repeat> {
    fn number(text: &str) -> Option<(Option<u32>, &str)> {
        let end = text.bytes().position(|b| !b.is_ascii_digit()).unwrap_or(text.len());
        let digits = &text[..end];
        if digits.is_empty() || (digits.len() > 1 && digits.starts_with('0')) {
            return None;
        }
        Some((digits.parse().ok(), &text[end..]))
    }
    let (min, rest) = number(text.strip_prefix('{')?)?;
    let (max, rest) = match rest.strip_prefix(',') {
        None => (Some(min), rest),
        Some(rest) if rest.starts_with('}') => (None, rest),
        Some(rest) => {
            let (max, rest) = number(rest)?;
            (Some(max), rest)
        }
    };
    let rest = rest.strip_prefix('}')?;
    Some((min, max, text.len() - rest.len()))
}

#[cfg(test)]
mod tests;
