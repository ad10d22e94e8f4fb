//! Those who are told of changes.

use std::{
    fmt,
    panic::{AssertUnwindSafe, catch_unwind},
    sync::Arc,
};

use capstan_api::object::Object;

use super::{Deleted, buffer::Buffer, notification::Notification};

/// Is told of changes of objects.
///
/// The store has a change before a handler hears of it. Calls come one at a time; for one object they fit together:
/// add, any number of updates, delete. Who is slow hears of the newest state only, and keeps nobody waiting.
pub trait ResourceEventHandler<K>: Send + 'static {
    /// An object is there. `is_in_initial_list` when it was there before the handler listened.
    fn on_add(&mut self, object: &Arc<K>, is_in_initial_list: bool);

    /// An object changed, or it is time to look at it again.
    fn on_update(&mut self, old: &Arc<K>, new: &Arc<K>);

    /// An object is gone.
    fn on_delete(&mut self, object: &Deleted<K>);
}

type OnAdd<K> = Box<dyn FnMut(&Arc<K>, bool) + Send>;
type OnUpdate<K> = Box<dyn FnMut(&Arc<K>, &Arc<K>) + Send>;
type OnDelete<K> = Box<dyn FnMut(&Deleted<K>) + Send>;

/// A handler made of functions, of which any may be left out.
pub struct HandlerFuncs<K> {
    add: Option<OnAdd<K>>,
    update: Option<OnUpdate<K>>,
    delete: Option<OnDelete<K>>,
}

impl<K> fmt::Debug for HandlerFuncs<K> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("HandlerFuncs")
    }
}

impl<K> Default for HandlerFuncs<K> {
    fn default() -> Self {
        HandlerFuncs { add: None, update: None, delete: None }
    }
}

impl<K> HandlerFuncs<K> {
    /// One that does nothing.
    #[must_use]
    pub fn new() -> Self {
        HandlerFuncs::default()
    }

    /// What to do when an object is there; see [`ResourceEventHandler::on_add`].
    #[must_use]
    pub fn on_add(mut self, func: impl FnMut(&Arc<K>, bool) + Send + 'static) -> Self {
        self.add = Some(Box::new(func));
        self
    }

    /// What to do when an object changed.
    #[must_use]
    pub fn on_update(mut self, func: impl FnMut(&Arc<K>, &Arc<K>) + Send + 'static) -> Self {
        self.update = Some(Box::new(func));
        self
    }

    /// What to do when an object is gone.
    #[must_use]
    pub fn on_delete(mut self, func: impl FnMut(&Deleted<K>) + Send + 'static) -> Self {
        self.delete = Some(Box::new(func));
        self
    }
}

impl<K: 'static> ResourceEventHandler<K> for HandlerFuncs<K> {
    fn on_add(&mut self, object: &Arc<K>, is_in_initial_list: bool) {
        if let Some(func) = &mut self.add {
            func(object, is_in_initial_list);
        }
    }

    fn on_update(&mut self, old: &Arc<K>, new: &Arc<K>) {
        if let Some(func) = &mut self.update {
            func(old, new);
        }
    }

    fn on_delete(&mut self, object: &Deleted<K>) {
        if let Some(func) = &mut self.delete {
            func(object);
        }
    }
}

/// Tells a handler until the buffer is closed. A call that panics is over; the next one comes all the same.
///
/// Objects that are kept packed are unpacked here, in the handler's own task and when it is their turn. One that cannot
/// be is passed over, as if it had stayed as it was.
pub(super) async fn tell<K: Object>(buffer: Arc<Buffer<K>>, mut handler: impl ResourceEventHandler<K>) {
    let mut call = |call: &mut dyn FnMut(&mut dyn ResourceEventHandler<K>)| {
        // What a handler leaves behind when it panics is its own; the panic hook has told of it.
        let _ = catch_unwind(AssertUnwindSafe(|| call(&mut handler)));
    };
    while let Some((_, notification)) = buffer.next().await {
        match notification {
            Notification::Add { new, is_in_initial_list } => {
                if let Some(new) = new.object() {
                    call(&mut |h| h.on_add(&new, is_in_initial_list));
                }
            }
            Notification::Update { old, new } => {
                // The same one twice is unpacked once.
                let unpacked = new.object();
                let old = if old.ptr_eq(&new) { unpacked.clone() } else { old.object() };
                match (old, unpacked) {
                    (Some(old), Some(new)) => call(&mut |h| h.on_update(&old, &new)),
                    (None, Some(new)) => call(&mut |h| h.on_add(&new, false)),
                    (_, None) => {}
                }
            }
            Notification::Delete(gone) => {
                if let Some(deleted) = gone.deleted() {
                    call(&mut |h| h.on_delete(&deleted));
                }
            }
            Notification::Recreate { old, new } => {
                if let Some(deleted) = old.deleted() {
                    call(&mut |h| h.on_delete(&deleted));
                }
                if let Some(new) = new.object() {
                    call(&mut |h| h.on_add(&new, false));
                }
            }
        }
        buffer.told();
        // A handler with much to hear lets others run.
        tokio::task::yield_now().await;
    }
}
