//! A context in the user's kubeconfig: put there beside what is there, and taken out again.

use std::{fs, path::Path};

use capstan_api::{Array, Map, Value, yaml};

use crate::server::write_private;

/// The lists of a kubeconfig in which a cluster has an entry.
const LISTS: [&str; 3] = ["clusters", "users", "contexts"];

/// Puts the entries of one kubeconfig into the file and makes its context the current one. Entries of the same names
/// are replaced, all others stay as they are. Gives the context that was current before; `left` if that is the same
/// one, which then is of an earlier life that could not take it out.
pub(super) fn merge(file: &Path, own: &str, left: &str) -> Result<String, String> {
    let mut config = read(file)?;
    let own = yaml::parse(own.as_bytes()).map_err(|error| error.to_string())?;
    let fail = || format!("{} is not a kubeconfig: leave the file alone with --write-kubeconfig OTHER", file.display());
    let map = config.as_object_mut().ok_or_else(fail)?;
    for list in LISTS {
        let known = map.get_or_insert_with(list, || Value::Array(Array::default()));
        if known.is_null() {
            *known = Value::Array(Array::default());
        }
        let known = known.as_array_mut().ok_or_else(fail)?;
        for entry in own.get(list).and_then(Value::as_array).into_iter().flat_map(|own| own.iter()) {
            known.retain(|other| name(other) != name(entry));
            known.push(entry.clone());
        }
    }
    map.get_or_insert_with("apiVersion", || Value::from("v1"));
    map.get_or_insert_with("kind", || Value::from("Config"));
    let before = map.get("current-context").and_then(Value::as_str).unwrap_or_default();
    let current = own.get("current-context");
    let before = if current.and_then(Value::as_str) == Some(before) { left } else { before }.to_owned();
    if let Some(current) = current {
        map.insert("current-context", current.clone());
    }
    replace(file, &config)?;
    Ok(before)
}

/// Takes the entries of a context out of the file; `before` becomes the current context if this one was.
pub(super) fn remove(file: &Path, context: &str, before: &str) -> Result<(), String> {
    if !file.exists() {
        return Ok(());
    }
    let mut config = read(file)?;
    let Some(map) = config.as_object_mut() else { return Ok(()) };
    let is_context = |entry: &Value| name(entry) == Some(context);
    let user =
        map.get("contexts").and_then(Value::as_array).and_then(|contexts| contexts.iter().find(|e| is_context(e)));
    let user = user.and_then(|entry| entry.get("context")?.get("user")?.as_str()).unwrap_or(context).to_owned();
    for list in LISTS {
        let gone = if list == "users" { user.as_str() } else { context };
        if let Some(known) = map.get_mut(list).and_then(Value::as_array_mut) {
            known.retain(|entry| name(entry) != Some(gone));
        }
    }
    let has = |map: &Map, context: &str| {
        let contexts = map.get("contexts").and_then(Value::as_array);
        contexts.is_some_and(|contexts| contexts.iter().any(|entry| name(entry) == Some(context)))
    };
    if map.get("current-context").and_then(Value::as_str) == Some(context) {
        let next = if has(map, before) { before } else { "" };
        map.insert("current-context", Value::from(next));
    }
    replace(file, &config)
}

fn name(entry: &Value) -> Option<&str> {
    entry.get("name")?.as_str()
}

fn read(file: &Path) -> Result<Value, String> {
    match fs::read(file) {
        Ok(text) if text.iter().all(u8::is_ascii_whitespace) => Ok(Value::Object(Map::default())),
        Ok(text) => yaml::parse(&text).map_err(|error| format!("cannot read {}: {error}", file.display())),
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => Ok(Value::Object(Map::default())),
        Err(error) => Err(format!("cannot read {}: {error}", file.display())),
    }
}

/// Writes the file in one step: who reads meanwhile sees the old one or the new one, and a full disk harms nothing.
fn replace(file: &Path, config: &Value) -> Result<(), String> {
    // A link stays a link.
    let file = fs::canonicalize(file).unwrap_or_else(|_| file.to_path_buf());
    let beside = file.with_extension(format!("capstan-{}", std::process::id()));
    write_private(&beside, &yaml::to_string(config))?;
    fs::rename(&beside, &file).map_err(|error| {
        let _ = fs::remove_file(&beside);
        format!("cannot write {}: {error}", file.display())
    })
}

#[cfg(test)]
mod tests {
    use std::path::PathBuf;

    use super::*;

    const OWN: &str = "
clusters: [{name: capstan, cluster: {server: 'https://127.0.0.1:6443'}}]
users: [{name: capstan, user: {token: t}}]
contexts: [{name: capstan, context: {cluster: capstan, user: capstan}}]
current-context: capstan
";

    fn file(name: &str, text: &str) -> PathBuf {
        let file = std::env::temp_dir().join(format!("capstan-kubeconfig-{}-{name}", std::process::id()));
        let _ = fs::remove_file(&file);
        if !text.is_empty() {
            fs::write(&file, text).unwrap();
        }
        file
    }

    fn names(file: &Path) -> String {
        let config = read(file).unwrap();
        let mut names: Vec<String> = Vec::new();
        for list in LISTS {
            let entries = config.get(list).and_then(Value::as_array).unwrap();
            names.push(entries.iter().map(|entry| name(entry).unwrap()).collect::<Vec<_>>().join(","));
        }
        names.push(config.get("current-context").and_then(Value::as_str).unwrap_or_default().to_owned());
        names.join(" ")
    }

    #[test]
    fn what_is_there_stays() {
        let theirs = "
apiVersion: v1
kind: Config
preferences: {colors: true}
clusters: [{name: work, cluster: {server: 'https://work'}}, {name: capstan, cluster: {server: 'https://old'}}]
users: [{name: work, user: {exec: {command: login}}}]
contexts: [{name: work, context: {cluster: work, user: work}}]
current-context: work
";
        let file = file("theirs", theirs);
        assert_eq!(merge(&file, OWN, "").unwrap(), "work");
        // A life that was killed has left its context there.
        assert_eq!(merge(&file, OWN, "work").unwrap(), "work");
        assert_eq!(names(&file), "work,capstan work,capstan work,capstan capstan");
        let text = fs::read_to_string(&file).unwrap();
        assert!(text.contains("colors: true") && text.contains("command: login") && !text.contains("https://old"));
        remove(&file, "capstan", "work").unwrap();
        assert_eq!(names(&file), "work work work work");
        fs::remove_file(&file).unwrap();
    }

    #[test]
    fn a_file_that_is_not_there_is_made() {
        let file = file("new", "");
        assert_eq!(merge(&file, OWN, "").unwrap(), "");
        assert_eq!(names(&file), "capstan capstan capstan capstan");
        // Whoever chose another context meanwhile keeps it.
        remove(&file, "other", "").unwrap();
        assert_eq!(names(&file), "capstan capstan capstan capstan");
        fs::remove_file(&file).unwrap();
    }

    #[test]
    fn what_is_no_kubeconfig_is_left_alone() {
        for text in ["- a\n", "clusters: 3\n", "{"] {
            let file = file("wrong", text);
            merge(&file, OWN, "").unwrap_err();
            assert_eq!(fs::read_to_string(&file).unwrap(), text);
            fs::remove_file(&file).unwrap();
        }
    }
}
