//! The part of etcd's gRPC interface that the engine uses: messages by their field numbers, calls by their paths.
//!
//! Written by hand so that nothing has to be generated: fields that the engine does not look at are left out, and
//! skipped when they arrive. What is sent holds shared bytes; what arrives is copied once, into bytes of its own, so
//! that no item keeps a whole page in memory.

use bytes::Bytes;
use prost::{Message, Oneof};

use crate::limits::{MAX_COMMIT_OPS, MAX_KEY_BYTES, MAX_VALUE_BYTES};

/// The largest answer that is read: a conflict of the largest commit, with all the values that were found.
pub(super) const MAX_ANSWER_BYTES: usize = MAX_COMMIT_OPS * (MAX_VALUE_BYTES + MAX_KEY_BYTES + 1024);

/// A call with one answer.
pub(super) trait Call: Message + Clone + 'static {
    type Answer: Message + Default + 'static;
    const PATH: &'static str;
    /// Whether it may take effect twice when it is sent twice.
    const CHANGES: bool;

    /// Whether it is to be refused by a member that knows of no leader.
    fn needs_leader(&self) -> bool {
        true
    }
}

impl Call for RangeRequest {
    type Answer = RangeResponse;
    const PATH: &'static str = "/etcdserverpb.KV/Range";
    const CHANGES: bool = false;

    fn needs_leader(&self) -> bool {
        !self.serializable
    }
}

macro_rules! calls {
    ($($request:ty => $answer:ty, $path:literal, changes: $changes:literal;)*) => {
        $(impl Call for $request {
            type Answer = $answer;
            const PATH: &'static str = $path;
            const CHANGES: bool = $changes;
        })*
    };
}

calls! {
    TxnRequest => TxnResponse, "/etcdserverpb.KV/Txn", changes: true;
    CompactionRequest => CompactionResponse, "/etcdserverpb.KV/Compact", changes: false;
    LeaseGrantRequest => LeaseGrantResponse, "/etcdserverpb.Lease/LeaseGrant", changes: false;
    LeaseTimeToLiveRequest => LeaseTimeToLiveResponse, "/etcdserverpb.Lease/LeaseTimeToLive", changes: false;
    AuthenticateRequest => AuthenticateResponse, "/etcdserverpb.Auth/Authenticate", changes: false;
}

/// The one call that is a stream.
pub(super) const WATCH_PATH: &str = "/etcdserverpb.Watch/Watch";

#[derive(Clone, Copy, PartialEq, Message)]
pub(super) struct ResponseHeader {
    #[prost(int64, tag = "3")]
    pub(super) revision: i64,
}

#[derive(Clone, PartialEq, Message)]
pub(super) struct KeyValue {
    #[prost(bytes = "vec", tag = "1")]
    pub(super) key: Vec<u8>,
    #[prost(int64, tag = "3")]
    pub(super) mod_revision: i64,
    #[prost(int64, tag = "4")]
    pub(super) version: i64,
    #[prost(bytes = "vec", tag = "5")]
    pub(super) value: Vec<u8>,
    #[prost(int64, tag = "6")]
    pub(super) lease: i64,
}

#[derive(Clone, PartialEq, Message)]
pub(super) struct RangeRequest {
    #[prost(bytes = "bytes", tag = "1")]
    pub(super) key: Bytes,
    #[prost(bytes = "bytes", tag = "2")]
    pub(super) range_end: Bytes,
    #[prost(int64, tag = "3")]
    pub(super) limit: i64,
    #[prost(int64, tag = "4")]
    pub(super) revision: i64,
    #[prost(bool, tag = "7")]
    pub(super) serializable: bool,
    #[prost(bool, tag = "9")]
    pub(super) count_only: bool,
}

#[derive(Clone, PartialEq, Message)]
pub(super) struct RangeResponse {
    #[prost(message, optional, tag = "1")]
    pub(super) header: Option<ResponseHeader>,
    #[prost(message, repeated, tag = "2")]
    pub(super) kvs: Vec<KeyValue>,
    #[prost(bool, tag = "3")]
    pub(super) more: bool,
    #[prost(int64, tag = "4")]
    pub(super) count: i64,
}

#[derive(Clone, PartialEq, Message)]
pub(super) struct PutRequest {
    #[prost(bytes = "bytes", tag = "1")]
    pub(super) key: Bytes,
    #[prost(bytes = "bytes", tag = "2")]
    pub(super) value: Bytes,
    #[prost(int64, tag = "3")]
    pub(super) lease: i64,
}

#[derive(Clone, Copy, PartialEq, Message)]
pub(super) struct PutResponse {}

#[derive(Clone, PartialEq, Message)]
pub(super) struct DeleteRangeRequest {
    #[prost(bytes = "bytes", tag = "1")]
    pub(super) key: Bytes,
}

#[derive(Clone, Copy, PartialEq, Message)]
pub(super) struct DeleteRangeResponse {
    #[prost(int64, tag = "2")]
    pub(super) deleted: i64,
}

#[derive(Clone, PartialEq, Message)]
pub(super) struct RequestOp {
    #[prost(oneof = "Request", tags = "1, 2, 3")]
    pub(super) request: Option<Request>,
}

#[derive(Clone, PartialEq, Oneof)]
pub(super) enum Request {
    #[prost(message, tag = "1")]
    Range(RangeRequest),
    #[prost(message, tag = "2")]
    Put(PutRequest),
    #[prost(message, tag = "3")]
    Delete(DeleteRangeRequest),
}

#[derive(Clone, PartialEq, Message)]
pub(super) struct ResponseOp {
    #[prost(oneof = "Response", tags = "1, 2, 3")]
    pub(super) response: Option<Response>,
}

#[derive(Clone, PartialEq, Oneof)]
pub(super) enum Response {
    #[prost(message, tag = "1")]
    Range(RangeResponse),
    #[prost(message, tag = "2")]
    Put(PutResponse),
    #[prost(message, tag = "3")]
    Delete(DeleteRangeResponse),
}

/// A comparison for equality, which is the result 0 that is not sent.
#[derive(Clone, PartialEq, Message)]
pub(super) struct Compare {
    #[prost(int32, tag = "2")]
    target: i32,
    #[prost(bytes = "bytes", tag = "3")]
    key: Bytes,
    #[prost(oneof = "CompareWith", tags = "4, 6")]
    with: Option<CompareWith>,
}

#[derive(Clone, Copy, PartialEq, Oneof)]
enum CompareWith {
    #[prost(int64, tag = "4")]
    Version(i64),
    #[prost(int64, tag = "6")]
    ModRevision(i64),
}

impl Compare {
    /// Holds when the key was last modified at `revision`, 0 for a key that is not there.
    pub(super) fn mod_revision(key: Bytes, revision: i64) -> Self {
        Compare { target: 2, key, with: Some(CompareWith::ModRevision(revision)) }
    }

    /// Holds when the key was put `version` times since it was created.
    pub(super) fn version(key: Bytes, version: i64) -> Self {
        Compare { target: 0, key, with: Some(CompareWith::Version(version)) }
    }
}

#[derive(Clone, PartialEq, Message)]
pub(super) struct TxnRequest {
    #[prost(message, repeated, tag = "1")]
    pub(super) compare: Vec<Compare>,
    #[prost(message, repeated, tag = "2")]
    pub(super) success: Vec<RequestOp>,
    #[prost(message, repeated, tag = "3")]
    pub(super) failure: Vec<RequestOp>,
}

#[derive(Clone, PartialEq, Message)]
pub(super) struct TxnResponse {
    #[prost(message, optional, tag = "1")]
    pub(super) header: Option<ResponseHeader>,
    #[prost(bool, tag = "2")]
    pub(super) succeeded: bool,
    #[prost(message, repeated, tag = "3")]
    pub(super) responses: Vec<ResponseOp>,
}

#[derive(Clone, Copy, PartialEq, Message)]
pub(super) struct CompactionRequest {
    #[prost(int64, tag = "1")]
    pub(super) revision: i64,
}

#[derive(Clone, Copy, PartialEq, Message)]
pub(super) struct CompactionResponse {}

#[derive(Clone, Copy, PartialEq, Message)]
pub(super) struct LeaseGrantRequest {
    #[prost(int64, tag = "1")]
    pub(super) ttl: i64,
}

#[derive(Clone, Copy, PartialEq, Message)]
pub(super) struct LeaseGrantResponse {
    #[prost(int64, tag = "2")]
    pub(super) id: i64,
    #[prost(int64, tag = "3")]
    pub(super) ttl: i64,
}

#[derive(Clone, Copy, PartialEq, Message)]
pub(super) struct LeaseTimeToLiveRequest {
    #[prost(int64, tag = "1")]
    pub(super) id: i64,
}

#[derive(Clone, Copy, PartialEq, Message)]
pub(super) struct LeaseTimeToLiveResponse {
    /// What is left, in seconds; negative when the lease has ended.
    #[prost(int64, tag = "3")]
    pub(super) ttl: i64,
}

#[derive(Clone, PartialEq, Message)]
pub(super) struct AuthenticateRequest {
    #[prost(string, tag = "1")]
    pub(super) name: String,
    #[prost(string, tag = "2")]
    pub(super) password: String,
}

#[derive(Clone, PartialEq, Message)]
pub(super) struct AuthenticateResponse {
    #[prost(string, tag = "2")]
    pub(super) token: String,
}

#[derive(Clone, PartialEq, Message)]
pub(super) struct WatchRequest {
    #[prost(oneof = "WatchAsk", tags = "1, 3")]
    pub(super) ask: Option<WatchAsk>,
}

#[derive(Clone, PartialEq, Oneof)]
pub(super) enum WatchAsk {
    #[prost(message, tag = "1")]
    Create(WatchCreateRequest),
    #[prost(message, tag = "3")]
    Progress(WatchProgressRequest),
}

#[derive(Clone, PartialEq, Message)]
pub(super) struct WatchCreateRequest {
    #[prost(bytes = "bytes", tag = "1")]
    pub(super) key: Bytes,
    #[prost(bytes = "bytes", tag = "2")]
    pub(super) range_end: Bytes,
    #[prost(int64, tag = "3")]
    pub(super) start_revision: i64,
    #[prost(bool, tag = "4")]
    pub(super) progress_notify: bool,
    #[prost(bool, tag = "6")]
    pub(super) prev_kv: bool,
    #[prost(bool, tag = "8")]
    pub(super) fragment: bool,
}

#[derive(Clone, Copy, PartialEq, Message)]
pub(super) struct WatchProgressRequest {}

#[derive(Clone, PartialEq, Message)]
pub(super) struct WatchResponse {
    #[prost(message, optional, tag = "1")]
    pub(super) header: Option<ResponseHeader>,
    #[prost(bool, tag = "3")]
    pub(super) created: bool,
    #[prost(bool, tag = "4")]
    pub(super) canceled: bool,
    #[prost(int64, tag = "5")]
    pub(super) compact_revision: i64,
    #[prost(string, tag = "6")]
    pub(super) cancel_reason: String,
    #[prost(bool, tag = "7")]
    pub(super) fragment: bool,
    #[prost(message, repeated, tag = "11")]
    pub(super) events: Vec<Event>,
}

#[derive(Clone, PartialEq, Message)]
pub(super) struct Event {
    /// 0: put, 1: deleted.
    #[prost(int32, tag = "1")]
    pub(super) kind: i32,
    #[prost(message, optional, tag = "2")]
    pub(super) kv: Option<KeyValue>,
    #[prost(message, optional, tag = "3")]
    pub(super) prev_kv: Option<KeyValue>,
}

impl From<KeyValue> for crate::KeyValue {
    fn from(kv: KeyValue) -> Self {
        let mod_revision = revision(kv.mod_revision);
        crate::KeyValue { key: kv.key.into(), value: kv.value.into(), mod_revision }
    }
}

/// A revision as etcd writes it. It is never negative in an answer.
pub(super) fn revision(number: i64) -> crate::Revision {
    crate::Revision(u64::try_from(number).unwrap_or(0))
}

/// The revision of the state that an answer speaks of.
pub(super) fn stands_at(header: Option<ResponseHeader>) -> crate::Revision {
    revision(header.map_or(0, |header| header.revision))
}

/// The least key after all that begin with `prefix`, in etcd's way: a zero byte stands for the end of all keys.
pub(super) fn range_end(prefix: &[u8]) -> Bytes {
    match prefix.iter().rposition(|byte| *byte < 0xff) {
        Some(last) => {
            let mut end = prefix[..=last].to_vec();
            end[last] += 1;
            end.into()
        }
        None => Bytes::from_static(b"\0"),
    }
}

/// The first key that begins with `prefix`, in etcd's way: no key is empty.
pub(super) fn first_key(prefix: &Bytes) -> Bytes {
    if prefix.is_empty() { Bytes::from_static(b"\0") } else { prefix.clone() }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_prefix_ends_before_the_next_one() {
        let cases: [(&[u8], &[u8]); 6] = [
            (b"", b"\0"),
            (b"a", b"b"),
            (b"a/", b"a0"),
            (b"a\xff", b"b"),
            (b"\xff\xff", b"\0"),
            (b"\xfe\xff\xff", b"\xff"),
        ];
        for (prefix, end) in cases {
            assert_eq!(range_end(prefix), end, "{prefix:?}");
        }
    }

    #[test]
    fn messages_are_what_etcd_reads() {
        // By hand from the encoding's definition: field number and wire type, then the value.
        let put = PutRequest { key: "k".into(), value: "v".into(), lease: 7 };
        assert_eq!(put.encode_to_vec(), b"\x0a\x01k\x12\x01v\x18\x07");
        let op = RequestOp { request: Some(Request::Put(put)) };
        assert_eq!(op.encode_to_vec(), b"\x12\x08\x0a\x01k\x12\x01v\x18\x07");
        let absent = Compare::mod_revision("k".into(), 0);
        assert_eq!(absent.encode_to_vec(), b"\x10\x02\x1a\x01k\x30\x00", "an absent key is compared with a zero");
        let progress = WatchRequest { ask: Some(WatchAsk::Progress(WatchProgressRequest {})) };
        assert_eq!(progress.encode_to_vec(), b"\x1a\x00");
    }
}
