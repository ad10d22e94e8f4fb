//! A source for tests: a few objects, a log, and faults on demand.

use std::{
    collections::{BTreeMap, VecDeque},
    sync::{Arc, Mutex},
    task::{Context, Poll, Waker},
};

use bytes::Bytes;
use capstan_api::{
    Status,
    options::ListOptions,
    watch_event::{EventType, WatchEvent},
};

use crate::{BoxFuture, Error, ListPage, ListerWatcher, Watch, WatchStream};

/// What the source has, and what happened.
#[derive(Debug, Default)]
pub(crate) struct Model {
    pub(crate) objects: BTreeMap<String, u64>,
    log: Vec<(u64, EventType, String)>,
    pub(crate) version: u64,
    compacted: u64,
    generation: u64,
    wakers: Vec<Waker>,
    /// What the next requests fail with.
    pub(crate) faults: VecDeque<Error>,
    pub(crate) lists: usize,
    pub(crate) watches: usize,
    pub(crate) no_watch_list: bool,
}

/// A source that tests change.
#[derive(Clone, Debug, Default)]
pub(crate) struct Source(Arc<Mutex<Model>>);

/// An object of the source. Those with "bad" in their names cannot be read.
pub(crate) fn object(name: &str, version: u64) -> String {
    let kind = if name.contains("bad") { "3" } else { "\"Thing\"" };
    let meta = format!(r#"{{"namespace":"ns","name":"{name}","uid":"u","resourceVersion":"{version}"}}"#);
    if name.contains("bad") {
        return format!(r#"{{"metadata":{meta},"kind":{kind}"#);
    }
    format!(r#"{{"kind":{kind},"apiVersion":"v1","metadata":{meta}}}"#)
}

impl Source {
    pub(crate) fn with<R>(&self, look: impl FnOnce(&mut Model) -> R) -> R {
        let mut model = self.0.lock().unwrap();
        let answer = look(&mut model);
        let wakers = std::mem::take(&mut model.wakers);
        drop(model);
        wakers.into_iter().for_each(Waker::wake);
        answer
    }

    fn log(&self, name: &str, event_type: EventType) {
        self.with(|model| {
            let version = model.version;
            model.log.push((version, event_type, object(name, version)));
        });
    }

    pub(crate) fn put(&self, name: &str) {
        let event_type = self.with(|model| {
            model.version += 1;
            let known = model.objects.insert(name.to_owned(), model.version).is_some();
            if known { EventType::Modified } else { EventType::Added }
        });
        self.log(name, event_type);
    }

    pub(crate) fn delete(&self, name: &str) {
        let known = self.with(|model| {
            let known = model.objects.remove(name).is_some();
            model.version += u64::from(known);
            known
        });
        if known {
            self.log(name, EventType::Deleted);
        }
    }

    /// Forgets the history, and ends watches.
    pub(crate) fn compact(&self) {
        self.with(|model| {
            model.log.clear();
            model.compacted = model.version;
        });
    }

    pub(crate) fn drop_watches(&self) {
        self.with(|model| model.generation += 1);
    }

    /// The names and versions of what is there and can be read.
    pub(crate) fn expected(&self) -> BTreeMap<String, u64> {
        self.with(|model| model.objects.clone())
    }
}

impl ListerWatcher for Source {
    fn list(&self, _: ListOptions) -> BoxFuture<'_, Result<ListPage, Error>> {
        let answer = self.with(|model| {
            model.lists += 1;
            if let Some(fault) = model.faults.pop_front() {
                return Err(fault);
            }
            let items = model.objects.iter().map(|(name, version)| Bytes::from(object(name, *version))).collect();
            let resource_version = model.version.to_string();
            Ok(ListPage { items, resource_version, ..ListPage::default() })
        });
        Box::pin(async { answer })
    }

    fn watch(&self, options: ListOptions) -> BoxFuture<'_, Result<WatchStream, Error>> {
        let answer = self.with(|model| {
            model.watches += 1;
            if let Some(fault) = model.faults.pop_front() {
                return Err(fault);
            }
            let mut first = VecDeque::new();
            let mut position = options.resource_version.parse().unwrap_or(0);
            if options.send_initial_events == Some(true) {
                if model.no_watch_list {
                    return Err(Status::bad_request("sendInitialEvents is forbidden").into());
                }
                let added = model.objects.iter().map(|(name, version)| (EventType::Added, object(name, *version)));
                first.extend(added);
                position = model.version;
                let end = format!(
                    r#"{{"metadata":{{"resourceVersion":"{position}","annotations":{{"k8s.io/initial-events-end":"true"}}}}}}"#
                );
                first.push_back((EventType::Bookmark, end));
            }
            let generation = model.generation;
            Ok(WatchStream::new(Watching { source: self.clone(), position, generation, first }))
        });
        Box::pin(async { answer })
    }
}

struct Watching {
    source: Source,
    position: u64,
    generation: u64,
    first: VecDeque<(EventType, String)>,
}

impl Watch for Watching {
    fn poll_next(&mut self, cx: &mut Context<'_>) -> Poll<Option<Result<WatchEvent<Bytes>, Error>>> {
        let mut model = self.source.0.lock().unwrap();
        if model.generation != self.generation {
            return Poll::Ready(None);
        }
        let found = self.first.pop_front().or_else(|| {
            if self.position < model.compacted {
                let gone = r#"{"kind":"Status","code":410,"reason":"Expired","message":"too old resource version"}"#;
                return Some((EventType::Error, gone.to_owned()));
            }
            let (version, event_type, object) = model.log.iter().find(|(version, ..)| *version > self.position)?;
            self.position = *version;
            Some((*event_type, object.clone()))
        });
        match found {
            Some((event_type, object)) => Poll::Ready(Some(Ok(WatchEvent { event_type, object: Bytes::from(object) }))),
            None => {
                model.wakers.push(cx.waker().clone());
                Poll::Pending
            }
        }
    }
}
