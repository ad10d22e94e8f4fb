//! Which loops run, and running them.

use std::fmt;

use tokio::task::JoinSet;

use crate::{CONTROLLERS, ControllerContext, Descriptor};

/// A name that no loop has.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct UnknownController(String);

impl fmt::Display for UnknownController {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:?} is not in the list of known controllers", self.0)
    }
}

impl std::error::Error for UnknownController {}

/// The loops that a list of words chooses: `*` for all that are on by default, `name` for one more, `-name` for one
/// less.
///
/// # Errors
/// No loop has such a name.
pub fn select(words: &str) -> Result<Vec<&'static Descriptor>, UnknownController> {
    let words: Vec<&str> = words.split(',').map(str::trim).filter(|word| !word.is_empty()).collect();
    for word in words.iter().filter(|word| **word != "*") {
        let name = word.strip_prefix('-').unwrap_or(word);
        if !CONTROLLERS.iter().any(|known| known.name == name) {
            return Err(UnknownController(name.to_owned()));
        }
    }
    let chosen = |known: &&Descriptor| {
        // What is said of a loop by its name counts before what is said of all.
        let off = words.iter().any(|word| word.strip_prefix('-') == Some(known.name));
        words.contains(&known.name) || !off && known.on_by_default && words.contains(&"*")
    };
    Ok(CONTROLLERS.iter().filter(chosen).collect())
}

/// Runs loops until the context says stop. All of them have asked for their informers before the first one starts.
pub async fn run(context: &ControllerContext, which: &[&'static Descriptor]) {
    let loops: Vec<_> = which.iter().map(|descriptor| (descriptor.run)(context)).collect();
    context.informers.start();
    let mut tasks = JoinSet::new();
    for work in loops {
        tasks.spawn(work);
    }
    while tasks.join_next().await.is_some() {}
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn loops_are_chosen_by_name() {
        let count = |words: &str| select(words).map(|chosen| chosen.len());
        let all = CONTROLLERS.iter().filter(|known| known.on_by_default).count();
        assert_eq!(count("*"), Ok(all));
        assert_eq!(count("*,-namespace-controller"), Ok(all - 1));
        assert_eq!(count("namespace-controller"), Ok(1));
        assert_eq!(count(""), Ok(0));
        assert_eq!(count("*,-nobody").unwrap_err().to_string(), r#""nobody" is not in the list of known controllers"#);
        let mut names: Vec<_> = CONTROLLERS.iter().map(|known| known.name).collect();
        names.sort_unstable();
        names.dedup();
        assert_eq!(names.len(), CONTROLLERS.len(), "each name is there once");
    }
}
