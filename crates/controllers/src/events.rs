//! What loops tell of by Events.

use capstan_api::{Resource, object::Object};

use crate::ControllerContext;

/// Tells of what happened to objects.
#[derive(Clone, Debug)]
pub(crate) struct Events;

impl Events {
    /// Tells of them under the name of a component.
    pub(crate) fn new(_context: &ControllerContext, _component: &str) -> Self {
        Events
    }

    /// Something went as it should.
    pub(crate) fn normal<K: Resource + Object>(&self, _about: &K, _reason: &str, _message: String) {}

    /// Something went wrong.
    pub(crate) fn warning<K: Resource + Object>(&self, _about: &K, _reason: &str, _message: String) {}
}
