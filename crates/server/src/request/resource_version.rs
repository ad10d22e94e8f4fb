//! Resource versions as clients send them.

use std::fmt;

use capstan_api::{go, status::Status};

/// Text that is not a resource version, in the words of upstream.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ResourceVersionError {
    text: String,
    range: bool,
}

impl fmt::Display for ResourceVersionError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let shown = go::quote(&self.text);
        let why = if self.range { "value out of range" } else { "invalid syntax" };
        write!(f, "resourceVersion: Invalid value: {shown}: strconv.ParseUint: parsing {shown}: {why}")
    }
}

impl std::error::Error for ResourceVersionError {}

impl ResourceVersionError {
    /// What a LIST answers: a bad request. GET, PUT and WATCH answer 500 with the words alone.
    #[must_use]
    pub fn for_list(&self) -> Status {
        Status::bad_request(format!("invalid resource version: {self}"))
    }

    /// What all but LIST answer: an error without a reason, 500.
    #[must_use]
    pub fn for_others(&self) -> Status {
        Status::unknown(self.to_string())
    }
}

/// Reads a resource version; nothing is 0, which means any.
///
/// # Errors
/// When the text is not a number of 64 bits without a sign.
pub fn parse_resource_version(text: &str) -> Result<u64, ResourceVersionError> {
    if text.is_empty() {
        return Ok(0);
    }
    let digits = text.bytes().all(|c| c.is_ascii_digit());
    let number = if digits { text.parse().ok() } else { None };
    number.ok_or_else(|| ResourceVersionError { text: text.to_owned(), range: digits })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn reads_as_upstream() {
        for (text, expected) in [("", 0), ("0", 0), ("007", 7), ("18446744073709551615", u64::MAX)] {
            assert_eq!(parse_resource_version(text), Ok(expected));
        }
        for (text, why) in [
            ("abc", "invalid syntax"),
            ("-1", "invalid syntax"),
            ("+1", "invalid syntax"),
            ("18446744073709551616", "value out of range"),
        ] {
            let error = parse_resource_version(text).unwrap_err();
            let words =
                format!(r#"resourceVersion: Invalid value: "{text}": strconv.ParseUint: parsing "{text}": {why}"#);
            assert_eq!(error.to_string(), words);
            assert_eq!(
                (error.for_list().message, error.for_list().code),
                (format!("invalid resource version: {words}"), 400)
            );
            assert_eq!((error.for_others().message, error.for_others().code), (words, 500));
        }
    }
}
