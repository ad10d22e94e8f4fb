//! Commits: one etcd transaction each.

use super::{
    Inner,
    status::{Failed, Problem},
    wire::{
        Compare, DeleteRangeRequest, PutRequest, RangeRequest, Request, RequestOp, Response, ResponseOp, TxnRequest,
        TxnResponse, stands_at,
    },
};
use crate::{
    Action, CommitError, Committed, Conflict, ConflictingOp, Fault, InputError, Key, KeyValue, Op, ReadError, Revision,
    Ttl, op::check_ops,
};

impl Inner {
    pub(super) async fn commit(&self, ops: &[Op]) -> Result<Committed, CommitError> {
        check_ops(ops)?;
        if ops.is_empty() {
            return match self.revision().await {
                Ok(revision) => Ok(Committed { revision, changed: false }),
                Err(ReadError::Fault(fault)) => Err(CommitError::Fault(fault)),
                Err(error) => unreachable!("the revision cannot be wrong: {error}"),
            };
        }
        let mut retried = false;
        loop {
            let leases = self.leases_for(ops).await.map_err(|failed| CommitError::Fault(failed.into_fault()))?;
            match self.client.call(transaction(ops, &leases)).await {
                Ok(answer) if answer.succeeded => return Ok(committed(ops, &answer)),
                Ok(answer) => return Err(conflict(ops, answer).map_or_else(CommitError::Fault, CommitError::Conflict)),
                // etcd looks for the leases before it changes anything.
                Err(Failed { problem: Problem::LeaseGone, .. }) if !retried => {
                    retried = true;
                    for (_, id) in leases {
                        self.leases.forget(id).await;
                    }
                }
                Err(failed) => return Err(not_committed(ops, failed)),
            }
        }
    }

    /// A lease for every lifetime among the operations.
    async fn leases_for(&self, ops: &[Op]) -> Result<Vec<(Ttl, i64)>, Failed> {
        let mut ttls: Vec<Ttl> = ops.iter().filter_map(lifetime).collect();
        ttls.sort_unstable();
        let mut leases = Vec::new();
        for same in ttls.chunk_by(|a, b| a == b) {
            leases.push((same[0], self.leases.lease(&self.client, same[0], same.len()).await?));
        }
        Ok(leases)
    }
}

fn lifetime(op: &Op) -> Option<Ttl> {
    if let Action::Put { expires, .. } = op.action { expires } else { None }
}

/// If all preconditions hold, all operations; else the items that they are about.
fn transaction(ops: &[Op], leases: &[(Ttl, i64)]) -> TxnRequest {
    let get = |key: &Key| RangeRequest { key: key.clone(), ..RangeRequest::default() };
    let success = |op: &Op| match &op.action {
        Action::Put { value, expires } => {
            let lease = expires.and_then(|ttl| leases.iter().find(|(other, _)| *other == ttl));
            let lease = lease.map_or(0, |(_, id)| *id);
            Request::Put(PutRequest { key: op.key.clone(), value: value.clone(), lease })
        }
        Action::Delete => Request::Delete(DeleteRangeRequest { key: op.key.clone() }),
        // A transaction without any operation is answered from whatever the member has at hand; with this one it is the
        // present that is compared.
        Action::Check => Request::Range(RangeRequest { count_only: true, ..get(&op.key) }),
    };
    let compare = |op: &Op| {
        let expected = i64::try_from(op.expected?.0).unwrap_or(i64::MAX);
        Some(Compare::mod_revision(op.key.clone(), expected))
    };
    let op = |request| RequestOp { request: Some(request) };
    TxnRequest {
        compare: ops.iter().filter_map(compare).collect(),
        success: ops.iter().map(success).map(op).collect(),
        failure: guarded(ops).map(|(_, guarded, _)| op(Request::Range(get(&guarded.key)))).collect(),
    }
}

/// The operations with a precondition, with their place and what they expect.
fn guarded(ops: &[Op]) -> impl Iterator<Item = (usize, &Op, Revision)> {
    ops.iter().enumerate().filter_map(|(index, op)| Some((index, op, op.expected?)))
}

fn committed(ops: &[Op], answer: &TxnResponse) -> Committed {
    let changed = ops.iter().zip(&answer.responses).any(|(op, answer)| match (&op.action, &answer.response) {
        (Action::Put { .. }, _) => true,
        (_, Some(Response::Delete(deleted))) => deleted.deleted > 0,
        _ => false,
    });
    Committed { revision: stands_at(answer.header), changed }
}

fn conflict(ops: &[Op], answer: TxnResponse) -> Result<Conflict, Fault> {
    let revision = stands_at(answer.header);
    let mut failed = Vec::new();
    for ((index, _, expected), ResponseOp { response }) in guarded(ops).zip(answer.responses) {
        let Some(Response::Range(found)) = response else { continue };
        let current: Option<KeyValue> = found.kvs.into_iter().next().map(Into::into);
        if current.as_ref().map_or(Revision::ABSENT, |item| item.mod_revision) != expected {
            failed.push(ConflictingOp { index, current });
        }
    }
    if failed.is_empty() {
        let odd = "etcd refuses a transaction whose preconditions all hold";
        return Err(Fault::new(crate::FaultKind::Corrupt, odd));
    }
    Ok(Conflict { revision, failed })
}

fn not_committed(ops: &[Op], failed: Failed) -> CommitError {
    let bytes = |op: &Op| op.key.len() + if let Action::Put { value, .. } = &op.action { value.len() } else { 0 };
    // What only compares happens as little when it is not known to have happened.
    let uncertain = failed.sent && ops.iter().any(|op| op.action != Action::Check);
    match failed.problem {
        Problem::RequestTooLarge => InputError::CommitTooLarge { bytes: ops.iter().map(bytes).sum() }.into(),
        Problem::TooManyOps => InputError::TooManyOps { count: ops.len() }.into(),
        _ if uncertain => CommitError::Uncertain(failed.into_fault()),
        _ => CommitError::Fault(failed.into_fault()),
    }
}
