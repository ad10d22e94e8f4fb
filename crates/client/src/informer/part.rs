//! An informer of several namespaces: each is listed and watched by itself, and all are in one store.

use std::{collections::BTreeSet, sync::Arc};

use crate::{Key, ListerWatcher, reflector::machine::Config};

/// Of which namespaces a part of an informer is.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub enum Territory {
    /// Of this one.
    Only(String),
    /// Of all but these, and of what lives in no namespace.
    AllBut(BTreeSet<String>),
}

impl Territory {
    /// Of everything.
    #[must_use]
    pub fn everything() -> Self {
        Territory::AllBut(BTreeSet::new())
    }

    /// Whether a namespace is in it; the empty one is that of objects that live in none.
    #[must_use]
    pub fn has(&self, namespace: &str) -> bool {
        match self {
            Territory::Only(only) => only == namespace,
            Territory::AllBut(others) => !others.contains(namespace),
        }
    }

    pub(crate) fn has_key(&self, key: &Key) -> bool {
        *self == Territory::everything() || self.has(key.namespace())
    }
}

/// What is listed and watched by itself.
#[derive(Clone, Debug)]
pub struct Part {
    /// What lists and watches exactly the objects of the territory.
    pub source: Arc<dyn ListerWatcher>,
    /// How to ask.
    pub config: Config,
    /// Which namespaces these are.
    pub territory: Territory,
}

/// Up to which versions the parts of a store have everything.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct Versions(pub(super) Vec<String>);

impl Versions {
    /// The version up to which all parts have everything; empty as long as one has nothing.
    pub(super) fn oldest(&self) -> &str {
        let number = |version: &&String| version.parse::<u64>().unwrap_or_default();
        self.0.iter().min_by_key(number).map_or("", String::as_str)
    }
}

#[cfg(test)]
mod tests {
    use std::{
        collections::BTreeMap,
        sync::{Arc, Mutex},
    };

    use capstan_api::Unstructured;
    use capstan_clock::{ManualClock, SeededIds};

    use super::*;
    use crate::{
        HandlerFuncs, Kept, SharedIndexInformer,
        informer::{shared::PartStore, tests::turns},
        kept::Erased,
        reflector::ReflectorStore as _,
        testing::{Source, object},
    };

    fn thing(key: &str) -> (Key, Kept<Erased>) {
        let (namespace, name) = key.split_once('/').unwrap_or(("", key));
        let mut thing = Unstructured::decode(object(name, 1).as_bytes()).unwrap();
        thing.set_namespace(namespace);
        (Key::of(&thing), Kept::from(Arc::new(thing)).cast())
    }

    fn list(keys: &[&str]) -> BTreeMap<Key, Kept<Erased>> {
        keys.iter().map(|key| thing(key)).collect()
    }

    #[test]
    fn territories() {
        let (one, others) = (Territory::Only("a".to_owned()), Territory::AllBut(BTreeSet::from(["a".to_owned()])));
        for (namespace, of_one) in [("a", true), ("b", false), ("", false)] {
            assert_eq!((one.has(namespace), others.has(namespace)), (of_one, !of_one), "{namespace}");
        }
        assert!(Territory::everything().has("a") && Territory::everything().has_key(&Key::new("", "node")));
        let of = |versions: &[&str]| Versions(versions.iter().map(|version| (*version).to_owned()).collect());
        assert_eq!([of(&["9", "10"]).oldest(), of(&["9", ""]).oldest(), of(&["12"]).oldest()], ["9", "", "12"]);
    }

    /// A list says what is gone of its own part, and of no other.
    #[tokio::test]
    async fn parts_are_listed_by_themselves() {
        let part = |territory| Part { source: Arc::new(Source::default()), config: Config::default(), territory };
        let parts = ["a", "b"].map(|namespace| part(Territory::Only(namespace.to_owned())));
        let clock = Arc::new(ManualClock::at("2026-01-01T00:00:00Z".parse().unwrap()));
        let informer =
            SharedIndexInformer::<Unstructured>::with_parts(parts.into(), clock, Arc::new(SeededIds::new(1)), None);
        let heard: Arc<Mutex<Vec<String>>> = Arc::default();
        let say = |verb: &'static str| {
            let heard = Arc::clone(&heard);
            move |object: &Unstructured, initial: bool| {
                let initial = if initial { " at first" } else { "" };
                heard.lock().unwrap().push(format!("{verb} {}{initial}", Key::of(object)));
            }
        };
        let (add, delete) = (say("add"), say("delete"));
        let registration = informer.add_event_handler(
            HandlerFuncs::new().on_add(move |new, initial| add(new, initial)).on_delete(move |gone| {
                delete(gone.object(), false);
            }),
        );
        let store = |part| PartStore { shared: Arc::clone(&informer.inner.shared), part };
        let (mut a, mut b) = (store(0), store(1));
        let synced = || async {
            turns().await;
            (informer.has_synced(), registration.has_synced(), std::mem::take(&mut *heard.lock().unwrap()).join(", "))
        };

        a.replace(list(&["a/x", "a/y"]));
        a.synced_to("5");
        let (key, object) = thing("a/z");
        a.add(key, object);
        assert_eq!(synced().await, (false, false, "add a/x at first, add a/y at first, add a/z".to_owned()));
        assert_eq!(informer.last_sync_resource_version(), "");
        b.replace(list(&["b/x"]));
        b.synced_to("4");
        assert_eq!(synced().await, (true, true, "add b/x at first".to_owned()));
        assert_eq!(informer.last_sync_resource_version(), "4");
        assert_eq!(["a", "b", "c"].map(|of| informer.last_sync_resource_version_in(of)), ["5", "4", ""]);
        assert_eq!(["a", "b", "c"].map(|of| informer.has_namespace(of)), [true, true, false]);

        a.replace(list(&["a/y"]));
        assert_eq!(synced().await.2, "delete a/x, delete a/z");
        b.replace(list(&[]));
        assert_eq!(synced().await.2, "delete b/x");
        assert_eq!(informer.indexer().list_keys(), [Key::new("a", "y")]);
        informer.synced_beyond_in("a", "4").await;
        informer.synced_beyond("3").await;
    }
}
