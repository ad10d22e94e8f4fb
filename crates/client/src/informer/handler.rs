//! Those who are told of changes.

use std::{
    fmt,
    marker::PhantomData,
    panic::{AssertUnwindSafe, catch_unwind},
    sync::Arc,
};

use capstan_api::object::Object;

use super::{
    Deleted,
    buffer::Buffer,
    notification::{Gone, Notification},
};
use crate::{
    Kept, Key,
    kept::{AnyObject, Erased, typed},
};

/// What happened to an object, without the object.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Change {
    /// It is there.
    Added {
        /// It was there before the handler listened.
        is_in_initial_list: bool,
    },
    /// It changed, or it is time to look at it again.
    Updated {
        /// It is in the version that the handler has heard of.
        unchanged: bool,
    },
    /// It is gone.
    Deleted,
}

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

    /// Is told of each change before any of the others. True when that is all it wants to know: then none of them
    /// follows, and an object that is [kept packed](super::SharedIndexInformer::compact) is not unpacked for it, which
    /// is most of what telling costs.
    fn on_key(&mut self, key: &Key, change: Change) -> bool {
        let _ = (key, change);
        false
    }

    /// Whether `on_update` looks at the state before. Who does not is given the new one in its place, and what is kept
    /// packed is unpacked once and not twice.
    fn wants_old(&self) -> bool {
        true
    }
}

type OnAdd<K> = Box<dyn FnMut(&Arc<K>, bool) + Send>;
type OnUpdate<K> = Box<dyn FnMut(&Arc<K>, &Arc<K>) + Send>;
type OnAddKey = Box<dyn FnMut(&Key, bool) + Send>;
type OnDelete<K> = Box<dyn FnMut(&Deleted<K>) + Send>;

/// A handler made of functions, of which any may be left out.
pub struct HandlerFuncs<K> {
    add: Option<OnAdd<K>>,
    add_key: Option<OnAddKey>,
    update: Option<OnUpdate<K>>,
    delete: Option<OnDelete<K>>,
    wants_old: bool,
}

impl<K> fmt::Debug for HandlerFuncs<K> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("HandlerFuncs")
    }
}

impl<K> Default for HandlerFuncs<K> {
    fn default() -> Self {
        HandlerFuncs { add: None, add_key: None, update: None, delete: None, wants_old: true }
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

    /// What to do when an object is there, for those whom its key is enough; in place of [`on_add`](Self::on_add).
    #[must_use]
    pub fn on_add_key(mut self, func: impl FnMut(&Key, bool) + Send + 'static) -> Self {
        self.add_key = Some(Box::new(func));
        self
    }

    /// What to do when an object changed.
    #[must_use]
    pub fn on_update(mut self, func: impl FnMut(&Arc<K>, &Arc<K>) + Send + 'static) -> Self {
        self.update = Some(Box::new(func));
        self.wants_old = true;
        self
    }

    /// What to do when an object changed, for those who do not ask what it was before; in place of
    /// [`on_update`](Self::on_update).
    #[must_use]
    pub fn on_change(mut self, mut func: impl FnMut(&Arc<K>) + Send + 'static) -> Self {
        self.update = Some(Box::new(move |_, new| func(new)));
        self.wants_old = false;
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

    fn on_key(&mut self, key: &Key, change: Change) -> bool {
        match change {
            Change::Added { is_in_initial_list } => match &mut self.add_key {
                Some(func) => {
                    func(key, is_in_initial_list);
                    true
                }
                None => self.add.is_none(),
            },
            Change::Updated { .. } => self.update.is_none(),
            Change::Deleted => self.delete.is_none(),
        }
    }

    fn wants_old(&self) -> bool {
        self.wants_old
    }
}

/// After how many calls a handler with much to hear lets others run. Doing so costs as much as a short call: the
/// runtime looks at all its sockets.
const TURN: usize = 32;

/// A handler, whatever its objects are.
pub(super) trait AnyHandler: Send {
    fn on_key(&mut self, key: &Key, change: Change) -> bool;
    fn wants_old(&self) -> bool;
    fn on_add(&mut self, new: Arc<dyn AnyObject>, is_in_initial_list: bool);
    fn on_update(&mut self, old: Arc<dyn AnyObject>, new: Arc<dyn AnyObject>);
    fn on_delete(&mut self, last: Arc<dyn AnyObject>, final_state_unknown: bool);
}

/// A handler of objects of a type.
pub(super) struct Typed<K, H> {
    handler: H,
    of: PhantomData<fn() -> K>,
}

impl<K, H> Typed<K, H> {
    pub(super) fn new(handler: H) -> Self {
        Typed { handler, of: PhantomData }
    }
}

impl<K: Object, H: ResourceEventHandler<K>> AnyHandler for Typed<K, H> {
    fn on_key(&mut self, key: &Key, change: Change) -> bool {
        self.handler.on_key(key, change)
    }

    fn wants_old(&self) -> bool {
        self.handler.wants_old()
    }

    fn on_add(&mut self, new: Arc<dyn AnyObject>, is_in_initial_list: bool) {
        if let Some(new) = typed(new) {
            self.handler.on_add(&new, is_in_initial_list);
        }
    }

    fn on_update(&mut self, old: Arc<dyn AnyObject>, new: Arc<dyn AnyObject>) {
        if let (Some(old), Some(new)) = (typed(old), typed(new)) {
            self.handler.on_update(&old, &new);
        }
    }

    fn on_delete(&mut self, last: Arc<dyn AnyObject>, final_state_unknown: bool) {
        if let Some(last) = typed(last) {
            self.handler.on_delete(&match final_state_unknown {
                true => Deleted::DeletedFinalStateUnknown(last),
                false => Deleted::Object(last),
            });
        }
    }
}

/// Tells a handler until the buffer is closed. A call that panics is over; the next one comes all the same.
///
/// Objects that are kept packed are unpacked here, in the handler's own task and when it is their turn. One that cannot
/// be is passed over, as if it had stayed as it was.
pub(super) async fn tell(buffer: Arc<Buffer>, mut handler: Box<dyn AnyHandler>) {
    let mut heard = 0_usize;
    while let Some((key, notification)) = buffer.next().await {
        let mut told = Told { handler: &mut *handler, key: &key };
        match notification {
            Notification::Add { new, is_in_initial_list } => told.added(&new, is_in_initial_list),
            Notification::Update { old, new } => told.updated(&old, &new),
            Notification::Delete(gone) => told.deleted(&gone),
            Notification::Recreate { old, new } => {
                told.deleted(&old);
                told.added(&new, false);
            }
        }
        buffer.told();
        heard = heard.wrapping_add(1);
        if heard.is_multiple_of(TURN) {
            tokio::task::yield_now().await;
        }
    }
}

/// A handler that is told of one object.
struct Told<'a> {
    handler: &'a mut dyn AnyHandler,
    key: &'a Key,
}

impl Told<'_> {
    /// What a handler leaves behind when it panics is its own; the panic hook has told of it.
    fn call<R: Default>(&mut self, call: impl FnOnce(&mut dyn AnyHandler) -> R) -> R {
        catch_unwind(AssertUnwindSafe(|| call(self.handler))).unwrap_or_default()
    }

    fn is_enough(&mut self, change: Change) -> bool {
        let key = self.key;
        self.call(|handler| handler.on_key(key, change))
    }

    fn added(&mut self, new: &Kept<Erased>, is_in_initial_list: bool) {
        if !self.is_enough(Change::Added { is_in_initial_list })
            && let Some(new) = new.any()
        {
            self.call(|handler| handler.on_add(new, is_in_initial_list));
        }
    }

    fn updated(&mut self, old: &Kept<Erased>, new: &Kept<Erased>) {
        if self.is_enough(Change::Updated { unchanged: old.is_same(new) }) {
            return;
        }
        // The same one twice is unpacked once.
        let unpacked = new.any();
        let old = if old.ptr_eq(new) || !self.handler.wants_old() { unpacked.clone() } else { old.any() };
        match (old, unpacked) {
            (Some(old), Some(new)) => self.call(|handler| handler.on_update(old, new)),
            (None, Some(new)) => self.call(|handler| handler.on_add(new, false)),
            (_, None) => {}
        }
    }

    fn deleted(&mut self, gone: &Gone<Erased>) {
        if !self.is_enough(Change::Deleted)
            && let Some(last) = gone.last.any()
        {
            self.call(|handler| handler.on_delete(last, gone.final_state_unknown));
        }
    }
}
