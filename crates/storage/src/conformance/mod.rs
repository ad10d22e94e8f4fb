//! What the contract says, as tests that run on every engine.
//!
//! An engine describes itself by an [`Engine`] and calls [`conformance_tests!`](crate::conformance_tests): every case
//! becomes a test of its own. A case takes a [`World`] and asserts sentences of [`Store`](crate::Store); it assumes
//! nothing about where revisions start, so that it runs on an etcd that has seen others. [`model`] goes beyond the
//! cases with random operations, [`linear`] with concurrent ones.

#![expect(clippy::unwrap_used, reason = "these are tests, though in a library: to panic is how they fail")]

mod commits;
mod compaction;
mod lifetimes;
pub mod linear;
pub mod model;
mod reads;
mod snapshots;
mod watches;
mod world;

use std::{future::Future, pin::Pin, sync::Arc};

use capstan_clock::{Clock, RealClock};

pub use world::{Engine, World};

/// How long a case may take, by the operating system's clock: only a case that hangs comes near.
const WATCHDOG: std::time::Duration = std::time::Duration::from_secs(120);

type Running = Pin<Box<dyn Future<Output = ()> + Send>>;

/// The list of all cases, handed to a macro: `then! { [args] group { case … } … }`.
///
/// A case that is missing here is dead code, which the compiler reports.
#[macro_export]
#[doc(hidden)]
macro_rules! for_each_case {
    ($then:path, $args:tt) => {
        $then! { $args
            commits {
                a_new_store_is_empty
                every_commit_takes_the_next_revision
                a_key_is_created_once
                a_key_is_updated_if_unchanged
                a_key_is_deleted_if_unchanged
                an_absent_key_has_revision_zero
                several_keys_change_in_one_revision
                one_failed_precondition_stops_all
                a_check_guards_and_changes_nothing
                what_changes_nothing_takes_no_revision
                the_same_value_again_is_a_change
                a_deleted_key_can_be_created_again
                keys_and_values_are_any_bytes
                the_largest_input_is_accepted
                input_beyond_the_limits_is_refused
                concurrent_updates_are_not_lost
                concurrent_creates_have_one_winner
                concurrent_commits_are_linearizable
            }
            reads {
                get_tells_value_and_revision
                the_past_can_be_read
                a_range_is_its_prefix_in_order
                a_range_begins_at_its_start
                limit_more_and_count_are_exact
                pages_are_of_one_state
                a_page_is_bounded
                large_values_come_in_pages
                the_past_can_be_ranged
                the_future_is_too_new
                not_older_than_takes_what_is_there
                not_older_than_waits
                not_older_than_gives_up
                bad_questions_are_refused
            }
            watches {
                every_change_comes_once_in_order
                only_the_prefix_is_watched
                a_watch_starts_in_the_past
                a_batch_is_one_revision
                what_changes_nothing_is_not_seen
                a_start_outside_of_the_window_is_refused
                progress_comes_when_asked_and_never_early
                a_resumed_watch_goes_on
                waiting_can_be_cancelled
                watches_are_complete_under_concurrency
                a_slow_reader_holds_up_nobody
                a_slow_reader_loses_its_place_openly
                a_quiet_watch_survives_compaction
                many_watches_come_and_go
            }
            compaction {
                what_is_before_is_gone
                compaction_only_moves_forward
                the_future_cannot_be_compacted
                the_present_is_untouched
                old_states_go_by_themselves
                young_states_stay
                much_history_goes_by_itself
            }
            lifetimes {
                a_key_expires_by_a_commit
                a_key_does_not_expire_early
                a_put_replaces_the_lifetime
                a_put_without_lifetime_ends_it
                a_deleted_key_expires_no_more
                many_keys_expire
            }
            snapshots {
                the_hash_is_that_of_the_items
                the_hash_of_the_past_stays
                the_hash_sees_every_difference
                a_snapshot_restores
                a_restored_store_goes_on
                a_snapshot_is_one_state
                lifetimes_are_restored
                a_damaged_snapshot_is_refused
                a_snapshot_that_cannot_be_written_is_a_fault
                what_was_acknowledged_is_there_when_opened_again
            }
        }
    };
}

macro_rules! table {
    ([] $($group:ident { $($case:ident)* })*) => {
        /// Every case, by the name `group::case`.
        const CASES: &[(&str, fn(World) -> Running)] =
            &[$($((concat!(stringify!($group), "::", stringify!($case)), |world| Box::pin($group::$case(world)))),*),*];
    };
}

for_each_case!(table, []);

/// Runs one case.
///
/// # Panics
/// When the engine does not keep the contract.
pub async fn run(name: &str, engine: impl Engine) {
    let case = CASES.iter().find(|(other, _)| *other == name).expect("the case is in the table").1;
    watched(name, case(World::new(Arc::new(engine)))).await;
}

/// Waits for a case, but not for ever.
async fn watched<T>(name: &str, case: impl Future<Output = T>) -> T {
    let mut case = std::pin::pin!(case);
    let mut watchdog = RealClock::new().sleep(WATCHDOG);
    std::future::poll_fn(|cx| {
        assert!(watchdog.as_mut().poll(cx).is_pending(), "{name} hangs");
        case.as_mut().poll(cx)
    })
    .await
}

/// Makes every case a test of the engine that the expression gives.
#[macro_export]
macro_rules! conformance_tests {
    ($engine:expr) => {
        $crate::for_each_case!($crate::conformance_test_modules, [$engine]);
    };
}

/// What [`conformance_tests!`](crate::conformance_tests) makes of the list.
#[macro_export]
#[doc(hidden)]
macro_rules! conformance_test_modules {
    ([$engine:expr] $($group:ident $cases:tt)*) => {
        $($crate::conformance_test_modules! { @ [$engine] $group $cases })*
    };
    (@ [$engine:expr] $group:ident { $($case:ident)* }) => {
        mod $group {
            use super::*;
            $(#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
            async fn $case() {
                let name = concat!(stringify!($group), "::", stringify!($case));
                $crate::conformance::run(name, $engine).await;
            })*
        }
    };
}
