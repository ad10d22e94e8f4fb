//! What operators work on: names, calls, lists, maps, messages and literals.

use super::{Parsed, Parser, RESERVED, STARTS, Stop, quoted, set, with};
use crate::{
    ast::{Entry, Expr, ExprId, Field, Literal},
    lexer::Kind,
    unescape::unescape,
};

impl Parser<'_> {
    pub(super) fn primary(&mut self) -> Parsed<ExprId> {
        let token = self.token();
        match token.kind {
            Kind::LParen => {
                self.advance();
                let inner = self.within(&[Kind::RParen], Parser::expr)?;
                self.close(Kind::RParen)?;
                Ok(inner)
            }
            Kind::LBracket => self.list(),
            Kind::LBrace => self.map(),
            Kind::Dot | Kind::Ident => self.name(),
            _ => self.literal(),
        }
    }

    fn name(&mut self) -> Parsed<ExprId> {
        let start = self.token().start;
        let dot = self.accept(Kind::Dot);
        let token = self.token();
        if token.kind != Kind::Ident {
            let (from, to) = (dot.map_or(token.start, |dot| dot.start), token.end);
            let input: String = self.chars[from as usize..to as usize].iter().collect();
            let shown = if matches!(token.kind, Kind::True | Kind::False | Kind::Null) {
                format!("mismatched input '{}' expecting IDENTIFIER", self.text(token))
            } else {
                format!("no viable alternative at input {}", quoted(input.trim_end()))
            };
            self.syntax(token.start, &shown);
            return Err(Stop);
        }
        self.advance();
        let word = self.text(token);
        if let Some((name, open)) = self.message_name(&word, dot.is_some()) {
            return self.message(name, open);
        }
        if RESERVED.contains(&word.as_str()) {
            self.errors.report(Some(start), format!("reserved identifier: {word}"));
            if self.accept(Kind::LParen).is_some() {
                self.arguments()?;
            }
            return self.add(start, Expr::Bad);
        }
        let name = if dot.is_some() { format!(".{word}") } else { word };
        if let Some(open) = self.accept(Kind::LParen) {
            let args = self.arguments()?;
            return self.call(open.start, name, None, args);
        }
        self.add(token.start, Expr::Ident(name))
    }

    /// Whether dotted names and a brace follow: the literal of a message. Moves behind the brace if so.
    fn message_name(&mut self, first: &str, dotted: bool) -> Option<(String, u32)> {
        let mut ahead = 0;
        while self.peek(ahead) == Kind::Dot && self.peek(ahead + 1) == Kind::Ident {
            ahead += 2;
        }
        if self.peek(ahead) != Kind::LBrace {
            return None;
        }
        let mut name = if dotted { format!(".{first}") } else { first.to_owned() };
        for token in self.tokens[self.at..self.at + ahead].iter().filter(|token| token.kind == Kind::Ident) {
            name.push('.');
            name.push_str(&self.text(*token));
        }
        self.at += ahead;
        let open = self.advance().start;
        Some((name, open))
    }

    fn message(&mut self, name: String, open: u32) -> Parsed<ExprId> {
        let mut fields = Vec::new();
        self.sync(&[Kind::RBrace, Kind::Comma, Kind::Question, Kind::Ident, Kind::EscIdent])?;
        while matches!(self.peek(0), Kind::Question | Kind::Ident | Kind::EscIdent) {
            let optional = self.accept(Kind::Question).is_some();
            let token = self.token();
            self.sync(&[Kind::Ident, Kind::EscIdent])?;
            self.advance();
            let at = self.token().start;
            self.expect(Kind::Colon, |kind| STARTS.contains(&kind))?;
            let value = self.within(&[Kind::Comma, Kind::RBrace], Parser::expr)?;
            fields.push(Field { name: self.text(token), value, optional, at });
            if token.kind == Kind::EscIdent {
                self.errors.report(Some(token.start), "unsupported syntax: '`'");
            }
            if self.accept(Kind::Comma).is_none() {
                break;
            }
        }
        self.accept(Kind::Comma);
        self.sync(&[Kind::RBrace, Kind::Comma])?;
        self.close(Kind::RBrace)?;
        self.add(open, Expr::Struct { name, fields })
    }

    fn list(&mut self) -> Parsed<ExprId> {
        let open = self.advance().start;
        let mut items = Vec::new();
        self.sync(&with(&[Kind::RBracket, Kind::Comma, Kind::Question]))?;
        while !matches!(self.peek(0), Kind::RBracket | Kind::Comma) {
            let optional = self.accept(Kind::Question).is_some();
            items.push((self.within(&[Kind::Comma, Kind::RBracket], Parser::expr)?, optional));
            self.sync(&[Kind::RBracket, Kind::Comma])?;
            if self.accept(Kind::Comma).is_none() {
                break;
            }
        }
        if items.is_empty() {
            self.accept(Kind::Comma);
        }
        self.close(Kind::RBracket)?;
        self.add(open, Expr::List { items })
    }

    fn map(&mut self) -> Parsed<ExprId> {
        let open = self.advance().start;
        let mut entries = Vec::new();
        self.sync(&with(&[Kind::RBrace, Kind::Comma, Kind::Question]))?;
        while !matches!(self.peek(0), Kind::RBrace | Kind::Comma) {
            let optional = self.accept(Kind::Question).is_some();
            let key = self.within(&[Kind::Colon], Parser::expr)?;
            self.expect(Kind::Colon, |kind| STARTS.contains(&kind))?;
            let value = self.within(&[Kind::Comma, Kind::RBrace], Parser::expr)?;
            entries.push(Entry { key, value, optional });
            self.sync(&[Kind::RBrace, Kind::Comma])?;
            if self.accept(Kind::Comma).is_none() {
                break;
            }
        }
        if entries.is_empty() {
            self.accept(Kind::Comma);
        }
        self.close(Kind::RBrace)?;
        self.add(open, Expr::Map { entries })
    }

    fn literal(&mut self) -> Parsed<ExprId> {
        let start = self.token().start;
        let sign = if self.accept(Kind::Minus).is_some() { "-" } else { "" };
        let token = self.token();
        let text = self.text(token);
        let expected =
            [Kind::True, Kind::False, Kind::Null, Kind::Float, Kind::Int, Kind::Uint, Kind::String, Kind::Bytes];
        if !expected.contains(&token.kind) || !sign.is_empty() && !matches!(token.kind, Kind::Float | Kind::Int) {
            let message = if sign.is_empty() {
                format!("mismatched input {} expecting {}", self.shown(token), set(&with(&[])))
            } else {
                let to = if token.kind == Kind::Eof { start + 1 } else { token.end };
                let input: String = self.chars[start as usize..to as usize].iter().collect();
                format!("no viable alternative at input {}", quoted(&input))
            };
            self.syntax(token.start, &message);
            return Err(Stop);
        }
        self.advance();
        let literal = match token.kind {
            Kind::True => Ok(Literal::Bool(true)),
            Kind::False => Ok(Literal::Bool(false)),
            Kind::Null => Ok(Literal::Null),
            Kind::Int => integer(sign, &text).map(Literal::Int).ok_or("invalid int literal"),
            Kind::Uint => unsigned(&text[..text.len() - 1]).map(Literal::Uint).ok_or("invalid uint literal"),
            Kind::Float => double(sign, &text).map(Literal::Double).ok_or("invalid double literal"),
            Kind::Bytes => unescape(&text[1..], true).map(Literal::Bytes),
            _ => unescape(&text, false)
                .and_then(|bytes| String::from_utf8(bytes).map_err(|_| "unable to unescape string"))
                .map(Literal::String),
        };
        match literal {
            Ok(literal) => self.add(start, Expr::Literal(literal)),
            Err(message) => {
                self.errors.report(Some(start), message);
                self.add(start, Expr::Bad)
            }
        }
    }
}

fn integer(sign: &str, text: &str) -> Option<i64> {
    match text.strip_prefix("0x") {
        Some(hex) => i64::from_str_radix(&format!("{sign}{hex}"), 16).ok(),
        None => format!("{sign}{text}").parse().ok(),
    }
}

fn unsigned(text: &str) -> Option<u64> {
    match text.strip_prefix("0x") {
        Some(hex) => u64::from_str_radix(hex, 16).ok(),
        None => text.parse().ok(),
    }
}

fn double(sign: &str, text: &str) -> Option<f64> {
    format!("{sign}{text}").parse().ok().filter(|number: &f64| number.is_finite())
}
