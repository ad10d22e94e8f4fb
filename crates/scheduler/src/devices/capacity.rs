//! Devices that several claims may share: how much of one a request takes.

use capstan_api::{Quantity, quantity::Format};
use k8s_openapi::api::resource::v1::{CapacityRequestPolicy, CapacityRequestPolicyRange, Device, DeviceCapacity};

use super::{Amounts, quantity};

/// Adds an amount under a name.
pub(super) fn add(amounts: &mut Amounts, name: &str, amount: &Quantity) {
    match amounts.get_mut(name) {
        Some(known) => known.add(amount),
        None => drop(amounts.insert(name.to_owned(), amount.clone())),
    }
}

/// What a request takes of every capacity of a device. Nothing when it asks for one that the device does not have, or
/// for an amount that the device does not give.
pub(super) fn consumed(device: &Device, requested: &Amounts) -> Option<Amounts> {
    let has = |name: &String| device.capacity.as_ref().is_some_and(|capacity| capacity.contains_key(name));
    if !requested.keys().all(has) {
        return None;
    }
    let mut amounts = Amounts::new();
    for (name, capacity) in device.capacity.iter().flatten() {
        let amount = amount(requested.get(name), capacity);
        if !allowed(&amount, capacity.request_policy.as_ref()) {
            return None;
        }
        amounts.insert(name.clone(), amount);
    }
    Some(amounts)
}

/// Whether a device has so much, besides what is taken of it.
pub(super) fn fits<'a>(device: &Device, more: &Amounts, taken: impl Iterator<Item = &'a Amounts> + Clone) -> bool {
    device.capacity.iter().flatten().all(|(name, capacity)| {
        let mut sum = more.get(name).cloned().unwrap_or_default();
        taken.clone().filter_map(|taken| taken.get(name)).for_each(|taken| sum.add(taken));
        sum <= quantity(&capacity.value)
    })
}

fn amount(requested: Option<&Quantity>, capacity: &DeviceCapacity) -> Quantity {
    let policy = capacity.request_policy.as_ref();
    let Some(requested) = requested else {
        let default = policy.and_then(|policy| policy.default.as_ref());
        return quantity(default.unwrap_or(&capacity.value));
    };
    match policy {
        Some(CapacityRequestPolicy { valid_range: Some(range), .. }) => rounded_up(requested, range),
        Some(CapacityRequestPolicy { valid_values: Some(values), .. }) => {
            let enough = values.iter().map(quantity).find(|value| requested <= value);
            enough.unwrap_or_else(|| requested.clone())
        }
        _ => requested.clone(),
    }
}

fn rounded_up(requested: &Quantity, range: &CapacityRequestPolicyRange) -> Quantity {
    let min = quantity(&range.min);
    if *requested < min {
        return min;
    }
    let Some(step) = range.step.as_ref().map(|step| quantity(step).value()).filter(|step| *step > 0) else {
        return requested.clone();
    };
    let (min, beyond) = (min.value(), requested.value() - min.value());
    let steps = beyond / step + i64::from(beyond % step != 0);
    Quantity::new(min.saturating_add(step.saturating_mul(steps)), Format::BinarySI)
}

fn allowed(amount: &Quantity, policy: Option<&CapacityRequestPolicy>) -> bool {
    let Some(policy) = policy else { return true };
    if policy.default.as_ref().is_some_and(|default| quantity(default) == *amount) {
        return true;
    }
    if let Some(range) = &policy.valid_range {
        let step = range.step.as_ref().map_or(0, |step| quantity(step).value());
        return range.max.as_ref().is_none_or(|max| *amount <= quantity(max))
            && (step == 0 || (amount.value() - quantity(&range.min).value()) % step == 0);
    }
    policy
        .valid_values
        .as_deref()
        .is_none_or(|values| values.is_empty() || values.iter().any(|value| quantity(value) == *amount))
}
