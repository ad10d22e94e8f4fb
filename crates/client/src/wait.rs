//! Waiting until an object is as one wants it.

use capstan_api::{object::Object, options::ListOptions};

use crate::{Api, Error, reflector::machine::VERY_SHORT_WATCH, watch::Event};

/// Whether an object is as one wants it; it may be absent. Functions are conditions.
pub trait Condition<K> {
    /// Whether it is.
    fn matches(&self, object: Option<&K>) -> bool;
}

impl<K, F: Fn(Option<&K>) -> bool> Condition<K> for F {
    fn matches(&self, object: Option<&K>) -> bool {
        self(object)
    }
}

/// Conditions of any kind.
pub mod conditions {
    use capstan_api::object::Object;

    use super::Condition;

    /// The object is there.
    pub fn exists<K>() -> impl Condition<K> {
        |object: Option<&K>| object.is_some()
    }

    /// The object of this uid is gone; another one of its name may be there.
    pub fn is_deleted<K: Object>(uid: &str) -> impl Condition<K> {
        let uid = uid.to_owned();
        move |object: Option<&K>| object.is_none_or(|object| object.identity().uid != uid)
    }
}

impl<K: Object> Api<K> {
    /// Waits until an object is as `condition` wants it, and gives it as it is then; nothing if it is absent.
    ///
    /// It lists and watches that one object. Watches that end are begun again, with everything listed anew, so nothing
    /// is missed. How long it waits is up to the caller: it may be dropped at any time.
    ///
    /// # Errors
    /// The server refuses in a way that trying again does not mend.
    pub async fn wait_for(&self, name: &str, condition: impl Condition<K>) -> Result<Option<K>, Error> {
        let options = ListOptions { field_selector: format!("metadata.name={name}"), ..ListOptions::default() };
        let mut backoff = self.client().backoff();
        loop {
            let clock = self.client().clock();
            let begun = clock.monotonic();
            let ended = self.wait_once(&options, &condition).await;
            let lasted = clock.monotonic().since(begun) >= VERY_SHORT_WATCH;
            match ended {
                Ok(Some(found)) => return Ok(found),
                // The watch ended, or its connection was cut; that is how watches are.
                Ok(None) | Err(Error::Transport(_)) if lasted => {}
                Ok(None) => backoff.wait(None).await,
                Err(error) if error.is_retriable() || error.is_expired() => backoff.wait(Some(&error)).await,
                Err(error) => return Err(error),
            }
        }
    }

    async fn wait_once(
        &self,
        options: &ListOptions,
        condition: &impl Condition<K>,
    ) -> Result<Option<Option<K>>, Error> {
        let list = self.list(options).await?;
        let now = list.items.into_iter().next();
        if condition.matches(now.as_ref()) {
            return Ok(Some(now));
        }
        let from =
            ListOptions { resource_version: list.resource_version, allow_watch_bookmarks: true, ..options.clone() };
        let mut watch = self.watch(&from).await?;
        while let Some(event) = watch.try_next().await? {
            let now = match event {
                Event::Added(object) | Event::Modified(object) => Some(object),
                Event::Deleted(_) => None,
                Event::Bookmark(_) => continue,
            };
            if condition.matches(now.as_ref()) {
                return Ok(Some(now));
            }
        }
        Ok(None)
    }
}
