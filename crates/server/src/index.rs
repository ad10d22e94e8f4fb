//! The paths that are listed at `/` besides those of discovery, which renders the list.

use crate::health::Health;

/// What every server answers besides resources, discovery and health.
const PATHS: [&str; 10] = [
    "/.well-known/openid-configuration",
    "/flagz",
    "/metrics",
    "/metrics/slis",
    "/openapi/v2",
    "/openapi/v3",
    "/openapi/v3/",
    "/openid/v1/jwks",
    "/statusz",
    "/version",
];

/// The `other_paths` for [`Config`](crate::discovery::Config). To be asked once all checks have been added.
#[must_use]
pub fn other_paths(health: &Health) -> Vec<String> {
    PATHS.iter().map(|&path| path.to_owned()).chain(health.paths()).collect()
}

#[cfg(test)]
mod tests {
    use capstan_api::json;

    use super::*;
    use crate::discovery::{Config, Discovery};

    #[test]
    fn the_list_is_sorted_and_has_the_checks() {
        let config = Config { other_paths: other_paths(&Health::new(0.0)), ..Config::default() };
        let documents = Discovery::new(config).documents();
        let root = json::parse(&documents.get("/").expect("there is a list").json).unwrap();
        let paths: Vec<_> =
            root.get("paths").unwrap().as_array().unwrap().iter().map(|path| path.as_str().unwrap()).collect();
        assert!(paths.is_sorted(), "{paths:?}");
        for path in ["/api/v1", "/apis/", "/livez/ping", "/readyz/shutdown", "/metrics/slis", "/version"] {
            assert!(paths.contains(&path), "{path}");
        }
    }
}
