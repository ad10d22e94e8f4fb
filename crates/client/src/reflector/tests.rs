//! The machine without the world, and the reflector on bytes.

use std::{sync::Arc, time::Duration};

use capstan_api::{GroupResource, Status, options::ListOptions, watch_event::EventType};
use capstan_clock::{Moment, SeededIds};

use super::{
    backoff::{self, Backoff},
    machine::{Config, Effect, Input, MAX_REWATCHES, Machine, Next},
};
use crate::Error;

fn error(name: &str) -> Option<Error> {
    Some(match name {
        "410" => Status::resource_expired("too old").into(),
        "429" => Status::too_many_requests("slow down", 90).into(),
        "500" => Status::internal_error("oops").into(),
        "400" => Status::bad_request("sendInitialEvents is forbidden").into(),
        "404" => Status::not_found(&GroupResource::new("", "pods"), "").into(),
        "504" => Status::too_large_resource_version(9, 3, 1).into(),
        "reset" => Error::Transport("connection reset".to_owned()),
        _ => return None,
    })
}

fn options(options: &ListOptions) -> String {
    let mut text = format!("rv={}", options.resource_version);
    if options.limit > 0 {
        text += &format!(" limit={}", options.limit);
    }
    if !options.continue_token.is_empty() {
        text += &format!(" continue={}", options.continue_token);
    }
    text
}

fn print(next: &Next) -> String {
    match next {
        Next::List(list) => format!("list {}", options(list)),
        Next::Watch(watch) => {
            assert!(watch.allow_watch_bookmarks);
            assert!((300..600).contains(&watch.timeout_seconds.unwrap()), "{watch:?}");
            assert_eq!(watch.send_initial_events.is_some(), watch.resource_version_match == "NotOlderThan");
            let all = if watch.send_initial_events == Some(true) { "all " } else { "" };
            format!("watch {all}{}", options(watch))
        }
        Next::Read => "read".to_owned(),
        Next::Wait(wait) if *wait >= Duration::from_secs(90) => "wait long".to_owned(),
        Next::Wait(_) => "wait".to_owned(),
    }
}

/// Each line: what happens, and what is done about it.
fn check(no_watch_list: bool, script: &str) {
    let config = Config { no_watch_list, ..Config::default() };
    let mut machine = Machine::new(config, Arc::new(SeededIds::new(1)));
    let mut now = Moment::default();
    for line in script.trim().lines().map(str::trim) {
        let (input, expected) = line.split_once(" -> ").unwrap();
        let words: Vec<&str> = input.split(' ').collect();
        let word = |at: usize| words.get(at).copied().unwrap_or_default();
        let event = |event_type, initial_events_end| Input::Event {
            event_type,
            resource_version: words.get(1).copied().unwrap_or_default(),
            initial_events_end,
        };
        let (failure, broken) = (error(word(0)), Error::Transport("the answer broke off".to_owned()));
        let input = match word(0) {
            "start" => {
                assert_eq!(print(&machine.start(now)), expected, "{line}");
                continue;
            }
            "page" => Input::Page { resource_version: word(1), continue_token: word(2) },
            "started" => Input::Started,
            "added" => event(EventType::Added, false),
            "deleted" => event(EventType::Deleted, false),
            "bookmark" => event(EventType::Bookmark, false),
            "all-sent" => event(EventType::Bookmark, true),
            "ended" => Input::Ended,
            "ended-late" => {
                now = now.plus(Duration::from_secs(300));
                Input::Ended
            }
            "reset-late" => {
                now = now.plus(Duration::from_secs(60));
                Input::Failed(&broken)
            }
            "waited" => Input::Waited,
            _ => Input::Failed(failure.as_ref().unwrap()),
        };
        let (effect, next) = machine.step(now, &input);
        let effect = match effect {
            Effect::Nothing => String::new(),
            Effect::Collect => "collect, ".to_owned(),
            Effect::Discard => "discard, ".to_owned(),
            Effect::Replace(version) => format!("replace {version}, "),
            Effect::Apply => "apply, ".to_owned(),
        };
        assert_eq!(format!("{effect}{}", print(&next)), expected, "{line}");
    }
}

#[test]
fn lists_and_watches() {
    check(
        true,
        "start -> list rv=0 limit=500
         page 5 -> replace 5, watch rv=5
         started -> read
         added 6 -> apply, read
         deleted 7 -> apply, read
         bookmark 9 -> read
         added -> apply, read
         ended -> watch rv=9
         started -> read
         ended-late -> watch rv=9",
    );
}

#[test]
fn pages() {
    check(
        true,
        "start -> list rv=0 limit=500
         page 5 x -> collect, list rv= limit=500 continue=x
         page 5 y -> collect, list rv= limit=500 continue=y
         410 -> discard, list rv=0
         page 6 -> replace 6, watch rv=6
         410 -> wait
         waited -> list rv=6 limit=500
         504 -> discard, list rv= limit=500
         504 -> discard, wait
         waited -> list rv= limit=500
         page 7 -> replace 7, watch rv=7",
    );
    // A server that does not page from its cache is not asked to when a version is known.
    check(
        true,
        "start -> list rv=0 limit=500
         page 5 -> replace 5, watch rv=5
         410 -> wait
         waited -> list rv=5",
    );
}

#[test]
fn a_watch_that_sends_all_objects_first() {
    check(
        false,
        "start -> watch all rv=
         started -> read
         added 3 -> collect, read
         deleted 4 -> collect, read
         bookmark 4 -> read
         all-sent 5 -> replace 5, read
         added 6 -> apply, read
         ended -> watch rv=6
         started -> read
         410 -> wait
         waited -> watch all rv=6
         410 -> discard, watch all rv=
         410 -> discard, wait
         waited -> watch all rv=
         started -> read
         added 7 -> collect, read
         ended -> discard, wait
         waited -> watch all rv=",
    );
}

#[test]
fn a_server_that_cannot_send_all_objects_first() {
    check(
        false,
        "start -> watch all rv=
         400 -> discard, list rv=0 limit=500
         page 5 -> replace 5, watch rv=5
         410 -> wait
         waited -> list rv=5",
    );
    check(
        false,
        "start -> watch all rv=
         started -> read
         ended -> discard, wait
         waited -> list rv=0 limit=500",
    );
    check(
        false,
        "start -> watch all rv=
         404 -> discard, list rv=0 limit=500
         404 -> discard, wait
         waited -> watch all rv=
         429 -> discard, wait long
         waited -> watch all rv=",
    );
}

#[test]
fn failures_of_a_watch() {
    let begin = "start -> list rv=0 limit=500
        page 5 -> replace 5, watch rv=5
        ";
    for failure in ["reset", "500", "429", "ended"] {
        let wait = if failure == "429" { "wait long" } else { "wait" };
        let again = format!("{failure} -> {wait}\nwaited -> watch rv=5\n").repeat(MAX_REWATCHES as usize);
        check(true, &format!("{begin}{again}{failure} -> {wait}\nwaited -> list rv=5"));
        // An event shows that it works: the count begins again.
        let one = format!("{failure} -> {wait}\nwaited -> watch rv=5\nstarted -> read\nbookmark 5 -> read\n");
        check(true, &format!("{begin}{}", one.repeat(2 * MAX_REWATCHES as usize)));
    }
    // A connection that is cut now and then costs no wait, however often; one that is not even made does.
    let cut = "started -> read\nreset-late -> watch rv=5\n".repeat(2 * MAX_REWATCHES as usize);
    check(true, &format!("{begin}{cut}started -> read\nadded 6 -> apply, read\nreset -> watch rv=6\nreset -> wait"));
    check(true, &format!("{begin}reset-late -> wait\nwaited -> watch rv=5"));
    check(true, &format!("{begin}404 -> wait\nwaited -> list rv=5"));
    check(true, &format!("{begin}504 -> wait\nwaited -> list rv= limit=500"));
    // 410 at the start of a watch, again and again: the second time the list must be the newest.
    let again = "410 -> wait\nwaited -> list rv=5\npage 5 -> replace 5, watch rv=5\n";
    check(true, &format!("{begin}{again}410 -> wait\nwaited -> list rv= limit=500"));
}

#[test]
fn answers_to_no_question() {
    for input in ["page 3", "started", "added 3", "ended", "410"] {
        check(true, &format!("{input} -> discard, wait\nwaited -> list rv=0 limit=500"));
    }
}

#[test]
fn waits_grow_and_shrink() {
    let (mut backoff, ids) = (Backoff::default(), SeededIds::new(2));
    let mut now = Moment::default();
    let mut base = backoff::INITIAL;
    for _ in 0..10 {
        let wait = backoff.next(now, &ids);
        assert!(base <= wait && wait < base * 2, "{wait:?} for {base:?}");
        now = now.plus(wait);
        base = (base * 2).min(backoff::MAX);
    }
    let wait = backoff.next(now.plus(backoff::RESET * 2), &ids);
    assert!(wait < backoff::INITIAL * 2, "{wait:?}");
}
