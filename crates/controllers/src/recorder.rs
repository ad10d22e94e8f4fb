//! Events of the control loops.

use capstan_runtime::{EventRecorder, EventType, record::Referent};

use crate::ControllerContext;

/// Records what a loop did, or could not do, beside the object that it concerns.
#[derive(Clone, Debug)]
pub(crate) struct Recorder(EventRecorder);

impl Recorder {
    /// Under the name that upstream's loop has.
    pub(crate) fn new(context: &ControllerContext, component: &str) -> Self {
        Recorder(context.recorder(component))
    }

    /// Either.
    pub(crate) fn tell(&self, warning: bool, object: &impl Referent, reason: &str, message: impl Into<String>) {
        self.0.event(object, if warning { EventType::Warning } else { EventType::Normal }, reason, message);
    }

    /// Something went as it should.
    pub(crate) fn normal(&self, object: &impl Referent, reason: &str, message: impl Into<String>) {
        self.tell(false, object, reason, message);
    }

    /// Something did not.
    pub(crate) fn warning(&self, object: &impl Referent, reason: &str, message: impl Into<String>) {
        self.tell(true, object, reason, message);
    }
}
