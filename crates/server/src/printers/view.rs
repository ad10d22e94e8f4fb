//! A read-only view of an object: fields by dotted path, where what is absent or of the wrong type reads as empty.

use capstan_api::{Duration, Map, Quantity, Time, Value, selector::LabelSelector};

/// Of an object or a part of one.
#[derive(Clone, Copy)]
pub(super) struct View<'a>(Option<&'a Map>);

impl<'a> View<'a> {
    pub(super) fn new(map: &'a Map) -> Self {
        View(Some(map))
    }

    pub(super) fn of(value: Option<&'a Value>) -> Self {
        View(value.and_then(Value::as_object))
    }

    /// The value at a path, unless it is `null`.
    pub(super) fn get(self, path: &str) -> Option<&'a Value> {
        let mut keys = path.split('.');
        let first = self.0?.get(keys.next()?)?;
        keys.try_fold(first, |value, key| value.get(key)).filter(|value| !value.is_null())
    }

    pub(super) fn has(self, path: &str) -> bool {
        self.get(path).is_some()
    }

    pub(super) fn at(self, path: &str) -> View<'a> {
        View::of(self.get(path))
    }

    pub(super) fn text(self, path: &str) -> &'a str {
        self.get(path).and_then(Value::as_str).unwrap_or("")
    }

    /// The text at a path, or `word` if there is none or an empty one.
    pub(super) fn text_or(self, path: &str, word: &'a str) -> &'a str {
        match self.text(path) {
            "" => word,
            text => text,
        }
    }

    pub(super) fn int(self, path: &str) -> i64 {
        self.get(path).and_then(Value::as_i64).unwrap_or(0)
    }

    pub(super) fn flag(self, path: &str) -> bool {
        self.get(path).and_then(Value::as_bool).unwrap_or(false)
    }

    /// The number of elements of a list or entries of a map.
    pub(super) fn count(self, path: &str) -> i64 {
        let count = match self.get(path) {
            Some(Value::Array(items)) => items.len(),
            Some(Value::Object(map)) => map.len(),
            _ => 0,
        };
        i64::try_from(count).unwrap_or(i64::MAX)
    }

    /// The entries of the map itself.
    pub(super) fn entries(self) -> impl Iterator<Item = (&'a str, &'a Value)> {
        self.0.into_iter().flat_map(Map::iter)
    }

    /// What a key with dots in it holds.
    pub(super) fn entry(self, key: &str) -> Option<&'a Value> {
        self.0?.get(key)
    }

    fn values(self, path: &str) -> &'a [Value] {
        self.get(path).and_then(Value::as_array).map_or(&[], |items| items.as_slice())
    }

    /// The objects of a list.
    pub(super) fn items(self, path: &str) -> impl DoubleEndedIterator<Item = View<'a>> + ExactSizeIterator {
        self.values(path).iter().map(|value| View::of(Some(value)))
    }

    /// The strings of a list.
    pub(super) fn texts(self, path: &str) -> Vec<&'a str> {
        self.values(path).iter().filter_map(Value::as_str).collect()
    }

    /// One field of each object of a list.
    pub(super) fn each(self, path: &str, field: &str) -> Vec<&'a str> {
        self.items(path).map(|item| item.text(field)).collect()
    }

    /// The first condition of that type in a list.
    pub(super) fn condition(self, path: &str, condition: &str) -> Option<View<'a>> {
        self.items(path).find(|item| item.text("type") == condition)
    }

    /// Whether the first condition of that type is true.
    pub(super) fn holds(self, path: &str, condition: &str) -> bool {
        self.condition(path, condition).is_some_and(|condition| condition.text("status") == "True")
    }

    pub(super) fn time(self, path: &str) -> Time {
        self.text(path).parse().unwrap_or(Time::ZERO)
    }

    /// How long ago the time at a path was.
    pub(super) fn since(self, path: &str, now: Time) -> String {
        since(self.time(path), now)
    }

    pub(super) fn annotation(self, key: &str) -> Option<&'a str> {
        self.at("metadata.annotations").entry(key)?.as_str()
    }

    pub(super) fn deleted(self) -> bool {
        self.has("metadata.deletionTimestamp")
    }

    /// Labels as tables show them: `a=b,c=d`.
    pub(super) fn labels(self, path: &str) -> String {
        let pair = |(key, value): (&str, &Value)| format!("{key}={}", value.as_str().unwrap_or(""));
        match self.at(path).entries().map(pair).collect::<Vec<_>>().join(",") {
            empty if empty.is_empty() => "<none>".to_owned(),
            labels => labels,
        }
    }

    pub(super) fn selector(self, path: &str) -> LabelSelector {
        self.at(path).0.map(LabelSelector::from_map).unwrap_or_default()
    }

    pub(super) fn quantity(self, path: &str) -> String {
        quantity(self.get(path))
    }
}

/// How long ago a time was.
pub(super) fn since(time: Time, now: Time) -> String {
    if time.is_zero() { "<unknown>".to_owned() } else { now.since(time).human() }
}

/// So many seconds, for people.
pub(super) fn human_seconds(seconds: i64) -> String {
    Duration(seconds.saturating_mul(1_000_000_000)).human()
}

/// A quantity in its canonical form; one that is absent is zero.
pub(super) fn quantity(value: Option<&Value>) -> String {
    let parsed = match value {
        Some(Value::String(text)) => text.parse::<Quantity>().ok(),
        Some(Value::Int(number)) => number.to_string().parse().ok(),
        Some(Value::Float(number)) => number.to_string().parse().ok(),
        _ => None,
    };
    parsed.map_or_else(|| "0".to_owned(), |quantity| quantity.to_string())
}

/// The first `max` texts, and how many more there are of `count`.
pub(super) fn with_more(list: &[impl AsRef<str>], separator: &str, max: usize, count: usize) -> String {
    let shown: Vec<&str> = list.iter().take(max).map(AsRef::as_ref).collect();
    let shown = shown.join(separator);
    if list.len() > max { format!("{shown} + {} more...", count.saturating_sub(max)) } else { shown }
}

/// A cell of text.
pub(super) fn cell(text: impl AsRef<str>) -> Value {
    Value::String(text.as_ref().into())
}
