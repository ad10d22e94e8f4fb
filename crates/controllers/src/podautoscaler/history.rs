//! What was recommended and done lately, and what that allows now. No I/O.

use std::time::Duration;

use capstan_clock::Moment;
use k8s_openapi::api::autoscaling::v2::{HPAScalingPolicy, HPAScalingRules, HorizontalPodAutoscalerBehavior};

/// How long a recommendation keeps an autoscaler without a behaviour from going below it.
pub(super) const DOWNSCALE_STABILISATION: Duration = Duration::from_mins(5);
/// How much an autoscaler without a behaviour may grow at a time.
const SCALE_UP_LIMIT_FACTOR: f64 = 2.0;
/// To how much it may grow at any time.
const SCALE_UP_LIMIT_MINIMUM: f64 = 4.0;

/// A condition: whether it is true, why, and in words.
pub(super) type Said = (bool, &'static str, String);

#[derive(Clone, Copy, Debug)]
struct At<T> {
    value: T,
    time: Moment,
}

/// What was recommended and done for one autoscaler. What no window reaches any more is dropped. Windows
/// are counted by moments: dates jump.
#[derive(Clone, Debug, Default)]
pub(super) struct History {
    recommendations: Vec<At<i32>>,
    ups: Vec<At<i32>>,
    downs: Vec<At<i32>>,
}

/// What is to be fitted into the rules.
#[derive(Clone, Copy, Debug)]
pub(super) struct Wish {
    pub(super) current: i32,
    pub(super) desired: i32,
    pub(super) min: i32,
    pub(super) max: i32,
}

/// The moment so many seconds ago, unless that is before all moments.
fn before(now: Moment, seconds: i32) -> Option<Moment> {
    now.0.checked_sub(Duration::from_secs(u64::try_from(seconds).unwrap_or_default())).map(Moment)
}

fn of(yes: bool, (reason, message): (&'static str, &str)) -> Said {
    (yes, reason, message.to_owned())
}

const WITHIN: (&str, &str) = ("DesiredWithinRange", "the desired count is within the acceptable range");
const TOO_FEW: (&str, &str) = ("TooFewReplicas", "the desired replica count is less than the minimum replica count");
const TOO_MANY: (&str, &str) = ("TooManyReplicas", "the desired replica count is more than the maximum replica count");
const UP_LIMIT: (&str, &str) =
    ("ScaleUpLimit", "the desired replica count is increasing faster than the maximum scale rate");
const DOWN_LIMIT: (&str, &str) =
    ("ScaleDownLimit", "the desired replica count is decreasing faster than the maximum scale rate");
const UP_STABILIZED: (&str, &str) = (
    "ScaleUpStabilized",
    "recent recommendations were lower than current one, applying the lowest recent recommendation",
);
const DOWN_STABILIZED: (&str, &str) = (
    "ScaleDownStabilized",
    "recent recommendations were higher than current one, applying the highest recent recommendation",
);
const READY: (&str, &str) = ("ReadyForNewScale", "recommended size matches current size");

/// A number of replicas with the conditions `AbleToScale` and `ScalingLimited`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Normalized {
    pub(super) replicas: i32,
    pub(super) able: Said,
    pub(super) limited: Said,
}

impl History {
    /// The size at the first look counts as recommended, so that a restart does not shrink anything at once.
    pub(super) fn begin(&mut self, current: i32, now: Moment) {
        if self.recommendations.is_empty() {
            self.recommendations.push(At { value: current, time: now });
        }
    }

    fn recommend(&mut self, desired: i32, keep_from: Option<Moment>, now: Moment) {
        self.recommendations.retain(|recommendation| Some(recommendation.time) >= keep_from);
        self.recommendations.push(At { value: desired, time: now });
    }

    /// What becomes of a wish.
    pub(super) fn normalize(
        &mut self,
        wish: Wish,
        behavior: Option<&HorizontalPodAutoscalerBehavior>,
        now: Moment,
    ) -> Normalized {
        let (stabilized, why, (replicas, limit)) = match behavior {
            None => {
                let stabilized = self.stabilize(wish.desired, now);
                (stabilized, DOWN_STABILIZED, limit_by_default(Wish { desired: stabilized, ..wish }))
            }
            Some(behavior) => {
                let (stabilized, why) = self.stabilize_by(wish, behavior, now);
                (stabilized, why, self.limit_by(Wish { desired: stabilized, ..wish }, behavior, now))
            }
        };
        let able = if stabilized == wish.desired { of(true, READY) } else { of(true, why) };
        Normalized { replicas, able, limited: of(replicas != stabilized, limit) }
    }

    fn stabilize(&mut self, desired: i32, now: Moment) -> i32 {
        let cutoff = now.0.checked_sub(DOWNSCALE_STABILISATION).map(Moment);
        let recent = self.recommendations.iter().filter(|recommendation| Some(recommendation.time) >= cutoff);
        let highest = recent.map(|recommendation| recommendation.value).max().unwrap_or(desired).max(desired);
        self.recommend(desired, cutoff, now);
        highest
    }

    fn stabilize_by(
        &mut self,
        wish: Wish,
        behavior: &HorizontalPodAutoscalerBehavior,
        now: Moment,
    ) -> (i32, (&'static str, &'static str)) {
        let window = |rules: Option<&HPAScalingRules>, default: i32| {
            before(now, rules.and_then(|rules| rules.stabilization_window_seconds).unwrap_or(default))
        };
        let up_cutoff = window(behavior.scale_up.as_ref(), 0);
        let down_cutoff = window(behavior.scale_down.as_ref(), DOWNSCALE_STABILISATION.as_secs() as i32);
        let after = |cutoff: Option<Moment>| {
            let recent = self.recommendations.iter().filter(move |recommendation| Some(recommendation.time) > cutoff);
            recent.map(|recommendation| recommendation.value)
        };
        let up = after(up_cutoff).fold(wish.desired, i32::min);
        let down = after(down_cutoff).fold(wish.desired, i32::max);
        self.recommend(wish.desired, up_cutoff.min(down_cutoff), now);
        let why = if wish.desired >= wish.current { UP_STABILIZED } else { DOWN_STABILIZED };
        // Up no further than the lowest, down no further than the highest.
        (wish.current.max(up).min(down), why)
    }

    fn limit_by(
        &self,
        wish: Wish,
        behavior: &HorizontalPodAutoscalerBehavior,
        now: Moment,
    ) -> (i32, (&'static str, &'static str)) {
        let Wish { current, desired, min, max } = wish;
        if desired > current {
            let limit = self.limit(current, behavior.scale_up.as_ref(), Direction::Up, now).max(current);
            let (most, why) = if max > limit { (limit, UP_LIMIT) } else { (max, TOO_MANY) };
            if desired > most {
                return (most, why);
            }
        } else if desired < current {
            let limit = self.limit(current, behavior.scale_down.as_ref(), Direction::Down, now).min(current);
            let (least, why) = if min < limit { (limit, DOWN_LIMIT) } else { (min, TOO_FEW) };
            if desired < least {
                return (least, why);
            }
        }
        (desired, WITHIN)
    }

    fn limit(&self, current: i32, rules: Option<&HPAScalingRules>, direction: Direction, now: Moment) -> i32 {
        let select = rules.and_then(|rules| rules.select_policy.as_deref()).unwrap_or("Max");
        if select == "Disabled" {
            return current;
        }
        let policies = rules.and_then(|rules| rules.policies.as_deref()).unwrap_or_default();
        let limits = policies.iter().map(|policy| self.limit_of(current, policy, direction, now));
        let far = (select == "Min") != (direction == Direction::Up);
        let limit = if far { limits.max() } else { limits.min() };
        // For a size to grow, the greatest change is the greatest number; for it to shrink, the least.
        limit.unwrap_or(if direction == Direction::Up { i32::MAX } else { i32::MIN })
    }

    fn limit_of(&self, current: i32, policy: &HPAScalingPolicy, direction: Direction, now: Moment) -> i32 {
        let cutoff = before(now, policy.period_seconds);
        let since = |changes: &[At<i32>]| -> i32 {
            changes.iter().filter(|change| Some(change.time) > cutoff).map(|change| change.value).sum()
        };
        let at_start = current - since(&self.ups) + since(&self.downs);
        let part = f64::from(policy.value) / 100.0;
        match (direction, policy.type_.as_str()) {
            (Direction::Up, "Percent") => (f64::from(at_start) * (1.0 + part)).ceil() as i32,
            (Direction::Down, "Percent") => (f64::from(at_start) * (1.0 - part)) as i32,
            (Direction::Up, _) => at_start.saturating_add(policy.value),
            (Direction::Down, _) => at_start.saturating_sub(policy.value),
        }
    }

    /// It was done.
    pub(super) fn scaled(
        &mut self,
        from: i32,
        to: i32,
        behavior: Option<&HorizontalPodAutoscalerBehavior>,
        now: Moment,
    ) {
        let Some(behavior) = behavior else { return };
        let (changes, rules) = if to > from {
            (&mut self.ups, behavior.scale_up.as_ref())
        } else {
            (&mut self.downs, behavior.scale_down.as_ref())
        };
        let policies = rules.and_then(|rules| rules.policies.as_deref()).unwrap_or_default();
        let longest = policies.iter().map(|policy| policy.period_seconds).max().unwrap_or_default();
        let cutoff = before(now, longest);
        changes.retain(|change| Some(change.time) >= cutoff);
        changes.push(At { value: (to - from).abs(), time: now });
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Direction {
    Up,
    Down,
}

fn limit_by_default(wish: Wish) -> (i32, (&'static str, &'static str)) {
    let limit = (SCALE_UP_LIMIT_FACTOR * f64::from(wish.current)).max(SCALE_UP_LIMIT_MINIMUM) as i32;
    let (most, why) = if wish.max > limit { (limit, UP_LIMIT) } else { (wish.max, TOO_MANY) };
    if wish.desired < wish.min {
        (wish.min, TOO_FEW)
    } else if wish.desired > most {
        (most, why)
    } else {
        (wish.desired, WITHIN)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::{Value, json};

    fn at(seconds: u64) -> Moment {
        Moment(Duration::from_secs(seconds))
    }

    fn behavior(value: Value) -> HorizontalPodAutoscalerBehavior {
        serde_json::from_value(value).unwrap()
    }

    fn wish(current: i32, desired: i32) -> Wish {
        Wish { current, desired, min: 2, max: 20 }
    }

    #[test]
    fn without_a_behaviour() {
        let mut history = History::default();
        history.begin(10, at(0));
        let mut check = |seconds, current, desired, replicas, able, limited: (bool, &str)| {
            let found = history.normalize(wish(current, desired), None, at(seconds));
            let reasons = (found.able.1, found.limited.0, found.limited.1);
            assert_eq!((found.replicas, reasons), (replicas, (able, limited.0, limited.1)), "{seconds} {desired}");
        };
        let (ready, down) = ("ReadyForNewScale", "ScaleDownStabilized");
        check(0, 10, 12, 12, ready, (false, "DesiredWithinRange"));
        check(10, 12, 5, 12, down, (false, "DesiredWithinRange"));
        check(299, 12, 5, 12, down, (false, "DesiredWithinRange"));
        check(310, 12, 5, 5, ready, (false, "DesiredWithinRange"));
        check(310, 5, 50, 10, ready, (true, "ScaleUpLimit"));
        check(311, 15, 50, 20, ready, (true, "TooManyReplicas"));
        check(1_000, 5, 1, 2, ready, (true, "TooFewReplicas"));
        check(1_001, 1, 9, 4, ready, (true, "ScaleUpLimit"));
    }

    #[test]
    fn with_a_behaviour() {
        let rules = behavior(json!({
            "scaleUp": {"stabilizationWindowSeconds": 60, "selectPolicy": "Max", "policies": [
                {"type": "Pods", "value": 2, "periodSeconds": 60},
                {"type": "Percent", "value": 50, "periodSeconds": 60}]},
            "scaleDown": {"stabilizationWindowSeconds": 0, "selectPolicy": "Min", "policies": [
                {"type": "Pods", "value": 3, "periodSeconds": 60},
                {"type": "Percent", "value": 50, "periodSeconds": 60}]},
        }));
        let mut history = History::default();
        history.begin(6, at(0));
        let found = history.normalize(wish(6, 12), Some(&rules), at(10));
        assert_eq!((found.replicas, found.able.1), (6, "ScaleUpStabilized"), "the lowest of the last minute");
        let found = history.normalize(wish(6, 12), Some(&rules), at(61));
        assert_eq!((found.replicas, found.limited.1), (9, "ScaleUpLimit"), "the greater of 2 pods and a half");
        history.scaled(6, 9, Some(&rules), at(61));
        let found = history.normalize(wish(9, 12), Some(&rules), at(80));
        assert_eq!((found.replicas, found.limited.1), (9, "ScaleUpLimit"), "not again in the same minute");
        let found = history.normalize(wish(9, 12), Some(&rules), at(122));
        assert_eq!((found.replicas, found.limited.1), (12, "DesiredWithinRange"));
        let found = history.normalize(wish(12, 2), Some(&rules), at(200));
        assert_eq!((found.replicas, found.limited.1), (9, "ScaleDownLimit"), "the smaller change of 3 pods and a half");
        history.scaled(12, 9, Some(&rules), at(200));
        let found = history.normalize(wish(9, 2), Some(&rules), at(210));
        assert_eq!(found.replicas, 9);
        let off = behavior(json!({"scaleDown": {"selectPolicy": "Disabled", "stabilizationWindowSeconds": 0}}));
        let found = history.normalize(wish(9, 2), Some(&off), at(900));
        assert_eq!((found.replicas, found.limited.1), (9, "ScaleDownLimit"));
    }
}
