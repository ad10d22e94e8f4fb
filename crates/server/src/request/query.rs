//! The parameters of a request, read as Go's `url.Values` reads them.

use std::borrow::Cow;

use super::url::{Mode, unescape};

/// How many parameters a query may have. Of one that has more, none is read, as in Go.
pub const MAX_PARAMETERS: usize = 10_000;

/// The parameters of a query, in order. What Go cannot read it leaves out without a word: bad escapes, and pairs with a
/// semicolon.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Query<'a>(Vec<(Cow<'a, str>, Cow<'a, str>)>);

impl<'a> Query<'a> {
    /// Reads the query of a target, without its question mark.
    #[must_use]
    pub fn parse(text: &'a str) -> Self {
        if text.bytes().filter(|&c| c == b'&').count() >= MAX_PARAMETERS {
            return Query::default();
        }
        let pairs = text.split('&').filter(|pair| !pair.is_empty() && !pair.contains(';'));
        let read = |pair: &'a str| {
            let (key, value) = pair.split_once('=').unwrap_or((pair, ""));
            Some((unescape(key, Mode::Query).ok()?, unescape(value, Mode::Query).ok()?))
        };
        Query(pairs.filter_map(read).collect())
    }

    /// The first value of a parameter; one without an equals sign has the empty value.
    #[must_use]
    pub fn get(&self, key: &str) -> Option<&str> {
        self.0.iter().find(|(name, _)| name == key).map(|(_, value)| &**value)
    }

    /// All values of a parameter, in order.
    pub fn all<'q>(&'q self, key: &'q str) -> impl Iterator<Item = &'q str> {
        self.0.iter().filter(move |(name, _)| name == key).map(|(_, value)| &**value)
    }

    /// A text; what is not given is empty.
    pub(super) fn text(&self, key: &str) -> &str {
        self.get(key).unwrap_or("")
    }

    /// A flag, if it is given: all but `0` and `false` sets it, even nothing.
    pub(super) fn flag(&self, key: &str) -> Option<bool> {
        self.get(key).map(|value| value != "0" && !value.eq_ignore_ascii_case("false"))
    }

    /// A number, if it is given.
    pub(super) fn number(&self, key: &str) -> Result<Option<i64>, capstan_api::go::IntError> {
        self.get(key).map(capstan_api::go::parse_int).transpose()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn reads_as_go() {
        fn check(text: &str, expected: &[(&str, &str)]) {
            let query = Query::parse(text);
            let pairs: Vec<_> = query.0.iter().map(|(key, value)| (&**key, &**value)).collect();
            assert_eq!(pairs, expected, "{text}");
        }
        check("", &[]);
        check("&&", &[]);
        check("=", &[("", "")]);
        check("a", &[("a", "")]);
        check("a=1&a=2&b=", &[("a", "1"), ("a", "2"), ("b", "")]);
        check("a=b=c", &[("a", "b=c")]);
        check("a+b=c+d%2B", &[("a b", "c d+")]);
        check("a;b=1&c=2", &[("c", "2")]);
        check("a=%zz&%4=1&c=%00%3B", &[("c", "\0;")]);
        check("a=%ff", &[("a", "\u{fffd}")]);
    }

    #[test]
    fn quirks() {
        let query = Query::parse("watch=0&x=False&y=&z&n=-5&big=9223372036854775808&plus=%2B7&t=tru");
        let flags: Vec<_> = ["watch", "x", "y", "z", "t", "none"].iter().map(|key| query.flag(key)).collect();
        assert_eq!(flags, [Some(false), Some(false), Some(true), Some(true), Some(true), None]);
        assert_eq!(
            (query.number("n"), query.number("plus"), query.number("none")),
            (Ok(Some(-5)), Ok(Some(7)), Ok(None))
        );
        for (key, words) in [
            ("big", r#"strconv.ParseInt: parsing "9223372036854775808": value out of range"#),
            ("y", r#"strconv.ParseInt: parsing "": invalid syntax"#),
        ] {
            assert_eq!(query.number(key).unwrap_err().to_string(), words);
        }
    }

    #[test]
    fn too_many_are_none() {
        let text = |count: usize| vec!["a=1"; count].join("&");
        assert_eq!(Query::parse(&text(MAX_PARAMETERS)).0.len(), MAX_PARAMETERS);
        assert_eq!(Query::parse(&text(MAX_PARAMETERS + 1)).0.len(), 0);
    }
}
