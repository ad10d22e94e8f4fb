//! A document as a flat list of nodes, in the order of the text.

use std::borrow::Cow;

use granit_parser::{Event, Options, Parser, ScalarStyle, Tag, options};

use super::Error;
use crate::json::MAX_DEPTH;

/// One node: a scalar, the beginning of a container, or an alias.
#[derive(Debug)]
pub(super) struct Node<'a> {
    /// The line where it begins, counted from 1.
    pub(super) line: usize,
    pub(super) kind: Kind<'a>,
}

#[derive(Debug)]
pub(super) enum Kind<'a> {
    Scalar(Cow<'a, str>, Hint),
    /// Where the nodes of the list end.
    Sequence(usize),
    /// Where the nodes of the map end; keys and values alternate.
    Mapping(usize),
    /// The node that is meant.
    Alias(usize),
}

/// What the text says about the type of a scalar.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Hint {
    /// It stands without quotes and without tag: its letters decide.
    Plain,
    /// It is a string: quoted, tagged so, or with a tag that nobody knows.
    Str,
    Null,
    Bool,
    Int,
    Float,
    Timestamp,
    Binary,
    /// `!!merge`.
    Merge,
}

/// A document.
#[derive(Debug, Default)]
pub(super) struct Nodes<'a> {
    pub(super) list: Vec<Node<'a>>,
    /// The names of anchors, by the node that they name.
    anchors: Vec<(usize, String)>,
}

impl Nodes<'_> {
    /// Where the node after `index` and all that is in it is.
    pub(super) fn after(&self, index: usize) -> usize {
        match self.list[index].kind {
            Kind::Sequence(end) | Kind::Mapping(end) => end,
            Kind::Scalar(..) | Kind::Alias(_) => index + 1,
        }
    }

    /// The name of the anchor at `index`.
    pub(super) fn anchor(&self, index: usize) -> &str {
        let found = self.anchors.binary_search_by_key(&index, |(node, _)| *node);
        found.map_or("", |at| &self.anchors[at].1)
    }
}

/// Takes the first document of `text` apart. A document with nothing in it has no nodes.
pub(super) fn read(text: &[u8]) -> Result<Nodes<'_>, Error> {
    let text = str::from_utf8(text).map_err(|error| Error::Utf8(error.valid_up_to()))?;
    let text = text.strip_prefix('\u{feff}').unwrap_or(text);
    if text.chars().any(|c| !is_allowed(c)) {
        return Err(Error::Control);
    }
    let mut nodes = Nodes::default();
    let mut open = Vec::new();
    // The node of each anchor, by the number that the parser gives it; they count from 1.
    let mut ids = vec![0];
    for next in Parser::new_from_str_with_options(text, limits()) {
        let (event, span) = next.map_err(|error| Error::syntax(&error, text))?;
        let index = nodes.list.len();
        if let Some(id) = event.anchor_id()
            && event.is_node()
        {
            ids.resize(id, 0);
            ids.push(index);
        }
        // The span of a block scalar begins below its `|`.
        let block = matches!(event, Event::Scalar(_, ScalarStyle::Literal | ScalarStyle::Folded, ..));
        let line = span.start.line() - usize::from(block);
        let kind = match event {
            Event::Scalar(text, style, _, tag) => Kind::Scalar(text, hint(style, tag.as_deref())),
            Event::SequenceStart(..) => {
                open.push(index);
                Kind::Sequence(usize::MAX)
            }
            Event::MappingStart(..) => {
                open.push(index);
                Kind::Mapping(usize::MAX)
            }
            Event::SequenceEnd | Event::MappingEnd => {
                let start = open.pop().map(|start| &mut nodes.list[start].kind);
                if let Some(Kind::Sequence(end) | Kind::Mapping(end)) = start {
                    *end = index;
                }
                continue;
            }
            Event::Alias(id) => Kind::Alias(ids.get(id).copied().ok_or(Error::UnknownAnchor(String::new()))?),
            Event::UnresolvedAlias(name) => return Err(Error::UnknownAnchor(name.into_owned())),
            Event::Anchor(id, name) => {
                let node = ids.get(id).copied().unwrap_or(0);
                nodes.anchors.push((node, name.into_owned()));
                continue;
            }
            Event::DocumentStart(_, Some(version)) if (version.major, version.minor) != (1, 1) => {
                return Err(Error::Syntax { line: span.start.line() - 1, wrong: "found incompatible YAML document" });
            }
            Event::DocumentEnd => break,
            _ => continue,
        };
        if open.len() > MAX_DEPTH {
            return Err(Error::Depth);
        }
        nodes.list.push(Node { line, kind });
    }
    Ok(nodes)
}

fn limits() -> Options {
    options! {
        emit_anchor_events: true,
        emit_unresolved_aliases: true,
        emit_comments: false,
        flow_nesting_limit: MAX_DEPTH,
        block_nesting_limit: MAX_DEPTH,
    }
}

/// The characters that YAML text may have.
fn is_allowed(c: char) -> bool {
    matches!(c, '\t' | '\n' | '\r' | ' '..='~' | '\u{85}' | '\u{a0}'..='\u{fffd}' | '\u{10000}'..)
}

fn hint(style: ScalarStyle, tag: Option<&Tag>) -> Hint {
    let Some(tag) = tag else {
        return if style == ScalarStyle::Plain { Hint::Plain } else { Hint::Str };
    };
    match tag.suffix_in_namespace("tag:yaml.org,2002:").as_deref() {
        Some("null") => Hint::Null,
        Some("bool") => Hint::Bool,
        Some("int") => Hint::Int,
        Some("float") => Hint::Float,
        Some("timestamp") => Hint::Timestamp,
        Some("binary") => Hint::Binary,
        Some("merge") => Hint::Merge,
        _ => Hint::Str,
    }
}
