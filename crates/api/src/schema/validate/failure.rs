//! Failures while they are collected, and the field errors they become.

use std::collections::HashSet;

use super::ratchet::Ratchet;
use crate::{
    Value,
    field::{Error, ErrorList, Segment},
};

/// How many bytes of messages are kept. What fails beyond them counts, but is not told.
const MAX_BYTES: usize = 4 << 20;

/// What kind of field error a failure becomes.
#[derive(Debug)]
pub(super) enum Kind {
    Required,
    /// Of the wrong type; the found one, or the text of the wrong format.
    Type(String),
    Invalid(Value),
    Unsupported(Value, Vec<String>),
    TooLong(u64),
    TooMany(usize, u64),
    /// About combinations and ranges: upstream loses the field on the way.
    Nowhere,
}

/// One thing that is wrong.
#[derive(Debug)]
pub(super) struct Failure {
    /// The path, as the messages print it.
    name: String,
    message: String,
    kind: Kind,
}

/// A point in the collection to go back to.
#[derive(Clone, Copy, Debug)]
pub(super) struct Mark {
    count: usize,
    kept: usize,
    bytes: usize,
}

/// All that failed.
#[derive(Debug, Default)]
pub(super) struct Failures<'a> {
    /// What was there before: what has not changed may be wrong.
    pub(super) ratchet: Option<Ratchet<'a>>,
    kept: Vec<Failure>,
    /// How many there were, also of those that are not kept.
    count: usize,
    bytes: usize,
}

/// Failures that were taken out, and maybe come back.
#[derive(Debug)]
pub(super) struct Taken {
    kept: Vec<Failure>,
    count: usize,
    bytes: usize,
}

impl Failures<'_> {
    pub(super) fn mark(&self) -> Mark {
        Mark { count: self.count, kept: self.kept.len(), bytes: self.bytes }
    }

    pub(super) fn is_worse_than(&self, mark: Mark) -> bool {
        self.count > mark.count
    }

    /// Adds what `describe` says of the path: a message and a kind.
    pub(super) fn add(&mut self, path: &[Segment<'_>], describe: impl FnOnce(&str) -> (String, Kind)) {
        if self.ratchet.as_mut().is_some_and(|ratchet| ratchet.is_unchanged(path)) {
            return;
        }
        self.count += 1;
        if self.bytes <= MAX_BYTES {
            let name = render(path);
            let (message, kind) = describe(&name);
            self.bytes += name.len() + message.len();
            self.kept.push(Failure { name, message, kind });
        }
    }

    /// Adds a failure of a field that is not there.
    pub(super) fn add_required(&mut self, path: &[Segment<'_>], field: &str) {
        let before = self.kept.len();
        self.add(path, |name| (format!("{name}.{field} in body is required"), Kind::Required));
        if let Some(last) = self.kept.get_mut(before) {
            last.name.push('.');
            last.name.push_str(field);
        }
    }

    /// Forgets what was added since.
    pub(super) fn forget(&mut self, mark: Mark) {
        self.kept.truncate(mark.kept);
        (self.count, self.bytes) = (mark.count, mark.bytes);
    }

    /// Takes out what was added since.
    pub(super) fn take(&mut self, mark: Mark) -> Taken {
        let taken = Taken {
            kept: self.kept.split_off(mark.kept),
            count: self.count - mark.count,
            bytes: self.bytes - mark.bytes,
        };
        (self.count, self.bytes) = (mark.count, mark.bytes);
        taken
    }

    pub(super) fn restore(&mut self, taken: Taken) {
        self.kept.extend(taken.kept);
        self.count += taken.count;
        self.bytes += taken.bytes;
    }

    /// As field errors below `base`, each message once.
    pub(super) fn into_errors(self, base: &str) -> ErrorList {
        let mut seen = HashSet::new();
        let once = self.kept.into_iter().filter(|failure| seen.insert(failure.message.clone()));
        once.map(|failure| failure.into_error(base)).collect()
    }
}

impl Failure {
    fn into_error(self, base: &str) -> Error {
        let nowhere = matches!(self.kind, Kind::Nowhere);
        let name = self.name.strip_prefix('.').unwrap_or(&self.name);
        let path = match (base, name) {
            ("", "") => "<nil>".to_owned(),
            ("", _) if nowhere => "<nil>".to_owned(),
            (base, _) if nowhere => base.to_owned(),
            (base, "") => base.to_owned(),
            ("", name) => name.to_owned(),
            (base, name) => format!("{base}.{name}"),
        };
        let most = |most: u64| usize::try_from(most).unwrap_or(usize::MAX);
        match self.kind {
            Kind::Required => Error::required(path, ""),
            Kind::Type(found) => Error::type_invalid(path, found, self.message),
            Kind::Invalid(value) => Error::invalid(path, value, self.message),
            Kind::Unsupported(value, supported) => Error::not_supported(path, value, &supported),
            Kind::TooLong(max) => Error::too_long(path, most(max)),
            Kind::TooMany(actual, max) => Error::too_many(path, actual, most(max)),
            Kind::Nowhere => Error::invalid(path, "", self.message),
        }
    }
}

/// The path as the messages print it: keys of maps look like fields.
pub(super) fn render(path: &[Segment<'_>]) -> String {
    let mut text = String::new();
    for segment in path {
        match segment {
            Segment::Child(name) => {
                if !text.is_empty() {
                    text.push('.');
                }
                text.push_str(name);
            }
            Segment::Key(key) => {
                text.push('.');
                text.push_str(key);
            }
            Segment::Index(index) => text.push_str(&format!("[{index}]")),
        }
    }
    text
}
