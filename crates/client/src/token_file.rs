//! The token of a pod's account, or of any file: whoever rotates it writes the file anew.

use std::{
    fs, io,
    os::unix::fs::MetadataExt as _,
    path::{Path, PathBuf},
    sync::{Mutex, PoisonError},
    time::SystemTime,
};

use http::HeaderValue;

/// A file with a token. It is looked at before each request and read again when it is another one, so that the first
/// request after a rotation has the new token; client-go may take a minute.
#[derive(Debug)]
pub(crate) struct TokenFile {
    path: PathBuf,
    read: Mutex<(Stamp, HeaderValue)>,
}

/// What changes when a file is written anew or another one takes its place.
type Stamp = (u64, u64, Option<SystemTime>);

impl TokenFile {
    /// Reads the token.
    ///
    /// # Errors
    /// The file cannot be read, or what it has is no token.
    pub(crate) fn open(path: PathBuf) -> io::Result<Self> {
        let read = Mutex::new((stamp(&path)?, read(&path)?));
        Ok(TokenFile { path, read })
    }

    /// The header that shows the token. While the file cannot be read it is the last one.
    pub(crate) fn header(&self) -> HeaderValue {
        let mut known = self.read.lock().unwrap_or_else(PoisonError::into_inner);
        // The stamp is taken first: what is written between the two is read again the next time.
        if let Ok(stamp) = stamp(&self.path)
            && stamp != known.0
            && let Ok(header) = read(&self.path)
        {
            *known = (stamp, header);
        }
        known.1.clone()
    }
}

fn stamp(path: &Path) -> io::Result<Stamp> {
    let metadata = fs::metadata(path)?;
    Ok((metadata.ino(), metadata.len(), metadata.modified().ok()))
}

fn read(path: &Path) -> io::Result<HeaderValue> {
    let text = fs::read_to_string(path)?;
    let wrong = |why: &str| io::Error::new(io::ErrorKind::InvalidData, why.to_owned());
    let token = text.trim();
    if token.is_empty() {
        return Err(wrong("it is empty"));
    }
    let mut header = HeaderValue::try_from(format!("Bearer {token}")).map_err(|_| wrong("it is no token"))?;
    header.set_sensitive(true);
    Ok(header)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_newest_token_that_can_be_read() {
        let directory = std::env::temp_dir().join(format!("capstan-token-{}", std::process::id()));
        fs::create_dir_all(&directory).unwrap();
        let path = directory.join("token");
        let write = |text: &str| {
            // As a kubelet does it: another file takes the place of the old one.
            fs::write(directory.join("new"), text).unwrap();
            fs::rename(directory.join("new"), &path).unwrap();
        };
        assert!(TokenFile::open(path.clone()).is_err(), "there is no such file");
        write(" \n");
        assert_eq!(TokenFile::open(path.clone()).unwrap_err().to_string(), "it is empty");
        write("one\n");
        let file = TokenFile::open(path.clone()).unwrap();
        assert_eq!(file.header(), "Bearer one");
        write("two");
        assert_eq!(file.header(), "Bearer two");
        write("not\na token");
        assert_eq!(file.header(), "Bearer two");
        fs::remove_file(&path).unwrap();
        assert_eq!(file.header(), "Bearer two");
        write("three");
        assert_eq!(file.header(), "Bearer three");
        fs::remove_dir_all(&directory).unwrap();
    }
}
