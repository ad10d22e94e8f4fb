//! What a reflector does next, without doing it: an enum and a step function.

use std::{mem, time::Duration};

use capstan_api::{options::ListOptions, watch_event::EventType};
use capstan_clock::{Moment, SharedIds};

use super::backoff::Backoff;
use crate::Error;

/// How many objects a page of a list has.
pub const PAGE_SIZE: i64 = 500;

/// The shortest time after which a watch is to end; the longest is twice as long.
pub const MIN_WATCH_TIMEOUT: Duration = Duration::from_secs(5 * 60);

/// A watch that ends sooner, and said nothing, is a failure.
pub const VERY_SHORT_WATCH: Duration = Duration::from_secs(1);

/// How often a watch is begun again from the same version before everything is listed again.
pub const MAX_REWATCHES: u32 = 5;

/// How a reflector asks.
#[derive(Clone, Debug, Default)]
pub struct Config {
    /// Which labels.
    pub label_selector: String,
    /// Which fields.
    pub field_selector: String,
    /// Whether to list, even where a watch could send all objects first.
    pub no_watch_list: bool,
    /// Whether to pass over who manages which fields: often half of an object, and seldom looked at.
    pub no_managed_fields: bool,
}

/// What the world answered.
#[derive(Debug)]
pub enum Input<'a> {
    /// A page of the list came.
    Page {
        /// The version of the list.
        resource_version: &'a str,
        /// What to ask for the next page; empty at the end.
        continue_token: &'a str,
    },
    /// The watch has begun.
    Started,
    /// The watch said something that is not an error.
    Event {
        /// What.
        event_type: EventType,
        /// The version of the object; empty if it could not be read.
        resource_version: &'a str,
        /// Whether it says that all initial events have been sent.
        initial_events_end: bool,
    },
    /// The server ended the watch.
    Ended,
    /// The list failed, the watch did not begin, or it said that it failed.
    Failed(&'a Error),
    /// The time is over.
    Waited,
}

/// What to do with objects.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Effect {
    /// Nothing.
    Nothing,
    /// Put what came to what was collected.
    Collect,
    /// Forget what was collected.
    Discard,
    /// Put what came to what was collected; that is all there is, as of this version.
    Replace(String),
    /// Put what came into the store.
    Apply,
}

/// What to do then.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Next {
    /// List a page.
    List(ListOptions),
    /// Begin a watch. The one before, if there is one, is over.
    Watch(ListOptions),
    /// Wait for the watch.
    Read,
    /// Wait.
    Wait(Duration),
}

#[derive(Clone, Debug, PartialEq, Eq)]
enum State {
    Listing { options: ListOptions, requested: String },
    WatchListing(Watched),
    Watching(Watched),
    Waiting(Then),
}

/// A watch that was asked for, or runs.
#[derive(Clone, Debug, PartialEq, Eq)]
struct Watched {
    since: Moment,
    started: bool,
    events: bool,
}

impl Watched {
    /// Whether it did what watches do, so that another one may begin at once where it ended.
    fn lasted(&self, now: Moment) -> bool {
        self.started && (self.events || now.since(self.since) >= VERY_SHORT_WATCH)
    }
}

/// What comes after a wait.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Then {
    Relist,
    List,
    Rewatch,
}

/// List, then watch, for ever.
///
/// It never asks again at once after a failure: there is a wait, except that a version which is gone is given up and
/// the list asked for without one, once, and that a watch whose connection broke after a while has only ended. A watch
/// that ends or fails is begun again where it was; everything is listed again only when the server no longer knows that
/// version, or too many attempts have failed.
#[derive(Debug)]
pub struct Machine {
    config: Config,
    ids: SharedIds,
    state: State,
    backoff: Backoff,
    last_sync_resource_version: String,
    /// The server does not have that version: ask for the newest.
    is_last_sync_resource_version_unavailable: bool,
    /// The server pages lists from its cache too.
    paginated: bool,
    /// The server does not know how to begin a watch with all objects.
    watch_list_refused: bool,
    rewatches: u32,
    expired_in_a_row: u32,
}

impl Machine {
    /// One that has done nothing yet.
    #[must_use]
    pub fn new(config: Config, ids: SharedIds) -> Self {
        Machine {
            config,
            ids,
            state: State::Waiting(Then::Relist),
            backoff: Backoff::default(),
            last_sync_resource_version: String::new(),
            is_last_sync_resource_version_unavailable: false,
            paginated: false,
            watch_list_refused: false,
            rewatches: 0,
            expired_in_a_row: 0,
        }
    }

    /// The version up to which everything is known.
    #[must_use]
    pub fn last_sync_resource_version(&self) -> &str {
        &self.last_sync_resource_version
    }

    /// How it asks.
    #[must_use]
    pub fn config(&self) -> &Config {
        &self.config
    }

    /// Whether a watch is sending all objects.
    #[must_use]
    pub fn is_collecting(&self) -> bool {
        matches!(self.state, State::WatchListing(_))
    }

    /// What to do first.
    pub fn start(&mut self, now: Moment) -> Next {
        self.go(now, Then::Relist)
    }

    /// What to do, given what happened. Inputs that answer no question change nothing but cost a wait.
    pub fn step(&mut self, now: Moment, input: &Input<'_>) -> (Effect, Next) {
        match (mem::replace(&mut self.state, State::Waiting(Then::Relist)), input) {
            (State::Waiting(then), Input::Waited) => (Effect::Nothing, self.go(now, then)),
            (State::Listing { options, requested }, Input::Page { resource_version, continue_token }) => {
                self.page(now, options, requested, resource_version, continue_token)
            }
            (State::Listing { options, requested }, Input::Failed(error)) => {
                (Effect::Discard, self.list_failed(now, &options, requested, error))
            }
            (State::WatchListing(watched), Input::Failed(error)) => {
                (Effect::Discard, self.watch_list_failed(now, &watched, error))
            }
            // Connections of watches break in the course of things: there may be somebody in between who cuts them.
            (State::Watching(watched), Input::Failed(Error::Transport(_))) if watched.lasted(now) => {
                (Effect::Nothing, self.go(now, Then::Rewatch))
            }
            (State::Watching(_), Input::Failed(error)) => (Effect::Nothing, self.watch_failed(now, error)),
            (State::WatchListing(watched), Input::Started) => {
                self.state = State::WatchListing(Watched { since: now, started: true, ..watched });
                (Effect::Nothing, Next::Read)
            }
            (State::Watching(watched), Input::Started) => {
                self.state = State::Watching(Watched { since: now, started: true, ..watched });
                (Effect::Nothing, Next::Read)
            }
            (State::WatchListing(watched), Input::Event { event_type, resource_version, initial_events_end }) => {
                let watched = Watched { events: true, ..watched };
                if *event_type == EventType::Bookmark && *initial_events_end {
                    self.synced(resource_version);
                    self.state = State::Watching(watched);
                    return (Effect::Replace((*resource_version).to_owned()), Next::Read);
                }
                self.state = State::WatchListing(watched);
                (effect_of(*event_type, Effect::Collect), Next::Read)
            }
            (State::Watching(watched), Input::Event { event_type, resource_version, .. }) => {
                let progress = !resource_version.is_empty() && self.last_sync_resource_version != *resource_version;
                if progress {
                    self.last_sync_resource_version = (*resource_version).to_owned();
                }
                (self.rewatches, self.expired_in_a_row) = (0, 0);
                // Who only says again what is known, and ends, would have us ask for ever.
                self.state = State::Watching(Watched { events: watched.events || progress, ..watched });
                (effect_of(*event_type, Effect::Apply), Next::Read)
            }
            (State::WatchListing(watched), Input::Ended) => {
                // Who sends nothing at all does not know how; who stops half way may finish the next time.
                let then = if watched.events { Then::Relist } else { Then::List };
                (Effect::Discard, self.wait(now, then, None))
            }
            (State::Watching(watched), Input::Ended) => {
                if watched.lasted(now) {
                    return (Effect::Nothing, self.go(now, Then::Rewatch));
                }
                (Effect::Nothing, self.rewatch_or_relist(now, None))
            }
            _ => (Effect::Discard, self.wait(now, Then::Relist, None)),
        }
    }

    fn go(&mut self, now: Moment, then: Then) -> Next {
        let watched = Watched { since: now, started: false, events: false };
        match then {
            Then::Relist if !self.config.no_watch_list && !self.watch_list_refused => {
                let mut options = self.watch_options();
                if self.is_last_sync_resource_version_unavailable {
                    options.resource_version.clear();
                }
                options.send_initial_events = Some(true);
                "NotOlderThan".clone_into(&mut options.resource_version_match);
                self.state = State::WatchListing(watched);
                Next::Watch(options)
            }
            Then::Relist | Then::List => {
                let requested = match self.last_sync_resource_version.as_str() {
                    _ if self.is_last_sync_resource_version_unavailable => String::new(),
                    "" => "0".to_owned(),
                    version => version.to_owned(),
                };
                // A list from the cache is not paged, unless this server has shown that it does.
                let paged = self.paginated || matches!(requested.as_str(), "" | "0");
                self.list(requested, if paged { PAGE_SIZE } else { 0 })
            }
            Then::Rewatch => {
                self.state = State::Watching(watched);
                Next::Watch(self.watch_options())
            }
        }
    }

    fn list(&mut self, requested: String, limit: i64) -> Next {
        let options = ListOptions { resource_version: requested.clone(), limit, ..self.options() };
        self.state = State::Listing { options: options.clone(), requested };
        Next::List(options)
    }

    fn options(&self) -> ListOptions {
        ListOptions {
            label_selector: self.config.label_selector.clone(),
            field_selector: self.config.field_selector.clone(),
            ..ListOptions::default()
        }
    }

    fn watch_options(&self) -> ListOptions {
        // Clients that began together shall not begin again together.
        let timeout = MIN_WATCH_TIMEOUT.mul_f64(1.0 + self.ids.fraction());
        ListOptions {
            resource_version: self.last_sync_resource_version.clone(),
            allow_watch_bookmarks: true,
            timeout_seconds: i64::try_from(timeout.as_secs()).ok(),
            ..self.options()
        }
    }

    fn page(
        &mut self,
        now: Moment,
        options: ListOptions,
        requested: String,
        resource_version: &str,
        continue_token: &str,
    ) -> (Effect, Next) {
        if continue_token.is_empty() {
            self.synced(resource_version);
            return (Effect::Replace(resource_version.to_owned()), self.go(now, Then::Rewatch));
        }
        self.paginated |= requested == "0";
        // The token says which version; both together are refused.
        let options =
            ListOptions { continue_token: continue_token.to_owned(), resource_version: String::new(), ..options };
        self.state = State::Listing { options: options.clone(), requested };
        (Effect::Collect, Next::List(options))
    }

    fn synced(&mut self, resource_version: &str) {
        self.is_last_sync_resource_version_unavailable = false;
        self.rewatches = 0;
        resource_version.clone_into(&mut self.last_sync_resource_version);
    }

    fn list_failed(&mut self, now: Moment, options: &ListOptions, requested: String, error: &Error) -> Next {
        if error.is_expired() && !options.continue_token.is_empty() {
            // The pages took too long: all at once then, and no token that could expire.
            return self.list(requested, 0);
        }
        let is_gone = error.is_expired() || error.is_too_large_resource_version();
        if is_gone && !self.is_last_sync_resource_version_unavailable {
            self.is_last_sync_resource_version_unavailable = true;
            return self.go(now, Then::List);
        }
        self.wait(now, Then::Relist, Some(error))
    }

    fn watch_list_failed(&mut self, now: Moment, watched: &Watched, error: &Error) -> Next {
        if error.is_expired() || error.is_too_large_resource_version() {
            if !self.is_last_sync_resource_version_unavailable {
                self.is_last_sync_resource_version_unavailable = true;
                return self.go(now, Then::Relist);
            }
        } else if !error.is_retriable() && !watched.events {
            self.watch_list_refused =
                error.status().is_some_and(|status| status.is_invalid() || status.is_bad_request());
            return self.go(now, Then::List);
        }
        self.wait(now, Then::Relist, Some(error))
    }

    fn watch_failed(&mut self, now: Moment, error: &Error) -> Next {
        if error.is_expired() {
            self.expired_in_a_row += 1;
            // A list that may be as old as the version that has expired would not help twice.
            self.is_last_sync_resource_version_unavailable |= self.expired_in_a_row > 1;
        } else if error.is_too_large_resource_version() {
            self.is_last_sync_resource_version_unavailable = true;
        } else if error.is_retriable() {
            return self.rewatch_or_relist(now, Some(error));
        }
        self.wait(now, Then::Relist, Some(error))
    }

    fn rewatch_or_relist(&mut self, now: Moment, error: Option<&Error>) -> Next {
        self.rewatches += 1;
        let then = if self.rewatches > MAX_REWATCHES { Then::Relist } else { Then::Rewatch };
        self.wait(now, then, error)
    }

    fn wait(&mut self, now: Moment, then: Then, error: Option<&Error>) -> Next {
        self.state = State::Waiting(then);
        let wait = self.backoff.next(now, &*self.ids);
        Next::Wait(error.and_then(Error::retry_after).map_or(wait, |asked| wait.max(asked)))
    }
}

fn effect_of(event_type: EventType, effect: Effect) -> Effect {
    match event_type {
        EventType::Added | EventType::Modified | EventType::Deleted => effect,
        EventType::Bookmark | EventType::Error => Effect::Nothing,
    }
}
