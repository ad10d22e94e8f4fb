//! The task that has the leader delete keys whose lifetime has passed.

use std::{
    future::{Future, poll_fn},
    pin::pin,
    sync::{Arc, PoisonError, Weak},
    task::Poll,
    time::Duration,
};

use tokio::{
    runtime::Handle,
    sync::{Notify, mpsc, oneshot},
    task::JoinHandle,
};

use super::{Shared, leader::Request};
use crate::{limits::MAX_COMMIT_OPS, sync::Mutex};

/// How much time lies between two looks through the keys at least.
const PAUSE: Duration = Duration::from_secs(1);

/// Starts the task, on the runtime of whoever first needs it, and wakes it.
pub(super) struct Expirer {
    shared: Weak<Shared>,
    queue: mpsc::WeakSender<Request>,
    pub(super) changed: Arc<Notify>,
    task: Mutex<Option<JoinHandle<()>>>,
}

impl Expirer {
    pub(super) fn new(shared: &Arc<Shared>, queue: &mpsc::Sender<Request>) -> Self {
        Expirer {
            shared: Arc::downgrade(shared),
            queue: queue.downgrade(),
            changed: Arc::new(Notify::new()),
            task: Mutex::new(None),
        }
    }

    /// Sees to it that a task waits for the ends of lifetimes, if there are any and there is a runtime for it.
    pub(super) fn start(&self) {
        let Ok(runtime) = Handle::try_current() else { return };
        let mut task = self.task.lock().unwrap_or_else(PoisonError::into_inner);
        // The task of a runtime that has been shut down counts as finished: a store may outlive the test that made it.
        if task.as_ref().is_none_or(JoinHandle::is_finished) {
            if self.shared.upgrade().is_none_or(|shared| shared.lock().next_deadline().is_none()) {
                return;
            }
            let (shared, queue, changed) = (self.shared.clone(), self.queue.clone(), Arc::clone(&self.changed));
            *task = Some(runtime.spawn(expire(shared, queue, changed)));
        }
        self.changed.notify_one();
    }
}

impl Drop for Expirer {
    fn drop(&mut self) {
        self.changed.notify_one();
    }
}

/// Waits for ends of lifetimes and has them committed, as long as the store is there.
pub(super) async fn expire(shared: Weak<Shared>, queue: mpsc::WeakSender<Request>, changed: Arc<Notify>) {
    loop {
        let (sleep, keys) = {
            let Some(shared) = shared.upgrade() else { return };
            let (state, clock) = (shared.lock().clone(), &*shared.options.clock);
            let keys = state.expired(clock.now(), MAX_COMMIT_OPS);
            let deadline = if keys.is_empty() { state.next_deadline() } else { None };
            (deadline.map(|deadline| clock.sleep_until(deadline.moment(clock))), keys)
        };
        if !keys.is_empty() {
            let (reply, answer) = oneshot::channel();
            let Some(queue) = queue.upgrade() else { return };
            if queue.send(Request::Expire { keys, reply }).await.is_err() {
                return;
            }
            drop(queue);
            match answer.await {
                Ok(Ok(_)) => continue,
                // The disk is full or failing; the keys stay until it is not.
                Ok(Err(_)) => {
                    let Some(shared) = shared.upgrade() else { return };
                    let pause = shared.options.clock.sleep(PAUSE);
                    drop(shared);
                    pause.await;
                    continue;
                }
                Err(_) => return,
            }
        }
        let (mut sleep, mut changed) = (sleep, pin!(changed.notified()));
        poll_fn(|cx| {
            let slept = sleep.as_mut().is_some_and(|sleep| sleep.as_mut().poll(cx).is_ready());
            if slept || changed.as_mut().poll(cx).is_ready() { Poll::Ready(()) } else { Poll::Pending }
        })
        .await;
    }
}
