//! Fields that an endpoint does not write, whoever sends them.

use super::{FieldSet, PathElement};

/// The fields that writes through an endpoint can come to own.
#[derive(Clone, Debug, Default)]
pub enum Filter {
    /// All.
    #[default]
    All,
    /// All but these and what is in them: `status` on the main endpoint, `spec` on that of the status.
    Without(FieldSet),
    /// Only what begins like one of these.
    Only(Vec<Vec<Pattern>>),
}

/// What a path element may be.
#[derive(Clone, Debug)]
pub enum Pattern {
    /// Any.
    Any,
    /// This.
    Is(PathElement),
}

impl Filter {
    /// All but the fields, each written with dots: `metadata.labels`.
    #[must_use]
    pub fn without(paths: &[&str]) -> Self {
        Filter::Without(FieldSet::of_fields(paths))
    }

    pub(super) fn apply(&self, set: FieldSet) -> FieldSet {
        match self {
            Filter::All => set,
            Filter::Without(fields) => set.recursive_difference(fields),
            Filter::Only(patterns) => {
                let patterns: Vec<&[Pattern]> = patterns.iter().map(Vec::as_slice).collect();
                only(set, &patterns)
            }
        }
    }
}

/// What is in one of the patterns. A path that ends before its pattern does stays: it leads to what stays.
fn only(mut set: FieldSet, patterns: &[&[Pattern]]) -> FieldSet {
    if patterns.iter().any(|pattern| pattern.is_empty()) {
        return set;
    }
    set.nodes.retain_mut(|node| {
        let fits = |pattern: &&&[Pattern]| match &pattern[0] {
            Pattern::Any => true,
            Pattern::Is(element) => *element == node.element,
        };
        let behind: Vec<&[Pattern]> = patterns.iter().filter(fits).map(|pattern| &pattern[1..]).collect();
        if behind.is_empty() {
            return false;
        }
        node.children = only(std::mem::take(&mut node.children), &behind);
        node.member || !node.children.is_empty()
    });
    set
}
