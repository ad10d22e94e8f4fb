//! Options of requests as queries.

use std::fmt::Write as _;

use serde::Serialize;

/// A path with the options as its query. Options that are as by default are left out.
pub(crate) fn with_options<T: Serialize>(path: &str, options: &T) -> String {
    let Ok(serde_json::Value::Object(options)) = serde_json::to_value(options) else { return path.to_owned() };
    let mut query = String::new();
    for (name, value) in &options {
        match value {
            serde_json::Value::String(text) => push(&mut query, name, text),
            // A list, such as `dryRun`, is the same name again and again.
            serde_json::Value::Array(items) => {
                items.iter().filter_map(serde_json::Value::as_str).for_each(|item| push(&mut query, name, item));
            }
            other => push(&mut query, name, &other.to_string()),
        }
    }
    if query.is_empty() { path.to_owned() } else { format!("{path}?{query}") }
}

fn push(query: &mut String, name: &str, value: &str) {
    if !query.is_empty() {
        query.push('&');
    }
    query.push_str(name);
    query.push('=');
    for byte in value.bytes() {
        match byte {
            b'a'..=b'z' | b'A'..=b'Z' | b'0'..=b'9' | b'-' | b'_' | b'.' | b'~' => query.push(byte.into()),
            _ => write!(query, "%{byte:02X}").expect("memory takes all"),
        }
    }
}

#[cfg(test)]
mod tests {
    use capstan_api::options::{CreateOptions, ListOptions};

    use super::*;

    #[test]
    fn options_become_queries() {
        let list = ListOptions {
            label_selector: "app in (a,b)".into(),
            limit: 5,
            watch: true,
            timeout_seconds: Some(3),
            ..ListOptions::default()
        };
        assert_eq!(
            with_options("/p", &list),
            "/p?labelSelector=app%20in%20%28a%2Cb%29&limit=5&timeoutSeconds=3&watch=true"
        );
        assert_eq!(with_options("/p", &ListOptions::default()), "/p");
        let create = CreateOptions { dry_run: vec!["All".into()], ..CreateOptions::default() };
        assert_eq!(with_options("/p", &create), "/p?dryRun=All");
    }
}
