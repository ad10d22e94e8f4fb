//! Files that hold environment variables, `NAME='value'` a line: what `fileKeyRef` reads.

use std::path::Path;

const BLANK: [char; 2] = [' ', '\t'];

/// The value of a key in a file of a volume; empty when it isn't there.
///
/// # Errors
/// The file can't be read, is outside of the volume, or isn't such a file.
pub(crate) fn read(volume: &Path, path: &str, key: &str) -> Result<String, String> {
    let read = || {
        let (base, file) = (volume.canonicalize().ok()?, volume.join(path).canonicalize().ok()?);
        // A link must not lead out of the volume.
        let text = std::fs::read_to_string(file.starts_with(base).then_some(file)?).ok()?;
        value(&text.replace("\r\n", "\n"), key).ok()
    };
    read().ok_or_else(|| "couldn't parse env file".to_owned())
}

/// The value of a key: what stands in single quotes, over several lines if need be.
fn value(text: &str, key: &str) -> Result<String, &'static str> {
    let mut rest = text;
    while !rest.is_empty() {
        rest = rest.trim_start_matches(BLANK);
        let (line, next) = rest.split_once('\n').unwrap_or((rest, ""));
        if line.is_empty() || line.starts_with('#') {
            rest = next;
            continue;
        }
        let (name, value) = line.split_once('=').ok_or("missing '='")?;
        if name.is_empty() || name.ends_with(BLANK) {
            return Err("no name before '='");
        }
        if value.starts_with(BLANK) {
            // As in a shell: nothing is assigned.
            if name == key {
                return Ok(String::new());
            }
            rest = next;
            continue;
        }
        let quoted = rest[name.len() + 1..].strip_prefix('\'').ok_or("value must be enclosed in single quotes")?;
        let (value, after) = quoted.split_once('\'').ok_or("unclosed single quote")?;
        let (after, next) = after.split_once('\n').unwrap_or((after, ""));
        let after = after.trim_start_matches(BLANK);
        if !after.is_empty() && !after.starts_with('#') {
            return Err("unexpected content after closing quote");
        }
        if name == key {
            return Ok(value.to_owned());
        }
        rest = next;
    }
    Ok(String::new())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn values_of_keys() {
        let text = "# comment\n\n  A='one' # first\nB='two\nlines'\nC= 'nothing'\nD=''\nE='a=b'";
        for (key, expected) in [("A", "one"), ("B", "two\nlines"), ("C", ""), ("D", ""), ("E", "a=b"), ("F", "")] {
            assert_eq!(value(text, key).unwrap(), expected, "{key}");
        }
        for wrong in ["A", "='x'", "A ='x'", "A=x", "A=", "A='x", "A='x' y"] {
            value(wrong, "Z").unwrap_err();
        }
    }

    #[test]
    fn only_files_of_the_volume() {
        let dir = crate::testing::temporary("env-file");
        std::fs::create_dir(dir.join("volume")).unwrap();
        std::fs::write(dir.join("outside"), "A='x'").unwrap();
        std::fs::write(dir.join("volume/inside"), "A='y'\r\n").unwrap();
        std::os::unix::fs::symlink("../outside", dir.join("volume/link")).unwrap();
        let read = |path: &str| read(&dir.join("volume"), path, "A");
        assert_eq!(read("inside").unwrap(), "y");
        for path in ["link", "../outside", "missing"] {
            assert_eq!(read(path).unwrap_err(), "couldn't parse env file", "{path}");
        }
    }
}
