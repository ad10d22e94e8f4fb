//! What a watch sends: the type of a change and the object, whose bytes exist already.

use std::{fmt, str::FromStr};

use crate::json::{self, Reader, Token};

/// What happened to an object.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum EventType {
    /// It came to be, or came to be selected.
    Added,
    /// It changed.
    Modified,
    /// It is gone, or no longer selected; the object is its last state.
    Deleted,
    /// Nothing; the object only says up to which version all events have been sent.
    Bookmark,
    /// The watch failed; the object is a `Status`.
    Error,
}

impl EventType {
    /// As it is written.
    #[must_use]
    pub const fn as_str(self) -> &'static str {
        match self {
            EventType::Added => "ADDED",
            EventType::Modified => "MODIFIED",
            EventType::Deleted => "DELETED",
            EventType::Bookmark => "BOOKMARK",
            EventType::Error => "ERROR",
        }
    }
}

impl fmt::Display for EventType {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.as_str())
    }
}

impl FromStr for EventType {
    type Err = WatchEventError;

    fn from_str(text: &str) -> Result<Self, WatchEventError> {
        use EventType::{Added, Bookmark, Deleted, Error, Modified};
        let known = [Added, Modified, Deleted, Bookmark, Error].into_iter().find(|known| known.as_str() == text);
        known.ok_or_else(|| WatchEventError::Type(text.to_owned()))
    }
}

/// An event of a watch with a raw object.
///
/// ```
/// use capstan_api::watch_event::{EventType, WatchEvent};
///
/// let event = WatchEvent { event_type: EventType::Added, object: br#"{"kind":"Pod"}"# };
/// assert_eq!(event.to_line(), b"{\"type\":\"ADDED\",\"object\":{\"kind\":\"Pod\"}}\n");
/// assert_eq!(WatchEvent::parse(&event.to_line())?.object, event.object);
/// # Ok::<(), capstan_api::watch_event::WatchEventError>(())
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct WatchEvent<B> {
    /// What happened.
    pub event_type: EventType,
    /// The object, whole JSON.
    pub object: B,
}

impl<B: AsRef<[u8]>> WatchEvent<B> {
    /// Appends the event.
    pub fn render(&self, out: &mut Vec<u8>) {
        let (event_type, object) = (self.event_type.as_str().as_bytes(), self.object.as_ref());
        out.reserve(object.len() + event_type.len() + 24);
        for part in [b"{\"type\":\"", event_type, b"\",\"object\":", object, b"}"] {
            out.extend_from_slice(part);
        }
    }

    /// The event as a line, as a watch sends it.
    #[must_use]
    pub fn to_line(&self) -> Vec<u8> {
        let mut out = Vec::new();
        self.render(&mut out);
        out.push(b'\n');
        out
    }
}

/// Bytes that are not an event.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum WatchEventError {
    /// They are not JSON.
    Json(json::Error),
    /// They are not a map with an object in it.
    Shape,
    /// The type is none that there is.
    Type(String),
}

impl fmt::Display for WatchEventError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            WatchEventError::Json(error) => error.fmt(f),
            WatchEventError::Shape => f.write_str("unable to decode to metav1.WatchEvent"),
            WatchEventError::Type(text) => write!(f, "got invalid watch event type: {text}"),
        }
    }
}

impl std::error::Error for WatchEventError {}

impl From<json::Error> for WatchEventError {
    fn from(error: json::Error) -> Self {
        WatchEventError::Json(error)
    }
}

impl<'a> WatchEvent<&'a [u8]> {
    /// Reads an event; its object stays raw.
    ///
    /// # Errors
    /// The bytes are not JSON, are not a map with an object in it, or the type is none that there is.
    pub fn parse(text: &'a [u8]) -> Result<Self, WatchEventError> {
        let mut reader = Reader::new(text);
        if reader.next()? != Token::BeginObject {
            return Err(WatchEventError::Shape);
        }
        let (mut event_type, mut object) = (None, None);
        loop {
            match reader.next()? {
                Token::Key(key) if key == "type" => match reader.next()? {
                    Token::String(text) => event_type = Some(text),
                    _ => return Err(WatchEventError::Shape),
                },
                Token::Key(key) if key == "object" => object = Some(reader.skip()?),
                Token::Key(_) => drop(reader.skip()?),
                _ => break,
            }
        }
        reader.next()?;
        let event_type = event_type.unwrap_or_default().parse()?;
        let object = object.filter(|raw| raw.starts_with(b"{")).ok_or(WatchEventError::Shape)?;
        Ok(WatchEvent { event_type, object })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn read() {
        fn check(text: &str, expected: &str) {
            let answer = match WatchEvent::parse(text.as_bytes()) {
                Ok(event) => format!("{} {}", event.event_type, str::from_utf8(event.object).unwrap()),
                Err(error) => error.to_string(),
            };
            assert_eq!(answer, expected, "{text}");
        }
        for event_type in ["ADDED", "MODIFIED", "DELETED", "BOOKMARK", "ERROR"] {
            let text = format!(r#"{{"type":"{event_type}","object":{{"a":[1, {{}}]}}}}"#);
            check(&text, &format!(r#"{event_type} {{"a":[1, {{}}]}}"#));
        }
        check("{ \"object\" : {\"b\" : 1} , \"x\" : [{}] , \"type\" : \"ADDED\" }\n", "ADDED {\"b\" : 1}");
        check(r#"{"type":"X","object":{}}"#, "got invalid watch event type: X");
        check(r#"{"object":{}}"#, "got invalid watch event type: ");
        for text in ["[]", "3", r#"{"type":"ADDED"}"#, r#"{"type":"ADDED","object":null}"#, r#"{"type":1}"#] {
            check(text, "unable to decode to metav1.WatchEvent");
        }
        check(r#"{"type":"ADDED","object":{}"#, "unexpected end of JSON input");
        check(r#"{"type":"ADDED","object":{}} x"#, "invalid character 'x' after top-level value");
    }

    proptest::proptest! {
        #[test]
        fn any_text_is_survived(text in r#"[\{\}\[\]:,"a-z0 ]{0,40}"#) {
            proptest::prop_assert!(WatchEvent::parse(text.as_bytes()).is_err());
        }
    }
}
