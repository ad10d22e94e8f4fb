//! Whether one rule allows one request.

use capstan_api::Str;

use super::PolicyRule;
use crate::authorization::Attributes;

/// Stands for all verbs, groups, resources or paths.
pub(super) const ALL: &str = "*";

impl PolicyRule {
    /// Whether the rule alone allows this request.
    #[must_use]
    pub fn allows(&self, attributes: &Attributes<'_>) -> bool {
        if !has_or_all(&self.verbs, attributes.verb) {
            return false;
        }
        if !attributes.is_resource {
            return self.non_resource_urls.iter().any(|url| url_covers(url, attributes.path));
        }
        has_or_all(&self.api_groups, attributes.group)
            && self.resources.iter().any(|own| resource_matches(own, attributes.resource, attributes.subresource))
            && (self.resource_names.is_empty() || self.resource_names.iter().any(|own| own == attributes.name))
    }
}

fn has_or_all(set: &[Str], wanted: &str) -> bool {
    set.iter().any(|own| own == wanted || own == ALL)
}

/// Whether a rule's resource is the one asked for: itself, everything, or a part of everything. `pods/*` is not a
/// pattern.
fn resource_matches(own: &str, resource: &str, subresource: &str) -> bool {
    if own == ALL {
        return true;
    }
    if subresource.is_empty() {
        return own == resource;
    }
    // A request's names may contain slashes; upstream compares the joined text, so this does too.
    let part = own.strip_suffix(subresource).and_then(|own| own.strip_suffix('/'));
    part.is_some_and(|own| own == resource || own == ALL)
}

/// Whether a rule's path is this one, or stands for it by the stars at its end.
pub(super) fn url_covers(own: &str, path: &str) -> bool {
    own == path || (own.ends_with('*') && path.starts_with(own.trim_end_matches('*')))
}
