//! A pull parser for JSON: one token at a time, without recursion.

use std::borrow::Cow;

use super::{Error, Wrong, number::Number};

/// How deep containers may stand in each other, as in Go.
pub const MAX_DEPTH: usize = 10_000;

/// A part of a JSON text.
#[derive(Clone, Debug, PartialEq)]
pub enum Token<'a> {
    /// `null`.
    Null,
    /// `true` or `false`.
    Bool(bool),
    /// A number, as written.
    Number(Number<'a>),
    /// A string, without its escapes.
    String(Cow<'a, str>),
    /// The name of the field whose value comes next.
    Key(Cow<'a, str>),
    /// `[`.
    BeginArray,
    /// `]`.
    EndArray,
    /// `{`.
    BeginObject,
    /// `}`.
    EndObject,
    /// The text is at its end, and is whole.
    End,
}

/// What may come next.
#[derive(Clone, Copy, Debug, PartialEq)]
enum Expect {
    Value,
    FirstValueOrEnd,
    FirstKeyOrEnd,
    /// After an element or a field: a comma or the end of the container; after the outermost value: the end.
    Rest,
}

/// Reads a JSON text token by token.
///
/// Tokens are balanced and in order: whoever drives the reader sees only well-formed text up to the first error. Invalid
/// UTF-8 and lone surrogates in strings become U+FFFD, as in Go. A clone reads on from the same place, independently.
#[derive(Clone, Debug)]
pub struct Reader<'a> {
    text: &'a [u8],
    at: usize,
    expect: Expect,
    /// One bit a level, the innermost last: whether it is an object.
    objects: Vec<u64>,
    depth: usize,
}

impl<'a> Reader<'a> {
    /// Reads from the beginning of `text`.
    #[must_use]
    pub fn new(text: &'a [u8]) -> Self {
        Reader { text, at: 0, expect: Expect::Value, objects: Vec::new(), depth: 0 }
    }

    /// How many bytes have been read.
    #[must_use]
    pub fn offset(&self) -> usize {
        self.at
    }

    /// How many containers are open.
    #[must_use]
    pub fn depth(&self) -> usize {
        self.depth
    }

    /// The next token.
    ///
    /// # Errors
    /// Says where and why the text is not JSON, or that it nests too deep.
    #[expect(clippy::should_implement_trait, reason = "an iterator would need a Result around each End")]
    pub fn next(&mut self) -> Result<Token<'a>, Error> {
        let Some(c) = self.peek() else {
            let whole = self.depth == 0 && self.expect == Expect::Rest;
            return if whole { Ok(Token::End) } else { Err(self.wrong(Wrong::End)) };
        };
        match self.expect {
            Expect::Value => self.value(c),
            Expect::FirstValueOrEnd if c == b']' => Ok(self.close(Token::EndArray)),
            Expect::FirstValueOrEnd => self.value(c),
            Expect::FirstKeyOrEnd if c == b'}' => Ok(self.close(Token::EndObject)),
            Expect::FirstKeyOrEnd => self.key(c),
            Expect::Rest if self.depth == 0 => Err(self.unexpected(c, "after top-level value")),
            Expect::Rest if self.in_object() => match c {
                b',' => {
                    self.at += 1;
                    let c = self.peek().ok_or_else(|| self.wrong(Wrong::End))?;
                    self.key(c)
                }
                b'}' => Ok(self.close(Token::EndObject)),
                _ => Err(self.unexpected(c, "after object key:value pair")),
            },
            Expect::Rest => match c {
                b',' => {
                    self.at += 1;
                    let c = self.peek().ok_or_else(|| self.wrong(Wrong::End))?;
                    self.value(c)
                }
                b']' => Ok(self.close(Token::EndArray)),
                _ => Err(self.unexpected(c, "after array element")),
            },
        }
    }

    /// Passes over the next value whole and returns its text.
    ///
    /// # Errors
    /// As [`next`](Reader::next).
    pub fn skip(&mut self) -> Result<&'a [u8], Error> {
        self.peek();
        let (start, depth) = (if self.expect == Expect::Rest { self.at + 1 } else { self.at }, self.depth);
        loop {
            self.next()?;
            if self.depth <= depth {
                return Ok(self.text[start..self.at].trim_ascii_start());
            }
        }
    }

    /// The error for a number that is too large to be held.
    #[must_use]
    pub fn number_error(&self, text: &str) -> Error {
        self.wrong(Wrong::Number(text.to_owned()))
    }

    /// Skips white space and looks at what comes next.
    #[inline]
    fn peek(&mut self) -> Option<u8> {
        while let Some(&c) = self.text.get(self.at) {
            if !matches!(c, b' ' | b'\n' | b'\t' | b'\r') {
                return Some(c);
            }
            self.at += 1;
        }
        None
    }

    fn wrong(&self, wrong: Wrong) -> Error {
        Error { offset: self.at, wrong }
    }

    fn unexpected(&self, c: u8, context: &'static str) -> Error {
        self.wrong(Wrong::Character(c, context))
    }

    /// The byte at `at`, which is not what it should be: either wrong, or not there.
    fn bad(&mut self, at: usize, context: &'static str) -> Error {
        self.at = at;
        match self.text.get(at) {
            Some(&c) => self.unexpected(c, context),
            None => self.wrong(Wrong::End),
        }
    }

    fn in_object(&self) -> bool {
        let level = self.depth - 1;
        self.objects[level / 64] >> (level % 64) & 1 == 1
    }

    fn open(&mut self, object: bool) -> Result<(), Error> {
        if self.depth == MAX_DEPTH {
            return Err(self.wrong(Wrong::Depth));
        }
        let (word, bit) = (self.depth / 64, self.depth % 64);
        if word == self.objects.len() {
            self.objects.push(0);
        }
        self.objects[word] = self.objects[word] & !(1 << bit) | u64::from(object) << bit;
        self.depth += 1;
        self.at += 1;
        Ok(())
    }

    fn close(&mut self, token: Token<'a>) -> Token<'a> {
        self.depth -= 1;
        self.at += 1;
        self.expect = Expect::Rest;
        token
    }

    fn key(&mut self, c: u8) -> Result<Token<'a>, Error> {
        if c != b'"' {
            return Err(self.unexpected(c, "looking for beginning of object key string"));
        }
        let key = self.string()?;
        match self.peek() {
            Some(b':') => self.at += 1,
            Some(c) => return Err(self.unexpected(c, "after object key")),
            None => return Err(self.wrong(Wrong::End)),
        }
        self.expect = Expect::Value;
        Ok(Token::Key(key))
    }

    fn value(&mut self, c: u8) -> Result<Token<'a>, Error> {
        let token = match c {
            b'"' => Token::String(self.string()?),
            b'{' => {
                self.open(true)?;
                self.expect = Expect::FirstKeyOrEnd;
                return Ok(Token::BeginObject);
            }
            b'[' => {
                self.open(false)?;
                self.expect = Expect::FirstValueOrEnd;
                return Ok(Token::BeginArray);
            }
            b'-' | b'0'..=b'9' => Token::Number(self.number()?),
            b't' => self.literal(b"true", &LITERAL_TRUE, Token::Bool(true))?,
            b'f' => self.literal(b"false", &LITERAL_FALSE, Token::Bool(false))?,
            b'n' => self.literal(b"null", &LITERAL_NULL, Token::Null)?,
            _ => return Err(self.unexpected(c, "looking for beginning of value")),
        };
        self.expect = Expect::Rest;
        Ok(token)
    }

    fn literal(&mut self, word: &[u8], contexts: &[&'static str], token: Token<'a>) -> Result<Token<'a>, Error> {
        for (i, &expected) in word.iter().enumerate().skip(1) {
            if self.text.get(self.at + i) != Some(&expected) {
                return Err(self.bad(self.at + i, contexts[i - 1]));
            }
        }
        self.at += word.len();
        Ok(token)
    }

    fn number(&mut self) -> Result<Number<'a>, Error> {
        let start = self.at;
        let digits = |from: usize| from + self.text[from..].iter().take_while(|c| c.is_ascii_digit()).count();
        let mut at = start + usize::from(self.text[start] == b'-');
        at = match self.text.get(at) {
            Some(b'0') => at + 1,
            Some(b'1'..=b'9') => digits(at),
            _ => return Err(self.bad(at, "in numeric literal")),
        };
        if self.text.get(at) == Some(&b'.') {
            let end = digits(at + 1);
            if end == at + 1 {
                return Err(self.bad(end, "after decimal point in numeric literal"));
            }
            at = end;
        }
        if let Some(b'e' | b'E') = self.text.get(at) {
            at += 1 + usize::from(matches!(self.text.get(at + 1), Some(b'+' | b'-')));
            let end = digits(at);
            if end == at {
                return Err(self.bad(end, "in exponent of numeric literal"));
            }
            at = end;
        }
        self.at = at;
        Ok(Number(str::from_utf8(&self.text[start..at]).expect("digits are ASCII")))
    }

    /// Reads a string; `at` is at its first quote.
    fn string(&mut self) -> Result<Cow<'a, str>, Error> {
        let start = self.at + 1;
        let mut at = start;
        let mut plain = true;
        loop {
            match self.text.get(at) {
                Some(b'"') => break,
                Some(b'\\') => {
                    plain = false;
                    at = self.escape(at + 1)?;
                }
                Some(0..0x20) | None => return Err(self.bad(at, "in string literal")),
                Some(_) => at += 1,
            }
        }
        self.at = at + 1;
        let raw = &self.text[start..at];
        Ok(if plain { String::from_utf8_lossy(raw) } else { Cow::Owned(unescape(raw)) })
    }

    /// Checks the escape whose letter is at `at` and returns where it ends.
    fn escape(&mut self, at: usize) -> Result<usize, Error> {
        match self.text.get(at) {
            Some(b'"' | b'\\' | b'/' | b'b' | b'f' | b'n' | b'r' | b't') => Ok(at + 1),
            Some(b'u') => match (at + 1..at + 5).find(|&i| !self.text.get(i).is_some_and(u8::is_ascii_hexdigit)) {
                Some(i) => Err(self.bad(i, r"in \u hexadecimal character escape")),
                None => Ok(at + 5),
            },
            _ => Err(self.bad(at, "in string escape code")),
        }
    }
}

const LITERAL_TRUE: [&str; 3] =
    ["in literal true (expecting 'r')", "in literal true (expecting 'u')", "in literal true (expecting 'e')"];
const LITERAL_FALSE: [&str; 4] = [
    "in literal false (expecting 'a')",
    "in literal false (expecting 'l')",
    "in literal false (expecting 's')",
    "in literal false (expecting 'e')",
];
const LITERAL_NULL: [&str; 3] =
    ["in literal null (expecting 'u')", "in literal null (expecting 'l')", "in literal null (expecting 'l')"];

/// The string behind `raw`, whose escapes have been checked.
fn unescape(raw: &[u8]) -> String {
    let mut out = Vec::with_capacity(raw.len());
    let mut at = 0;
    while let Some(&c) = raw.get(at) {
        if c != b'\\' {
            out.push(c);
            at += 1;
            continue;
        }
        let letter = raw[at + 1];
        at += 2;
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
    String::from_utf8(out).unwrap_or_else(|bad| String::from_utf8_lossy(bad.as_bytes()).into_owned())
}

/// The character whose four hexadecimal digits begin `raw`, with its second half if it has one, and how many bytes that took.
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
    use super::super::{parse, to_string};

    fn check(text: impl AsRef<[u8]>, expected: &str) {
        let found = match parse(text.as_ref()) {
            Ok(value) => to_string(&value),
            Err(error) => error.to_string(),
        };
        assert_eq!(found, expected, "{}", String::from_utf8_lossy(text.as_ref()));
    }

    #[test]
    fn reads() {
        for (text, expected) in [
            (
                r#" {"b" : [1, 2.5,-3e2 ,true,false,null,"x"] , "a":{}} "#,
                r#"{"a":{},"b":[1,2.5,-300,true,false,null,"x"]}"#,
            ),
            ("[]", "[]"),
            ("0", "0"),
            ("-0", "0"),
            ("9223372036854775807", "9223372036854775807"),
            ("9223372036854775808", "9223372036854776000"),
            ("12345678901234567890", "12345678901234567000"),
            ("1.0", "1"),
            (r#""a\"\\\/\b\f\n\r\té€😀""#, "\"a\\\"\\\\/\\b\\f\\n\\r\\té€😀\""),
            (r#""\ud83d\ude00""#, "\"😀\""),
            (r#""\ud83d x \udc00A""#, "\"\u{fffd} x \u{fffd}A\""),
            (r#"{"a":1,"a":2}"#, r#"{"a":2}"#),
        ] {
            check(text, expected);
        }
        check(b"\"a\xffb\"", "\"a\u{fffd}b\"");
        check(b"\"\\n\xff\"", "\"\\n\u{fffd}\"");
    }

    #[test]
    fn refuses_in_the_words_of_go() {
        for (text, expected) in [
            ("", "unexpected end of JSON input"),
            ("{", "unexpected end of JSON input"),
            ("[1,", "unexpected end of JSON input"),
            ("\"a", "unexpected end of JSON input"),
            ("nul", "unexpected end of JSON input"),
            ("nux", "invalid character 'x' in literal null (expecting 'l')"),
            ("x", "invalid character 'x' looking for beginning of value"),
            ("[1 2]", "invalid character '2' after array element"),
            ("[,]", "invalid character ',' looking for beginning of value"),
            ("{a", "invalid character 'a' looking for beginning of object key string"),
            (r#"{"a" 1"#, "invalid character '1' after object key"),
            (r#"{"a":1 "b""#, "invalid character '\"' after object key:value pair"),
            (r#"{"a":1,}"#, "invalid character '}' looking for beginning of object key string"),
            ("1 2", "invalid character '2' after top-level value"),
            ("01", "invalid character '1' after top-level value"),
            ("-x", "invalid character 'x' in numeric literal"),
            ("1.x", "invalid character 'x' after decimal point in numeric literal"),
            ("1ex", "invalid character 'x' in exponent of numeric literal"),
            ("\"\n\"", "invalid character '\\n' in string literal"),
            ("\"\\x\"", "invalid character 'x' in string escape code"),
            ("\"\\u00g0\"", "invalid character 'g' in \\u hexadecimal character escape"),
            ("1e400", "json: cannot unmarshal number 1e400 into Go value of type float64"),
        ] {
            check(text, expected);
        }
    }

    #[test]
    fn depth_is_bounded() {
        check("[".repeat(10_000) + &"]".repeat(10_000), &("[".repeat(10_000) + &"]".repeat(10_000)));
        check("[".repeat(10_001), "exceeded max depth");
        check("{\"a\":".repeat(10_001), "exceeded max depth");
    }
}
