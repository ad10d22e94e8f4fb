//! Reading label selectors: `x in (foo,,baz),y,z notin (),!a,b=c,d>1`.

use std::{collections::BTreeSet, fmt};

use super::{Operator, Requirement, requirement::key_error};
use crate::{
    Str,
    field::{self, Path},
};

/// Text that is not a label selector, in upstream's words.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ParseError(String);

impl fmt::Display for ParseError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

impl std::error::Error for ParseError {}

fn found<T>(found: &str, expected: &str) -> Result<T, String> {
    Err(format!("found '{found}', expected: {expected}"))
}

/// A part of the text. What is neither special nor blank is a word, and `in` and `notin` are words too.
#[derive(Clone, Copy, Debug, PartialEq)]
enum Token<'a> {
    End,
    Symbol(&'a str),
    Word(&'a str),
}

impl<'a> Token<'a> {
    fn text(self) -> &'a str {
        match self {
            Token::End => "",
            Token::Symbol(text) | Token::Word(text) => text,
        }
    }

    /// Whether a requirement can begin here.
    fn begins_requirement(self) -> bool {
        matches!(self, Token::Word(_) | Token::Symbol("!"))
    }
}

fn is_special(c: u8) -> bool {
    b"=!(),><".contains(&c)
}

fn is_blank(c: u8) -> bool {
    b" \t\r\n".contains(&c)
}

/// Reads one token, and returns what is behind it. A zero byte ends a token, and ends the text where a token would
/// begin.
fn token(text: &str) -> (Token<'_>, &str) {
    let text = text.trim_start_matches([' ', '\t', '\r', '\n']);
    let (make, size): (fn(_) -> _, usize) = match text.as_bytes() {
        [] | [0, ..] => return (Token::End, ""),
        [b'=' | b'!', b'=', ..] => (Token::Symbol, 2),
        [c, ..] if is_special(*c) => (Token::Symbol, 1),
        bytes => {
            let ends = |c: &u8| *c == 0 || is_special(*c) || is_blank(*c);
            (Token::Word, bytes.iter().position(ends).unwrap_or(text.len()))
        }
    };
    let (token, rest) = text.split_at(size);
    (make(token), rest.strip_prefix('\0').unwrap_or(rest))
}

struct Parser<'a> {
    rest: &'a str,
    next: Token<'a>,
}

pub(super) fn parse(text: &str, path: &Path<'_>) -> Result<Vec<Requirement>, ParseError> {
    let (next, rest) = token(text);
    Parser { rest, next }.requirements(path).map_err(ParseError)
}

impl<'a> Parser<'a> {
    fn consume(&mut self) -> Token<'a> {
        let (next, rest) = token(self.rest);
        self.rest = rest;
        // The end stays the end, even if something comes behind a zero byte.
        if self.next == Token::End { Token::End } else { std::mem::replace(&mut self.next, next) }
    }

    fn requirements(&mut self, path: &Path<'_>) -> Result<Vec<Requirement>, String> {
        let mut requirements = Vec::new();
        loop {
            if self.next == Token::End {
                return Ok(requirements);
            }
            if !self.next.begins_requirement() {
                return found(self.next.text(), "!, identifier, or 'end of string'");
            }
            let requirement = self.requirement(path).map_err(|why| format!("unable to parse requirement: {why}"))?;
            requirements.push(requirement);
            match self.consume() {
                Token::End => return Ok(requirements),
                Token::Symbol(",") if self.next.begins_requirement() => {}
                Token::Symbol(",") => return found(self.next.text(), "identifier after ','"),
                other => return found(other.text(), "',' or 'end of string'"),
            }
        }
    }

    fn requirement(&mut self, path: &Path<'_>) -> Result<Requirement, String> {
        let negated = self.next == Token::Symbol("!");
        if negated {
            self.consume();
        }
        let key = match self.consume() {
            Token::Word(key) => key,
            other => return found(other.text(), "identifier"),
        };
        if let Some(error) = key_error(key, path) {
            return Err(error.to_string());
        }
        let (operator, values) = if negated {
            (Operator::DoesNotExist, Vec::new())
        } else if matches!(self.next, Token::End | Token::Symbol(",")) {
            (Operator::Exists, Vec::new())
        } else {
            let operator = self.operator()?;
            let set = matches!(operator, Operator::In | Operator::NotIn);
            (operator, if set { self.values()? } else { vec![self.exact_value()?] })
        };
        Requirement::new(key, operator, values, path).map_err(field::aggregate)
    }

    fn operator(&mut self) -> Result<Operator, String> {
        Ok(match self.consume() {
            Token::Word("in") => Operator::In,
            Token::Word("notin") => Operator::NotIn,
            Token::Symbol("=") => Operator::Equals,
            Token::Symbol("==") => Operator::DoubleEquals,
            Token::Symbol("!=") => Operator::NotEquals,
            Token::Symbol(">") => Operator::GreaterThan,
            Token::Symbol("<") => Operator::LessThan,
            other => return found(other.text(), "in, notin, =, ==, !=, gt, lt"),
        })
    }

    /// The one value behind `=`; nothing is a value too.
    fn exact_value(&mut self) -> Result<Str, String> {
        if matches!(self.next, Token::End | Token::Symbol(",")) {
            return Ok(Str::default());
        }
        match self.consume() {
            Token::Word(value) => Ok(value.into()),
            other => found(other.text(), "identifier"),
        }
    }

    /// `(a,b)`, each once and sorted. Nothing before, between and behind the commas is a value too.
    fn values(&mut self) -> Result<Vec<Str>, String> {
        let open = self.consume();
        if open != Token::Symbol("(") {
            return Err(format!("found '{}' expected: '('", open.text()));
        }
        if !matches!(self.next, Token::Word(_) | Token::Symbol("," | ")")) {
            return found(self.next.text(), "',', ')' or identifier");
        }
        let mut values = BTreeSet::new();
        if self.next == Token::Symbol(")") {
            values.insert("");
        }
        while self.next != Token::Symbol(")") {
            match self.consume() {
                Token::Word(value) => {
                    values.insert(value);
                    if !matches!(self.next, Token::Symbol("," | ")")) {
                        return found(self.next.text(), "',' or ')'");
                    }
                }
                Token::Symbol(",") => {
                    if values.is_empty() || matches!(self.next, Token::Symbol("," | ")")) {
                        values.insert("");
                    }
                }
                other => return found(other.text(), "',', or identifier"),
            }
        }
        self.consume();
        Ok(values.into_iter().map(Str::from).collect())
    }
}
