//! From text to tokens.

/// The kinds of tokens, in the order in which messages list them.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Kind {
    Eof,
    Equals,
    NotEquals,
    In,
    Less,
    LessEquals,
    GreaterEquals,
    Greater,
    And,
    Or,
    LBracket,
    RBracket,
    LBrace,
    RBrace,
    LParen,
    RParen,
    Dot,
    Comma,
    Minus,
    Exclam,
    Question,
    Colon,
    Plus,
    Star,
    Slash,
    Percent,
    True,
    False,
    Null,
    Float,
    Int,
    Uint,
    String,
    Bytes,
    Ident,
    EscIdent,
}

impl Kind {
    /// What messages call it.
    pub(crate) fn name(self) -> &'static str {
        match self {
            Kind::Eof => "<EOF>",
            Kind::Equals => "'=='",
            Kind::NotEquals => "'!='",
            Kind::In => "'in'",
            Kind::Less => "'<'",
            Kind::LessEquals => "'<='",
            Kind::GreaterEquals => "'>='",
            Kind::Greater => "'>'",
            Kind::And => "'&&'",
            Kind::Or => "'||'",
            Kind::LBracket => "'['",
            Kind::RBracket => "']'",
            Kind::LBrace => "'{'",
            Kind::RBrace => "'}'",
            Kind::LParen => "'('",
            Kind::RParen => "')'",
            Kind::Dot => "'.'",
            Kind::Comma => "','",
            Kind::Minus => "'-'",
            Kind::Exclam => "'!'",
            Kind::Question => "'?'",
            Kind::Colon => "':'",
            Kind::Plus => "'+'",
            Kind::Star => "'*'",
            Kind::Slash => "'/'",
            Kind::Percent => "'%'",
            Kind::True => "'true'",
            Kind::False => "'false'",
            Kind::Null => "'null'",
            Kind::Float => "NUM_FLOAT",
            Kind::Int => "NUM_INT",
            Kind::Uint => "NUM_UINT",
            Kind::String => "STRING",
            Kind::Bytes => "BYTES",
            Kind::Ident => "IDENTIFIER",
            Kind::EscIdent => "ESC_IDENTIFIER",
        }
    }
}

/// A token: its kind and the characters that it spans.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Token {
    pub(crate) kind: Kind,
    pub(crate) start: u32,
    pub(crate) end: u32,
}

/// Text that is no token.
#[derive(Debug)]
pub(crate) struct Unreadable {
    pub(crate) start: u32,
    pub(crate) text: String,
}

/// The punctuation, longer marks first.
const MARKS: [(&str, Kind); 25] = [
    ("==", Kind::Equals),
    ("!=", Kind::NotEquals),
    ("<=", Kind::LessEquals),
    (">=", Kind::GreaterEquals),
    ("&&", Kind::And),
    ("||", Kind::Or),
    ("<", Kind::Less),
    (">", Kind::Greater),
    ("[", Kind::LBracket),
    ("]", Kind::RBracket),
    ("{", Kind::LBrace),
    ("}", Kind::RBrace),
    ("(", Kind::LParen),
    (")", Kind::RParen),
    (".", Kind::Dot),
    (",", Kind::Comma),
    ("-", Kind::Minus),
    ("!", Kind::Exclam),
    ("?", Kind::Question),
    (":", Kind::Colon),
    ("+", Kind::Plus),
    ("*", Kind::Star),
    ("/", Kind::Slash),
    ("%", Kind::Percent),
    ("`", Kind::EscIdent),
];

/// All tokens, the last of them [`Kind::Eof`], and what could not be read.
pub(crate) fn tokens(chars: &[char]) -> (Vec<Token>, Vec<Unreadable>) {
    let mut lexer = Lexer { chars, at: 0 };
    let (mut tokens, mut bad) = (Vec::new(), Vec::new());
    loop {
        lexer.skip();
        let start = lexer.at;
        if start >= chars.len() {
            tokens.push(Token { kind: Kind::Eof, start: number(start), end: number(start) });
            return (tokens, bad);
        }
        match lexer.token() {
            Ok((kind, end)) => {
                tokens.push(Token { kind, start: number(start), end: number(end) });
                lexer.at = end;
            }
            // What is shown goes up to the character that nothing can begin with; reading goes on behind it.
            Err(failed) => {
                let end = (failed + 1).min(chars.len());
                bad.push(Unreadable { start: number(start), text: chars[start..end].iter().collect() });
                lexer.at = end;
            }
        }
    }
}

fn number(at: usize) -> u32 {
    u32::try_from(at).unwrap_or(u32::MAX)
}

struct Lexer<'a> {
    chars: &'a [char],
    at: usize,
}

/// Where a token ends, or the character at which it cannot go on.
type Found = Result<(Kind, usize), usize>;

fn is_letter(c: char) -> bool {
    c.is_ascii_alphabetic() || c == '_'
}

impl Lexer<'_> {
    fn peek(&self, at: usize) -> Option<char> {
        self.chars.get(at).copied()
    }

    fn skip(&mut self) {
        while let Some(c) = self.peek(self.at) {
            match c {
                '\t' | ' ' | '\r' | '\n' | '\x0c' => self.at += 1,
                '/' if self.peek(self.at + 1) == Some('/') => {
                    while self.peek(self.at).is_some_and(|c| c != '\n') {
                        self.at += 1;
                    }
                }
                _ => return,
            }
        }
    }

    fn while_is(&self, mut at: usize, is: impl Fn(char) -> bool) -> usize {
        while self.peek(at).is_some_and(&is) {
            at += 1;
        }
        at
    }

    fn token(&self) -> Found {
        let c = self.chars[self.at];
        let next = self.peek(self.at + 1);
        if c.is_ascii_digit() || c == '.' && next.is_some_and(|c| c.is_ascii_digit()) {
            return Ok(self.number());
        }
        if let Some(found) = self.string() {
            return found;
        }
        if is_letter(c) {
            let end = self.while_is(self.at, |c| is_letter(c) || c.is_ascii_digit());
            let word: String = self.chars[self.at..end].iter().collect();
            let kind = match word.as_str() {
                "in" => Kind::In,
                "true" => Kind::True,
                "false" => Kind::False,
                "null" => Kind::Null,
                _ => Kind::Ident,
            };
            return Ok((kind, end));
        }
        let mark =
            MARKS.iter().find(|(mark, _)| mark.chars().enumerate().all(|(i, m)| self.peek(self.at + i) == Some(m)));
        match mark {
            Some((_, Kind::EscIdent)) => {
                let inside = |c: char| is_letter(c) || c.is_ascii_digit() || matches!(c, '.' | '-' | '/' | ' ');
                let end = self.while_is(self.at + 1, inside);
                if end > self.at + 1 && self.peek(end) == Some('`') { Ok((Kind::EscIdent, end + 1)) } else { Err(end) }
            }
            Some((mark, kind)) => Ok((*kind, self.at + mark.len())),
            // Half of `==`, `&&` or `||`: the next character is what is wrong.
            None if matches!(c, '=' | '&' | '|') => Err(self.at + 1),
            None => Err(self.at),
        }
    }

    fn number(&self) -> (Kind, usize) {
        let digit = |c: char| c.is_ascii_digit();
        let hex = self.chars[self.at] == '0' && self.peek(self.at + 1) == Some('x');
        let mut end;
        if hex && self.peek(self.at + 2).is_some_and(|c| c.is_ascii_hexdigit()) {
            end = self.while_is(self.at + 2, |c| c.is_ascii_hexdigit());
        } else {
            end = self.while_is(self.at, digit);
            let mut float = false;
            if self.peek(end) == Some('.') && self.peek(end + 1).is_some_and(digit) {
                end = self.while_is(end + 1, digit);
                float = true;
            }
            if matches!(self.peek(end), Some('e' | 'E')) {
                let sign = usize::from(matches!(self.peek(end + 1), Some('+' | '-')));
                if self.peek(end + 1 + sign).is_some_and(digit) {
                    end = self.while_is(end + 1 + sign, digit);
                    float = true;
                }
            }
            if float {
                return (Kind::Float, end);
            }
        }
        if matches!(self.peek(end), Some('u' | 'U')) { (Kind::Uint, end + 1) } else { (Kind::Int, end) }
    }

    /// A string or bytes, if one begins here.
    fn string(&self) -> Option<Found> {
        let mut at = self.at;
        let bytes = matches!(self.peek(at), Some('b' | 'B'));
        at += usize::from(bytes);
        let raw = matches!(self.peek(at), Some('r' | 'R'));
        at += usize::from(raw);
        let prefixed = bytes || raw;
        let quote = self.peek(at).filter(|c| matches!(c, '"' | '\''))?;
        let kind = if bytes { Kind::Bytes } else { Kind::String };
        let triple = (1..3).all(|i| self.peek(at + i) == Some(quote));
        if triple {
            if let Ok(end) = self.triple(at + 3, quote, raw) {
                return Some(Ok((kind, end)));
            }
            // Two quotes are an empty string, whatever follows.
            return Some(Ok((kind, at + 2)));
        }
        match self.line(at + 1, quote, raw) {
            Ok(end) => Some(Ok((kind, end))),
            // The letters before the quote are a name then.
            Err(_) if prefixed => None,
            Err(at) => Some(Err(at)),
        }
    }

    fn triple(&self, mut at: usize, quote: char, raw: bool) -> Result<usize, usize> {
        loop {
            match self.peek(at) {
                None => return Err(at),
                Some('\\') if !raw => at = self.escape(at)?,
                Some(c) if c == quote && (1..3).all(|i| self.peek(at + i) == Some(quote)) => return Ok(at + 3),
                Some(_) => at += 1,
            }
        }
    }

    fn line(&self, mut at: usize, quote: char, raw: bool) -> Result<usize, usize> {
        loop {
            match self.peek(at) {
                None | Some('\n' | '\r') => return Err(at),
                Some('\\') if !raw => at = self.escape(at)?,
                Some(c) if c == quote => return Ok(at + 1),
                Some(_) => at += 1,
            }
        }
    }

    /// The end of the escape sequence at `at`, or the character that does not belong to one.
    fn escape(&self, at: usize) -> Result<usize, usize> {
        let (first, count, is): (usize, usize, fn(char) -> bool) = match self.peek(at + 1) {
            Some('a' | 'b' | 'f' | 'n' | 'r' | 't' | 'v' | '"' | '\'' | '\\' | '?' | '`') => return Ok(at + 2),
            Some('x' | 'X') => (2, 2, |c| c.is_ascii_hexdigit()),
            Some('u') => (2, 4, |c| c.is_ascii_hexdigit()),
            Some('U') => (2, 8, |c| c.is_ascii_hexdigit()),
            Some('0'..='3') => (2, 2, |c| matches!(c, '0'..='7')),
            _ => return Err(at + 1),
        };
        match (at + first..at + first + count).find(|&at| !self.peek(at).is_some_and(is)) {
            Some(wrong) => Err(wrong),
            None => Ok(at + first + count),
        }
    }
}
