//! Formats that have names: what a value of them looks like.

use capstan_api::{go, schema::Format, validation};

use super::{Call, Impl};
use crate::value::{Outcome, Val};

/// A format: an index into the table.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct NamedFormat(usize);

struct Row {
    /// The function that returns it.
    function: &'static str,
    /// What it is called.
    name: &'static str,
    regex_size: u64,
    validate: fn(&str) -> Vec<String>,
}

/// The lengths of upstream's expressions for UUIDs and dates.
const UUID: u64 = 70;
const DATE_TIME: u64 = 71;

fn unless(right: bool, message: &str) -> Vec<String> {
    if right { Vec::new() } else { vec![message.to_owned()] }
}

static ROWS: [Row; 13] = [
    row("format.dns1123Label", "DNS1123Label", 30, |text| validation::name_is_dns_label(text, false)),
    row("format.dns1123Subdomain", "DNS1123Subdomain", 60, |text| validation::name_is_dns_subdomain(text, false)),
    row("format.dns1035Label", "DNS1035Label", 30, |text| validation::name_is_dns1035_label(text, false)),
    row("format.qualifiedName", "QualifiedName", 60, validation::is_qualified_name),
    row("format.dns1123LabelPrefix", "DNS1123LabelPrefix", 30, |text| validation::name_is_dns_label(text, true)),
    row("format.dns1123SubdomainPrefix", "DNS1123SubdomainPrefix", 60, |text| {
        validation::name_is_dns_subdomain(text, true)
    }),
    row("format.dns1035LabelPrefix", "DNS1035LabelPrefix", 30, |text| validation::name_is_dns1035_label(text, true)),
    row("format.labelValue", "LabelValue", 40, validation::is_valid_label_value),
    row("format.uri", "URI", 1103, |text| match text {
        "" => vec!["parse \"\": empty url".to_owned()],
        _ => unless(Format::Uri.accepts(text), &format!("parse {}: invalid URI for request", go::quote(text))),
    }),
    row("format.uuid", "uuid", UUID, |text| unless(Format::Uuid.accepts(text), "does not match the UUID format")),
    row("format.byte", "byte", 84, |text| unless(Format::Byte.accepts(text), "invalid base64")),
    row("format.date", "date", DATE_TIME, |text| unless(Format::Date.accepts(text), "invalid date")),
    row("format.datetime", "datetime", DATE_TIME, |text| unless(Format::DateTime.accepts(text), "invalid datetime")),
];

const fn row(function: &'static str, name: &'static str, regex_size: u64, validate: fn(&str) -> Vec<String>) -> Row {
    Row { function, name, regex_size, validate }
}

impl NamedFormat {
    pub(crate) fn regex_size(self) -> u64 {
        ROWS[self.0].regex_size
    }

    /// What it is called.
    #[must_use]
    pub fn name(self) -> &'static str {
        ROWS[self.0].name
    }
}

fn named(function: &str) -> Option<NamedFormat> {
    ROWS.iter().position(|row| row.function == function).map(NamedFormat)
}

pub(super) fn find(name: &str) -> Option<Impl> {
    Some(match name {
        "format.named" => |call| {
            let found = named(&format!("format.{}", call.args[0].as_str()?));
            Some(Ok(found.map_or(Val::Optional(None), |format| Val::some(Val::Format(format)))))
        },
        "validate" => validate,
        _ if named(name).is_some() => |call| named(&call.step.function).map(|format| Ok(Val::Format(format))),
        _ => return None,
    })
}

fn validate<'a>(call: &Call<'_, 'a>) -> Option<Outcome<'a>> {
    let [Val::Format(format), Val::String(text)] = call.args else { return None };
    let messages = (ROWS[format.0].validate)(text);
    if messages.is_empty() {
        return Some(Ok(Val::Optional(None)));
    }
    Some(Ok(Val::some(Val::list(messages.into_iter().map(Val::text).collect()))))
}
