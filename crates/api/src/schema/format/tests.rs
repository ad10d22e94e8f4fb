//! Formats against what upstream accepts.

use crate::schema::{Format, cases};

#[test]
fn as_upstream() {
    for group in cases::groups(include_str!("cases.txt")) {
        let format = Format::parse(group.head);
        assert!(format.is_of_strings(), "{}", group.head);
        for (accepted, text) in group.answers() {
            assert_eq!(format.accepts(&text), accepted, "{}: {text:?}", group.head);
        }
    }
}

#[test]
fn names() {
    assert_eq!(Format::parse("date-time"), Format::DateTime);
    assert_eq!(Format::parse("datetime"), Format::DateTime);
    assert_eq!(Format::parse("nope"), Format::None);
    assert_eq!(Format::parse(""), Format::None);
    assert_eq!(Format::DateTime.name(), "date-time");
    assert!(!Format::Int32.is_of_strings());
}
