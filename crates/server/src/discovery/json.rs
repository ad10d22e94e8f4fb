//! Writing JSON whose keys come in the order of Go's structs, which a map would not keep.

use capstan_api::json::write_str;

/// JSON that is being written, compact.
#[derive(Default)]
pub(crate) struct Json(Vec<u8>);

impl Json {
    /// What has been written.
    pub(crate) fn finish(self) -> Vec<u8> {
        self.0
    }

    /// A value or key begins; behind another one a comma is due.
    fn begin(&mut self) {
        if !matches!(self.0.last(), None | Some(b'{' | b'[' | b':')) {
            self.0.push(b',');
        }
    }

    /// An object, whose fields `fill` writes.
    pub(crate) fn object(&mut self, fill: impl FnOnce(&mut Self)) {
        self.begin();
        self.0.push(b'{');
        fill(self);
        self.0.push(b'}');
    }

    /// An array, each element written by `each`.
    pub(crate) fn array<T>(&mut self, items: impl IntoIterator<Item = T>, mut each: impl FnMut(&mut Self, T)) {
        self.begin();
        self.0.push(b'[');
        for item in items {
            each(self, item);
        }
        self.0.push(b']');
    }

    /// A value that is JSON already.
    pub(crate) fn raw(&mut self, json: &[u8]) {
        self.begin();
        self.0.extend_from_slice(json);
    }

    /// A string.
    pub(crate) fn text(&mut self, text: &str) {
        self.begin();
        write_str(text, &mut self.0);
    }

    /// The key of the value that comes next.
    pub(crate) fn key(&mut self, key: &str) {
        self.text(key);
        self.0.push(b':');
    }

    /// A field that is a string.
    pub(crate) fn field(&mut self, key: &str, text: &str) {
        self.key(key);
        self.text(text);
    }

    /// A field that is a boolean.
    pub(crate) fn flag(&mut self, key: &str, flag: bool) {
        self.key(key);
        self.begin();
        self.0.extend_from_slice(if flag { b"true" } else { b"false" });
    }

    /// A field that is a list of strings.
    pub(crate) fn texts<T: AsRef<str>>(&mut self, key: &str, texts: &[T]) {
        self.key(key);
        self.array(texts, |json, text| json.text(text.as_ref()));
    }

    /// A field that is a list of strings, left out if there are none.
    pub(crate) fn some_texts<T: AsRef<str>>(&mut self, key: &str, texts: &[T]) {
        if !texts.is_empty() {
            self.texts(key, texts);
        }
    }
}
