//! Guessing the resource of a kind, where nobody says it.

use crate::{GroupVersionKind, GroupVersionResource};

/// Words that are their own plural.
const UNPLURALIZED: &str = "endpoints";

/// Guesses the plural and the singular resource of a kind, as upstream does: English with three rules.
///
/// It is wrong for some kinds; use it only where neither discovery nor a definition says how a kind is served.
#[must_use]
pub fn unsafe_guess_kind_to_resource(kind: &GroupVersionKind) -> (GroupVersionResource, GroupVersionResource) {
    let name = kind.kind.to_lowercase();
    if name.is_empty() {
        return Default::default();
    }
    let plural = match &name {
        name if name.ends_with(UNPLURALIZED) => name.clone(),
        name if name.ends_with('s') => format!("{name}es"),
        name => match name.strip_suffix('y') {
            Some(stem) => format!("{stem}ies"),
            None => format!("{name}s"),
        },
    };
    let gv = kind.group_version();
    (gv.with_resource(plural), gv.with_resource(name))
}
