//! The house rules that no compiler checks: edges between crates, lengths of files and lines, opening sentences.

use std::{
    fs,
    path::{Path, PathBuf},
};

/// Which of our crates may use which. Anything else fails: an edge is an architectural decision, see ARCHITECTURE.md.
const EDGES: &[(&str, &[&str])] = &[
    ("capstan-clock", &[]),
    ("capstan-api", &[]),
    ("capstan-cel", &["api"]),
    ("capstan-storage", &["clock"]),
    ("capstan-server", &["api", "cel", "storage", "clock"]),
    ("capstan-spdy", &[]),
    ("capstan-client", &["api", "clock", "spdy"]),
    ("capstan-runtime", &["client", "api", "clock"]),
    ("capstan-controllers", &["runtime", "client", "api", "cel", "clock"]),
    ("capstan-scheduler", &["runtime", "client", "api", "cel", "clock"]),
    ("capstan-kubelet", &["runtime", "client", "api", "clock", "spdy"]),
    ("capstan", &["api", "storage", "server", "clock", "client", "runtime", "controllers", "scheduler", "kubelet"]),
    ("cnat", &["runtime", "client", "api"]),
    ("capstan-bench", &["api", "client", "clock", "runtime", "server", "storage"]),
    ("xtask", &["api"]),
    ("capstan-fuzz", &["api", "cel"]),
];

/// The most lines of a source file, its tests left out. Aim for 300.
const MAX_LINES: usize = 600;

/// The longest line, in characters. Tests and long literals may be longer.
const MAX_WIDTH: usize = 120;

/// Files that may be longer than [`MAX_LINES`], each with its reason.
const LONG_FILES: &[(&str, &str)] = &[];

/// Directories that hold no source of ours.
const SKIP: &[&str] = &["target", ".git", "corpus", "artifacts"];

/// Checks every rule and tells all that is broken.
pub(crate) fn run(_: &[String]) -> Result<(), String> {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).parent().expect("xtask is in the workspace");
    let mut files = Vec::new();
    collect(root, &mut files).map_err(|error| format!("cannot read the tree: {error}"))?;
    files.sort();
    let mut broken = Vec::new();
    for file in &files {
        let name = file.strip_prefix(root).unwrap_or(file).display().to_string();
        let text = fs::read_to_string(file).map_err(|error| format!("cannot read {name}: {error}"))?;
        if name.ends_with(".rs") {
            check_source(&name, &text, &mut broken);
        } else {
            check_manifest(&name, &text, &mut broken);
        }
    }
    if broken.is_empty() {
        println!("tidy: {} files in order", files.len());
        return Ok(());
    }
    Err(format!("{} rules broken\n  {}", broken.len(), broken.join("\n  ")))
}

fn collect(dir: &Path, files: &mut Vec<PathBuf>) -> std::io::Result<()> {
    for entry in fs::read_dir(dir)? {
        let path = entry?.path();
        let name = path.file_name().unwrap_or_default().to_string_lossy().into_owned();
        if path.is_dir() && !SKIP.contains(&name.as_str()) {
            collect(&path, files)?;
        } else if name.ends_with(".rs") || name == "Cargo.toml" {
            files.push(path);
        }
    }
    Ok(())
}

fn check_source(name: &str, text: &str, broken: &mut Vec<String>) {
    let opening = text.lines().find(|line| !line.starts_with("#!"));
    if !opening.is_some_and(|line| line.starts_with("//! ")) {
        broken.push(format!("{name}: a module opens with what it is for (`//! …`)"));
    }
    let code: Vec<&str> = text.lines().take_while(|line| *line != "#[cfg(test)]").collect();
    let justified = LONG_FILES.iter().any(|(file, _)| *file == name);
    if code.len() > MAX_LINES && !justified && !is_test(name) {
        broken.push(format!("{name}: {} lines, at most {MAX_LINES}: split it, or justify it in tidy", code.len()));
    }
    for (at, line) in code.iter().enumerate() {
        let width = line.chars().count();
        if width > MAX_WIDTH && !is_test(name) && !has_long_literal(line) {
            broken.push(format!("{name}:{}: {width} characters, at most {MAX_WIDTH}", at + 1));
        }
    }
}

/// Whether the line has a literal that nothing can break.
fn has_long_literal(line: &str) -> bool {
    line.split('"').skip(1).step_by(2).any(|literal| literal.chars().count() > MAX_WIDTH / 3) || line.contains("r#\"")
}

fn is_test(name: &str) -> bool {
    name.contains("/tests/") || name.ends_with("/tests.rs")
}

fn check_manifest(name: &str, text: &str, broken: &mut Vec<String>) {
    let mut section = "";
    let mut package = "";
    for line in text.lines().map(str::trim) {
        if line.starts_with('[') {
            section = line;
        } else if section == "[package]"
            && let Some(value) = line.strip_prefix("name = ")
        {
            package = value.trim_matches('"');
        } else if matches!(section, "[dependencies]" | "[build-dependencies]")
            && let Some(used) = line.strip_prefix("capstan-")
        {
            let used = used.split(['.', ' ', '=']).next().unwrap_or_default();
            let allowed = EDGES.iter().find(|(from, _)| *from == package).map(|(_, to)| *to);
            match allowed {
                None => broken.push(format!("{name}: {package} is not in tidy's table of edges")),
                Some(allowed) if !allowed.contains(&used) => {
                    broken.push(format!("{name}: {package} may not use capstan-{used}"));
                }
                Some(_) => {}
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn check(name: &str, text: &str, expected: &[&str]) {
        let mut broken = Vec::new();
        if name.ends_with(".rs") {
            check_source(name, text, &mut broken);
        } else {
            check_manifest(name, text, &mut broken);
        }
        assert_eq!(broken, expected);
    }

    #[test]
    fn sources() {
        check("a.rs", "//! Says what it is for.\n", &[]);
        check("a.rs", "#![expect(x)]\n//! Says what it is for.\n", &[]);
        check("a.rs", "use x;\n", &["a.rs: a module opens with what it is for (`//! …`)"]);
        let long = "//! x\n".to_owned() + &"x".repeat(121);
        check("a.rs", &long, &["a.rs:2: 121 characters, at most 120"]);
        check("a/tests/b.rs", &long, &[]);
        let many = "//! x\n".to_owned() + &"x\n".repeat(600);
        check("a.rs", &many, &["a.rs: 601 lines, at most 600: split it, or justify it in tidy"]);
        check("a.rs", &("//! x\n#[cfg(test)]\n".to_owned() + &"x\n".repeat(600)), &[]);
    }

    #[test]
    fn edges() {
        let manifest = |package: &str, section: &str, used: &str| {
            format!("[package]\nname = \"{package}\"\n[{section}]\n{used}.workspace = true\n")
        };
        check("Cargo.toml", &manifest("capstan-storage", "dependencies", "capstan-clock"), &[]);
        check("Cargo.toml", &manifest("capstan-storage", "dev-dependencies", "capstan-api"), &[]);
        let expected = ["Cargo.toml: capstan-storage may not use capstan-api"];
        check("Cargo.toml", &manifest("capstan-storage", "dependencies", "capstan-api"), &expected);
        let expected = ["Cargo.toml: capstan-new is not in tidy's table of edges"];
        check("Cargo.toml", &manifest("capstan-new", "dependencies", "capstan-api"), &expected);
    }
}
