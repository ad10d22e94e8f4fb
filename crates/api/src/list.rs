//! A list of objects whose bytes exist already: it is put together around them, never decoded.

use crate::{GroupVersionKind, object::ListMeta};

/// A list of raw objects, such as `PodList`. Items may be anything that has bytes, and may come from an iterator.
///
/// ```
/// use capstan_api::{GroupVersionKind, list::List, object::ListMeta};
///
/// let list = List {
///     gvk: GroupVersionKind::from_static("", "v1", "PodList"),
///     metadata: ListMeta { resource_version: "7".into(), ..ListMeta::default() },
///     items: [r#"{"metadata":{"name":"a"}}"#, r#"{"metadata":{"name":"b"}}"#],
/// };
/// let mut out = Vec::new();
/// list.render(&mut out);
/// let text = r#"{"kind":"PodList","apiVersion":"v1","metadata":{"resourceVersion":"7"},"items":[{"metadata":{"name":"a"}},{"metadata":{"name":"b"}}]}"#;
/// assert_eq!(out, text.as_bytes());
/// ```
#[derive(Clone, Debug)]
pub struct List<I> {
    /// The kind of the list.
    pub gvk: GroupVersionKind,
    /// The metadata of the list.
    pub metadata: ListMeta,
    /// The objects, each whole JSON.
    pub items: I,
}

/// A part of a list, in the order in which it is sent.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Part<B> {
    /// What comes before the items.
    Head(Vec<u8>),
    /// What comes between two items, or after them.
    Fixed(&'static [u8]),
    /// An item, as it was given.
    Item(B),
}

impl<B: AsRef<[u8]>> AsRef<[u8]> for Part<B> {
    fn as_ref(&self) -> &[u8] {
        match self {
            Part::Head(bytes) => bytes,
            Part::Fixed(bytes) => bytes,
            Part::Item(item) => item.as_ref(),
        }
    }
}

impl<I: IntoIterator> List<I> {
    /// The list in parts, for sending it without gathering it: the items are handed on, not copied.
    pub fn into_parts(self) -> impl Iterator<Item = Part<I::Item>> {
        let mut head = Vec::new();
        write_head(&self.gvk, &self.metadata, &mut head);
        head.extend_from_slice(b",\"items\":[");
        let items = self.items.into_iter().enumerate().flat_map(|(at, item)| {
            let comma = (at > 0).then_some(Part::Fixed(b","));
            comma.into_iter().chain([Part::Item(item)])
        });
        std::iter::once(Part::Head(head)).chain(items).chain([Part::Fixed(b"]}")])
    }
}

impl<I: IntoIterator<Item: AsRef<[u8]>>> List<I> {
    /// Appends the whole list.
    pub fn render(self, out: &mut Vec<u8>) {
        for part in self.into_parts() {
            out.extend_from_slice(part.as_ref());
        }
    }
}

/// Appends the beginning of a list: its kind and its metadata, without the closing brace.
pub(crate) fn write_head(gvk: &GroupVersionKind, metadata: &ListMeta, out: &mut Vec<u8>) {
    out.extend_from_slice(b"{\"kind\":");
    crate::json::write_str(&gvk.kind, out);
    out.extend_from_slice(b",\"apiVersion\":");
    crate::json::write_str(&gvk.api_version(), out);
    out.extend_from_slice(b",\"metadata\":");
    serde_json::to_writer(out, metadata).expect("strings and numbers always serialize");
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parts(items: Vec<&'static str>) -> Vec<String> {
        let list = List { gvk: GroupVersionKind::from_static("", "v1", "List"), metadata: ListMeta::default(), items };
        list.into_parts().map(|part| String::from_utf8(part.as_ref().to_vec()).unwrap()).collect()
    }

    #[test]
    fn items_are_handed_on_in_order() {
        let head = r#"{"kind":"List","apiVersion":"v1","metadata":{},"items":["#;
        assert_eq!(parts(vec![]), [head, "]}"]);
        assert_eq!(parts(vec![r#"{"a":1}"#]), [head, r#"{"a":1}"#, "]}"]);
        assert_eq!(parts(vec![r#"{"a":1}"#, r#"{"b":2}"#]), [head, r#"{"a":1}"#, ",", r#"{"b":2}"#, "]}"]);
    }

    #[test]
    fn nothing_is_taken_from_the_items_before_it_is_sent() {
        let mut taken = 0;
        let items = std::iter::repeat_with(|| {
            taken += 1;
            "{}"
        });
        let list = List { gvk: GroupVersionKind::default(), metadata: ListMeta::default(), items };
        assert_eq!(list.into_parts().take(4).last(), Some(Part::Item("{}")));
        assert_eq!(taken, 2);
    }
}
