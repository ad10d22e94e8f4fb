//! Reads: one key, pages, revisions, and what has been compacted.

use std::time::Duration;

use bytes::Bytes;

use super::{
    Inner,
    compactor::COMPACT_KEY,
    status::{Failed, Problem},
    wire::{
        CompactionRequest, KeyValue, MAX_ANSWER_BYTES, RangeRequest, RangeResponse, WatchCreateRequest, first_key,
        range_end, revision, stands_at,
    },
};
use crate::{
    At, Found, Key, Page, Range, ReadError, Revision,
    limits::{MAX_PAGE_ITEMS, PAGE_BYTES},
    op::{check_key, check_range},
};

/// How many items are asked for at first; how many more depends on how large they turn out to be.
const FIRST_ITEMS: usize = 500;

/// The largest answer with items. What would be larger is asked for again in halves, down to one item.
const MAX_ITEMS_BYTES: usize = 4 * PAGE_BYTES;

const _: () = assert!(MAX_ITEMS_BYTES <= MAX_ANSWER_BYTES);

/// The pauses in which a revision is waited for: the first, and after doubling the last.
const FIRST_PAUSE: Duration = Duration::from_millis(5);
const LAST_PAUSE: Duration = Duration::from_millis(100);

/// A page as etcd has it, with the leases that tell the lifetimes.
pub(super) struct LeasedPage {
    pub(super) revision: Revision,
    pub(super) items: Vec<KeyValue>,
    pub(super) more: bool,
    count: u64,
}

impl Inner {
    /// The present revision, linearizable.
    pub(super) async fn revision(&self) -> Result<Revision, ReadError> {
        // Any key would do; whoever may compact may read this one.
        let request = RangeRequest { key: COMPACT_KEY, count_only: true, ..RangeRequest::default() };
        Ok(stands_at(self.client.call(request).await?.header))
    }

    pub(super) async fn get(&self, key: Key, at: At) -> Result<Found, ReadError> {
        check_key(&key)?;
        let (revision, answer) = self.read(RangeRequest { key, ..RangeRequest::default() }, at).await?;
        Ok(Found { revision, item: answer.kvs.into_iter().next().map(Into::into) })
    }

    pub(super) async fn range(&self, range: &Range) -> Result<Page, ReadError> {
        let LeasedPage { revision, items, more, count } = self.page(range).await?;
        let count = range.count.then_some(count);
        Ok(Page { revision, items: items.into_iter().map(Into::into).collect(), more, count })
    }

    /// Reads a page in one or more steps, all of one state.
    pub(super) async fn page(&self, range: &Range) -> Result<LeasedPage, ReadError> {
        check_range(range)?;
        let limit = range.limit.map_or(MAX_PAGE_ITEMS, |limit| MAX_PAGE_ITEMS.min(limit.get() as usize));
        let key = first_key(if range.start > range.prefix { &range.start } else { &range.prefix });
        let end = range_end(&range.prefix);
        let first = self.items(key, &end, limit.min(FIRST_ITEMS), range.at);
        let mut page = first.await?;
        let mut bytes = page.items.iter().map(size).sum::<usize>();
        while page.more && page.items.len() < limit && bytes < PAGE_BYTES {
            let Some(last) = page.items.last() else { break };
            let next = [&last.key[..], b"\0"].concat();
            let room = (PAGE_BYTES - bytes) / (bytes / page.items.len()).max(1);
            let limit = room.clamp(1, limit - page.items.len());
            match self.items(next.into(), &end, limit, At::Exactly(page.revision)).await {
                Ok(next) => {
                    bytes += next.items.iter().map(size).sum::<usize>();
                    page.items.extend(next.items);
                    page.more = next.more;
                }
                // This page is whole as it is; who asks for the next one is told.
                Err(ReadError::Compacted { .. }) => break,
                Err(error) => return Err(error),
            }
        }
        Ok(page)
    }

    /// The items from `key` on, in one answer of a bounded size.
    async fn items(&self, key: Bytes, end: &Bytes, mut limit: usize, at: At) -> Result<LeasedPage, ReadError> {
        loop {
            let request = RangeRequest {
                key: key.clone(),
                range_end: end.clone(),
                limit: i64::try_from(limit).unwrap_or(i64::MAX),
                ..RangeRequest::default()
            };
            let bytes = if limit > 1 { MAX_ITEMS_BYTES } else { MAX_ANSWER_BYTES };
            match self.read_within(request, at, bytes).await? {
                Some((revision, RangeResponse { kvs, more, count, .. })) => {
                    return Ok(LeasedPage { revision, items: kvs, more, count: u64::try_from(count).unwrap_or(0) });
                }
                None => limit = (limit / 2).max(1),
            }
        }
    }

    /// Reads, and tells the revision of the state that was read.
    async fn read(&self, request: RangeRequest, at: At) -> Result<(Revision, RangeResponse), ReadError> {
        let read = self.read_within(request, at, MAX_ANSWER_BYTES).await?;
        read.ok_or_else(|| Failed::too_large().into())
    }

    /// As [`read`](Inner::read); `None` when the answer has more bytes.
    async fn read_within(
        &self,
        mut request: RangeRequest,
        at: At,
        bytes: usize,
    ) -> Result<Option<(Revision, RangeResponse)>, ReadError> {
        let key = request.key.clone();
        match at {
            At::Present => {}
            At::Exactly(asked) => request.revision = self.askable(asked, &key).await?,
            At::NotOlderThan(asked) => {
                // Whatever the member has at hand may be new enough, and costs no agreement between the members.
                let any = RangeRequest { serializable: true, ..request.clone() };
                if let Some((revision, answer)) = self.read_at(any, at, bytes).await?
                    && revision >= asked
                {
                    return Ok(Some((revision, answer)));
                }
                self.reach(asked).await?;
            }
        }
        self.read_at(request, at, bytes).await
    }

    async fn read_at(
        &self,
        request: RangeRequest,
        at: At,
        bytes: usize,
    ) -> Result<Option<(Revision, RangeResponse)>, ReadError> {
        let (key, asked) = (request.key.clone(), revision(request.revision));
        match self.client.call_within(request, bytes).await {
            Ok(answer) => {
                let revision = if let At::Exactly(asked) = at { asked } else { stands_at(answer.header) };
                Ok(Some((revision, answer)))
            }
            Err(Failed { problem: Problem::AnswerTooLarge, .. }) => Ok(None),
            Err(Failed { problem: Problem::Compacted, .. }) => Err(self.compacted(asked, &key).await),
            Err(Failed { problem: Problem::Future, .. }) => {
                Err(ReadError::TooNew { asked, current: self.revision().await? })
            }
            Err(failed) => Err(failed.into()),
        }
    }

    /// A revision as etcd can be asked for it.
    async fn askable(&self, asked: Revision, key: &Key) -> Result<i64, ReadError> {
        match i64::try_from(asked.0) {
            // To etcd that is the present.
            Ok(0) => Err(self.compacted(asked, key).await),
            Ok(number) => Ok(number),
            Err(_) => Err(ReadError::TooNew { asked, current: self.revision().await? }),
        }
    }

    /// Checks that the changes after `after` are all there, as far as `key` may be read.
    pub(super) async fn check_start(&self, after: Revision, key: &Key) -> Result<(), ReadError> {
        let request = RangeRequest { key: first_key(key), count_only: true, ..RangeRequest::default() };
        self.read(request, At::Exactly(after)).await.map(|_| ())
    }

    /// Waits, bounded, until the store has reached the revision.
    async fn reach(&self, asked: Revision) -> Result<(), ReadError> {
        let clock = &self.options.clock;
        let deadline = clock.monotonic().plus(self.options.freshness_wait);
        let mut pause = FIRST_PAUSE;
        loop {
            let current = self.revision().await?;
            if current >= asked {
                return Ok(());
            }
            let now = clock.monotonic();
            if now >= deadline {
                return Err(ReadError::TooNew { asked, current });
            }
            clock.sleep_until(now.plus(pause).min(deadline)).await;
            pause = (pause * 2).min(LAST_PAUSE);
        }
    }

    pub(super) async fn compact(&self, revision: Revision) -> Result<(), ReadError> {
        if revision <= Revision::INITIAL {
            return Ok(());
        }
        let number = i64::try_from(revision.0).unwrap_or(i64::MAX);
        match self.client.call(CompactionRequest { revision: number }).await {
            Ok(_) | Err(Failed { problem: Problem::Compacted, .. }) => Ok(()),
            Err(Failed { problem: Problem::Future, .. }) => {
                Err(ReadError::TooNew { asked: revision, current: self.revision().await? })
            }
            Err(failed) => Err(failed.into()),
        }
    }

    /// The error for a revision that has been compacted.
    pub(super) async fn compacted(&self, asked: Revision, key: &Key) -> ReadError {
        match self.compaction(asked, key).await {
            Ok(compacted) => ReadError::Compacted { asked, compacted },
            Err(error) => error,
        }
    }

    /// The compaction revision, given one that is before it. etcd tells it only to watches that come too late.
    async fn compaction(&self, before: Revision, key: &Key) -> Result<Revision, ReadError> {
        let start_revision = i64::try_from(before.0).unwrap_or(i64::MAX).max(1);
        if before == Revision::ABSENT {
            let first = RangeRequest { key: first_key(key), count_only: true, revision: 1, ..RangeRequest::default() };
            match self.client.call(first).await {
                Ok(_) => return Ok(Revision::INITIAL),
                Err(Failed { problem: Problem::Compacted, .. }) => {}
                Err(failed) => return Err(failed.into()),
            }
        }
        let late = WatchCreateRequest { key: first_key(key), start_revision, ..WatchCreateRequest::default() };
        let mut stream = self.client.watch(late).await?;
        match self.client.before(self.client.deadline(), stream.next()).await {
            Some(Ok(message)) if message.compact_revision > 0 => Ok(revision(message.compact_revision)),
            // It was not too late: nothing after what was asked for has been compacted.
            Some(Ok(_)) => Ok(revision(start_revision)),
            Some(Err(failed)) => Err(failed.into()),
            None => Err(Failed::timed_out(&stream.endpoint, false).into()),
        }
    }
}

fn size(item: &KeyValue) -> usize {
    item.key.len() + item.value.len()
}
