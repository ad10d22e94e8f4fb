//! What a list or a watch can be told.

use std::fmt;

use capstan_api::{
    Str,
    field::{Error, ErrorList, Path},
    go,
    selector::{FieldError, FieldSelector, ParseError, Selector},
    status::Status,
};

use super::{
    ContinueToken, Query,
    options::{invalid, shown_as_json},
    resource_version::parse_resource_version,
};

/// Of a [`ListOptions::resource_version_match`]: exactly this version.
pub const EXACT: &str = "Exact";
/// Of a [`ListOptions::resource_version_match`]: this version or any later.
pub const NOT_OLDER_THAN: &str = "NotOlderThan";

/// The options of list, watch and deletecollection.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ListOptions {
    /// What labels objects must have.
    pub label_selector: Selector,
    /// What fields objects must have; the labels of fields are still the client's.
    pub field_selector: FieldSelector,
    /// Whether changes are wanted rather than objects.
    pub watch: bool,
    /// Whether a watch may get bookmarks.
    pub allow_watch_bookmarks: bool,
    /// The version to list at or to watch from, as it was sent.
    pub resource_version: Str,
    /// How the version is meant: [`EXACT`], [`NOT_OLDER_THAN`], or nothing.
    pub resource_version_match: Str,
    /// After how many seconds a watch ends.
    pub timeout_seconds: Option<i64>,
    /// How many objects are wanted at most; 0 is all.
    pub limit: i64,
    /// Where a list that was cut short goes on, as it was sent.
    pub continue_token: String,
    /// Whether a watch begins with the objects that are there.
    pub send_initial_events: Option<bool>,
}

impl Default for ListOptions {
    fn default() -> Self {
        ListOptions {
            label_selector: Selector::everything(),
            field_selector: FieldSelector::everything(),
            watch: false,
            allow_watch_bookmarks: false,
            resource_version: Str::default(),
            resource_version_match: Str::default(),
            timeout_seconds: None,
            limit: 0,
            continue_token: String::new(),
            send_initial_events: None,
        }
    }
}

/// Why a query has no list options.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum DecodeError {
    /// A number that is none.
    Number(go::IntError),
    /// A label selector that cannot be read.
    Labels(ParseError),
    /// A field selector that cannot be read.
    Fields(FieldError),
}

impl fmt::Display for DecodeError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            DecodeError::Number(error) => error.fmt(f),
            DecodeError::Labels(error) => error.fmt(f),
            DecodeError::Fields(error) => error.fmt(f),
        }
    }
}

impl std::error::Error for DecodeError {}

/// Where a list begins and what state of the world it is of.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ListStart {
    /// The key to begin with, relative to the resource's own prefix; empty at the beginning.
    pub key: String,
    /// The version that the list must be of; 0 if any that is fresh enough will do.
    pub revision: u64,
    /// The version that the list must not be older than; 0 if it does not matter.
    pub not_older_than: u64,
}

impl ListOptions {
    /// Reads the options as they are, without defaults and without asking whether they make sense together.
    ///
    /// # Errors
    /// The first that cannot be read.
    pub fn decode(query: &Query<'_>) -> Result<Self, DecodeError> {
        let timeout_seconds = query.number("timeoutSeconds").map_err(DecodeError::Number)?;
        let limit = query.number("limit").map_err(DecodeError::Number)?.unwrap_or_default();
        Ok(ListOptions {
            label_selector: query.text("labelSelector").parse().map_err(DecodeError::Labels)?,
            field_selector: query.text("fieldSelector").parse().map_err(DecodeError::Fields)?,
            watch: query.flag("watch").unwrap_or_default(),
            allow_watch_bookmarks: query.flag("allowWatchBookmarks").unwrap_or_default(),
            resource_version: query.text("resourceVersion").into(),
            resource_version_match: query.text("resourceVersionMatch").into(),
            timeout_seconds,
            limit,
            continue_token: query.text("continue").to_owned(),
            send_initial_events: query.flag("sendInitialEvents"),
        })
    }

    /// Reads the options, fills in defaults, and checks them.
    ///
    /// # Errors
    /// 400 for what cannot be read, 422 for what does not go together.
    pub fn parse(query: &Query<'_>) -> Result<Self, Status> {
        let mut options = ListOptions::decode(query).map_err(|error| Status::bad_request(error.to_string()))?;
        options.set_defaults();
        invalid("ListOptions", options.validate())?;
        Ok(options)
    }

    /// A watch from nowhere, or from any version, begins with the objects that are there.
    fn set_defaults(&mut self) {
        let plain = self.send_initial_events.is_none() && self.resource_version_match.is_empty();
        if plain && self.watch && matches!(&*self.resource_version, "" | "0") {
            self.send_initial_events = Some(true);
            self.resource_version_match = NOT_OLDER_THAN.into();
        }
    }

    fn validate(&self) -> ErrorList {
        let path = Path::new("resourceVersionMatch");
        let mut errors = ErrorList::new();
        let mut forbid = |when: bool, words: &str| errors.extend(when.then(|| Error::forbidden(path, words)));
        let wanted = &*self.resource_version_match;
        let unknown = |supported: &[&str]| shown_as_json(Error::not_supported(path, wanted, supported));
        let (given, continued) = (!wanted.is_empty(), !self.continue_token.is_empty());
        if self.watch {
            let (initial, right) = (self.send_initial_events.is_some(), wanted == NOT_OLDER_THAN);
            forbid(initial && !right, "sendInitialEvents requires setting resourceVersionMatch to NotOlderThan");
            let words = "resourceVersionMatch is forbidden for watch unless sendInitialEvents is provided";
            forbid(given && !initial, words);
            errors.extend((given && !right).then(|| unknown(&[NOT_OLDER_THAN])));
            let words = "resourceVersionMatch is forbidden when continue is provided";
            errors.extend((given && continued).then(|| Error::forbidden(path, words)));
            return errors;
        }
        let words = "resourceVersionMatch is forbidden unless resourceVersion is provided";
        forbid(given && self.resource_version.is_empty(), words);
        forbid(given && continued, "resourceVersionMatch is forbidden when continue is provided");
        let known = !given || wanted == EXACT || wanted == NOT_OLDER_THAN;
        errors.extend((!known).then(|| unknown(&[EXACT, NOT_OLDER_THAN, ""])));
        if wanted == EXACT && self.resource_version == "0" {
            let words = r#"resourceVersionMatch "exact" is forbidden for resourceVersion "0""#;
            errors.push(Error::forbidden(path, words));
        }
        if self.send_initial_events.is_some() {
            let words = "sendInitialEvents is forbidden for list";
            errors.push(Error::forbidden(Path::new("sendInitialEvents"), words));
        }
        errors
    }

    /// Restricts the options to one object: the name of the request, when it has one, and the field selector must
    /// agree.
    ///
    /// # Errors
    /// 400 when the field selector asks for something else.
    pub fn for_name(mut self, name: &str) -> Result<Self, Status> {
        if self.field_selector.is_everything() {
            self.field_selector = FieldSelector::equals("metadata.name", name);
        } else if self.field_selector.requires_exact_match("metadata.name") != Some(name) {
            return Err(Status::bad_request("fieldSelector metadata.name doesn't match requested name"));
        }
        Ok(self)
    }

    /// Where the list begins, from the continue token and the version together.
    ///
    /// # Errors
    /// 400 when either cannot be read or both are given.
    pub fn start(&self) -> Result<ListStart, Status> {
        if !self.continue_token.is_empty() {
            let token = ContinueToken::decode(&self.continue_token)
                .map_err(|error| Status::bad_request(format!("invalid continue token: {error}")))?;
            if !matches!(&*self.resource_version, "" | "0") {
                let words = "specifying resource version is not allowed when using continue";
                return Err(Status::bad_request(words));
            }
            // A negative version stands for the latest: the list goes on, but no longer over one snapshot.
            let revision = u64::try_from(token.resource_version).unwrap_or_default();
            return Ok(ListStart { key: token.start, revision, not_older_than: 0 });
        }
        let version = parse_resource_version(&self.resource_version).map_err(|error| error.for_list())?;
        let exact = match &*self.resource_version_match {
            EXACT => true,
            NOT_OLDER_THAN => false,
            // Before there were matches, a page of a list was of exactly the version.
            _ => self.limit > 0,
        };
        let (revision, not_older_than) = if exact { (version, 0) } else { (0, version) };
        Ok(ListStart { key: String::new(), revision, not_older_than })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A query a line, and what upstream answered: `ok`, or code and message.
    #[test]
    fn answers_as_upstream() {
        let mut cases = 0;
        for case in include_str!("list_cases.txt").lines().filter(|line| !line.starts_with('#')) {
            let (text, expected) = case.split_once(' ').unwrap();
            let answer = ListOptions::parse(&Query::parse(text)).and_then(|options| options.start());
            let said = answer.map_or_else(|status| format!("{} {}", status.code, status.message), |_| "ok".to_owned());
            assert_eq!(said, expected, "{text}");
            cases += 1;
        }
        assert!(cases > 30);
    }

    #[test]
    fn causes() {
        let status = ListOptions::parse(&Query::parse("resourceVersionMatch=Foo")).unwrap_err();
        let details = status.details.unwrap();
        assert_eq!((&*details.group, &*details.kind, &*details.name), ("meta.k8s.io", "ListOptions", ""));
        let causes: Vec<_> = details.causes.iter().map(|cause| (&*cause.reason, &*cause.field)).collect();
        let field = "resourceVersionMatch";
        assert_eq!(causes, [("FieldValueForbidden", field), ("FieldValueNotSupported", field)]);
    }

    #[test]
    fn watches_begin_with_what_is_there() {
        for (text, initial) in [
            ("watch=1", Some(true)),
            ("watch=1&resourceVersion=0", Some(true)),
            ("watch=1&resourceVersion=5", None),
            ("watch=1&sendInitialEvents=false&resourceVersionMatch=NotOlderThan", Some(false)),
            ("watch=0", None),
        ] {
            assert_eq!(ListOptions::parse(&Query::parse(text)).unwrap().send_initial_events, initial, "{text}");
        }
    }

    #[test]
    fn one_object() {
        let wrong = "fieldSelector metadata.name doesn't match requested name";
        for (text, expected) in [
            ("", "metadata.name=a"),
            ("fieldSelector=metadata.name%3Da,x%3Dy", "metadata.name=a,x=y"),
            ("fieldSelector=metadata.name%3Db", wrong),
            ("fieldSelector=x%3Dy", wrong),
        ] {
            let options = ListOptions::parse(&Query::parse(text)).unwrap().for_name("a");
            let said = options.map_or_else(|status| status.message, |options| options.field_selector.to_string());
            assert_eq!(said, expected, "{text}");
        }
    }

    #[test]
    fn where_lists_begin() {
        let token = ContinueToken { resource_version: 7, start: "b\0".into() }.encode();
        let inconsistent = ContinueToken { resource_version: -1, start: "b".into() }.encode();
        for (text, key, revision, not_older_than) in [
            ("", "", 0, 0),
            ("resourceVersion=0", "", 0, 0),
            ("resourceVersion=5", "", 0, 5),
            ("resourceVersion=5&limit=1", "", 5, 0),
            ("resourceVersion=5&limit=1&resourceVersionMatch=NotOlderThan", "", 0, 5),
            ("resourceVersion=5&resourceVersionMatch=Exact", "", 5, 0),
            (&format!("resourceVersion=0&continue={token}"), "b\0", 7, 0),
            (&format!("continue={inconsistent}"), "b", 0, 0),
        ] {
            let start = ListOptions::parse(&Query::parse(text)).unwrap().start().unwrap();
            assert_eq!(start, ListStart { key: key.to_owned(), revision, not_older_than }, "{text}");
        }
    }
}
