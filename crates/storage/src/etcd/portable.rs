//! Snapshots in the portable format, and what is restored from them.

use std::{collections::HashMap, num::NonZeroU32, path::Path, time::Duration};

use capstan_clock::Clock;
use tokio::task::spawn_blocking;

use super::{
    Inner,
    compactor::COMPACT_KEY,
    status::{Failed, Problem},
    wire::LeaseTimeToLiveRequest,
};
use crate::{
    Action, At, CommitError, Committed, ConsistencyHash, ConsistencyHasher, Fault, FaultKind, KeyValue, Op, Range,
    ReadError, Revision, SnapshotInfo, Ttl,
    expiry::Deadline,
    limits::MAX_COMMIT_OPS,
    snapshot::{SnapshotReader, SnapshotWriter},
};

/// How many bytes one commit of a restore has, unless one value has more: less than etcd accepts by default.
const RESTORE_BYTES: usize = 1024 * 1024;

impl Inner {
    pub(super) async fn hash(&self, at: At) -> Result<ConsistencyHash, ReadError> {
        let mut range = Range::default().at(at);
        let mut hasher = ConsistencyHasher::default();
        loop {
            let page = self.range(&range).await?;
            page.items.iter().for_each(|item| hasher.add(item));
            match range.following(&page) {
                Some(next) => range = next,
                None => return Ok(hasher.at(page.revision)),
            }
        }
    }

    pub(super) async fn snapshot(&self, path: &Path) -> Result<SnapshotInfo, Fault> {
        let mut range = Range::default();
        let mut leases = HashMap::new();
        let mut writer: Option<SnapshotWriter> = None;
        loop {
            let page = self.page(&range).await.map_err(fault)?;
            let mut items = Vec::with_capacity(page.items.len());
            for kv in page.items {
                let deadline = self.deadline(kv.lease, &mut leases).await?;
                items.push((KeyValue::from(kv), deadline));
            }
            let last = items.last().map(|(item, _)| item.clone());
            let (path, revision, unfinished) = (path.to_owned(), page.revision, writer.take());
            let write = move || {
                let mut writer = match unfinished {
                    Some(writer) => writer,
                    None => SnapshotWriter::create(&path, revision)?,
                };
                items.iter().try_for_each(|(item, deadline)| writer.item(item, *deadline))?;
                Ok(writer)
            };
            let written = blocking(write).await?;
            let Some(last) = last.filter(|_| page.more) else {
                return blocking(move || written.finish()).await;
            };
            writer = Some(written);
            let start = [&last.key[..], b"\0"].concat();
            range = Range::default().starting(start).at(At::Exactly(page.revision));
        }
    }

    /// When the keys on this lease go, as far as etcd can tell now.
    async fn deadline(&self, lease: i64, known: &mut HashMap<i64, Deadline>) -> Result<Option<Deadline>, Fault> {
        if lease == 0 {
            return Ok(None);
        }
        if let Some(deadline) = known.get(&lease) {
            return Ok(Some(*deadline));
        }
        let left = match self.client.call(LeaseTimeToLiveRequest { id: lease }).await {
            Ok(answer) => u64::try_from(answer.ttl).unwrap_or(0),
            Err(Failed { problem: Problem::LeaseGone, .. }) => 0,
            Err(failed) => return Err(failed.into_fault()),
        };
        let millis = self.options.clock.now().as_millisecond();
        let deadline = Deadline(millis.saturating_add_unsigned(left.saturating_mul(1000)));
        known.insert(lease, deadline);
        Ok(Some(deadline))
    }

    /// Puts what a snapshot holds into an etcd without keys. The file has been read once and is whole.
    pub(super) async fn restore(&self, path: &Path) -> Result<(), Fault> {
        let found = self.range(&Range::default().limited(2)).await.map_err(fault)?;
        if let Some(item) = found.items.iter().find(|item| item.key != COMPACT_KEY) {
            let detail = format_args!("etcd has keys already, such as {:?}: restore into an empty one", item.key);
            return Err(Fault::new(FaultKind::Held, detail));
        }
        let path = path.to_owned();
        let mut reader = blocking(move || SnapshotReader::open(&path)).await?;
        let mut more = true;
        while more {
            let (read, rest) = blocking(move || Ok((chunk(&mut reader)?, reader))).await?;
            let (mut items, follow) = read;
            (reader, more) = (rest, follow);
            items.retain(|(item, _)| item.key != COMPACT_KEY);
            let clock = &*self.options.clock;
            let ops: Vec<_> = items.into_iter().map(|(item, deadline)| put(item, deadline, clock)).collect();
            self.commit(&ops).await.map(|_: Committed| ()).map_err(|error| match error {
                CommitError::Fault(fault) | CommitError::Uncertain(fault) => fault,
                CommitError::Conflict(_) => Fault::new(FaultKind::Held, "somebody else writes to this etcd"),
                CommitError::Input(error) => Fault::new(FaultKind::Full, error),
            })?;
        }
        Ok(())
    }
}

type Saved = (KeyValue, Option<Deadline>);

/// Reads a snapshot to its end and checks it.
pub(super) async fn check(path: &Path) -> Result<(), Fault> {
    let path = path.to_owned();
    blocking(move || {
        let mut reader = SnapshotReader::open(&path)?;
        while reader.next()?.is_some() {}
        Ok(())
    })
    .await
}

/// The items of the next commit, and whether there may be others after it.
fn chunk(reader: &mut SnapshotReader) -> Result<(Vec<Saved>, bool), Fault> {
    let (mut items, mut bytes) = (Vec::new(), 0);
    while items.len() < MAX_COMMIT_OPS && bytes < RESTORE_BYTES {
        let Some(saved) = reader.next()? else { return Ok((items, false)) };
        bytes += saved.0.key.len() + saved.0.value.len();
        items.push(saved);
    }
    Ok((items, true))
}

/// The operation that creates a saved item, with what is left of its lifetime.
fn put(item: KeyValue, deadline: Option<Deadline>, clock: &dyn Clock) -> Op {
    let left = |deadline: Deadline| {
        let millis = u64::try_from(deadline.0.saturating_sub(clock.now().as_millisecond())).unwrap_or(0);
        let seconds = u32::try_from(Duration::from_millis(millis).as_secs()).unwrap_or(u32::MAX);
        // What is over already goes as soon as etcd lets it.
        Ttl(NonZeroU32::new(seconds).unwrap_or(NonZeroU32::MIN))
    };
    let action = Action::Put { value: item.value, expires: deadline.map(left) };
    Op { key: item.key, expected: Some(Revision::ABSENT), action }
}

async fn blocking<T: Send + 'static>(work: impl FnOnce() -> Result<T, Fault> + Send + 'static) -> Result<T, Fault> {
    spawn_blocking(work).await.unwrap_or_else(|error| Err(Fault::new(FaultKind::Closed, error)))
}

fn fault(error: ReadError) -> Fault {
    match error {
        ReadError::Fault(fault) => fault,
        // It took longer than history is kept.
        error => Fault::new(FaultKind::TimedOut, error),
    }
}
