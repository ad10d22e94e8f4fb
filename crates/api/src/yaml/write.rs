//! Printing YAML as `kubectl -o yaml` prints it.

use std::io::Write as _;

use super::{
    order,
    scalar::{Scalar, format_float, plain},
    style::{self, Style},
};
use crate::{Map, Str, Value, json, value::Event};

/// Behind so many characters a line is broken at the next space.
const WIDTH: usize = 80;

/// A key longer than this stands behind a `?`.
const MAX_SIMPLE_KEY: usize = 128;

/// Containers deeper than this are written on one line, as JSON has them. Otherwise the indentation of a hostile
/// document would take many times the memory of the document.
const MAX_BLOCK_DEPTH: usize = 64;

/// A value as a YAML document.
#[must_use]
pub fn to_string(value: &Value) -> String {
    let mut out = Vec::new();
    write(value, &mut out);
    String::from_utf8(out).expect("what is written is UTF-8")
}

/// Appends a value as a YAML document: keys sorted, two spaces for each level, lists at the level of their key.
pub fn write(value: &Value, out: &mut Vec<u8>) {
    let mut open = Vec::new();
    let mut writer = Writer { line: out.len(), out };
    writer.node(value, Place { indent: 0, behind: Behind::Nothing }, &mut open);
    while let Some(level) = open.last_mut() {
        let indent = level.indent;
        // The first entry of a container that stands behind an indicator continues its line.
        let same_line = std::mem::take(&mut level.same_line);
        match &mut level.rest {
            Rest::Items(items) => match items.next() {
                Some(item) => {
                    writer.begin_line(indent, same_line);
                    writer.put("-");
                    writer.node(item, Place { indent, behind: Behind::Indicator }, &mut open);
                }
                None => drop(open.pop()),
            },
            Rest::Entries(entries) => match entries.next() {
                Some((key, value)) => {
                    writer.begin_line(indent, same_line);
                    let behind = writer.key(key, indent);
                    writer.node(value, Place { indent, behind }, &mut open);
                }
                None => drop(open.pop()),
            },
        }
    }
}

/// A container that is being written.
struct Level<'a> {
    indent: usize,
    same_line: bool,
    rest: Rest<'a>,
}

enum Rest<'a> {
    Items(std::slice::Iter<'a, Value>),
    Entries(std::vec::IntoIter<&'a (Str, Value)>),
}

/// Where a node stands.
#[derive(Clone, Copy)]
struct Place {
    /// How far the container around is indented.
    indent: usize,
    behind: Behind,
}

#[derive(Clone, Copy, PartialEq)]
enum Behind {
    /// The node is the document.
    Nothing,
    Key,
    /// A `-`, or the `:` of a key that stands behind a `?`: containers begin on the same line.
    Indicator,
}

struct Writer<'a> {
    out: &'a mut Vec<u8>,
    /// Where the present line begins.
    line: usize,
}

impl Writer<'_> {
    fn put(&mut self, text: &str) {
        self.out.extend_from_slice(text.as_bytes());
    }

    fn newline(&mut self) {
        self.out.push(b'\n');
        self.line = self.out.len();
    }

    fn begin_line(&mut self, indent: usize, same_line: bool) {
        if same_line {
            self.put(" ");
        } else {
            self.out.resize(self.out.len() + indent, b' ');
        }
    }

    /// How many characters the line has.
    fn column(&self) -> usize {
        self.out[self.line..].iter().filter(|&&c| c & 0xc0 != 0x80).count()
    }

    fn node<'v>(&mut self, value: &'v Value, place: Place, open: &mut Vec<Level<'v>>) {
        let behind = place.behind;
        let space = if behind == Behind::Nothing { "" } else { " " };
        // What is in a container is indented by two, but lists stay at the level of their key.
        let deeper = if behind == Behind::Nothing { 0 } else { place.indent + 2 };
        let (indent, rest) = match value {
            Value::Array(_) | Value::Object(_) if open.len() >= MAX_BLOCK_DEPTH => {
                self.put(space);
                self.on_one_line(value);
                self.newline();
                return;
            }
            Value::Array(items) if !items.is_empty() => {
                let indent = if behind == Behind::Key { place.indent } else { deeper };
                (indent, Rest::Items(items.iter()))
            }
            Value::Object(map) if !map.is_empty() => (deeper, Rest::Entries(sorted(map))),
            scalar => {
                self.put(space);
                self.scalar(scalar, place);
                self.newline();
                return;
            }
        };
        if behind == Behind::Key {
            self.newline();
        }
        open.push(Level { indent, same_line: behind == Behind::Indicator, rest });
    }

    fn on_one_line(&mut self, value: &Value) {
        let mut due = false;
        for event in value.walk() {
            if due && !matches!(event, Event::EndArray | Event::EndObject) {
                self.put(", ");
            }
            due = !matches!(event, Event::Key(_) | Event::BeginArray(_) | Event::BeginObject(_));
            match event {
                Event::String(text) => self.flow(text, "\"", None),
                Event::Key(key) => {
                    self.put(if key.len() > MAX_SIMPLE_KEY { "? " } else { "" });
                    self.flow(key, "\"", None);
                    self.put(": ");
                }
                Event::BeginArray(_) => self.put("["),
                Event::EndArray => self.put("]"),
                Event::BeginObject(_) => self.put("{"),
                Event::EndObject => self.put("}"),
                Event::Null => self.put("null"),
                Event::Bool(b) => self.put(if b { "true" } else { "false" }),
                Event::Int(n) => write!(self.out, "{n}").expect("memory takes all"),
                Event::Float(n) => self.put(&number(&json::to_string(&Value::Float(n)))),
            }
        }
    }

    fn scalar(&mut self, value: &Value, place: Place) {
        match value {
            Value::Null => self.put("null"),
            Value::Bool(b) => self.put(if *b { "true" } else { "false" }),
            Value::Int(n) => write!(self.out, "{n}").expect("memory takes all"),
            Value::Float(_) => self.put(&number(&json::to_string(value))),
            Value::String(text) => {
                // Text goes on two columns in from what it belongs to.
                self.string(text, style::style(text, false), Some(place.indent + 2));
            }
            Value::Array(_) => self.put("[]"),
            Value::Object(_) => self.put("{}"),
        }
    }

    fn key(&mut self, key: &str, indent: usize) -> Behind {
        let simple = key.len() <= MAX_SIMPLE_KEY && !key.contains(style::is_break);
        if simple {
            self.string(key, style::style(key, true), None);
        } else {
            self.put("? ");
            self.string(key, style::style(key, false), Some(indent + 2));
            self.newline();
            self.out.resize(self.out.len() + indent, b' ');
        }
        self.put(":");
        if simple { Behind::Key } else { Behind::Indicator }
    }

    /// Writes a string; with `wrap`, lines that it goes on in are indented so far, without it stays on one line.
    fn string(&mut self, text: &str, style: Style, wrap: Option<usize>) {
        match style {
            Style::Plain => self.flow(text, "", wrap),
            Style::SingleQuoted => self.flow(text, "'", wrap),
            Style::DoubleQuoted => self.flow(text, "\"", wrap),
            Style::Literal => self.literal(text, wrap.unwrap_or(0)),
        }
    }

    fn flow(&mut self, text: &str, quote: &str, wrap: Option<usize>) {
        self.put(quote);
        let mut column = if wrap.is_some() { self.column() } else { 0 };
        let mut chars = text.char_indices().peekable();
        let mut behind_space = false;
        while let Some((at, c)) = chars.next() {
            let start = self.out.len();
            let next = chars.peek().map(|&(_, next)| next);
            let inside = quote.is_empty() || at > 0 && next.is_some();
            if c == ' '
                && wrap.is_some()
                && !behind_space
                && column > WIDTH
                && inside
                && (quote == "\"" || next != Some(' '))
            {
                self.newline();
                column = wrap.unwrap_or(0);
                self.out.resize(self.out.len() + column, b' ');
                if next == Some(' ') {
                    self.put("\\");
                    column += 1;
                }
                behind_space = true;
                continue;
            }
            behind_space = c == ' ';
            if quote == "\"" {
                self.escaped(c);
            } else {
                if c == '\'' && !quote.is_empty() {
                    self.put("'");
                }
                self.put(c.encode_utf8(&mut [0; 4]));
            }
            column += self.out[start..].iter().filter(|&&c| c & 0xc0 != 0x80).count();
        }
        self.put(quote);
    }

    fn escaped(&mut self, c: char) {
        if style::is_printable(c) && !style::is_break(c) && c != '"' && c != '\\' {
            self.put(c.encode_utf8(&mut [0; 4]));
            return;
        }
        let short = match c {
            '\0' => '0',
            '\x07' => 'a',
            '\x08' => 'b',
            '\t' => 't',
            '\n' => 'n',
            '\x0b' => 'v',
            '\x0c' => 'f',
            '\r' => 'r',
            '\x1b' => 'e',
            '"' | '\\' => c,
            '\u{85}' => 'N',
            '\u{a0}' => '_',
            '\u{2028}' => 'L',
            '\u{2029}' => 'P',
            _ => {
                let code = u32::from(c);
                match code {
                    0..=0xff => write!(self.out, "\\x{code:02X}"),
                    0x100..=0xffff => write!(self.out, "\\u{code:04X}"),
                    _ => write!(self.out, "\\U{code:08X}"),
                }
                .expect("memory takes all");
                return;
            }
        };
        self.put("\\");
        self.put(short.encode_utf8(&mut [0; 4]));
    }

    fn literal(&mut self, text: &str, indent: usize) {
        self.put("|");
        if text.starts_with([' ', '\n']) {
            self.put("2");
        }
        if !text.ends_with('\n') {
            self.put("-");
        } else if text == "\n" || text.ends_with("\n\n") {
            self.put("+");
        }
        for line in text.split('\n') {
            self.newline();
            if !line.is_empty() {
                self.out.resize(self.out.len() + indent, b' ');
                self.put(line);
            }
        }
        // The end of the last line comes from the text if it has one; otherwise the caller writes it.
        if text.ends_with('\n') {
            self.out.pop();
        }
    }
}

/// The entries in the order of YAML output.
fn sorted(map: &Map) -> std::vec::IntoIter<&(Str, Value)> {
    order::sort(map.entries().iter().collect()).into_iter()
}

/// A number whose JSON is `text`, as YAML's encoder writes what YAML's decoder makes of that.
fn number(text: &str) -> String {
    match plain(text, false) {
        Scalar::Float(n) => format_float(&format!("{n:e}")),
        _ => text.to_owned(),
    }
}
