//! The way to a field: `spec.containers[0].env[name]`.

use std::fmt::{self, Write as _};

/// One step of a path.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Segment<'a> {
    /// A field: `.name`.
    Child(&'a str),
    /// An element of a list: `[0]`.
    Index(usize),
    /// An entry of a map, or the element of a list that has this key: `[key]`.
    Key(&'a str),
}

/// A path that grows with the walk: each step lives on the caller's stack and points to the one before.
///
/// Making one costs nothing; the text is only put together when there is an error to report.
///
/// ```
/// use capstan_api::field::Path;
/// let containers = Path::new("spec").child("containers");
/// # let spec = Path::new("spec"); let containers = spec.child("containers");
/// assert_eq!(containers.index(0).child("env").key("HOME").to_string(), "spec.containers[0].env[HOME]");
/// ```
#[derive(Clone, Copy, Debug)]
pub struct Path<'a> {
    parent: Option<&'a Path<'a>>,
    segment: Option<Segment<'a>>,
}

impl<'a> Path<'a> {
    /// The path of the object itself.
    pub const ROOT: Path<'static> = Path { parent: None, segment: None };

    /// A path of one field.
    #[must_use]
    pub const fn new(name: &'a str) -> Self {
        Path { parent: None, segment: Some(Segment::Child(name)) }
    }

    /// The field `name` of what is here.
    #[must_use]
    pub const fn child(&'a self, name: &'a str) -> Path<'a> {
        self.then(Segment::Child(name))
    }

    /// The element at `index` of the list that is here.
    #[must_use]
    pub const fn index(&'a self, index: usize) -> Path<'a> {
        self.then(Segment::Index(index))
    }

    /// The entry `key` of the map that is here.
    #[must_use]
    pub const fn key(&'a self, key: &'a str) -> Path<'a> {
        self.then(Segment::Key(key))
    }

    /// One step on.
    #[must_use]
    pub const fn then(&'a self, segment: Segment<'a>) -> Path<'a> {
        Path { parent: Some(self), segment: Some(segment) }
    }
}

/// Prints a path; nothing at all is `<nil>`, as in Go.
pub fn render<'a>(segments: impl IntoIterator<Item = Segment<'a>>) -> String {
    let mut text = String::new();
    for segment in segments {
        let printed = match segment {
            Segment::Child(name) if text.is_empty() => write!(text, "{name}"),
            Segment::Child(name) => write!(text, ".{name}"),
            Segment::Index(index) => write!(text, "[{index}]"),
            Segment::Key(key) => write!(text, "[{key}]"),
        };
        printed.expect("memory takes all");
    }
    if text.is_empty() { "<nil>".to_owned() } else { text }
}

impl fmt::Display for Path<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut steps = Vec::new();
        let mut here = Some(self);
        while let Some(path) = here {
            steps.extend(path.segment);
            here = path.parent;
        }
        f.write_str(&render(steps.into_iter().rev()))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn print() {
        assert_eq!(Path::ROOT.to_string(), "<nil>");
        assert_eq!(Path::ROOT.child("spec").to_string(), "spec");
        assert_eq!(Path::new("a").index(3).key("k").child("b").to_string(), "a[3][k].b");
        assert_eq!(Path::ROOT.index(0).to_string(), "[0]");
    }
}
