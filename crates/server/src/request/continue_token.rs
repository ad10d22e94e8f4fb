//! Continue tokens: where a list that was cut short goes on. They are upstream's to the letter, so that either server
//! can go on with the other's.

use std::fmt;

use capstan_api::{
    go,
    json::{self, Number, Reader, Token},
};

use crate::base64;

/// The one version of tokens there is.
const VERSION: &str = "meta.k8s.io/v1";

/// Where a list goes on.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ContinueToken {
    /// The version of the first page; a negative one stands for the latest, which gives up on one snapshot for all
    /// pages.
    pub resource_version: i64,
    /// The key to go on with, relative to where the keys of the list begin. The last key with a NUL behind it is the
    /// one after.
    pub start: String,
}

/// Why a token is none. It prints in upstream's words.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum ContinueError {
    /// It is not base64; the byte where that shows.
    Base64(usize),
    /// It is not JSON.
    Json(json::Error),
    /// It is not the JSON of a token: what was found, where, and what should be there.
    Type(String, &'static str, &'static str),
    /// It is of another version.
    Version(String),
    /// It has no resource version.
    NoResourceVersion,
    /// It has no key.
    NoStart,
    /// Its key leads out of where the list is.
    Path(String),
}

impl fmt::Display for ContinueError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("continue key is not valid: ")?;
        match self {
            ContinueError::Base64(at) => write!(f, "illegal base64 data at input byte {at}"),
            ContinueError::Json(error) => error.fmt(f),
            ContinueError::Type(found, "", ty) => {
                write!(f, "json: cannot unmarshal {found} into Go value of type {ty}")
            }
            ContinueError::Type(found, field, ty) => {
                write!(f, "json: cannot unmarshal {found} into Go struct field continueToken.{field} of type {ty}")
            }
            ContinueError::Version(version) => write!(f, "server does not recognize this encoded version {version}"),
            ContinueError::NoResourceVersion => {
                write!(f, "incorrect encoded start resourceVersion (version {VERSION})")
            }
            ContinueError::NoStart => write!(f, "encoded start key empty (version {VERSION})"),
            ContinueError::Path(start) => f.write_str(start),
        }
    }
}

impl std::error::Error for ContinueError {}

/// What a token says before it is checked.
#[derive(Default)]
struct Raw {
    version: String,
    resource_version: i64,
    start: String,
    /// The first value of a wrong type; Go reads on behind it.
    wrong: Option<ContinueError>,
}

impl ContinueToken {
    /// The same of the newest state: what a client is offered when the state that it began with is gone.
    #[must_use]
    pub fn inconsistent(self) -> Self {
        ContinueToken { resource_version: -1, ..self }
    }

    /// The token as it is sent.
    #[must_use]
    pub fn encode(&self) -> String {
        let mut start = Vec::new();
        json::write_str(&format!("/{}", self.start), &mut start);
        let start = go::escape_html(&String::from_utf8_lossy(&start));
        base64::encode_url(format!(r#"{{"v":"{VERSION}","rv":{},"start":{start}}}"#, self.resource_version).as_bytes())
    }

    /// Reads a token.
    ///
    /// # Errors
    /// When it is not one of ours, nor one of upstream's.
    pub fn decode(text: &str) -> Result<Self, ContinueError> {
        let bytes = base64::decode_url(text.as_bytes()).map_err(ContinueError::Base64)?;
        let raw = read(&bytes)?;
        if let Some(wrong) = raw.wrong {
            return Err(wrong);
        }
        if raw.version != VERSION {
            return Err(ContinueError::Version(raw.version));
        }
        if raw.resource_version == 0 {
            return Err(ContinueError::NoResourceVersion);
        }
        if raw.start.is_empty() {
            return Err(ContinueError::NoStart);
        }
        let start = raw.start.strip_prefix('/').unwrap_or(&raw.start);
        // A key that a path could be cleaned from might reach what the list is not of.
        if !start.is_empty() && start.split('/').any(|segment| matches!(segment, "" | "." | "..")) {
            return Err(ContinueError::Path(raw.start));
        }
        Ok(ContinueToken { resource_version: raw.resource_version, start: start.to_owned() })
    }
}

/// Reads the JSON of a token as Go does: whatever the case of keys, the last of each counts, others are passed over.
fn read(bytes: &[u8]) -> Result<Raw, ContinueError> {
    let mut reader = Reader::new(bytes);
    let mut raw = Raw::default();
    match reader.next().map_err(ContinueError::Json)? {
        Token::BeginObject => {}
        token => {
            // Go looks at the whole text before it decodes: what is not JSON is said first.
            let found = go_type(&token, false);
            reader.check_rest().map_err(ContinueError::Json)?;
            return match found {
                None => Ok(raw),
                Some(found) => Err(ContinueError::Type(found, "", "storage.continueToken")),
            };
        }
    }
    reader.check_rest().map_err(ContinueError::Json)?;
    while let Token::Key(key) = reader.next().map_err(ContinueError::Json)? {
        let field = ["v", "rv", "start"].into_iter().find(|field| key.eq_ignore_ascii_case(field));
        let Some(field) = field else {
            reader.skip().map_err(ContinueError::Json)?;
            continue;
        };
        let mut ahead = Reader::new(reader.skip().map_err(ContinueError::Json)?);
        let token = ahead.next().map_err(ContinueError::Json)?;
        match (field, &token) {
            ("rv", Token::Number(number)) if whole(*number).is_some() => {
                raw.resource_version = whole(*number).unwrap_or_default();
            }
            ("v", Token::String(text)) => raw.version = text.to_string(),
            ("start", Token::String(text)) => raw.start = text.to_string(),
            _ => {
                let ty = if field == "rv" { "int64" } else { "string" };
                if let Some(found) = go_type(&token, field == "rv") {
                    raw.wrong.get_or_insert(ContinueError::Type(found, field, ty));
                }
            }
        }
    }
    Ok(raw)
}

/// A number that Go reads into an int64: digits alone, and not too many.
fn whole(number: Number<'_>) -> Option<i64> {
    number.text().parse().ok()
}

/// What Go's decoder calls a value that it did not expect; `null` it always takes.
fn go_type(token: &Token<'_>, wants_number: bool) -> Option<String> {
    Some(match token {
        Token::Null => return None,
        Token::Bool(_) => "bool".to_owned(),
        Token::Number(number) if wants_number => format!("number {}", number.text()),
        Token::Number(_) => "number".to_owned(),
        Token::String(_) => "string".to_owned(),
        Token::BeginArray => "array".to_owned(),
        _ => "object".to_owned(),
    })
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    /// Tokens that upstream has given out.
    #[test]
    fn same_as_upstream() {
        for (resource_version, start, token) in [
            (305, "a\0", "eyJ2IjoibWV0YS5rOHMuaW8vdjEiLCJydiI6MzA1LCJzdGFydCI6Ii9hXHUwMDAwIn0"),
            (305, "default/a\0", "eyJ2IjoibWV0YS5rOHMuaW8vdjEiLCJydiI6MzA1LCJzdGFydCI6Ii9kZWZhdWx0L2FcdTAwMDAifQ"),
        ] {
            let expected = ContinueToken { resource_version, start: start.to_owned() };
            assert_eq!(expected.encode(), token);
            assert_eq!(ContinueToken::decode(token), Ok(expected));
        }
    }

    #[test]
    fn words_of_upstream() {
        let v = r#""v":"meta.k8s.io/v1""#;
        for (json, expected) in [
            (format!(r#"{{{v},"rv":5,"start":"a"}}"#), "5 a"),
            (format!(r#"{{{v},"rv":5,"start":"/a","extra":[1,{{}}]}}"#), "5 a"),
            (r#"{"V":"meta.k8s.io/v1","RV":5,"Start":"b"}"#.to_owned(), "5 b"),
            (format!(r#"{{{v},"rv":-1,"start":"/"}}"#), "-1 "),
            (
                format!(r#"{{{v},"rv":"x","start":5}}"#),
                "json: cannot unmarshal string into Go struct field continueToken.rv of type int64",
            ),
            (
                format!(r#"{{{v},"rv":1.5}}"#),
                "json: cannot unmarshal number 1.5 into Go struct field continueToken.rv of type int64",
            ),
            (
                format!(r#"{{{v},"rv":1e2}}"#),
                "json: cannot unmarshal number 1e2 into Go struct field continueToken.rv of type int64",
            ),
            (
                format!(r#"{{{v},"rv":true}}"#),
                "json: cannot unmarshal bool into Go struct field continueToken.rv of type int64",
            ),
            (
                format!(r#"{{{v},"rv":5,"start":5}}"#),
                "json: cannot unmarshal number into Go struct field continueToken.start of type string",
            ),
            (
                r#"{"v":1}"#.to_owned(),
                "json: cannot unmarshal number into Go struct field continueToken.v of type string",
            ),
            (format!(r#"{{{v}}}"#), "incorrect encoded start resourceVersion (version meta.k8s.io/v1)"),
            (format!(r#"{{{v},"rv":5}}"#), "encoded start key empty (version meta.k8s.io/v1)"),
            (format!(r#"{{{v},"rv":5,"start":"../a"}}"#), "../a"),
            (format!(r#"{{{v},"rv":5,"start":"a/"}}"#), "a/"),
            (format!(r#"{{{v},"rv":5,"start":"a//b"}}"#), "a//b"),
            (format!(r#"{{{v},"rv":5,"start":"/a/./b"}}"#), "/a/./b"),
            (r#"{"v":"x"}"#.to_owned(), "server does not recognize this encoded version x"),
            ("null".to_owned(), "server does not recognize this encoded version "),
            (r#"{"v":null}"#.to_owned(), "server does not recognize this encoded version "),
            ("[]".to_owned(), "json: cannot unmarshal array into Go value of type storage.continueToken"),
            ("1".to_owned(), "json: cannot unmarshal number into Go value of type storage.continueToken"),
            (r#""x""#.to_owned(), "json: cannot unmarshal string into Go value of type storage.continueToken"),
            ("{".to_owned(), "unexpected end of JSON input"),
            (r#"{"v":"x"} x"#.to_owned(), "invalid character 'x' after top-level value"),
        ] {
            let said = match ContinueToken::decode(&base64::encode_url(json.as_bytes())) {
                Ok(token) => format!("{} {}", token.resource_version, token.start),
                Err(error) => error.to_string().replacen("continue key is not valid: ", "", 1),
            };
            assert_eq!(said, expected, "{json}");
        }
    }

    proptest! {
        #[test]
        fn there_and_back(resource_version in 1_i64.., start in "[a-z<&é\0]{1,9}(/[a-z\"\\\\]{1,9})?") {
            let token = ContinueToken { resource_version, start };
            prop_assert_eq!(ContinueToken::decode(&token.encode()), Ok(token));
        }

        #[test]
        fn never_panics(text: String, json in r#"\{?("rv"|"v"|1|:|,|"start"|\{|\}|null|\[)*"#) {
            let _ = ContinueToken::decode(&text);
            let _ = ContinueToken::decode(&base64::encode_url(json.as_bytes()));
        }
    }
}
