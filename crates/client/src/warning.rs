//! What a server says besides its answer: that a version is deprecated, that a field does nothing.

use std::sync::Arc;

use http::{HeaderMap, header};

/// The code of warnings that are for people.
const MISCELLANEOUS_PERSISTENT: u16 = 299;

/// Something that the server says besides its answer.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Warning {
    /// A number between 100 and 299; API servers say 299.
    pub code: u16,
    /// Who says it; `-` for one who does not tell.
    pub agent: String,
    /// What.
    pub text: String,
}

impl Warning {
    /// Whether it is for people: what API servers say is.
    #[must_use]
    pub fn is_for_people(&self) -> bool {
        self.code == MISCELLANEOUS_PERSISTENT && !self.text.is_empty()
    }
}

/// Hears of warnings.
pub type WarningHandler = Arc<dyn Fn(&Warning) + Send + Sync>;

/// The warnings of an answer. What makes no sense is left out.
pub(crate) fn warnings(headers: &HeaderMap) -> Vec<Warning> {
    let mut found = Vec::new();
    for value in headers.get_all(header::WARNING) {
        let mut rest = std::str::from_utf8(value.as_bytes()).unwrap_or_default();
        while let Some((warning, after)) = parse(rest) {
            found.push(warning);
            // Several may stand in one header.
            let Some(next) = after.strip_prefix(',') else { break };
            rest = next;
        }
    }
    found
}

/// A warning and what is behind it: `299 agent "text" "date"`, without the date mostly.
fn parse(text: &str) -> Option<(Warning, &str)> {
    let (code, rest) = text.trim().split_once(' ')?;
    let (agent, rest) = rest.split_once(' ')?;
    let number = code.parse().ok().filter(|number| code.len() == 3 && (100..300).contains(number))?;
    let (text, mut rest) = quoted(rest)?;
    if agent.is_empty() || agent.chars().chain(text.chars()).any(char::is_control) {
        return None;
    }
    if rest.starts_with('"') {
        (_, rest) = quoted(rest)?;
    }
    Some((Warning { code: number, agent: agent.to_owned(), text }, rest))
}

/// What is between the quotes, and what is behind them.
fn quoted(text: &str) -> Option<(String, &str)> {
    let text = text.strip_prefix('"')?;
    let (mut said, mut escaped) = (String::new(), false);
    for (at, char) in text.char_indices() {
        match char {
            '"' if !escaped => return Some((said, text[at + 1..].trim())),
            '\\' if !escaped => escaped = true,
            other => {
                said.push(other);
                escaped = false;
            }
        }
    }
    None
}

#[cfg(test)]
mod tests {
    use http::HeaderValue;

    use super::*;

    #[test]
    fn what_is_said_besides() {
        let check = |values: &[&str], expected: &[&str]| {
            let mut headers = HeaderMap::new();
            for value in values {
                headers.append(header::WARNING, HeaderValue::from_bytes(value.as_bytes()).unwrap());
            }
            let found: Vec<_> = warnings(&headers);
            let found: Vec<_> = found.iter().map(|it| format!("{} {} {}", it.code, it.agent, it.text)).collect();
            assert_eq!(found, expected, "{values:?}");
        };
        check(&[], &[]);
        check(&["299 - \"v1 Endpoints is deprecated\""], &["299 - v1 Endpoints is deprecated"]);
        check(&["299 - \"one\"", "299 - \"zwölf\""], &["299 - one", "299 - zwölf"]);
        let several = "299 - \"one, \\\"two\\\"\" \"Sat, 25 Aug 2012 23:34:45 GMT\", 199 host:1 \"three \\\\\"";
        check(&[several], &["299 - one, \"two\"", "199 host:1 three \\"]);
        check(&["299 - \"no end", "29 - \"x\"", "399 - \"x\"", "299 -", "299 - text", "299 - \"a\tb\""], &[]);
        check(&["nonsense", "299 - \"fine\""], &["299 - fine"]);
        let of = |code, text: &str| Warning { code, agent: "-".to_owned(), text: text.to_owned() };
        assert_eq!([of(299, "x"), of(199, "x"), of(299, "")].map(|it| it.is_for_people()), [true, false, false]);
    }
}
