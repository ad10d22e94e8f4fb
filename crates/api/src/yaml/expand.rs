//! Building the value of a document, with its aliases followed and its merges done.

use std::collections::HashSet;

use super::{
    Error, MAX_ALIAS_BYTES, MAX_DUPLICATES,
    nodes::{Hint, Kind, Node, Nodes},
    scalar::{Scalar, resolve},
};
use crate::{Value, go, json::MAX_DEPTH, value::Builder};

/// What is done about keys that come twice.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum Duplicates {
    Ignore,
    Tell,
}

/// The value of a document, and a line about each key that came twice.
pub(super) fn expand(nodes: &Nodes<'_>, duplicates: Duplicates) -> Result<(Value, Vec<String>), Error> {
    if nodes.list.is_empty() {
        return Ok((Value::Null, Vec::new()));
    }
    let mut expansion = Expansion {
        nodes,
        builder: Builder::default(),
        open: Vec::new(),
        seen: (duplicates == Duplicates::Tell).then(Vec::new),
        told: Vec::new(),
        budget: Budget::default(),
    };
    expansion.value(0)?;
    while expansion.step()? {}
    Ok((expansion.builder.finish().expect("each container that begins ends"), expansion.told))
}

struct Expansion<'a> {
    nodes: &'a Nodes<'a>,
    builder: Builder,
    open: Vec<Frame>,
    /// The keys of each open object, if they are told.
    seen: Option<Vec<HashSet<Key>>>,
    told: Vec<String>,
    budget: Budget,
}

/// A container whose nodes are being gone through.
struct Frame {
    what: What,
    /// The next node.
    at: usize,
    end: usize,
    /// Whether an alias led here.
    aliased: bool,
    /// The key whose value has just been built, and the line of the value.
    key: Option<(Key, usize)>,
}

enum What {
    Sequence,
    Mapping,
    /// A map whose entries go to the object around.
    Merged,
    /// Maps whose entries go to the object around, the last one first.
    MergedList(Vec<usize>),
}

/// A key with its type: `1` is not `"1"`.
#[derive(PartialEq, Eq, Hash)]
enum Key {
    Bool(bool),
    Int(i64),
    Float(u64),
    Str(String),
}

impl Key {
    fn new(scalar: &Scalar, text: &str) -> Self {
        match scalar {
            Scalar::Bool(b) => Key::Bool(*b),
            Scalar::Int(n) => Key::Int(*n),
            Scalar::Float(n) => Key::Float(n.to_bits()),
            Scalar::Binary(text) => Key::Str(text.clone()),
            Scalar::Null | Scalar::Uint(_) | Scalar::Str | Scalar::Timestamp => Key::Str(text.to_owned()),
        }
    }

    /// As Go prints it with `%#v`.
    fn print(&self) -> String {
        match self {
            Key::Bool(b) => b.to_string(),
            Key::Int(n) => n.to_string(),
            Key::Float(bits) => super::scalar::format_float(&format!("{:e}", f64::from_bits(*bits))),
            Key::Str(text) => go::quote(text),
        }
    }
}

impl Expansion<'_> {
    /// Goes one node on; nothing is left when it says no.
    fn step(&mut self) -> Result<bool, Error> {
        let Some(frame) = self.open.last_mut() else { return Ok(false) };
        // Go notes a key after it has decoded the value.
        if let (Some((key, line)), Some(seen)) = (frame.key.take(), &mut self.seen)
            && let Some(keys) = seen.last_mut()
        {
            if keys.contains(&key) {
                if self.told.len() < MAX_DUPLICATES {
                    self.told.push(format!("line {line}: key {} already set in map", key.print()));
                }
            } else {
                keys.insert(key);
            }
        }
        let frame = self.open.last_mut().expect("it was there");
        if let What::MergedList(maps) = &mut frame.what {
            match maps.pop() {
                Some(map) => self.merge(map, false)?,
                None => self.close(),
            }
            return Ok(true);
        }
        if frame.at >= frame.end {
            self.close();
            return Ok(true);
        }
        let node = frame.at;
        frame.at = self.nodes.after(node);
        if let What::Sequence = frame.what {
            self.value(node)?;
            return Ok(true);
        }
        let value = frame.at;
        frame.at = self.nodes.after(value);
        if is_merge(&self.nodes.list[node]) {
            self.merge(value, true)?;
        } else {
            self.key(node, value)?;
            self.value(value)?;
        }
        Ok(true)
    }

    fn close(&mut self) {
        let Some(frame) = self.open.pop() else { return };
        self.budget.leave(frame.aliased);
        match frame.what {
            What::Sequence => self.builder.end(|_| {}),
            What::Mapping => {
                self.builder.end(|_| {});
                if let Some(seen) = &mut self.seen {
                    seen.pop();
                }
            }
            What::Merged | What::MergedList(_) => {}
        }
    }

    /// Follows `node` if it is an alias; says where that leads, and whether it was one.
    fn follow(&mut self, node: usize) -> Result<(usize, bool), Error> {
        self.budget.count()?;
        let Kind::Alias(target) = self.nodes.list[node].kind else { return Ok((node, false)) };
        // An alias comes after its anchor, so it can only lead back to itself from inside of what the anchor names.
        if node < self.nodes.after(target) {
            return Err(Error::SelfReference(self.nodes.anchor(target).to_owned()));
        }
        self.budget.enter();
        self.budget.count()?;
        Ok((target, true))
    }

    fn value(&mut self, node: usize) -> Result<(), Error> {
        let (node, aliased) = self.follow(node)?;
        let (what, end) = match &self.nodes.list[node].kind {
            Kind::Scalar(text, hint) => {
                self.budget.repeat(text.len())?;
                self.builder.value(resolve(text, *hint)?.into_value(text)?);
                self.budget.leave(aliased);
                return Ok(());
            }
            Kind::Sequence(end) => {
                self.builder.begin_array(0);
                (What::Sequence, *end)
            }
            Kind::Mapping(end) => {
                self.builder.begin_object(0);
                if let Some(seen) = &mut self.seen {
                    seen.push(HashSet::new());
                }
                (What::Mapping, *end)
            }
            // The parser gives aliases no anchors.
            Kind::Alias(_) => return Err(Error::UnknownAnchor(String::new())),
        };
        self.push(what, node, end, aliased)
    }

    fn push(&mut self, what: What, node: usize, end: usize, aliased: bool) -> Result<(), Error> {
        // Through aliases and merges a document gets deeper than it is.
        if self.open.len() >= MAX_DEPTH {
            return Err(Error::Depth);
        }
        self.open.push(Frame { what, at: node + 1, end, aliased, key: None });
        Ok(())
    }

    fn key(&mut self, node: usize, value: usize) -> Result<(), Error> {
        let (node, aliased) = self.follow(node)?;
        let (text, hint) = match &self.nodes.list[node].kind {
            Kind::Scalar(text, hint) => (text, *hint),
            Kind::Sequence(_) => return Err(Error::Key("[]interface {}{...}")),
            Kind::Mapping(_) | Kind::Alias(_) => return Err(Error::Key("map[interface {}]interface {}{...}")),
        };
        self.budget.repeat(text.len())?;
        self.budget.leave(aliased);
        let scalar = resolve(text, hint)?;
        if let (Some(_), Some(frame)) = (&self.seen, self.open.last_mut()) {
            frame.key = Some((Key::new(&scalar, text), self.nodes.list[value].line));
        }
        self.builder.key(scalar.into_key(text)?);
        Ok(())
    }

    /// Puts the entries of a map, or with `lists` also of a list of maps, into the object that is being built. In Go
    /// they replace what came before and are replaced by what comes later, as if they stood here.
    fn merge(&mut self, node: usize, lists: bool) -> Result<(), Error> {
        let (target, aliased) = match self.nodes.list[node].kind {
            Kind::Sequence(end) if lists => {
                let mut maps = Vec::new();
                let mut at = node + 1;
                while at < end {
                    maps.push(at);
                    at = self.nodes.after(at);
                }
                return self.push(What::MergedList(maps), node, end, false);
            }
            _ => self.follow(node)?,
        };
        match self.nodes.list[target].kind {
            Kind::Mapping(end) => self.push(What::Merged, target, end, aliased),
            _ => Err(Error::Merge),
        }
    }
}

fn is_merge(key: &Node<'_>) -> bool {
    matches!(&key.kind, Kind::Scalar(text, Hint::Plain | Hint::Merge) if text == "<<")
}

/// How much aliases may repeat, by the rule of Go's decoder: nearly all of a small document, a tenth of a large one.
#[derive(Default)]
struct Budget {
    /// How many aliases led to where we are.
    depth: usize,
    nodes: usize,
    repeated: usize,
    bytes: usize,
}

/// Up to so many nodes 99 % may come from aliases.
const SMALL: usize = 400_000;
/// From so many nodes on 10 % may come from aliases.
const LARGE: usize = 4_000_000;

impl Budget {
    fn enter(&mut self) {
        self.depth += 1;
    }

    fn leave(&mut self, aliased: bool) {
        self.depth -= usize::from(aliased);
    }

    fn count(&mut self) -> Result<(), Error> {
        self.nodes += 1;
        self.repeated += usize::from(self.depth > 0);
        if self.repeated <= 100 || self.nodes <= 1000 {
            return Ok(());
        }
        let beyond = self.nodes.clamp(SMALL, LARGE) - SMALL;
        let allowed = 0.99 - 0.89 * (beyond as f64 / (LARGE - SMALL) as f64);
        if self.repeated as f64 / self.nodes as f64 > allowed { Err(Error::Aliasing) } else { Ok(()) }
    }

    /// A text of so many bytes is about to be copied.
    fn repeat(&mut self, bytes: usize) -> Result<(), Error> {
        if self.depth > 0 {
            self.bytes += bytes;
        }
        if self.bytes > MAX_ALIAS_BYTES { Err(Error::Aliasing) } else { Ok(()) }
    }
}
