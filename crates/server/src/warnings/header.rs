//! `Warning` headers: each warning once, and not too much of them.

use http::{HeaderMap, HeaderValue, header::WARNING};

/// How many characters all warnings of an answer may have before they are cut.
const MAX_TOTAL: usize = 4 * 1024;
/// How many characters are left of each warning then.
const MAX_ITEM: usize = 256;

/// The warnings of a request, in the order in which they came up.
#[derive(Clone, Debug, Default)]
pub struct Warnings {
    texts: Vec<String>,
}

impl Warnings {
    /// Adds a warning, unless it is empty or there already.
    pub fn add(&mut self, text: impl Into<String>) {
        let text = text.into();
        if !text.is_empty() && !self.texts.contains(&text) {
            self.texts.push(text);
        }
    }

    /// Whether there are none.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.texts.is_empty()
    }

    /// Adds them to the headers of the answer.
    pub fn write(&self, headers: &mut HeaderMap) {
        for value in self.values() {
            headers.append(WARNING, value);
        }
    }

    /// The values of the headers. If all of them together are too long, each is cut, and those behind the limit are
    /// left out.
    fn values(&self) -> Vec<HeaderValue> {
        let told = self.texts.iter().filter(|text| !has_control(text));
        let cut = told.map(|text| text.chars().count()).sum::<usize>() > MAX_TOTAL;
        let (mut values, mut written) = (Vec::new(), 0);
        for text in &self.texts {
            if cut && written >= MAX_TOTAL {
                break;
            }
            let text = if cut { first(text, MAX_ITEM) } else { text };
            if let Some(value) = value(text) {
                written += text.chars().count();
                values.push(value);
            }
        }
        values
    }
}

impl<T: Into<String>> Extend<T> for Warnings {
    fn extend<I: IntoIterator<Item = T>>(&mut self, texts: I) {
        texts.into_iter().for_each(|text| self.add(text));
    }
}

fn has_control(text: &str) -> bool {
    text.chars().any(char::is_control)
}

fn first(text: &str, characters: usize) -> &str {
    text.char_indices().nth(characters).map_or(text, |(end, _)| &text[..end])
}

/// A warning as a header: `299 - "text"`. One with control characters cannot be told.
fn value(text: &str) -> Option<HeaderValue> {
    if has_control(text) {
        return None;
    }
    let mut out = String::with_capacity(text.len() + 8);
    out.push_str("299 - \"");
    for c in text.chars() {
        if matches!(c, '"' | '\\') {
            out.push('\\');
        }
        out.push(c);
    }
    out.push('"');
    HeaderValue::from_bytes(out.as_bytes()).ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn headers(texts: &[String]) -> Vec<String> {
        let mut warnings = Warnings::default();
        warnings.extend(texts.iter().cloned());
        let mut headers = HeaderMap::new();
        warnings.write(&mut headers);
        let text = |value: &HeaderValue| String::from_utf8(value.as_bytes().to_vec()).unwrap();
        headers.get_all(WARNING).iter().map(text).collect()
    }

    #[test]
    fn each_once_and_escaped() {
        let texts = ["a", "", "say \"b\\c\"", "a", "ü", "two\nlines"].map(str::to_owned);
        assert_eq!(headers(&texts), [r#"299 - "a""#, r#"299 - "say \"b\\c\"""#, "299 - \"ü\""]);
    }

    #[test]
    fn too_much_is_cut() {
        let fits: Vec<_> = (0..4).map(|i| i.to_string().repeat(1024)).collect();
        assert_eq!(headers(&fits).iter().map(String::len).collect::<Vec<_>>(), [1024 + 8; 4]);
        let mut more = fits.clone();
        more.push("ä".repeat(300));
        let cut = headers(&more);
        assert_eq!(cut.iter().map(|text| text.chars().count()).collect::<Vec<_>>(), [256 + 8; 5]);
        let many: Vec<_> = (0..40).map(|i| format!("{i:0300}")).collect();
        assert_eq!(headers(&many).len(), 16, "no more than 4096 characters");
    }
}
