//! AlwaysPullImages, off by default: images are pulled anew, so that nobody uses one without its credentials.

use std::collections::BTreeSet;

use capstan_api::{Map, Status, field};

use super::{
    Operation, Plugin, Request,
    common::{CONTAINERS, PODS, each, each_mut, forbidden, is_about, is_set, is_write, object, old_object},
};
use crate::{authorization::aggregate, registry::paths};

const ALWAYS: &str = "Always";

/// The plugin.
#[derive(Debug, Default)]
pub struct AlwaysPullImages;

impl Plugin for AlwaysPullImages {
    fn name(&self) -> &'static str {
        "AlwaysPullImages"
    }

    fn admit(&self, request: &mut Request<'_>) -> Result<(), Status> {
        if ignores(request) {
            return Ok(());
        }
        if let Some(pod) = request.object.as_deref_mut() {
            for list in CONTAINERS {
                each_mut(pod, list).for_each(|container| paths::set(container, "imagePullPolicy", ALWAYS));
            }
            for volume in each_mut(pod, "spec.volumes").filter(|volume| is_set(volume, "image")) {
                paths::set(volume, "image.pullPolicy", ALWAYS);
            }
        }
        Ok(())
    }

    fn validate(&self, request: &mut Request<'_>) -> Result<(), Status> {
        if ignores(request) {
            return Ok(());
        }
        let pod = object(request);
        let mut errors = Vec::new();
        let mut check = |path: String, policy: &str| {
            if policy != ALWAYS {
                errors.push(forbidden(request, field::Error::not_supported(path, policy, &[ALWAYS])).message);
            }
        };
        for list in CONTAINERS {
            for (index, container) in each(pod, list).enumerate() {
                check(format!("{list}[{index}].imagePullPolicy"), paths::text(container, "imagePullPolicy"));
            }
        }
        for (index, volume) in each(pod, "spec.volumes").enumerate().filter(|(_, volume)| is_set(volume, "image")) {
            check(format!("spec.volumes[{index}].image.pullPolicy"), paths::text(volume, "image.pullPolicy"));
        }
        // Several errors as one are no answer in themselves, so upstream's has no reason.
        aggregate(&errors).map_or(Ok(()), |message| Err(Status::unknown(message)))
    }
}

fn ignores(request: &Request<'_>) -> bool {
    if !is_about(request, &PODS) || !is_write(request) {
        return true;
    }
    let images = |pod| -> BTreeSet<&str> { containers(pod).map(|container| paths::text(container, "image")).collect() };
    request.operation == Operation::Update && images(object(request)).is_subset(&images(old_object(request)))
}

fn containers(pod: &Map) -> impl Iterator<Item = &Map> {
    CONTAINERS.into_iter().flat_map(|list| each(pod, list))
}
