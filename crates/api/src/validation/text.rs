//! Names and numbers of all sorts: ports, headers, variables, keys, percentages, path segments.

use super::{Form, Messages, check, dns::SUBDOMAIN_MAX, inclusive_range_error, max_len_error};
use crate::go;

const C_IDENTIFIER: Form = Form {
    sentence: "a valid C identifier must start with alphabetic character or '_', \
               followed by a string of alphanumeric characters or '_'",
    regex: "[A-Za-z_][A-Za-z0-9_]*",
    examples: &["my_name", "MY_NAME", "MyName"],
};

const PERCENT: Form = Form {
    sentence: "a valid percent string must be a numeric string followed by an ending '%'",
    regex: "[0-9]+%",
    examples: &["1%", "93%"],
};

const HTTP_HEADER_NAME: Form = Form {
    sentence: "a valid HTTP header must consist of alphanumeric characters or '-'",
    regex: "[-A-Za-z0-9]+",
    examples: &["X-Header-Name"],
};

const ENV_VAR_NAME: Form = Form {
    sentence: "a valid environment variable name must consist of alphabetic characters, digits, '_', '-', or '.', \
               and must not start with a digit",
    regex: "[-._a-zA-Z][-._a-zA-Z0-9]*",
    examples: &["my.env-name", "MY_ENV.NAME", "MyEnvName1"],
};

const CONFIG_MAP_KEY: Form = Form {
    sentence: "a valid config key must consist of alphanumeric characters, '-', '_' or '.'",
    regex: "[-._a-zA-Z0-9]+",
    examples: &["key.name", "KEY_NAME", "key-name"],
};

/// Whether there is something, and all of it is letters, digits or `more`.
fn all_of(text: &str, more: &[u8]) -> bool {
    !text.is_empty() && text.bytes().all(|c| c.is_ascii_alphanumeric() || more.contains(&c))
}

fn starts_with_digit(text: &str) -> bool {
    text.starts_with(|c: char| c.is_ascii_digit())
}

fn in_form(matches: bool, form: &Form) -> Messages {
    (!matches).then(|| form.message()).into_iter().collect()
}

/// An identifier as in C.
#[must_use]
pub fn is_c_identifier(value: &str) -> Messages {
    in_form(all_of(value, b"_") && !starts_with_digit(value), &C_IDENTIFIER)
}

/// Digits and `%`.
#[must_use]
pub fn is_valid_percent(value: &str) -> Messages {
    let digits = value.strip_suffix('%').filter(|digits| !digits.is_empty());
    in_form(digits.is_some_and(|digits| digits.bytes().all(|c| c.is_ascii_digit())), &PERCENT)
}

/// The name of an HTTP header.
#[must_use]
pub fn is_http_header_name(value: &str) -> Messages {
    in_form(all_of(value, b"-"), &HTTP_HEADER_NAME)
}

/// The name of an environment variable, as strictly as it was once.
#[must_use]
pub fn is_env_var_name(value: &str) -> Messages {
    let mut messages = in_form(all_of(value, b"-._") && !starts_with_digit(value), &ENV_VAR_NAME);
    messages.extend(ch_dir_prefix(value));
    messages
}

/// The name of an environment variable, as it may be today.
#[must_use]
pub fn is_relaxed_env_var_name(value: &str) -> Messages {
    let mut messages = Messages::new();
    if value.is_empty() {
        messages.push("environment variable name must be non-empty".to_owned());
    }
    if !value.bytes().all(|c| (c.is_ascii_graphic() || c == b' ') && c != b'=') {
        let sentence =
            "a valid environment variable name must consist only of printable ASCII characters other than '='";
        messages.push(sentence.to_owned());
    }
    messages
}

/// The key of a ConfigMap or Secret.
#[must_use]
pub fn is_config_map_key(value: &str) -> Messages {
    let mut messages = check(value, SUBDOMAIN_MAX, all_of(value, b"-._"), &CONFIG_MAP_KEY);
    messages.extend(ch_dir_prefix(value));
    messages
}

/// What becomes a file must not lead out of its folder.
fn ch_dir_prefix(value: &str) -> Option<String> {
    match value {
        "." | ".." => Some(format!("must not be '{value}'")),
        _ => value.starts_with("..").then(|| "must not start with '..'".to_owned()),
    }
}

/// A number from `min` to `max`.
#[must_use]
pub fn is_in_range(value: i64, min: i64, max: i64) -> Messages {
    if (min..=max).contains(&value) { Messages::new() } else { vec![inclusive_range_error(min, max)] }
}

/// The number of a port.
#[must_use]
pub fn is_valid_port_num(port: i64) -> Messages {
    is_in_range(port, 1, 65_535)
}

/// The number of a user.
#[must_use]
pub fn is_valid_user_id(id: i64) -> Messages {
    is_in_range(id, 0, i32::MAX.into())
}

/// The number of a group.
#[must_use]
pub fn is_valid_group_id(id: i64) -> Messages {
    is_in_range(id, 0, i32::MAX.into())
}

/// The name of a port.
#[must_use]
pub fn is_valid_port_name(port: &str) -> Messages {
    const MAX: usize = 15;
    let in_charset = |c: u8| c.is_ascii_lowercase() || c.is_ascii_digit() || c == b'-';
    let mut messages = Messages::new();
    let mut say = |wrong: bool, message: &str| {
        if wrong {
            messages.push(message.to_owned());
        }
    };
    say(port.len() > MAX, &max_len_error(MAX));
    say(
        port.is_empty() || !port.bytes().all(in_charset),
        "must contain only alpha-numeric characters (a-z, 0-9), and hyphens (-)",
    );
    say(!port.bytes().any(|c| c.is_ascii_lowercase()), "must contain at least one letter (a-z)");
    say(port.contains("--"), "must not contain consecutive hyphens");
    say(port.starts_with('-') || port.ends_with('-'), "must not begin or end with a hyphen");
    messages
}

/// The name of an object that is put into a path.
#[must_use]
pub fn is_path_segment_name(name: &str) -> Messages {
    match name {
        "." | ".." => vec![format!("may not be '{name}'")],
        _ => is_path_segment_prefix(name),
    }
}

/// The beginning of a name that is put into a path.
#[must_use]
pub fn is_path_segment_prefix(name: &str) -> Messages {
    ['/', '%'].into_iter().filter(|c| name.contains(*c)).map(|c| format!("may not contain '{c}'")).collect()
}

/// What is said to a character that cannot be printed: `invalid character U+0007 (at position 3)`.
pub(super) fn unprintable(text: &str) -> impl Iterator<Item = String> + '_ {
    let wrong = text.char_indices().filter(|(_, c)| !go::is_print(*c));
    wrong.map(|(at, c)| format!("invalid character U+{:04X} (at position {at})", u32::from(c)))
}
