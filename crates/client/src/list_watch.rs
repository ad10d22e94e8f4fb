//! What can be listed and watched. Objects stay bytes until somebody knows their type.

use std::{
    fmt,
    future::{Future, poll_fn},
    pin::Pin,
    task::{Context, Poll},
};

use bytes::Bytes;
use capstan_api::{
    GroupVersionKind,
    json::{Reader, Token},
    object::Encoded,
    options::ListOptions,
    protobuf,
    watch_event::WatchEvent,
};

use crate::Error;

/// A future of any type.
pub type BoxFuture<'a, T> = Pin<Box<dyn Future<Output = T> + Send + 'a>>;

/// The objects of one kind, in one place: a resource in a namespace or in all of them.
///
/// The options carry selectors, versions and limits; implementors send them as they are. Both futures may be dropped at
/// any time.
pub trait ListerWatcher: fmt::Debug + Send + Sync + 'static {
    /// One page of the objects.
    fn list(&self, options: ListOptions) -> BoxFuture<'_, Result<ListPage, Error>>;

    /// Begins a watch.
    fn watch(&self, options: ListOptions) -> BoxFuture<'_, Result<WatchStream, Error>>;
}

/// A running watch. It ends when it is dropped.
pub trait Watch: Send + 'static {
    /// The next event; none when the server has ended the watch. After an error or the end it is not polled again.
    fn poll_next(&mut self, cx: &mut Context<'_>) -> Poll<Option<Result<WatchEvent<Bytes>, Error>>>;
}

/// A running watch of any type.
pub struct WatchStream(Box<dyn Watch>);

impl WatchStream {
    /// The stream of a watch.
    pub fn new(watch: impl Watch) -> Self {
        WatchStream(Box::new(watch))
    }

    /// The next event; see [`Watch::poll_next`].
    pub(crate) fn poll_next(&mut self, cx: &mut Context<'_>) -> Poll<Option<Result<WatchEvent<Bytes>, Error>>> {
        self.0.poll_next(cx)
    }

    /// The next event; see [`Watch::poll_next`]. The future may be dropped without losing an event.
    pub async fn next(&mut self) -> Option<Result<WatchEvent<Bytes>, Error>> {
        poll_fn(|cx| self.poll_next(cx)).await
    }
}

impl fmt::Debug for WatchStream {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("WatchStream")
    }
}

/// A page of a list, its items still as they were sent.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ListPage {
    /// The kind of the items, if the list has one.
    pub item_kind: Option<GroupVersionKind>,
    /// The version of the whole that the list shows.
    pub resource_version: String,
    /// What to send to get the next page; empty at the end.
    pub continue_token: String,
    /// The objects, each whole JSON, or messages without their envelopes.
    pub items: Vec<Bytes>,
    /// Whether the objects are messages of protobuf.
    pub is_protobuf: bool,
}

impl ListPage {
    /// Reads a list such as `PodList`, as JSON or as protobuf. The items share its bytes.
    ///
    /// # Errors
    /// The bytes are neither, or not a list.
    pub fn parse(text: &Bytes) -> Result<Self, Error> {
        let page = if text.starts_with(b"k8s\0") { ListPage::read_protobuf(text) } else { ListPage::read(text) };
        page.map_err(|error| Error::Decode(format!("unable to understand list result: {error}")))
    }

    /// An item of this page, ready to be decoded.
    #[must_use]
    pub fn encoded<'a>(&self, item: &'a Bytes) -> Encoded<'a> {
        if self.is_protobuf { Encoded::message(item) } else { Encoded::new(item) }
    }

    fn read_protobuf(bytes: &Bytes) -> Result<Self, String> {
        let envelope = protobuf::envelope(bytes).map_err(|error| error.to_string())?;
        let list = protobuf::list(envelope.raw).map_err(|error| error.to_string())?;
        let Some(kind) = envelope.kind.strip_suffix("List") else { return Err("it has no items".to_owned()) };
        Ok(ListPage {
            item_kind: Some(GroupVersionKind::from_api_version_and_kind(&envelope.api_version, kind)),
            resource_version: list.resource_version.into_owned(),
            continue_token: list.continue_token.into_owned(),
            items: list.items.into_iter().map(|item| bytes.slice_ref(item)).collect(),
            is_protobuf: true,
        })
    }

    fn read(text: &Bytes) -> Result<Self, String> {
        let mut reader = Reader::new(text);
        let next = |reader: &mut Reader<'_>| -> Result<Option<String>, String> {
            match reader.next().map_err(|error| error.to_string())? {
                Token::Key(key) => Ok(Some(key.into_owned())),
                _ => Ok(None),
            }
        };
        let json = |error: capstan_api::json::Error| error.to_string();
        if reader.next().map_err(json)? != Token::BeginObject {
            return Err("it is not an object".to_owned());
        }
        let (mut page, mut kind, mut api_version, mut has_items) =
            (ListPage::default(), String::new(), String::new(), false);
        while let Some(key) = next(&mut reader)? {
            match key.as_str() {
                "kind" => string(&mut reader, &mut kind)?,
                "apiVersion" => string(&mut reader, &mut api_version)?,
                "metadata" => {
                    if reader.next().map_err(json)? != Token::BeginObject {
                        return Err("its metadata is not an object".to_owned());
                    }
                    while let Some(key) = next(&mut reader)? {
                        match key.as_str() {
                            "resourceVersion" => string(&mut reader, &mut page.resource_version)?,
                            "continue" => string(&mut reader, &mut page.continue_token)?,
                            _ => drop(reader.skip().map_err(json)?),
                        }
                    }
                }
                "items" => {
                    has_items = true;
                    match reader.next().map_err(json)? {
                        Token::BeginArray => {}
                        Token::Null => continue,
                        _ => return Err("its items are not a list".to_owned()),
                    }
                    while !reader.at_end_of_array().map_err(json)? {
                        page.items.push(text.slice_ref(reader.skip().map_err(json)?));
                    }
                }
                _ => drop(reader.skip().map_err(json)?),
            }
        }
        reader.next().map_err(json)?;
        if !has_items {
            return Err("it has no items".to_owned());
        }
        page.item_kind = kind
            .strip_suffix("List")
            .filter(|kind| !kind.is_empty())
            .map(|kind| GroupVersionKind::from_api_version_and_kind(&api_version, kind));
        Ok(page)
    }
}

fn string(reader: &mut Reader<'_>, to: &mut String) -> Result<(), String> {
    match reader.next().map_err(|error| error.to_string())? {
        Token::String(text) => *to = text.into_owned(),
        Token::Null => {}
        _ => return Err("a field of it is not a string".to_owned()),
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lists() {
        fn check(text: &str, expected: &str) {
            let found = match ListPage::parse(&Bytes::from(text.to_owned())) {
                Ok(page) => {
                    let items: Vec<_> = page.items.iter().map(|item| str::from_utf8(item).unwrap()).collect();
                    let kind = page.item_kind.map(|gvk| format!("{}.{}", gvk.api_version(), gvk.kind));
                    let kind = kind.unwrap_or_default();
                    format!("{kind} {}@{} {}", page.resource_version, page.continue_token, items.join(" "))
                }
                Err(error) => error.to_string(),
            };
            assert_eq!(found, expected, "{text}");
        }
        check(
            r#"{"kind":"PodList","apiVersion":"v1","metadata":{"resourceVersion":"7","continue":"x"},"items":[{"a":1}, {"b":[]}]}"#,
            r#"v1.Pod 7@x {"a":1} {"b":[]}"#,
        );
        check(r#"{"items":null,"metadata":{"remainingItemCount":3}}"#, " @ ");
        check(r#"{"items":[]}"#, " @ ");
        check(r#"{"items":[3]}"#, " @ 3");
        let wrong = |text: &str, why: &str| check(text, &format!("unable to understand list result: {why}"));
        wrong("[]", "it is not an object");
        wrong(r#"{"kind":"Status"}"#, "it has no items");
        wrong(r#"{"items":{}}"#, "its items are not a list");
        wrong(r#"{"items":[],"kind":3}"#, "a field of it is not a string");
        wrong(r#"{"items":[],"metadata":3}"#, "its metadata is not an object");
        wrong(r#"{"items":[1"#, "unexpected end of JSON input");
    }
}
