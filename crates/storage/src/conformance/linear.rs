//! A checker of concurrent histories: is there an order of the operations, each between its call and its return, in
//! which a simple register under each key gives the same answers?
//!
//! Operations of different keys are checked apart (linearizability is local), after Wing and Gong with the memory of
//! states that Lowe added. What ties the keys together is the store's revision: answers that are apart in time must
//! have revisions in that order, and no two commits may have the same. An operation whose outcome is not known may take
//! effect at any time after its call, or never.

use std::{
    collections::{BTreeMap, HashMap, HashSet},
    fmt,
    sync::{
        Arc,
        atomic::{AtomicU64, Ordering},
    },
};

use capstan_clock::{Ids, SeededIds};

use crate::{At, CommitError, Key, KeyValue, Op, Range, Revision, SharedStore, Value};

/// What was asked of one key.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Input {
    /// To read it, at present.
    Get,
    /// To put a value that is unique in the history, or with `None` to delete.
    Write {
        /// The precondition.
        expected: Option<Revision>,
        /// The value.
        value: Option<Value>,
    },
}

/// What was answered.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Output {
    /// What was read.
    Got(Option<KeyValue>),
    /// The write took effect.
    Written,
    /// A deletion found nothing to delete.
    Unchanged,
    /// The precondition did not hold, because of this.
    Conflict(Option<KeyValue>),
    /// No answer, or an uncertain one: the write may have taken effect, or will.
    Unknown,
}

/// One operation on one key, with when it was called and when it was answered, in steps of any clock that all clients
/// share.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Operation {
    /// The key.
    pub key: Key,
    /// What was asked.
    pub input: Input,
    /// What was answered.
    pub output: Output,
    /// The revision that the answer spoke of; [`Revision::ABSENT`] when unknown.
    pub revision: Revision,
    /// When it was called.
    pub called: u64,
    /// When it was answered; not looked at when unknown.
    pub returned: u64,
    /// Operations of one commit or one range have the same number.
    pub request: u64,
}

/// A history that no register could have given.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Violation(String);

impl fmt::Display for Violation {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}

impl std::error::Error for Violation {}

/// Checks a history of keys that were absent before it.
///
/// # Errors
/// What could not have happened.
pub fn check(history: &[Operation]) -> Result<(), Violation> {
    check_revisions(history)?;
    let mut keys: BTreeMap<&Key, Vec<&Operation>> = BTreeMap::new();
    history.iter().for_each(|operation| keys.entry(&operation.key).or_default().push(operation));
    keys.into_values().try_for_each(|mut operations| {
        operations.sort_by_key(|operation| operation.called);
        check_key(&operations)
    })
}

/// Revisions follow real time and are given out once.
fn check_revisions(history: &[Operation]) -> Result<(), Violation> {
    let mut commits = HashMap::new();
    let mut known: Vec<_> = history.iter().filter(|operation| operation.output != Output::Unknown).collect();
    for operation in known.iter().filter(|operation| operation.output == Output::Written) {
        if *commits.entry(operation.revision).or_insert(operation.request) != operation.request {
            return Err(Violation(format!("revision {} was given out twice: {operation:?}", operation.revision)));
        }
    }
    let mut by_return = known.clone();
    by_return.sort_by_key(|operation| operation.returned);
    known.sort_by_key(|operation| operation.called);
    let (mut returned, mut newest) = (by_return.into_iter().peekable(), Revision::ABSENT);
    for operation in known {
        while let Some(before) = returned.next_if(|before| before.returned < operation.called) {
            newest = newest.max(before.revision);
        }
        let fresh =
            operation.revision > newest || operation.revision == newest && !matches!(operation.output, Output::Written);
        if !fresh {
            return Err(Violation(format!("revision {newest} was answered before the call of {operation:?}")));
        }
    }
    Ok(())
}

/// What is under a key, and the latest revision that is known to have been reached.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
struct Register {
    item: Option<(Revision, Value)>,
    reached: Revision,
}

/// The modification revision of an unknown write that nobody has read.
const UNREAD: Revision = Revision(u64::MAX);

impl Register {
    /// The register after the operation, if it could have given this answer.
    fn step(&self, operation: &Operation, read: &HashMap<Value, Revision>) -> Option<Register> {
        let holds = |item: &Option<KeyValue>| {
            item.as_ref().map(|item| (item.mod_revision, &item.value))
                == self.item.as_ref().map(|(at, value)| (*at, value))
        };
        let at = self.item.as_ref().map_or(Revision::ABSENT, |(at, _)| *at);
        let stays = Register { item: self.item.clone(), reached: operation.revision };
        let in_order = operation.revision >= self.reached;
        match (&operation.input, &operation.output) {
            (_, Output::Got(item)) => (in_order && holds(item)).then_some(stays),
            (Input::Write { expected, .. }, Output::Conflict(item)) => {
                (in_order && expected.is_some_and(|expected| expected != at) && holds(item)).then_some(stays)
            }
            (Input::Write { expected, .. }, _) if expected.is_some_and(|expected| expected != at) => None,
            (_, Output::Unchanged) => (in_order && self.item.is_none()).then_some(stays),
            (Input::Write { value, .. }, Output::Written) => {
                let changes = operation.revision > self.reached && (value.is_some() || self.item.is_some());
                let item = value.clone().map(|value| (operation.revision, value));
                changes.then_some(Register { item, reached: operation.revision })
            }
            (Input::Write { value, .. }, Output::Unknown) => {
                // Whoever has read the value knows its revision. If nobody has, it does not matter.
                let at = value.as_ref().and_then(|value| read.get(value)).copied();
                let reached = at.unwrap_or(self.reached);
                let item = value.clone().map(|value| (at.unwrap_or(UNREAD), value));
                (reached >= self.reached).then_some(Register { item, reached })
            }
            (Input::Get, _) => Some(self.clone()),
        }
    }
}

/// Which operations of a key have been put in order.
type Done = Vec<u64>;

fn is_done(done: &Done, index: usize) -> bool {
    done[index / 64] >> (index % 64) & 1 == 1
}

fn check_key(operations: &[&Operation]) -> Result<(), Violation> {
    let mut read = HashMap::new();
    for operation in operations {
        if let Output::Got(Some(item)) | Output::Conflict(Some(item)) = &operation.output {
            read.insert(item.value.clone(), item.mod_revision);
        }
    }
    let start = (vec![0; operations.len().div_ceil(64)], Register { item: None, reached: Revision::ABSENT });
    let mut seen = HashSet::from([start.clone()]);
    let mut stack = vec![start];
    let (mut furthest, mut stuck) = (0, None);
    while let Some((done, register)) = stack.pop() {
        let open = || (0..operations.len()).filter(|&index| !is_done(&done, index));
        let known = |index: &usize| operations[*index].output != Output::Unknown;
        // What returned first must come before everything that was called after it.
        let Some(deadline) = open().filter(known).map(|index| operations[index].returned).min() else { return Ok(()) };
        let before = stack.len();
        for index in open().take_while(|&index| operations[index].called <= deadline) {
            if let Some(register) = register.step(operations[index], &read) {
                let mut done = done.clone();
                done[index / 64] |= 1 << (index % 64);
                if seen.insert((done.clone(), register.clone())) {
                    stack.push((done, register));
                }
            }
        }
        let count = done.iter().map(|word| word.count_ones()).sum::<u32>();
        if stack.len() == before && count >= furthest {
            let left: Vec<_> = open().take_while(|&index| operations[index].called <= deadline).collect();
            (furthest, stuck) = (count, Some((register, left)));
        }
    }
    let (register, left) = stuck.expect("the search ends where it is stuck");
    let left: Vec<_> = left.into_iter().map(|index| format!("\n  {:?}", operations[index])).collect();
    Err(Violation(format!(
        "after {furthest} operations, at {register:?}, none of these could be next:{}",
        left.concat()
    )))
}

/// How much is done at once when a history is recorded.
#[derive(Clone, Copy, Debug)]
pub struct Load {
    /// How many clients, each of which waits for its answer.
    pub clients: u64,
    /// How many requests of each.
    pub each: u64,
    /// How many keys.
    pub keys: u64,
    /// What decides who does what.
    pub seed: u64,
}

impl Default for Load {
    fn default() -> Self {
        Load { clients: 6, each: 40, keys: 3, seed: 1 }
    }
}

/// Lets clients work on the keys `linear/0`, `linear/1` … of the store, which are absent, and records what they see.
///
/// # Panics
/// When a client panics.
pub async fn record(store: &SharedStore, load: Load) -> Vec<Operation> {
    let time = Arc::new(AtomicU64::new(0));
    let clients: Vec<_> = (0..load.clients)
        .map(|number| {
            let ids = SeededIds::new(load.seed.wrapping_mul(1_000).wrapping_add(number));
            let client =
                Client { number, load, ids, store: Arc::clone(store), time: Arc::clone(&time), history: Vec::new() };
            tokio::spawn(client.run())
        })
        .collect();
    let mut history = Vec::new();
    for client in clients {
        history.extend(client.await.expect("the client ends"));
    }
    history
}

struct Client {
    number: u64,
    load: Load,
    ids: SeededIds,
    store: SharedStore,
    time: Arc<AtomicU64>,
    history: Vec<Operation>,
}

impl Client {
    async fn run(mut self) -> Vec<Operation> {
        // What this client last saw under each key: its preconditions are sometimes right and sometimes late.
        let mut last: Vec<Revision> = vec![Revision::ABSENT; self.load.keys as usize];
        for n in 0..self.load.each {
            let request = self.number * self.load.each + n;
            let index = self.ids.below(self.load.keys);
            let key = |index: u64| Key::from(format!("linear/{index}"));
            let value = Some(Value::from(format!("{request}")));
            let expected = Some(last[index as usize]);
            match self.ids.below(10) {
                0..=2 => self.get(request, key(index)).await,
                3 => self.list(request).await,
                4..=6 => self.write(request, vec![(key(index), expected, value)]).await,
                7 => self.write(request, vec![(key(index), expected, None)]).await,
                8 => self.write(request, vec![(key(index), None, None)]).await,
                _ => {
                    let other = key((index + 1) % self.load.keys);
                    let mut writes = vec![(key(index), None, value.clone()), (other, None, value)];
                    writes.dedup_by(|a, b| a.0 == b.0);
                    self.write(request, writes).await;
                }
            }
            for operation in self.history.iter().rev().take_while(|operation| operation.request == request) {
                let index = (0..self.load.keys).position(|index| key(index) == operation.key);
                let (Some(index), Output::Got(item) | Output::Conflict(item)) = (index, &operation.output) else {
                    continue;
                };
                last[index] = item.as_ref().map_or(Revision::ABSENT, |item| item.mod_revision);
            }
            tokio::task::yield_now().await;
        }
        self.history
    }

    fn tick(&self) -> u64 {
        self.time.fetch_add(1, Ordering::SeqCst)
    }

    async fn get(&mut self, request: u64, key: Key) {
        let called = self.tick();
        if let Ok(found) = self.store.get(key.clone(), At::Present).await {
            let (output, revision, returned) = (Output::Got(found.item), found.revision, self.tick());
            self.history.push(Operation { key, input: Input::Get, output, revision, called, returned, request });
        }
    }

    async fn list(&mut self, request: u64) {
        let called = self.tick();
        if let Ok(page) = self.store.range(Range::prefix("linear/")).await {
            let (revision, returned) = (page.revision, self.tick());
            for index in 0..self.load.keys {
                let key = Key::from(format!("linear/{index}"));
                let output = Output::Got(page.items.iter().find(|item| item.key == key).cloned());
                self.history.push(Operation { key, input: Input::Get, output, revision, called, returned, request });
            }
        }
    }

    async fn write(&mut self, request: u64, writes: Vec<(Key, Option<Revision>, Option<Value>)>) {
        let op = |(key, expected, value): &(Key, Option<Revision>, Option<Value>)| {
            let op = match value {
                Some(value) => Op::put(key.clone(), value.clone()),
                None => Op::delete(key.clone()),
            };
            Op { expected: *expected, ..op }
        };
        let ops = writes.iter().map(op).collect();
        let called = self.tick();
        let answer = self.store.commit(ops).await;
        let returned = self.tick();
        for (index, (key, expected, value)) in writes.into_iter().enumerate() {
            let (output, revision) = match &answer {
                Ok(committed) if committed.changed => (Output::Written, committed.revision),
                Ok(committed) => (Output::Unchanged, committed.revision),
                Err(CommitError::Conflict(conflict)) => {
                    let failed = conflict.failed.iter().find(|failed| failed.index == index);
                    let Some(failed) = failed else { continue };
                    (Output::Conflict(failed.current.clone()), conflict.revision)
                }
                Err(CommitError::Uncertain(_)) => (Output::Unknown, Revision::ABSENT),
                // Nothing happened.
                Err(CommitError::Fault(_) | CommitError::Input(_)) => continue,
            };
            let input = Input::Write { expected, value };
            self.history.push(Operation { key, input, output, revision, called, returned, request });
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn item(value: &'static str, at: u64) -> Option<KeyValue> {
        Some(KeyValue { key: "k".into(), value: value.into(), mod_revision: Revision(at) })
    }

    fn put(value: &'static str) -> Input {
        Input::Write { expected: None, value: Some(value.into()) }
    }

    fn update(value: &'static str, expected: u64) -> Input {
        Input::Write { expected: Some(Revision(expected)), value: Some(value.into()) }
    }

    const DELETE: Input = Input::Write { expected: None, value: None };

    /// Operations as (called, returned, revision, input, output), each a request of its own.
    fn check(history: &[(u64, u64, u64, Input, Output)]) -> bool {
        let operation =
            |(request, (called, returned, revision, input, output)): (usize, &(u64, u64, u64, Input, Output))| {
                let (input, output) = (input.clone(), output.clone());
                let (revision, request) = (Revision(*revision), request as u64);
                Operation { key: "k".into(), input, output, revision, called: *called, returned: *returned, request }
            };
        super::check(&history.iter().enumerate().map(operation).collect::<Vec<_>>()).is_ok()
    }

    #[test]
    fn reads_may_fall_on_either_side_of_a_concurrent_write() {
        for (revision, got) in [(1, None), (2, item("a", 2))] {
            assert!(check(&[(0, 5, 2, put("a"), Output::Written), (1, 4, revision, Input::Get, Output::Got(got))]));
        }
    }

    #[test]
    fn a_read_after_a_write_sees_it() {
        let after = |revision, got| {
            check(&[(0, 1, 2, put("a"), Output::Written), (2, 3, revision, Input::Get, Output::Got(got))])
        };
        assert!(after(2, item("a", 2)));
        assert!(!after(2, None) && !after(1, None) && !after(2, item("a", 3)));
    }

    #[test]
    fn reads_do_not_go_back() {
        let reads = |first: (u64, Option<KeyValue>), second: (u64, Option<KeyValue>)| {
            check(&[
                (0, 9, 2, put("a"), Output::Written),
                (1, 2, first.0, Input::Get, Output::Got(first.1)),
                (3, 4, second.0, Input::Get, Output::Got(second.1)),
            ])
        };
        assert!(reads((1, None), (2, item("a", 2))));
        assert!(!reads((2, item("a", 2)), (1, None)));
        assert!(!reads((2, item("a", 2)), (2, None)), "also not when the revision does not show it");
    }

    #[test]
    fn one_of_two_updates_wins() {
        let both = |second: Output, revision| {
            check(&[
                (0, 1, 2, put("a"), Output::Written),
                (2, 6, 3, update("b", 2), Output::Written),
                (3, 5, revision, update("c", 2), second),
            ])
        };
        assert!(both(Output::Conflict(item("b", 3)), 3));
        assert!(!both(Output::Written, 4));
        assert!(!both(Output::Conflict(item("a", 2)), 2), "a conflict for no reason");
    }

    #[test]
    fn deletions_change_what_is_there() {
        let deletion =
            |output, revision| check(&[(0, 1, 2, put("a"), Output::Written), (2, 3, revision, DELETE, output)]);
        assert!(deletion(Output::Written, 3) && !deletion(Output::Unchanged, 2));
        assert!(check(&[(0, 1, 1, DELETE, Output::Unchanged)]) && !check(&[(0, 1, 2, DELETE, Output::Written)]));
    }

    #[test]
    fn an_unknown_write_happens_late_or_never_but_once() {
        let unknown = (0, 0, 0, put("a"), Output::Unknown);
        let get = |called: u64, revision, got| (called, called + 1, revision, Input::Get, Output::Got(got));
        assert!(check(&[unknown.clone(), get(2, 1, None), get(4, 1, None)]), "never");
        assert!(check(&[unknown.clone(), get(2, 1, None), get(4, 2, item("a", 2))]), "late");
        let overwritten = (4, 5, 3, put("b"), Output::Written);
        assert!(check(&[unknown.clone(), get(2, 2, item("a", 2)), overwritten.clone(), get(6, 3, item("b", 3))]));
        assert!(!check(&[unknown.clone(), get(2, 2, item("a", 2)), get(4, 2, None)]), "and not undone");
        assert!(!check(&[get(0, 1, item("a", 1)), (2, 0, 0, put("a"), Output::Unknown)]), "not before its call");
        let deleted = (2, 3, 3, DELETE, Output::Written);
        assert!(check(&[unknown, deleted]), "seen by its deletion alone");
    }

    #[test]
    fn revisions_are_given_out_once_and_in_order() {
        let written = |called: u64, revision, value| (called, called + 1, revision, put(value), Output::Written);
        assert!(check(&[written(0, 2, "a"), written(2, 3, "b")]));
        assert!(!check(&[written(0, 3, "a"), written(2, 2, "b")]));
        assert!(!check(&[(0, 5, 2, put("a"), Output::Written), (1, 4, 2, put("b"), Output::Written)]));
    }
}
