//! Addresses of mail as Go's `mail.ParseAddress` takes them: RFC 5322 with its comments, quotes, names and groups.

use std::net::IpAddr;

/// Whether `text` is one address.
pub(super) fn is_email(text: &str) -> bool {
    let mut parser = Parser { rest: text };
    parser.address(true) == Some(1) && parser.skip_comments().is_some() && parser.rest.is_empty()
}

#[derive(Clone, Copy)]
struct Parser<'a> {
    rest: &'a str,
}

fn is_visible(c: char) -> bool {
    ('!'..='~').contains(&c) || !c.is_ascii()
}

fn is_atom(c: char) -> bool {
    is_visible(c) && !"()<>[]:;@\\,\"".contains(c)
}

/// Each step gives nothing when the text is wrong.
impl Parser<'_> {
    fn skip_space(&mut self) {
        self.rest = self.rest.trim_start_matches([' ', '\t']);
    }

    fn consume(&mut self, c: char) -> bool {
        let stripped = self.rest.strip_prefix(c);
        self.rest = stripped.unwrap_or(self.rest);
        stripped.is_some()
    }

    /// A mailbox or a group; how many addresses it has.
    fn address(&mut self, groups: bool) -> Option<usize> {
        self.skip_space();
        if self.rest.is_empty() {
            return None;
        }
        let start = *self;
        if self.spec().is_some() {
            self.skip_space();
            if self.consume('(') {
                self.comment()?;
            }
            return Some(1);
        }
        *self = start;
        if !self.rest.starts_with('<') {
            self.phrase()?;
        }
        self.skip_space();
        if groups && self.consume(':') {
            return self.group();
        }
        (self.consume('<') && self.spec().is_some() && self.consume('>')).then_some(1)
    }

    fn group(&mut self) -> Option<usize> {
        self.skip_space();
        let mut count = 0;
        if !self.consume(';') {
            loop {
                self.skip_space();
                count += self.address(false)?;
                self.skip_comments()?;
                if self.consume(';') {
                    break;
                }
                if !self.consume(',') {
                    return None;
                }
            }
        }
        self.skip_comments()?;
        Some(count)
    }

    /// `local@domain`.
    fn spec(&mut self) -> Option<()> {
        self.skip_space();
        if self.rest.starts_with('"') {
            self.quoted().filter(|&length| length > 0)?;
        } else {
            self.atom(false)?;
        }
        if !self.consume('@') {
            return None;
        }
        self.skip_space();
        if self.consume('[') {
            let (literal, rest) = self.rest.split_once(']')?;
            self.rest = rest;
            let visible = literal.chars().all(|c| is_visible(c) && c != '[' && c != '\\');
            return (visible && literal.parse::<IpAddr>().is_ok()).then_some(());
        }
        self.atom(false)
    }

    /// Words, at least one of them.
    fn phrase(&mut self) -> Option<()> {
        let mut words = 0;
        loop {
            if words > 0 {
                self.skip_comments()?;
            }
            self.skip_space();
            let start = *self;
            let word = match self.rest.chars().next() {
                // Nothing left: no words at all are an empty phrase, which is no error here.
                None => return Some(()),
                Some('"') => self.quoted().map(|_| ()),
                Some(_) => self.atom(true),
            };
            if word.is_none() {
                *self = start;
                return (words > 0).then_some(());
            }
            words += 1;
        }
    }

    /// A quoted string; how many characters it has.
    fn quoted(&mut self) -> Option<usize> {
        let (mut escaped, mut length) = (false, 0);
        for (at, c) in self.rest.char_indices().skip(1) {
            let plain = is_visible(c) || c == ' ' || c == '\t';
            match c {
                _ if !plain => return None,
                _ if escaped => {
                    escaped = false;
                    length += 1;
                }
                '"' => {
                    self.rest = &self.rest[at + 1..];
                    return Some(length);
                }
                '\\' => escaped = true,
                _ => length += 1,
            }
        }
        None
    }

    /// Letters and dots; `loose` dots may stand anywhere.
    fn atom(&mut self, loose: bool) -> Option<()> {
        let end = self.rest.find(|c| !is_atom(c)).unwrap_or(self.rest.len());
        let (atom, rest) = self.rest.split_at(end);
        self.rest = rest;
        let dots = loose || !(atom.starts_with('.') || atom.ends_with('.') || atom.contains(".."));
        (!atom.is_empty() && dots).then_some(())
    }

    fn skip_comments(&mut self) -> Option<()> {
        self.skip_space();
        while self.consume('(') {
            self.comment()?;
            self.skip_space();
        }
        Some(())
    }

    /// The rest of a comment whose parenthesis is open.
    fn comment(&mut self) -> Option<()> {
        let mut depth = 1;
        let mut letters = self.rest.char_indices();
        while let Some((at, c)) = letters.next() {
            match c {
                '\\' => {
                    letters.next();
                }
                '(' => depth += 1,
                ')' => depth -= 1,
                _ => {}
            }
            if depth == 0 {
                self.rest = &self.rest[at + 1..];
                return Some(());
            }
        }
        None
    }
}
