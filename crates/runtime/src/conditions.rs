//! Conditions in the status of objects: apimachinery's helpers for `metav1.Condition`.

use capstan_api::Time;
use serde::{Deserialize, Serialize};

/// One aspect of the state of an object.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct Condition {
    /// Which aspect: `Ready`.
    #[serde(rename = "type")]
    pub type_: String,
    /// `True`, `False` or `Unknown`.
    pub status: String,
    /// Which generation of the object was looked at.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub observed_generation: Option<i64>,
    /// When the status last changed. Zero for now.
    pub last_transition_time: Time,
    /// Why, in one word.
    pub reason: String,
    /// Why, for people.
    pub message: String,
}

impl Condition {
    /// A condition whose time is to be filled in.
    #[must_use]
    pub fn new(type_: &str, status: bool, reason: &str, message: impl Into<String>) -> Self {
        Condition {
            type_: type_.to_owned(),
            status: if status { "True" } else { "False" }.to_owned(),
            reason: reason.to_owned(),
            message: message.into(),
            ..Condition::default()
        }
    }
}

/// A type that is a condition: [`Condition`], or with the feature `k8s-openapi` that of the crate of that name.
pub trait IsCondition: Clone + From<Condition> + Into<Condition> {
    /// Which aspect.
    fn condition_type(&self) -> &str;
    /// `True`, `False` or `Unknown`.
    fn condition_status(&self) -> &str;
}

impl IsCondition for Condition {
    fn condition_type(&self) -> &str {
        &self.type_
    }

    fn condition_status(&self) -> &str {
        &self.status
    }
}

/// Adds a condition, or changes the one of its type. Whether anything but the time differs.
///
/// The time of the last transition changes only with the status: to that of `new`, or to `now` if it has none.
pub fn set_status_condition<C: IsCondition>(
    conditions: &mut Vec<C>,
    new: impl Into<Condition>,
    now: impl Into<Time>,
) -> bool {
    let mut new: Condition = new.into();
    if new.last_transition_time.is_zero() {
        new.last_transition_time = now.into();
    }
    let Some(known) = conditions.iter_mut().find(|known| known.condition_type() == new.type_) else {
        conditions.push(new.into());
        return true;
    };
    let old: Condition = known.clone().into();
    if old.status == new.status {
        new.last_transition_time = old.last_transition_time;
    }
    // No generation and generation 0 are the same, as in Go.
    let same = (&old.status, &old.reason, &old.message) == (&new.status, &new.reason, &new.message)
        && old.observed_generation.unwrap_or_default() == new.observed_generation.unwrap_or_default();
    if !same {
        *known = new.into();
    }
    !same
}

/// Removes the condition of a type. Whether there was one.
pub fn remove_status_condition<C: IsCondition>(conditions: &mut Vec<C>, type_: &str) -> bool {
    let before = conditions.len();
    conditions.retain(|condition| condition.condition_type() != type_);
    conditions.len() != before
}

/// The condition of a type.
#[must_use]
pub fn find_status_condition<'a, C: IsCondition>(conditions: &'a [C], type_: &str) -> Option<&'a C> {
    conditions.iter().find(|condition| condition.condition_type() == type_)
}

/// Whether there is a condition of a type, and it is `True`.
#[must_use]
pub fn is_status_condition_true<C: IsCondition>(conditions: &[C], type_: &str) -> bool {
    is_status_condition_present_and_equal(conditions, type_, "True")
}

/// Whether there is a condition of a type, and it is `False`.
#[must_use]
pub fn is_status_condition_false<C: IsCondition>(conditions: &[C], type_: &str) -> bool {
    is_status_condition_present_and_equal(conditions, type_, "False")
}

/// Whether there is a condition of a type with this status.
#[must_use]
pub fn is_status_condition_present_and_equal<C: IsCondition>(conditions: &[C], type_: &str, status: &str) -> bool {
    find_status_condition(conditions, type_).is_some_and(|condition| condition.condition_status() == status)
}

#[cfg(feature = "k8s-openapi")]
mod builtin {
    use k8s_openapi::apimachinery::pkg::apis::meta::v1 as meta;

    use super::{Condition, IsCondition};

    impl From<meta::Condition> for Condition {
        fn from(from: meta::Condition) -> Self {
            Condition {
                type_: from.type_,
                status: from.status,
                observed_generation: from.observed_generation,
                last_transition_time: from.last_transition_time.0.into(),
                reason: from.reason,
                message: from.message,
            }
        }
    }

    impl From<Condition> for meta::Condition {
        fn from(from: Condition) -> Self {
            meta::Condition {
                type_: from.type_,
                status: from.status,
                observed_generation: from.observed_generation,
                last_transition_time: meta::Time(from.last_transition_time.into()),
                reason: from.reason,
                message: from.message,
            }
        }
    }

    impl IsCondition for meta::Condition {
        fn condition_type(&self) -> &str {
            &self.type_
        }

        fn condition_status(&self) -> &str {
            &self.status
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(seconds: i64) -> Time {
        Time::from_unix(seconds, 0)
    }

    #[test]
    fn the_time_changes_with_the_status() {
        let mut conditions: Vec<Condition> = Vec::new();
        let mut check = |new: Condition, now: i64, changed: bool, time: i64| {
            let type_ = new.type_.clone();
            assert_eq!(set_status_condition(&mut conditions, new.clone(), at(now)), changed, "{new:?}");
            let found = find_status_condition(&conditions, &type_).unwrap();
            assert_eq!((&found.reason, found.last_transition_time), (&new.reason, at(time)), "{new:?}");
        };
        let ready = |status, reason| Condition::new("Ready", status, reason, "m");
        check(ready(false, "A"), 1, true, 1);
        check(ready(false, "A"), 2, false, 1);
        check(ready(false, "B"), 3, true, 1);
        check(ready(true, "B"), 4, true, 4);
        check(Condition { observed_generation: Some(0), ..ready(true, "B") }, 5, false, 4);
        check(Condition { observed_generation: Some(7), ..ready(true, "B") }, 5, true, 4);
        let with_time = Condition { last_transition_time: at(9), ..ready(false, "B") };
        check(with_time, 5, true, 9);
        check(Condition::new("Other", true, "C", ""), 6, true, 6);
        assert!(is_status_condition_true(&conditions, "Other") && is_status_condition_false(&conditions, "Ready"));
        assert!(!is_status_condition_true(&conditions, "None") && !is_status_condition_false(&conditions, "None"));
        assert!(
            remove_status_condition(&mut conditions, "Ready") && !remove_status_condition(&mut conditions, "Ready")
        );
        assert_eq!(conditions.len(), 1);
    }
}
