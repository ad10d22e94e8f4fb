//! What workload loops tell of by Events.

use std::sync::Arc;

use capstan_api::{Resource, object::Object};
use capstan_runtime::{EventRecorder, EventType, ObjectReference};

use crate::ControllerContext;

/// Tells of what happened to objects.
#[derive(Clone, Debug)]
pub(crate) struct Events(EventRecorder);

impl Events {
    /// Tells of them under the name of a component.
    pub(crate) fn new(context: &ControllerContext, component: &str) -> Self {
        let (clock, ids) = (Arc::clone(&context.clock), Arc::clone(&context.ids));
        Events(EventRecorder::new(&context.client, component, clock, ids))
    }

    /// Something went as it should.
    pub(crate) fn normal<K: Resource + Object>(&self, about: &K, reason: &str, message: impl Into<String>) {
        self.0.event(&reference(about), EventType::Normal, reason, message);
    }

    /// Something went wrong.
    pub(crate) fn warning<K: Resource + Object>(&self, about: &K, reason: &str, message: impl Into<String>) {
        self.0.event(&reference(about), EventType::Warning, reason, message);
    }
}

fn reference<K: Resource + Object>(about: &K) -> ObjectReference {
    let (gvk, of) = (K::gvk(), about.identity());
    ObjectReference {
        resource_version: of.resource_version.to_owned(),
        ..ObjectReference::new(&gvk.group_version().to_string(), &gvk.kind, of.namespace, of.name).with_uid(of.uid)
    }
}
