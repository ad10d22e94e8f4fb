//! Events of the control loops.

use std::sync::Arc;

use capstan_runtime::{EventRecorder, EventType, record::Referent};

use crate::ControllerContext;

/// Records what a loop did, or could not do, beside the object that it concerns.
#[derive(Clone, Debug)]
pub(crate) struct Recorder(EventRecorder);

impl Recorder {
    /// Under the name that upstream's loop has.
    pub(crate) fn new(context: &ControllerContext, component: &str) -> Self {
        let (clock, ids) = (Arc::clone(&context.clock), Arc::clone(&context.ids));
        Recorder(EventRecorder::new(&context.client, component, clock, ids))
    }

    /// Something went as it should.
    pub(crate) fn normal(&self, object: &impl Referent, reason: &str, message: impl Into<String>) {
        self.0.event(object, EventType::Normal, reason, message);
    }

    /// Something did not.
    pub(crate) fn warning(&self, object: &impl Referent, reason: &str, message: impl Into<String>) {
        self.0.event(object, EventType::Warning, reason, message);
    }
}
