//! A pull parser for JSON: one token at a time, without recursion.

use std::borrow::Cow;

use super::{
    Error, Wrong,
    number::Number,
    string::{self, Piece},
};

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

/// A token that has been checked but not yet been taken out of the text.
#[derive(Clone, Copy)]
enum Raw {
    Null,
    Bool(bool),
    Number(usize, usize),
    String(Piece),
    Key(Piece),
    BeginArray,
    EndArray,
    BeginObject,
    EndObject,
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
/// Tokens are balanced and in order: whoever drives the reader sees only well-formed text up to the first error.
/// Invalid UTF-8 and lone surrogates in strings become U+FFFD, as in Go. A clone reads on from the same place,
/// independently.
#[derive(Clone, Debug)]
pub struct Reader<'a> {
    bytes: &'a [u8],
    /// The same, if all of it is UTF-8. Looking once at the whole is quicker than looking at each string.
    text: Option<&'a str>,
    at: usize,
    expect: Expect,
    depth: usize,
    /// One bit for each of the innermost levels, the innermost lowest: whether it is an object.
    objects: u64,
    /// The bits of levels further out, when there are more than 64.
    outer: Vec<u64>,
}

impl<'a> Reader<'a> {
    /// Reads from the beginning of `bytes`.
    #[must_use]
    pub fn new(bytes: &'a [u8]) -> Self {
        let text = str::from_utf8(bytes).ok();
        Reader { bytes, text, at: 0, expect: Expect::Value, depth: 0, objects: 0, outer: Vec::new() }
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
    #[inline]
    pub fn next(&mut self) -> Result<Token<'a>, Error> {
        Ok(match self.raw()? {
            Raw::Null => Token::Null,
            Raw::Bool(b) => Token::Bool(b),
            Raw::Number(start, end) => Token::Number(self.number_at(start, end)),
            Raw::String(piece) => Token::String(self.string_at(piece)),
            Raw::Key(piece) => Token::Key(self.string_at(piece)),
            Raw::BeginArray => Token::BeginArray,
            Raw::EndArray => Token::EndArray,
            Raw::BeginObject => Token::BeginObject,
            Raw::EndObject => Token::EndObject,
            Raw::End => Token::End,
        })
    }

    /// Passes over the next value whole and returns its text. What is passed over is checked as what is read.
    ///
    /// # Errors
    /// As [`next`](Reader::next).
    pub fn skip(&mut self) -> Result<&'a [u8], Error> {
        self.peek();
        let (start, depth) = (if self.expect == Expect::Rest { self.at + 1 } else { self.at }, self.depth);
        loop {
            self.raw()?;
            if self.depth <= depth {
                return Ok(self.bytes.get(start..self.at).unwrap_or_default().trim_ascii_start());
            }
        }
    }

    /// Right behind the beginning of a list or one of its elements: whether the list ends here. If so, its end has been
    /// read.
    ///
    /// # Errors
    /// When there is nothing more.
    pub fn at_end_of_array(&mut self) -> Result<bool, Error> {
        match self.peek() {
            Some(b']') if self.depth > 0 && self.objects & 1 == 0 && self.expect != Expect::Value => {
                self.close(Raw::EndArray);
                Ok(true)
            }
            Some(_) => Ok(false),
            None => Err(self.wrong(Wrong::End)),
        }
    }

    /// Looks whether the rest is well-formed, without moving. Go looks at the whole text before it decodes anything, so
    /// whoever finds something else wrong asks here first.
    ///
    /// # Errors
    /// As [`next`](Reader::next).
    pub fn check_rest(&self) -> Result<(), Error> {
        let mut rest = self.clone();
        while !matches!(rest.raw()?, Raw::End) {}
        Ok(())
    }

    /// The error for a number that is too large to be held; if the rest is not well-formed, the error of that.
    #[must_use]
    pub fn number_error(&self, text: &str) -> Error {
        self.check_rest().err().unwrap_or_else(|| self.wrong(Wrong::Number(text.to_owned())))
    }

    #[inline]
    fn string_at(&self, piece: Piece) -> Cow<'a, str> {
        match self.text {
            Some(text) if piece.plain => Cow::Borrowed(&text[piece.start..piece.end]),
            _ => string::decode(&self.bytes[piece.start..piece.end]),
        }
    }

    fn number_at(&self, start: usize, end: usize) -> Number<'a> {
        Number(match self.text {
            Some(text) => &text[start..end],
            None => str::from_utf8(&self.bytes[start..end]).expect("digits are ASCII"),
        })
    }

    /// The next token, without making a string of it.
    #[inline(always)]
    fn raw(&mut self) -> Result<Raw, Error> {
        let Some(c) = self.peek() else {
            let whole = self.depth == 0 && self.expect == Expect::Rest;
            return if whole { Ok(Raw::End) } else { Err(self.wrong(Wrong::End)) };
        };
        match self.expect {
            Expect::Value => self.value(c),
            Expect::FirstValueOrEnd if c == b']' => Ok(self.close(Raw::EndArray)),
            Expect::FirstValueOrEnd => self.value(c),
            Expect::FirstKeyOrEnd if c == b'}' => Ok(self.close(Raw::EndObject)),
            Expect::FirstKeyOrEnd => self.key(c),
            Expect::Rest if self.depth == 0 => Err(self.unexpected(c, "after top-level value")),
            Expect::Rest if self.objects & 1 == 1 => match c {
                b',' => {
                    self.at += 1;
                    let c = self.peek().ok_or_else(|| self.wrong(Wrong::End))?;
                    self.key(c)
                }
                b'}' => Ok(self.close(Raw::EndObject)),
                _ => Err(self.unexpected(c, "after object key:value pair")),
            },
            Expect::Rest => match c {
                b',' => {
                    self.at += 1;
                    let c = self.peek().ok_or_else(|| self.wrong(Wrong::End))?;
                    self.value(c)
                }
                b']' => Ok(self.close(Raw::EndArray)),
                _ => Err(self.unexpected(c, "after array element")),
            },
        }
    }

    /// Skips white space and looks at what comes next.
    #[inline]
    fn peek(&mut self) -> Option<u8> {
        while let Some(&c) = self.bytes.get(self.at) {
            if !matches!(c, b' ' | b'\n' | b'\t' | b'\r') {
                return Some(c);
            }
            self.at += 1;
        }
        None
    }

    #[cold]
    fn wrong(&self, wrong: Wrong) -> Error {
        Error { offset: self.at, wrong }
    }

    #[cold]
    fn unexpected(&self, c: u8, context: &'static str) -> Error {
        self.wrong(Wrong::Character(c, context))
    }

    /// The byte at `at`, which is not what it should be. Where there is none Go tries with a space whether the text can
    /// end.
    #[cold]
    fn bad(&mut self, at: usize, context: &'static str) -> Error {
        self.at = at;
        self.unexpected(self.bytes.get(at).copied().unwrap_or(b' '), context)
    }

    #[inline(always)]
    fn open(&mut self, c: u8) -> Result<(), Error> {
        if self.depth == MAX_DEPTH {
            return Err(self.wrong(Wrong::Depth(c)));
        }
        if self.depth > 0 && self.depth.is_multiple_of(64) {
            self.outer.push(self.objects);
        }
        self.objects = self.objects << 1 | u64::from(c == b'{');
        self.depth += 1;
        self.at += 1;
        Ok(())
    }

    #[inline(always)]
    fn close(&mut self, token: Raw) -> Raw {
        self.depth -= 1;
        self.objects >>= 1;
        if self.depth > 0 && self.depth.is_multiple_of(64) {
            self.objects = self.outer.pop().unwrap_or(0);
        }
        self.at += 1;
        self.expect = Expect::Rest;
        token
    }

    #[inline(always)]
    fn key(&mut self, c: u8) -> Result<Raw, Error> {
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
        Ok(Raw::Key(key))
    }

    #[inline(always)]
    fn value(&mut self, c: u8) -> Result<Raw, Error> {
        let token = match c {
            b'"' => Raw::String(self.string()?),
            b'{' => {
                self.open(c)?;
                self.expect = Expect::FirstKeyOrEnd;
                return Ok(Raw::BeginObject);
            }
            b'[' => {
                self.open(c)?;
                self.expect = Expect::FirstValueOrEnd;
                return Ok(Raw::BeginArray);
            }
            b'-' | b'0'..=b'9' => self.number()?,
            b't' => self.literal(b"true", &LITERAL_TRUE, Raw::Bool(true))?,
            b'f' => self.literal(b"false", &LITERAL_FALSE, Raw::Bool(false))?,
            b'n' => self.literal(b"null", &LITERAL_NULL, Raw::Null)?,
            _ => return Err(self.unexpected(c, "looking for beginning of value")),
        };
        self.expect = Expect::Rest;
        Ok(token)
    }

    fn literal(&mut self, word: &[u8], contexts: &[&'static str], token: Raw) -> Result<Raw, Error> {
        for (i, &expected) in word.iter().enumerate().skip(1) {
            if self.bytes.get(self.at + i) != Some(&expected) {
                return Err(self.bad(self.at + i, contexts[i - 1]));
            }
        }
        self.at += word.len();
        Ok(token)
    }

    fn number(&mut self) -> Result<Raw, Error> {
        let start = self.at;
        let digits = |from: usize| from + self.bytes[from..].iter().take_while(|c| c.is_ascii_digit()).count();
        let mut at = start + usize::from(self.bytes[start] == b'-');
        at = match self.bytes.get(at) {
            Some(b'0') => at + 1,
            Some(b'1'..=b'9') => digits(at),
            _ => return Err(self.bad(at, "in numeric literal")),
        };
        if self.bytes.get(at) == Some(&b'.') {
            let end = digits(at + 1);
            if end == at + 1 {
                return Err(self.bad(end, "after decimal point in numeric literal"));
            }
            at = end;
        }
        if let Some(b'e' | b'E') = self.bytes.get(at) {
            at += 1 + usize::from(matches!(self.bytes.get(at + 1), Some(b'+' | b'-')));
            let end = digits(at);
            if end == at {
                return Err(self.bad(end, "in exponent of numeric literal"));
            }
            at = end;
        }
        self.at = at;
        Ok(Raw::Number(start, at))
    }

    /// Passes over a string; `at` is at its first quote.
    #[inline(always)]
    fn string(&mut self) -> Result<Piece, Error> {
        let start = self.at + 1;
        let mut at = string::plain_end(self.bytes, start);
        let plain = self.bytes.get(at) != Some(&b'\\');
        loop {
            match self.bytes.get(at) {
                Some(b'"') => break,
                Some(b'\\') => at = string::plain_end(self.bytes, self.escape(at + 1)?),
                Some(_) => return Err(self.bad(at, "in string literal")),
                None => {
                    self.at = at;
                    return Err(self.wrong(Wrong::End));
                }
            }
        }
        self.at = at + 1;
        Ok(Piece { start, end: at, plain })
    }

    /// Checks the escape whose letter is at `at` and returns where it ends.
    fn escape(&mut self, at: usize) -> Result<usize, Error> {
        match self.bytes.get(at) {
            Some(b'"' | b'\\' | b'/' | b'b' | b'f' | b'n' | b'r' | b't') => Ok(at + 1),
            Some(b'u') => match (at + 1..at + 5).find(|&i| !self.bytes.get(i).is_some_and(u8::is_ascii_hexdigit)) {
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
