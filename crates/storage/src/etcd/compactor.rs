//! Compaction by age, in the way of kube-apiserver, so that several servers of either kind share one etcd.
//!
//! The key [`COMPACT_KEY`] is the clock that they share: its version counts the turns. Once in every age each server
//! tries to move it on from the version that it saw last. Who succeeds has the turn, writes down the revision that it
//! saw a turn ago, and compacts to it; the others have seen the new version and try again an age later. So every state
//! is kept for at least one age, and a server that ends is replaced within two.

use std::{sync::Weak, time::Duration};

use bytes::Bytes;
use capstan_clock::SharedClock;

use super::{
    Inner,
    client::Client,
    status::Failed,
    wire::{CompactionRequest, Compare, PutRequest, RangeRequest, Request, RequestOp, Response, TxnRequest, stands_at},
};

/// The key that servers compact by, the same as kube-apiserver's.
pub(super) const COMPACT_KEY: Bytes = Bytes::from_static(b"compact_rev_key");

/// What a server knows of the last turn.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
struct Turn {
    version: i64,
    revision: i64,
}

/// Takes turns as long as the store is there.
pub(super) async fn run(store: Weak<Inner>, clock: SharedClock, age: Duration) {
    let mut turn = Turn::default();
    loop {
        clock.sleep(age).await;
        let Some(store) = store.upgrade() else { return };
        // What fails, fails with every other call too and is told there; this is tried again an age later.
        if let Ok(next) = take(&store.client, turn).await {
            turn = next;
        }
    }
}

async fn take(client: &Client, last: Turn) -> Result<Turn, Failed> {
    let put = PutRequest { key: COMPACT_KEY, value: last.revision.to_string().into(), lease: 0 };
    let get = RangeRequest { key: COMPACT_KEY, ..RangeRequest::default() };
    let answer = client
        .call(TxnRequest {
            compare: vec![Compare::version(COMPACT_KEY, last.version)],
            success: vec![RequestOp { request: Some(Request::Put(put)) }],
            failure: vec![RequestOp { request: Some(Request::Range(get)) }],
        })
        .await?;
    let revision = i64::try_from(stands_at(answer.header).0).unwrap_or(0);
    if !answer.succeeded {
        let found = answer.responses.into_iter().find_map(|op| match op.response {
            Some(Response::Range(range)) => range.kvs.into_iter().next(),
            _ => None,
        });
        return Ok(Turn { version: found.map_or(0, |kv| kv.version), revision });
    }
    if last.revision > 0 {
        // The turn was taken, whatever comes of this: somebody may have gone further, or the next turn makes up for it.
        let _ = client.call(CompactionRequest { revision: last.revision }).await;
    }
    Ok(Turn { version: last.version + 1, revision })
}
