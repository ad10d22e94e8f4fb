//! Paths that everybody may use, such as `/healthz`.

use std::{collections::BTreeSet, fmt};

use capstan_api::{Str, go};

use super::{Attributes, Authorizer, Decision};

/// Allows whatever is done to some paths; knows nothing of resources.
#[derive(Clone, Debug, Default)]
pub struct AlwaysAllowPaths {
    paths: BTreeSet<Str>,
    prefixes: Vec<Str>,
}

/// A path with a star elsewhere than at its end.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct InvalidPath(String);

impl fmt::Display for InvalidPath {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "only trailing * allowed in {}", go::quote(&self.0))
    }
}

impl std::error::Error for InvalidPath {}

impl AlwaysAllowPaths {
    /// Allows these paths; one that ends in `*` stands for all that begin with the rest. The leading slash may be left
    /// out.
    ///
    /// # Errors
    /// If a star is elsewhere.
    pub fn new<'a>(paths: impl IntoIterator<Item = &'a str>) -> Result<Self, InvalidPath> {
        let mut out = AlwaysAllowPaths::default();
        for path in paths {
            let path = path.strip_prefix('/').unwrap_or(path);
            let prefix = path.strip_suffix('*');
            if prefix.unwrap_or(path).contains('*') {
                return Err(InvalidPath(path.to_owned()));
            }
            match prefix {
                Some(prefix) => out.prefixes.push(prefix.into()),
                None => _ = out.paths.insert(path.into()),
            }
        }
        Ok(out)
    }
}

impl Authorizer for AlwaysAllowPaths {
    fn authorize(&self, attributes: &Attributes<'_>) -> Decision {
        let path = attributes.path.strip_prefix('/').unwrap_or(attributes.path);
        let known = self.paths.contains(path) || self.prefixes.iter().any(|prefix| path.starts_with(prefix.as_str()));
        if known && !attributes.is_resource {
            Decision::Allow(String::new())
        } else {
            Decision::NoOpinion(String::new())
        }
    }
}
