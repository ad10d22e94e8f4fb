//! How much of a capacity a request for a device may take.

use capstan_api::{
    Map, Quantity, Value,
    field::{Error, ErrorList, Path},
    go,
};

use super::{
    device::set,
    read::{is_set, list, object, quantity},
};

const MAX_VALUES: usize = 10;

fn number(map: &Map, key: &str) -> Option<Quantity> {
    is_set(map, key).then(|| map.get(key).and_then(quantity).unwrap_or_default())
}

/// Some values or a range, with one of them that is taken if nothing is said.
pub(super) fn policy(policy: &Map, capacity: &Map, path: &Path<'_>, errors: &mut ErrorList) {
    let all = number(capacity, "value").unwrap_or_default();
    let (values, range) = (list(policy, "validValues"), object(policy, "validRange"));
    let key = match (values.is_empty(), range) {
        (true, None) => return,
        (false, Some(_)) => {
            let detail = "exactly one policy can be specified, cannot specify \"validValues\" and \"validRange\" at \
                          the same time";
            return errors.push(Error::forbidden(path, detail));
        }
        (false, None) => "validValues",
        (true, Some(_)) => "validRange",
    };
    match (number(policy, "default"), range) {
        (None, _) => {
            errors.push(Error::required(path.child("default"), format!("required when {key} is defined")));
        }
        (Some(default), Some(range)) => valid_range(range, &default, &all, &path.child(key), errors),
        (Some(default), None) => valid_values(values, &default, &all, &path.child(key), errors),
    }
}

fn valid_values(values: &[Value], default: &Quantity, all: &Quantity, path: &Path<'_>, errors: &mut ErrorList) {
    let of = |value: &Value| quantity(value).unwrap_or_default();
    for (i, pair) in values.windows(2).enumerate() {
        if of(&pair[0]) > of(&pair[1]) {
            let detail = "values must be sorted in ascending order";
            errors.push(Error::invalid(path.index(i + 1), of(&pair[1]).to_string(), detail));
        }
    }
    let mut has_default = false;
    let key = |value: &Value| go::quote(&of(value).value().to_string());
    set(values, MAX_VALUES, path, errors, key, |value, path, errors| {
        let value = of(value);
        if value > *all {
            let detail = format!("option is larger than capacity value: {all}");
            errors.push(Error::invalid(path, value.to_string(), detail));
        }
        has_default |= value == *default;
    });
    if !has_default {
        let detail = "default value is not valid according to the requestPolicy";
        errors.push(Error::invalid(path, default.to_string(), detail));
    }
}

fn valid_range(range: &Map, default: &Quantity, all: &Quantity, path: &Path<'_>, errors: &mut ErrorList) {
    let [min, max, step] = ["min", "max", "step"].map(|key| number(range, key));
    let Some(min) = min else {
        return errors.push(Error::required(path.child("min"), "required when validRange is defined"));
    };
    let mut wrong = |key: &str, value: &Quantity, detail: String| {
        errors.push(Error::invalid(path.child(key), value.to_string(), detail));
    };
    if min > *all {
        wrong("min", &min, format!("min is larger than capacity value: {all}"));
    }
    if *default < min {
        wrong("min", default, format!("default is less than min: {min}"));
    }
    if let Some(max) = &max {
        if min > *max {
            wrong("max", &min, format!("min is larger than max: {max}"));
        }
        if max > all {
            wrong("max", max, format!("max is larger than capacity value: {all}"));
        }
        if default > max {
            wrong("max", default, format!("default is more than max: {max}"));
        }
    }
    let Some(step) = step else { return };
    let mut one = min.clone();
    one.add(&step);
    if one > *all {
        wrong("step", &step, format!("one step {one} is larger than capacity value: {all}"));
    }
    for value in [Some(default), max.as_ref()].into_iter().flatten() {
        // Upstream breaks down over a step of nothing; here nothing is a multiple of it.
        let (steps, size) = (value.value().wrapping_sub(min.value()), step.value());
        if size == 0 || steps.wrapping_rem(size) != 0 {
            wrong("step", value, format!("value is not a multiple of a given step ({step}) from ({min})"));
        }
    }
}
