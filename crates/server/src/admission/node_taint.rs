//! TaintNodesByCondition: a new node is not ready, until somebody says otherwise.

use capstan_api::Status;

use super::{
    Operation, Plugin, Request,
    common::{NODES, each, is_about, map, push},
};
use crate::registry::paths;

const NOT_READY: &str = "node.kubernetes.io/not-ready";
const NO_SCHEDULE: &str = "NoSchedule";

/// The plugin.
#[derive(Debug, Default)]
pub struct TaintNodesByCondition;

impl Plugin for TaintNodesByCondition {
    fn name(&self) -> &'static str {
        "TaintNodesByCondition"
    }

    fn admit(&self, request: &mut Request<'_>) -> Result<(), Status> {
        if !is_about(request, &NODES) || request.operation != Operation::Create {
            return Ok(());
        }
        if let Some(node) = request.object.as_deref_mut() {
            let is_tainted = each(node, "spec.taints")
                .any(|taint| paths::text(taint, "key") == NOT_READY && paths::text(taint, "effect") == NO_SCHEDULE);
            if !is_tainted {
                push(node, "spec.taints", map([("effect", NO_SCHEDULE.into()), ("key", NOT_READY.into())]));
            }
        }
        Ok(())
    }
}
