//! For tests: cases that were put to upstream's code, with its answers.

use std::{fs, path::Path};

/// Puts each input of a file in `testdata` to `answer` and compares. A line is `["input","answer"]`.
pub(crate) fn check(file: &str, mut answer: impl FnMut(&str) -> String) {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("testdata").join(file);
    let text = fs::read_to_string(&path).unwrap_or_else(|error| panic!("{}: {error}", path.display()));
    let mut wrong = Vec::new();
    for line in text.lines() {
        let (input, expected): (String, String) = serde_json::from_str(line).unwrap();
        let actual = answer(&input);
        if actual != expected {
            wrong.push(format!("{input:?}\n  expected {expected}\n  got      {actual}"));
        }
    }
    assert!(!text.is_empty() && wrong.is_empty(), "{file}: {} wrong\n{}", wrong.len(), wrong.join("\n"));
}
