//! The name of the manager of a request that names none.

use crate::go;

/// How many bytes of a user agent make a name at most.
const MAX_LENGTH: usize = 128;

/// The manager of a request: the one that it names, else what stands before the first `/` of its user agent, without
/// characters that cannot be printed.
#[must_use]
pub fn manager_name(field_manager: &str, user_agent: &str) -> String {
    if !field_manager.is_empty() {
        return field_manager.to_owned();
    }
    let mut name = String::new();
    for c in user_agent.split('/').next().unwrap_or_default().chars().filter(|&c| go::is_print(c)) {
        if name.len() + c.len_utf8() > MAX_LENGTH {
            break;
        }
        name.push(c);
    }
    name
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names() {
        let long = "é".repeat(100);
        for (manager, agent, name) in [
            ("me", "kubectl/v1", "me"),
            ("", "kubectl/v1.36 (linux)", "kubectl"),
            ("", "a\u{7}b c", "ab c"),
            ("", "", ""),
            ("", long.as_str(), &long[..128]),
        ] {
            assert_eq!(manager_name(manager, agent), name);
        }
    }
}
