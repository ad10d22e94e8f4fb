//! How loops run: after their caches are filled, until they are told to stop.

use std::{future::Future, sync::Arc, time::Duration};

use capstan_api::object::Object;
use capstan_client::{
    BoxFuture, Key, SharedIndexInformer,
    beat::{Either, race},
};
use capstan_clock::SharedClock;
use capstan_runtime::{
    Controller, Reconciler, Stop,
    workqueue::{AddOpts, PriorityQueue},
};

use crate::ControllerContext;

/// Waits for caches, and says whether it is worth going on.
pub(crate) async fn synced(stop: &Stop, caches: Vec<BoxFuture<'static, bool>>) -> bool {
    let all = async {
        let mut all = true;
        for cache in caches {
            all &= cache.await;
        }
        all
    };
    matches!(race(stop.stopped(), all).await, Either::Second(true))
}

/// What waits for the store of an informer.
pub(crate) fn filled<K: Object>(informer: &SharedIndexInformer<K>) -> BoxFuture<'static, bool> {
    let informer = informer.clone();
    Box::pin(async move { informer.wait_for_sync().await })
}

/// Runs a loop once its caches are filled, until it is told to stop. What is being worked on is finished.
///
/// Its queue is shown under `name`, which is upstream's where it has one.
pub(crate) fn drive<R: Reconciler>(
    context: &ControllerContext,
    name: &'static str,
    caches: Vec<BoxFuture<'static, bool>>,
    controller: Controller<R>,
) -> BoxFuture<'static, ()> {
    let (stop, queue) = (context.stop.clone(), controller.queue().clone());
    let failures = context.queues.add(name, queue.clone(), context.options.log.clone());
    let controller = controller.on_outcome(move |key, outcome| failures.note(key, outcome));
    Box::pin(async move {
        if !synced(&stop, caches).await {
            return;
        }
        let ended = async {
            stop.stopped().await;
            queue.shut_down();
        };
        join(controller.run(), ended).await;
    })
}

/// Both, at the same time.
pub(crate) async fn join<A, B>(first: impl Future<Output = A>, second: impl Future<Output = B>) -> (A, B) {
    let (mut first, mut second) = (std::pin::pin!(first), std::pin::pin!(second));
    match race(first.as_mut(), second.as_mut()).await {
        Either::First(one) => (one, second.await),
        Either::Second(two) => (first.await, two),
    }
}

/// Does something now and after each period, until it is told to stop. What is being done is finished.
pub(crate) async fn every<F: Future<Output = ()>>(
    stop: &Stop,
    clock: &SharedClock,
    period: Duration,
    mut work: impl FnMut() -> F,
) {
    while !stop.is_stopped() {
        work().await;
        race(stop.stopped(), clock.sleep(period)).await;
    }
}

/// Adds a key that is to wait.
pub(crate) fn add_after(queue: &PriorityQueue<Key>, key: Key, after: Duration) {
    queue.add_with_opts(AddOpts { after, ..AddOpts::default() }, key);
}

/// A function that adds the key of an object.
pub(crate) fn adds<K: Object>(queue: &PriorityQueue<Key>) -> impl Fn(&Arc<K>) + Clone + Send + 'static {
    let queue = queue.clone();
    move |object| queue.add(Key::of(&**object))
}
