//! The files of the certificate directory.

use std::{
    fmt,
    fs::{self, OpenOptions},
    io::{self, Write},
    os::unix::fs::OpenOptionsExt,
    path::{Path, PathBuf},
};

use super::key::PrivateKey;

/// No file of ours is longer.
const MAX_FILE: u64 = 1 << 20;

/// What is wrong with a file, and what to do about it: one line.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PkiError {
    /// The file.
    pub file: PathBuf,
    /// What is wrong.
    pub problem: String,
    /// What to do.
    pub remedy: String,
}

impl fmt::Display for PkiError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} {}: {}", self.file.display(), self.problem, self.remedy)
    }
}

impl std::error::Error for PkiError {}

/// A certificate, or another public text, and the key that belongs to it.
pub(super) struct Pair<'a> {
    directory: &'a Path,
    public: String,
    key: String,
    /// What the user has to remove to have the pair made again, and what that means.
    consequence: &'static str,
}

impl<'a> Pair<'a> {
    /// `name.crt` and `name.key`.
    pub(super) fn new(directory: &'a Path, name: &str, public: &str, consequence: &'static str) -> Self {
        Pair { directory, public: format!("{name}.{public}"), key: format!("{name}.key"), consequence }
    }

    /// The public part and the key, if there are any. A key alone is what a start leaves behind that was cut short:
    /// nothing can have been signed with it that anybody trusts, so it counts as nothing.
    pub(super) fn read(&self) -> Result<Option<(String, PrivateKey)>, PkiError> {
        let Some(public) = self.text(&self.public)? else { return Ok(None) };
        let Some(key) = self.text(&self.key)? else {
            return Err(self.error(&self.public, format!("is there, but {} is not", self.key)));
        };
        let key = PrivateKey::from_pem(key.as_bytes()).map_err(|error| self.error(&self.key, error))?;
        Ok(Some((public, key)))
    }

    /// Writes both, the key first.
    pub(super) fn write(&self, public: &str, key: &PrivateKey) -> Result<(), PkiError> {
        for (name, text, mode) in [(&self.key, key.to_pem().as_str(), 0o600), (&self.public, public, 0o644)] {
            let path = self.directory.join(name);
            write(&path, text.as_bytes(), mode).map_err(|error| PkiError {
                file: path,
                problem: format!("cannot be written ({error})"),
                remedy: "make the directory writable".into(),
            })?;
        }
        Ok(())
    }

    /// What is wrong with the public part.
    pub(super) fn broken(&self, problem: impl fmt::Display) -> PkiError {
        self.error(&self.public, problem)
    }

    fn error(&self, file: &str, problem: impl fmt::Display) -> PkiError {
        let Pair { public, key, consequence, .. } = self;
        PkiError {
            file: self.directory.join(file),
            problem: problem.to_string(),
            remedy: format!(
                "put the right file there, or remove {public} and {key} to have them made again{consequence}"
            ),
        }
    }

    fn text(&self, name: &str) -> Result<Option<String>, PkiError> {
        let path = self.directory.join(name);
        match read(&path) {
            Ok(text) => Ok(Some(text)),
            Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(None),
            Err(error) => Err(self.error(name, format_args!("cannot be read ({error})"))),
        }
    }
}

fn read(path: &Path) -> io::Result<String> {
    if fs::metadata(path)?.len() > MAX_FILE {
        return Err(io::Error::other("it is too long"));
    }
    fs::read_to_string(path)
}

/// Writes a file so that others see the old one or all of the new one.
fn write(path: &Path, text: &[u8], mode: u32) -> io::Result<()> {
    let mut partial = path.as_os_str().to_owned();
    partial.push(".tmp");
    // Removed first: a file that is there already would keep its mode.
    match fs::remove_file(&partial) {
        Err(error) if error.kind() != io::ErrorKind::NotFound => return Err(error),
        _ => {}
    }
    let mut file = OpenOptions::new().write(true).create_new(true).mode(mode).open(&partial)?;
    file.write_all(text)?;
    file.sync_all()?;
    fs::rename(&partial, path)
}
