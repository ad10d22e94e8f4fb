//! The order of versions, and the version of the server itself.

use std::cmp::Ordering;

use super::json::Json;

/// How versions are sorted: stable before beta before alpha, and the later first; what is none of these comes last, by
/// name.
pub(super) fn compare(a: &str, b: &str) -> Ordering {
    match (parse(a), parse(b)) {
        (Some(a), Some(b)) => b.cmp(&a),
        (Some(_), None) => Ordering::Less,
        (None, Some(_)) => Ordering::Greater,
        (None, None) => a.cmp(b),
    }
}

/// How stable, then the numbers: `v2beta1` is beta, 2, 1.
fn parse(version: &str) -> Option<(u8, u64, u64)> {
    let rest = version.strip_prefix('v')?;
    let end = rest.find(|c: char| !c.is_ascii_digit()).unwrap_or(rest.len());
    let (major, rest) = rest.split_at(end);
    let (stability, minor) = match (rest.strip_prefix("alpha"), rest.strip_prefix("beta")) {
        (Some(minor), _) => (0, minor),
        (_, Some(minor)) => (1, minor),
        _ if rest.is_empty() => return Some((2, number(major)?, 0)),
        _ => return None,
    };
    Some((stability, number(major)?, number(minor)?))
}

/// A number as versions have it: it does not begin with a zero.
fn number(text: &str) -> Option<u64> {
    let good = text.bytes().all(|c| c.is_ascii_digit()) && !text.starts_with('0');
    if good { text.parse().ok() } else { None }
}

/// What the server says of itself at `/version`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct VersionInfo {
    /// `v1.36.3`.
    pub git_version: String,
    /// The commit it was built from.
    pub git_commit: String,
    /// Whether the tree was `clean`.
    pub git_tree_state: String,
    /// When it was built.
    pub build_date: String,
    /// What upstream's compiler was; ours has none of that name.
    pub go_version: String,
    /// What it was compiled by.
    pub compiler: String,
    /// What it was compiled for: `linux/amd64`.
    pub platform: String,
}

/// The version of the API: major, minor, and the oldest minor that it stays compatible with.
pub(crate) const API_VERSION: [&str; 3] = ["1", "36", "35"];

impl Default for VersionInfo {
    fn default() -> Self {
        let arch = match std::env::consts::ARCH {
            "x86_64" => "amd64",
            "aarch64" => "arm64",
            other => other,
        };
        VersionInfo {
            git_version: "v1.36.3".to_owned(),
            git_commit: String::new(),
            git_tree_state: String::new(),
            build_date: "1970-01-01T00:00:00Z".to_owned(),
            go_version: String::new(),
            compiler: "rustc".to_owned(),
            platform: format!("{}/{arch}", std::env::consts::OS),
        }
    }
}

impl VersionInfo {
    /// The document, compact.
    pub(super) fn write(&self, json: &mut Json) {
        let [major, minor, compatible] = API_VERSION;
        json.object(|json| {
            json.field("major", major);
            json.field("minor", minor);
            json.field("emulationMajor", major);
            json.field("emulationMinor", minor);
            json.field("minCompatibilityMajor", major);
            json.field("minCompatibilityMinor", compatible);
            json.field("gitVersion", &self.git_version);
            json.field("gitCommit", &self.git_commit);
            json.field("gitTreeState", &self.git_tree_state);
            json.field("buildDate", &self.build_date);
            json.field("goVersion", &self.go_version);
            json.field("compiler", &self.compiler);
            json.field("platform", &self.platform);
        });
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn order() {
        let expected = [
            "v10",
            "v2",
            "v1",
            "v11beta2",
            "v10beta3",
            "v3beta1",
            "v12alpha1",
            "v11alpha2",
            "foo1",
            "foo10",
            "v01",
            "v1beta",
            "v1beta0",
            "v2gamma1",
        ];
        let mut versions = expected;
        versions.reverse();
        versions.sort_by(|a, b| compare(a, b));
        assert_eq!(versions, expected);
    }
}
