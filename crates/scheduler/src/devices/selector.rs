//! Expressions that say which devices will do.

use std::{
    collections::HashMap,
    sync::{Arc, Mutex, PoisonError},
};

use capstan_cel::{Program, Val, device};
use k8s_openapi::api::resource::v1::{Device, DeviceAttribute};

use super::quantity;

/// How many expressions are remembered.
const MAX_PROGRAMS: usize = 64;

type Read = Arc<Result<Program, String>>;

/// Expressions that were read before.
#[derive(Debug, Default)]
pub(crate) struct Programs(Mutex<HashMap<String, Read>>);

/// Why an expression says neither yes nor no.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum SelectorError {
    /// It is not one.
    Compile(String),
    /// It does not work out for the device.
    Run(String),
}

fn read(expression: &str) -> Result<Program, String> {
    let checked = device::compile(expression)?;
    Program::new(&checked).map_err(|error| format!("program instantiation failed: {error}"))
}

impl Programs {
    fn get(&self, expression: &str) -> Read {
        let mut known = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(read) = known.get(expression) {
            return Arc::clone(read);
        }
        if known.len() >= MAX_PROGRAMS {
            known.clear();
        }
        let read = Arc::new(read(expression));
        known.insert(expression.to_owned(), Arc::clone(&read));
        read
    }

    /// Whether a device of a driver will do.
    pub(super) fn matches(&self, expression: &str, driver: &str, device: &Device) -> Result<bool, SelectorError> {
        let program = self.get(expression);
        let program = program.as_ref().as_ref().map_err(|error| SelectorError::Compile(error.clone()))?;
        let value = value(driver, device).map_err(SelectorError::Run)?;
        match program.eval(&[("device", Ok(value))], device::MAX_COST).result {
            Ok(Val::Bool(answer)) => Ok(answer),
            Ok(other) => {
                let name = other.type_name();
                Err(SelectorError::Run(format!(
                    "CEL result of type {name} could not be converted to bool: type conversion error from '{name}' to 'bool'"
                )))
            }
            Err(error) => Err(SelectorError::Run(error.to_string())),
        }
    }
}

fn attribute<'a>(attribute: &DeviceAttribute) -> Result<Val<'a>, String> {
    if let Some(number) = attribute.int {
        return Ok(Val::Int(number));
    }
    if let Some(flag) = attribute.bool {
        return Ok(Val::Bool(flag));
    }
    if let Some(text) = &attribute.string {
        return Ok(Val::text(text.as_str()));
    }
    match &attribute.version {
        Some(version) => Val::semver(version).map_err(|error| format!("parse semantic version: {error}")),
        None => Err("unsupported attribute value".to_owned()),
    }
}

/// Values by domain and name; names without a domain are the driver's. Domains that nobody speaks of are empty.
fn by_domain<'a>(driver: &str, values: impl Iterator<Item = (String, Val<'a>)>) -> Val<'a> {
    let mut domains: HashMap<String, Vec<(Val<'a>, Val<'a>)>> = HashMap::new();
    for (name, value) in values {
        let (domain, name) = name.split_once('/').unwrap_or((driver, &name));
        domains.entry(domain.to_owned()).or_default().push((Val::text(name), value));
    }
    let domains = domains.into_iter().map(|(domain, values)| (Val::text(domain), Val::map(values)));
    Val::map_with_default(domains, Val::map([]))
}

fn value<'a>(driver: &str, device: &Device) -> Result<Val<'a>, String> {
    let mut attributes = Vec::new();
    for (name, value) in device.attributes.iter().flatten() {
        let value = attribute(value).map_err(|error| format!("attribute {name}: {error}"))?;
        attributes.push((name.clone(), value));
    }
    let capacity = device.capacity.iter().flatten();
    let capacity = capacity.map(|(name, value)| (name.clone(), Val::Quantity(quantity(&value.value).into())));
    Ok(Val::map([
        (Val::text("driver"), Val::text(driver)),
        (Val::text("allowMultipleAllocations"), Val::Bool(device.allow_multiple_allocations == Some(true))),
        (Val::text("attributes"), by_domain(driver, attributes.into_iter())),
        (Val::text("capacity"), by_domain(driver, capacity)),
    ]))
}
