//! What a client is told whose configuration is in conflict with what others own.

use super::updater::Conflict;
use crate::{
    Status,
    status::{StatusCause, cause},
};

/// The answer to conflicts that are sorted by owner.
pub(super) fn status(conflicts: &[Conflict]) -> Status {
    let shown = |conflict: &Conflict| conflict.path.iter().map(ToString::to_string).collect::<String>();
    let causes = conflicts.iter().map(|conflict| StatusCause {
        reason: cause::FIELD_MANAGER_CONFLICT.as_str().into(),
        message: format!("conflict with {}", conflict.owner.shown()),
        field: shown(conflict),
    });
    let message = match conflicts {
        [one] => format!("Apply failed with 1 conflict: conflict with {}: {}", one.owner.shown(), shown(one)),
        _ => {
            let mut lines = Vec::new();
            for group in conflicts.chunk_by(|a, b| a.owner.is_same(&b.owner)) {
                lines.extend(group.first().map(|conflict| format!("conflicts with {}:", conflict.owner.shown())));
                lines.extend(group.iter().map(|conflict| format!("- {}", shown(conflict))));
            }
            format!("Apply failed with {} conflicts: {}", conflicts.len(), lines.join("\n"))
        }
    };
    Status::apply_conflict(causes.collect(), message)
}
