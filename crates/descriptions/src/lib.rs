//! What the built-in types and their fields are for, in upstream's words.
//!
//! The words come out of the `k8s-openapi` crate when this one is built, and lie packed in the binary. Whoever needs
//! them unpacks them for as long as the need lasts: [`Descriptions::load`].
//!
//! Not for: what fields there are and how they are written (`capstan_api::builtin` has that).

use std::io::Read as _;

use capstan_api::{Map, Value, json};
use flate2::read::DeflateDecoder;

static PACKED: &[u8] = include_bytes!(concat!(env!("OUT_DIR"), "/descriptions.deflate"));

/// The descriptions of all built-in types.
///
/// ```
/// use capstan_descriptions::Descriptions;
///
/// let descriptions = Descriptions::load();
/// let pod = "io.k8s.api.core.v1.Pod";
/// assert!(descriptions.of(pod).unwrap().starts_with("Pod is"));
/// assert!(descriptions.of_field(pod, "spec").is_some());
/// assert_eq!(descriptions.of_field(pod, "nothing"), None);
/// ```
#[derive(Debug)]
pub struct Descriptions(Map);

impl Descriptions {
    /// Unpacks them: a few milliseconds, and about a megabyte until this is dropped.
    #[must_use]
    pub fn load() -> Self {
        let mut text = Vec::new();
        DeflateDecoder::new(PACKED).read_to_end(&mut text).expect("it was packed when this was built");
        match json::parse(&text) {
            Ok(Value::Object(map)) => Descriptions(map),
            _ => Descriptions(Map::default()),
        }
    }

    /// What a type is for, by its full name.
    #[must_use]
    pub fn of(&self, name: &str) -> Option<&str> {
        self.of_field(name, "")
    }

    /// What a field of a type is for.
    #[must_use]
    pub fn of_field(&self, name: &str, field: &str) -> Option<&str> {
        self.0.get(name)?.get(field)?.as_str()
    }
}
