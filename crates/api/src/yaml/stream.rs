//! Streams of YAML documents.

use super::Error;

/// The documents of a stream, as text. See [`documents`].
#[derive(Clone, Debug)]
pub struct Documents<'a> {
    rest: &'a [u8],
}

/// Cuts a stream at its lines that begin with `---`.
///
/// Upstream looks at lines only, not at YAML, and so does this: documents may be empty or have nothing but comments.
#[must_use]
pub fn documents(text: &[u8]) -> Documents<'_> {
    Documents { rest: text }
}

impl<'a> Iterator for Documents<'a> {
    type Item = Result<&'a [u8], Error>;

    fn next(&mut self) -> Option<Self::Item> {
        let text = self.rest;
        let mut at = 0;
        while at < text.len() {
            let line_end = text[at..].iter().position(|&c| c == b'\n').map_or(text.len(), |n| at + n + 1);
            if let Some(rest) = text[at..line_end].strip_prefix(b"---") {
                let rest = rest.trim_ascii();
                // Only a comment may follow the separator.
                if !rest.is_empty() && !rest.starts_with(b"#") {
                    self.rest = &[];
                    return Some(Err(Error::Separator(String::from_utf8_lossy(rest).into_owned())));
                }
                // A separator at the beginning belongs to the document that follows it.
                if at > 0 {
                    break;
                }
            }
            at = line_end;
        }
        let (document, rest) = text.split_at(at);
        self.rest = rest;
        (!document.is_empty()).then_some(Ok(document))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn cuts() {
        for (text, expected) in [
            ("", &[][..]),
            ("a: 1", &["a: 1"]),
            ("---\na: 1\n---\nb: 2\n---\n", &["---\na: 1\n", "---\nb: 2\n", "---\n"]),
            ("a: 1\n--- # second\nb: 2", &["a: 1\n", "--- # second\nb: 2"]),
            ("a: |\n  ---\n  x\n", &["a: |\n  ---\n  x\n"]),
            ("---\n---\n", &["---\n", "---\n"]),
        ] {
            let found: Vec<_> = documents(text.as_bytes()).map(|d| str::from_utf8(d.unwrap()).unwrap()).collect();
            assert_eq!(found, expected, "{text}");
        }
        let found: Vec<_> = documents(b"a: 1\n--- b: 2\n").collect();
        assert_eq!(found.len(), 1);
        assert_eq!(found[0].clone().unwrap_err().to_string(), "invalid Yaml document separator: b: 2");
    }
}
