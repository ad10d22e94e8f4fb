//! Watches: one etcd stream each, taken up again where it stopped.
//!
//! A stream of its own makes a slow reader its own affair: what it does not read stays unread, etcd is held up on that
//! stream alone, and goes on from its history when there is room again. A task follows the stream and hands over what
//! it finds through a short queue; when the connection ends it takes up the watch at any member, after the last
//! revision that is known to be complete.

use std::{
    sync::{
        Arc,
        atomic::{AtomicU64, AtomicUsize, Ordering},
    },
    task::{Context, Poll},
    time::Duration,
};

use capstan_clock::Sleep;
use tokio::{
    sync::{Notify, mpsc},
    task::AbortHandle,
};

use super::{
    Inner,
    client::Stream,
    status::{Failed, Problem},
    wire::{self, WatchCreateRequest, WatchResponse, first_key, range_end, revision, stands_at},
};
use crate::{
    Batch, Event, Fault, FaultKind, Key, ReadError, Revision, Watch, WatchItem, WatchRequest, WatchSource,
    limits::MAX_WATCHES, op::check_prefix,
};

/// How many items wait for a reader; what comes after stays with etcd.
const QUEUED_ITEMS: usize = 8;

/// How often progress is asked for again while it is wanted: etcd does not answer while a watch catches up.
const PROGRESS_PAUSE: Duration = Duration::from_millis(50);

/// How often progress is asked for when nothing happens, so that a watch that is seldom changed can be taken up after
/// the revisions in between have been compacted.
const IDLE_PROGRESS: Duration = Duration::from_secs(30);

/// How long a watch tries to be taken up before it ends with the fault.
const RESUME_FOR: Duration = Duration::from_secs(15);

/// The pause between two tries.
const RESUME_PAUSE: Duration = Duration::from_millis(200);

/// Puts a watch in place.
pub(super) async fn start(store: &Arc<Inner>, request: WatchRequest) -> Result<Watch, ReadError> {
    check_prefix(&request.prefix)?;
    let Some(place) = Place::take(&store.watches) else { return Err(Fault::too_many_watches().into()) };
    store.check_start(request.after, &request.prefix).await?;
    let (items, queue) = mpsc::channel(QUEUED_ITEMS);
    let asked = Arc::new(Asked::default());
    let task = Follower {
        store: Arc::clone(store),
        prefix: request.prefix,
        position: request.after,
        next: request.after,
        events: Vec::new(),
        items,
        asked: Arc::clone(&asked),
        wanted: Wanted::Nothing,
        answered: 0,
        _place: place,
    };
    let stream = task.open().await?;
    Ok(Watch::new(Source { queue, asked, task: tokio::spawn(task.run(stream)).abort_handle() }))
}

/// One of the places for watches.
struct Place(Arc<AtomicUsize>);

impl Place {
    fn take(taken: &Arc<AtomicUsize>) -> Option<Self> {
        let place = Place(Arc::clone(taken));
        // Dropped again when there is none.
        (taken.fetch_add(1, Ordering::Relaxed) < MAX_WATCHES).then_some(place)
    }
}

impl Drop for Place {
    fn drop(&mut self) {
        self.0.fetch_sub(1, Ordering::Relaxed);
    }
}

/// The requests for progress so far.
#[derive(Default)]
struct Asked {
    times: AtomicU64,
    again: Notify,
}

/// The reader's end.
struct Source {
    queue: mpsc::Receiver<Result<WatchItem, ReadError>>,
    asked: Arc<Asked>,
    task: AbortHandle,
}

impl WatchSource for Source {
    fn poll_next(&mut self, cx: &mut Context<'_>) -> Poll<Result<WatchItem, ReadError>> {
        let ended = || Err(Fault::new(FaultKind::Closed, "the runtime of the watch has ended").into());
        self.queue.poll_recv(cx).map(|item| item.unwrap_or_else(ended))
    }

    fn request_progress(&mut self) {
        self.asked.times.fetch_add(1, Ordering::Release);
        self.asked.again.notify_one();
    }
}

impl Drop for Source {
    fn drop(&mut self) {
        self.task.abort();
    }
}

/// Why a follower stops.
enum Stop {
    /// The stream is no more; a new one may do.
    Lost(Failed),
    /// The watch is over.
    End(ReadError),
    /// Nobody reads.
    Unread,
}

/// The progress that is wanted.
enum Wanted {
    Nothing,
    /// Where the store stands is being asked, for so many requests.
    Asking(u64, std::pin::Pin<Box<dyn Future<Output = Result<Revision, ReadError>> + Send>>),
    /// That has failed and is tried again.
    Again,
    /// Everything up to here, for so many requests.
    Through(u64, Revision),
}

/// The task behind a watch.
struct Follower {
    store: Arc<Inner>,
    prefix: Key,
    /// Everything up to this revision has been handed over.
    position: Revision,
    /// The next revision with events, and those of them that are here so far.
    next: Revision,
    events: Vec<Event>,
    items: mpsc::Sender<Result<WatchItem, ReadError>>,
    asked: Arc<Asked>,
    wanted: Wanted,
    /// How many requests for progress have been answered.
    answered: u64,
    _place: Place,
}

impl Follower {
    fn open(&self) -> impl Future<Output = Result<Stream, Failed>> + Send + use<> {
        let create = WatchCreateRequest {
            key: first_key(&self.prefix),
            range_end: range_end(&self.prefix),
            start_revision: i64::try_from(self.position.next().0).unwrap_or(i64::MAX),
            progress_notify: true,
            prev_kv: true,
            fragment: true,
        };
        let store = Arc::clone(&self.store);
        async move { store.client.watch(create).await }
    }

    async fn run(mut self, mut stream: Stream) {
        let error = loop {
            match self.follow(&mut stream).await {
                Stop::Unread => return,
                Stop::End(error) => break error,
                Stop::Lost(failed) => match self.resume(failed).await {
                    Ok(resumed) => stream = resumed,
                    Err(failed) => break failed.into(),
                },
            }
        };
        // When this fails there is nobody to tell.
        let _ = self.items.send(Err(error)).await;
    }

    /// A new stream from where the last one stopped.
    async fn resume(&mut self, mut failed: Failed) -> Result<Stream, Failed> {
        // Of a revision that is not whole nothing has been handed over; it comes again.
        self.events.clear();
        let clock = &self.store.options.clock;
        let until = clock.monotonic().plus(RESUME_FOR);
        while clock.monotonic() < until {
            if !failed.elsewhere && !matches!(failed.problem, Problem::StaleToken(_)) {
                break;
            }
            match self.open().await {
                Ok(stream) => return Ok(stream),
                Err(again) => failed = again,
            }
            clock.sleep(RESUME_PAUSE).await;
        }
        Err(failed)
    }

    /// Hands over what the stream brings, until it brings no more.
    async fn follow(&mut self, stream: &mut Stream) -> Stop {
        let asked = Arc::clone(&self.asked);
        let mut nudge = self.next_nudge();
        loop {
            tokio::select! {
                message = stream.next() => {
                    let taken = match message {
                        Ok(message) => self.take(message, &stream.endpoint).await,
                        Err(failed) => Err(Stop::Lost(failed)),
                    };
                    if let Err(stop) = taken {
                        return stop;
                    }
                    nudge = self.next_nudge();
                }
                () = asked.again.notified(), if matches!(self.wanted, Wanted::Nothing) => self.ask_if_wanted(),
                stands = standing(&mut self.wanted) => {
                    let (times, revision) = stands;
                    match revision {
                        Ok(revision) => {
                            self.wanted = Wanted::Through(times, revision);
                            if revision > self.position {
                                stream.request_progress();
                            }
                        }
                        Err(_) => self.wanted = Wanted::Again,
                    }
                    nudge = self.next_nudge();
                }
                () = &mut nudge => {
                    match self.wanted {
                        Wanted::Again => self.ask(),
                        _ => stream.request_progress(),
                    }
                    nudge = self.next_nudge();
                }
            }
            if let Err(stop) = self.settle(None).await {
                return stop;
            }
        }
    }

    /// When to ask for progress again.
    fn next_nudge(&self) -> Sleep {
        let pause = match self.wanted {
            Wanted::Nothing | Wanted::Asking(..) => IDLE_PROGRESS,
            Wanted::Again | Wanted::Through(..) => PROGRESS_PAUSE,
        };
        self.store.options.clock.sleep(pause)
    }

    fn ask_if_wanted(&mut self) {
        if self.asked.times.load(Ordering::Acquire) > self.answered {
            self.ask();
        }
    }

    /// Begins to find out how far progress must reach.
    fn ask(&mut self) {
        let times = self.asked.times.load(Ordering::Acquire);
        let store = Arc::clone(&self.store);
        self.wanted = Wanted::Asking(times, Box::pin(async move { store.revision().await }));
    }

    /// Hands over progress, if it is wanted and has come so far, or if it was `told` unasked.
    async fn settle(&mut self, told: Option<Revision>) -> Result<(), Stop> {
        match self.wanted {
            Wanted::Through(times, revision) if self.position >= revision => {
                (self.wanted, self.answered) = (Wanted::Nothing, times);
                self.ask_if_wanted();
                self.hand_over(WatchItem::Progress(self.position)).await
            }
            _ => match told {
                Some(revision) => self.hand_over(WatchItem::Progress(revision)).await,
                None => Ok(()),
            },
        }
    }

    async fn take(&mut self, message: WatchResponse, endpoint: &str) -> Result<(), Stop> {
        if message.canceled {
            return Err(self.canceled(&message, endpoint));
        }
        let progress = message.events.is_empty() && !message.created;
        for event in message.events {
            self.add(event).await?;
        }
        if message.fragment {
            return Ok(());
        }
        self.hand_over_events().await?;
        let reached = stands_at(message.header);
        if progress && reached > self.position {
            self.position = reached;
            return self.settle(Some(reached)).await;
        }
        Ok(())
    }

    fn canceled(&self, message: &WatchResponse, endpoint: &str) -> Stop {
        if message.compact_revision > 0 {
            let compacted = revision(message.compact_revision);
            return Stop::End(ReadError::Compacted { asked: self.position, compacted });
        }
        match Failed::from_message(&message.cancel_reason, endpoint) {
            Some(failed) => Stop::Lost(failed),
            None => Stop::Lost(Failed::from_status(&tonic::Status::unavailable(&message.cancel_reason), endpoint)),
        }
    }

    /// Takes in an event; those of the revision before it are whole then.
    async fn add(&mut self, event: wire::Event) -> Result<(), Stop> {
        let Some(kv) = event.kv else { return Ok(()) };
        let at = revision(kv.mod_revision);
        if at != self.next {
            self.hand_over_events().await?;
            self.next = at;
        }
        let deleted = event.kind == 1;
        if event.prev_kv.is_none() && (deleted || kv.version > 1) {
            // etcd looks up what was there before when it sends the event, and by then that had been compacted.
            return Err(Stop::End(self.store.compacted(self.position, &self.prefix).await));
        }
        let previous = event.prev_kv.map(Into::into);
        let item = crate::KeyValue::from(kv);
        self.events.push(Event { key: item.key.clone(), current: (!deleted).then_some(item), previous });
        Ok(())
    }

    /// Hands over the events of one revision, which are all there.
    async fn hand_over_events(&mut self) -> Result<(), Stop> {
        if self.events.is_empty() {
            return Ok(());
        }
        self.position = self.next;
        let events = std::mem::take(&mut self.events).into();
        self.hand_over(WatchItem::Batch(Batch { revision: self.position, events })).await
    }

    async fn hand_over(&mut self, item: WatchItem) -> Result<(), Stop> {
        self.items.send(Ok(item)).await.map_err(|_| Stop::Unread)
    }
}

/// Ready when it is known where the store stands, if that is being asked.
async fn standing(wanted: &mut Wanted) -> (u64, Result<Revision, ReadError>) {
    match wanted {
        Wanted::Asking(times, asking) => (*times, asking.await),
        _ => std::future::pending().await,
    }
}
