//! Continue tokens: where a list goes on, and of which state.

use std::fmt;

use capstan_api::json::{Reader, Token, write_str};
use capstan_storage::Revision;

use super::{limits::MAX_TOKEN_BYTES, read::ReadAt};

const VERSION: &str = "meta.k8s.io/v1";
const ALPHABET: &[u8; 64] = b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789-_";

/// Where a list goes on. Clients take it for what it is: text without a meaning.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ContinueToken {
    /// Of which state; `None`: of the newest, which is what a client gets when the state that it began with is gone.
    pub revision: Option<Revision>,
    /// The first key that may come.
    pub start: String,
}

/// Text that is no continue token; in upstream's words.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum TokenError {
    /// It is not what was given out.
    Invalid(String),
    /// It is of a version that is not known.
    Version(String),
    /// It has no revision.
    NoRevision,
    /// It has no key.
    NoStart,
}

impl fmt::Display for TokenError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("continue key is not valid: ")?;
        match self {
            TokenError::Invalid(why) => f.write_str(why),
            TokenError::Version(version) => write!(f, "server does not recognize this encoded version {version}"),
            TokenError::NoRevision => write!(f, "incorrect encoded start resourceVersion (version {VERSION})"),
            TokenError::NoStart => write!(f, "encoded start key empty (version {VERSION})"),
        }
    }
}

impl std::error::Error for TokenError {}

impl ContinueToken {
    /// The state that the list goes on with.
    #[must_use]
    pub fn read_at(&self) -> ReadAt {
        self.revision.map_or(ReadAt::Consistent, ReadAt::Exactly)
    }

    /// The same of the newest state: what a client is offered when the state is gone.
    #[must_use]
    pub fn inconsistent(self) -> Self {
        ContinueToken { revision: None, ..self }
    }

    /// The token as it is given out.
    #[must_use]
    pub fn encode(&self) -> String {
        let revision = self.revision.map_or("-1".to_owned(), |revision| revision.to_string());
        let mut text = format!("{{\"v\":\"{VERSION}\",\"rv\":{revision},\"start\":").into_bytes();
        write_str(&self.start, &mut text);
        text.push(b'}');
        encode(&text)
    }

    /// Reads a token.
    ///
    /// # Errors
    /// When it is not one that was given out.
    pub fn decode(token: &str) -> Result<Self, TokenError> {
        let invalid = |why: &dyn fmt::Display| TokenError::Invalid(why.to_string());
        if token.len() > MAX_TOKEN_BYTES {
            return Err(invalid(&"too long"));
        }
        let text =
            decode(token.as_bytes()).map_err(|at| invalid(&format_args!("illegal base64 data at input byte {at}")))?;
        let (mut version, mut revision, mut start) = (String::new(), 0, String::new());
        let mut reader = Reader::new(&text);
        let mut next = || reader.next().map_err(|error| invalid(&error));
        let mistyped = || invalid(&"a field is not of its type");
        if next()? != Token::BeginObject {
            return Err(mistyped());
        }
        while let Token::Key(key) = next()? {
            match (&*key, next()?) {
                ("v", Token::String(text)) => version = text.into_owned(),
                ("rv", Token::Number(number)) => revision = number.as_i64().ok_or_else(mistyped)?,
                ("start", Token::String(text)) => start = text.into_owned(),
                _ => return Err(mistyped()),
            }
        }
        next()?;
        if version != VERSION {
            return Err(TokenError::Version(version));
        }
        let revision = match revision {
            0 => return Err(TokenError::NoRevision),
            revision => u64::try_from(revision).ok().map(Revision),
        };
        if start.is_empty() {
            return Err(TokenError::NoStart);
        }
        // A key goes down from the prefix, never up.
        let mut steps = start.strip_prefix('/').unwrap_or(&start).split('/');
        if steps.any(|step| matches!(step, "" | "." | "..")) {
            return Err(TokenError::Invalid(start));
        }
        let start = start.strip_prefix('/').unwrap_or(&start).to_owned();
        Ok(ContinueToken { revision, start })
    }
}

/// Base64 for addresses, without padding.
fn encode(bytes: &[u8]) -> String {
    let mut text = String::with_capacity(bytes.len().div_ceil(3) * 4);
    for chunk in bytes.chunks(3) {
        let number = (0..3).fold(0, |number, at| number << 8 | u32::from(chunk.get(at).copied().unwrap_or(0)));
        text.extend((0..=chunk.len()).map(|at| char::from(ALPHABET[(number >> (18 - 6 * at)) as usize & 63])));
    }
    text
}

/// The bytes, or where it shows that there are none.
fn decode(text: &[u8]) -> Result<Vec<u8>, usize> {
    let mut bytes = Vec::with_capacity(text.len() / 4 * 3 + 2);
    for (place, chunk) in text.chunks(4).enumerate() {
        let mut number = 0;
        for at in 0..4 {
            let digit = match chunk.get(at) {
                Some(letter) => ALPHABET.iter().position(|other| other == letter).ok_or(place * 4 + at)?,
                None => 0,
            };
            number = number << 6 | digit as u32;
        }
        if chunk.len() == 1 {
            return Err(place * 4 + 1);
        }
        bytes.extend(&number.to_be_bytes()[1..chunk.len()]);
    }
    Ok(bytes)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn tokens_come_back() {
        for (revision, start) in [(Some(7), "a/b\0"), (None, "a"), (Some(1), "ab/\u{e9}\"\\"), (Some(12), "abc\0")] {
            let token = ContinueToken { revision: revision.map(Revision), start: start.to_owned() };
            assert_eq!(ContinueToken::decode(&token.encode()), Ok(token));
        }
        let upstreams = "eyJ2IjoibWV0YS5rOHMuaW8vdjEiLCJydiI6Nywic3RhcnQiOiJhL2JcdTAwMDAifQ";
        let token = ContinueToken { revision: Some(Revision(7)), start: "a/b\0".to_owned() };
        assert_eq!((ContinueToken::decode(upstreams), token.encode().as_str()), (Ok(token), upstreams));
    }

    #[test]
    fn others_are_refused() {
        fn check(token: &str, expected: &str) {
            let error = ContinueToken::decode(token).unwrap_err().to_string();
            assert_eq!(error.strip_prefix("continue key is not valid: "), Some(expected), "{token}");
        }
        check("a", "illegal base64 data at input byte 1");
        check("ab=d", "illegal base64 data at input byte 2");
        check("", "unexpected end of JSON input");
        check(&"a".repeat(MAX_TOKEN_BYTES + 1), "too long");
        check(&encode(b"[]"), "a field is not of its type");
        check(&encode(br#"{"v":"v2","rv":1,"start":"a"}"#), "server does not recognize this encoded version v2");
        check(&encode(br#"{"v":"meta.k8s.io/v1","rv":1}"#), "encoded start key empty (version meta.k8s.io/v1)");
        let no_revision = "incorrect encoded start resourceVersion (version meta.k8s.io/v1)";
        check(&encode(br#"{"v":"meta.k8s.io/v1","start":"a"}"#), no_revision);
        for start in ["../a", "a/../b", "a//b", "./a", "/"] {
            let token = format!(r#"{{"v":"meta.k8s.io/v1","rv":1,"start":"{start}"}}"#);
            check(&encode(token.as_bytes()), start);
        }
    }

    proptest::proptest! {
        #[test]
        fn any_text_is_survived(text in ".{0,40}", bytes in proptest::collection::vec(0u8.., 0..40)) {
            let _ = ContinueToken::decode(&text);
            proptest::prop_assert_eq!(decode(encode(&bytes).as_bytes()), Ok(bytes.clone()));
            let _ = ContinueToken::decode(&encode(&bytes));
        }
    }
}
