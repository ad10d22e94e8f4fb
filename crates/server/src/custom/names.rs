//! The names of a custom resource, and which of a group's names are taken.

use std::collections::HashMap;

use capstan_api::{Name, Value, go};

/// The names of a resource and its kind.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Names {
    /// The resource: `crontabs`.
    pub plural: Name,
    /// The resource in the singular: `crontab`.
    pub singular: Name,
    /// Shorter names: `ct`.
    pub short_names: Vec<Name>,
    /// The kind: `CronTab`.
    pub kind: Name,
    /// The kind of its lists: `CronTabList`.
    pub list_kind: Name,
    /// Groups of resources that it belongs to: `all`.
    pub categories: Vec<Name>,
}

impl Names {
    /// The names that `spec.names` or `status.acceptedNames` says.
    #[must_use]
    pub fn of(value: Option<&Value>) -> Self {
        let name = |key: &str| Name::from(value.and_then(|value| value.get(key)?.as_str()).unwrap_or_default());
        let names = |key: &str| {
            let items = value.and_then(|value| value.get(key)?.as_array()).map_or(&[][..], |items| items);
            items.iter().filter_map(Value::as_str).map(Name::from).collect()
        };
        Names {
            plural: name("plural"),
            singular: name("singular"),
            short_names: names("shortNames"),
            kind: name("kind"),
            list_kind: name("listKind"),
            categories: names("categories"),
        }
    }

    fn resources(&self) -> impl Iterator<Item = &Name> {
        [&self.plural, &self.singular].into_iter().chain(&self.short_names)
    }

    fn kinds(&self) -> impl Iterator<Item = &Name> {
        [&self.kind, &self.list_kind].into_iter()
    }
}

/// A name that somebody else has: the reason of a condition and its message.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Conflict {
    pub(super) reason: &'static str,
    pub(super) message: String,
}

/// The accepted names of all definitions of a group, each with how many have it.
#[derive(Debug, Default)]
pub(super) struct Taken {
    resources: HashMap<Name, usize>,
    kinds: HashMap<Name, usize>,
}

impl Taken {
    pub(super) fn add(&mut self, names: &Names) {
        names.resources().for_each(|name| *self.resources.entry(name.clone()).or_default() += 1);
        names.kinds().for_each(|name| *self.kinds.entry(name.clone()).or_default() += 1);
    }

    pub(super) fn remove(&mut self, names: &Names) {
        names.resources().for_each(|name| release(&mut self.resources, name));
        names.kinds().for_each(|name| release(&mut self.kinds, name));
    }

    pub(super) fn is_empty(&self) -> bool {
        self.resources.is_empty() && self.kinds.is_empty()
    }

    /// What a definition that wants some names and has others gets, and what stands in the way of the rest.
    pub(super) fn accept(&self, wanted: &Names, has: &Names) -> (Names, Option<Conflict>) {
        let mut names = has.clone();
        let mut conflict = None;
        let mut take = |taken: &HashMap<Name, usize>, wanted: &Name, has: &mut Name, reason| {
            if wanted != has && taken.contains_key(wanted) {
                conflict = Some(Conflict { reason, message: in_use(wanted) });
            } else {
                *has = wanted.clone();
            }
        };
        take(&self.resources, &wanted.plural, &mut names.plural, "PluralConflict");
        take(&self.resources, &wanted.singular, &mut names.singular, "SingularConflict");
        take(&self.kinds, &wanted.kind, &mut names.kind, "KindConflict");
        take(&self.kinds, &wanted.list_kind, &mut names.list_kind, "ListKindConflict");
        let of_others = |name: &&Name| !has.short_names.contains(name) && self.resources.contains_key(*name);
        let mut refused: Vec<String> = wanted.short_names.iter().filter(of_others).map(in_use).collect();
        refused.dedup();
        let message = match &refused[..] {
            [] => None,
            [one] => Some(one.clone()),
            many => Some(format!("[{}]", many.join(", "))),
        };
        match message {
            None => names.short_names.clone_from(&wanted.short_names),
            // Conflicts of kinds are found later, and the last one is told.
            Some(message) if conflict.as_ref().is_none_or(|conflict| !conflict.reason.contains("Kind")) => {
                conflict = Some(Conflict { reason: "ShortNamesConflict", message });
            }
            Some(_) => {}
        }
        names.categories.clone_from(&wanted.categories);
        (names, conflict)
    }
}

fn release(taken: &mut HashMap<Name, usize>, name: &Name) {
    if let Some(count) = taken.get_mut(name) {
        *count -= 1;
        if *count == 0 {
            taken.remove(name);
        }
    }
}

fn in_use(name: &Name) -> String {
    format!("{} is already in use", go::quote(name))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn names(text: &str) -> Names {
        Names::of(capstan_api::json::parse(text.as_bytes()).ok().as_ref())
    }

    #[test]
    fn names_of_others_are_refused() {
        let mut taken = Taken::default();
        let first = names(r#"{"plural":"as","singular":"a","kind":"A","listKind":"AList","shortNames":["x","y"]}"#);
        assert_eq!(taken.accept(&first, &Names::default()), (first.clone(), None));
        taken.add(&first);
        let check = |wanted: &str, reason: &str, message: &str| {
            let (got, conflict) = taken.accept(&names(wanted), &Names::default());
            let conflict = conflict.expect("a conflict");
            assert_eq!((conflict.reason, &*conflict.message), (reason, message), "{wanted}");
            assert_ne!(got, names(wanted));
        };
        check(r#"{"plural":"as","kind":"B"}"#, "PluralConflict", r#""as" is already in use"#);
        check(r#"{"plural":"bs","singular":"x","kind":"B"}"#, "SingularConflict", r#""x" is already in use"#);
        check(
            r#"{"plural":"bs","kind":"B","shortNames":["x","z","y"]}"#,
            "ShortNamesConflict",
            r#"["x" is already in use, "y" is already in use]"#,
        );
        check(r#"{"plural":"as","kind":"AList"}"#, "KindConflict", r#""AList" is already in use"#);
        assert_eq!(taken.accept(&first, &first).1, None, "its own names");
        taken.remove(&first);
        assert!(taken.is_empty());
    }
}
