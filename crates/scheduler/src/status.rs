//! Why a pod cannot go somewhere, in the words that users see.

use std::{borrow::Cow, collections::BTreeMap, fmt, sync::Arc};

use crate::cache::Slot;

/// What a refusal means for what is tried next.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Code {
    /// Something broke; the pod is tried again.
    Error,
    /// Does not fit now; evicting others may help.
    Unschedulable,
    /// Does not fit, and evicting others would not help.
    UnschedulableAndUnresolvable,
    /// Waits for something that was asked for already.
    Pending,
    /// Not to be looked at yet: it is put aside until something happens, and nobody is told.
    Gated,
}

/// A refusal: what kind, by whom and why.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Status {
    /// What it means.
    pub code: Code,
    /// The plugin that said no; empty when it was not one.
    pub plugin: &'static str,
    /// Why, for people.
    pub reasons: Vec<Cow<'static, str>>,
}

impl Status {
    /// Does not fit now.
    pub fn unschedulable(reason: impl Into<Cow<'static, str>>) -> Self {
        Status { code: Code::Unschedulable, plugin: "", reasons: vec![reason.into()] }
    }

    /// Does not fit, and evicting others would not help.
    pub fn unresolvable(reason: impl Into<Cow<'static, str>>) -> Self {
        Status { code: Code::UnschedulableAndUnresolvable, plugin: "", reasons: vec![reason.into()] }
    }

    /// Something broke.
    pub fn error(reason: impl Into<Cow<'static, str>>) -> Self {
        Status { code: Code::Error, plugin: "", reasons: vec![reason.into()] }
    }

    /// Not to be looked at yet.
    pub fn gated(reason: impl Into<Cow<'static, str>>) -> Self {
        Status { code: Code::Gated, plugin: "", reasons: vec![reason.into()] }
    }

    /// The same, said by a plugin.
    #[must_use]
    pub fn by(mut self, plugin: &'static str) -> Self {
        self.plugin = plugin;
        self
    }

    /// Whether the pod was refused, rather than that something broke.
    #[must_use]
    pub fn is_rejected(&self) -> bool {
        self.code != Code::Error
    }

    /// All reasons in one line.
    #[must_use]
    pub fn message(&self) -> String {
        self.reasons.join(", ")
    }
}

impl fmt::Display for Status {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.message())
    }
}

/// What was found out about a pod that fits nowhere.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Diagnosis {
    /// How many nodes there are.
    pub all_nodes: usize,
    /// What each node that was looked at said.
    pub statuses: Vec<(Slot, Arc<Status>)>,
    /// What holds for the nodes that were not looked at, if something does.
    pub absent: Option<Status>,
    /// Why no node had to be looked at.
    pub pre_filter: String,
    /// What came of trying to make room.
    pub post_filter: String,
    /// Who said no; the pod is tried again when something happens that they wait for.
    pub unschedulable_plugins: Vec<&'static str>,
    /// Who waits for something that it has asked for.
    pub pending_plugins: Vec<&'static str>,
}

impl Diagnosis {
    /// Notes who said no.
    pub(crate) fn blame(&mut self, status: &Status) {
        let list = match status.code {
            Code::Pending => &mut self.pending_plugins,
            _ => &mut self.unschedulable_plugins,
        };
        if !status.plugin.is_empty() && !list.contains(&status.plugin) {
            list.push(status.plugin);
        }
    }

    /// What a node said.
    #[must_use]
    pub fn of(&self, slot: Slot) -> Option<&Status> {
        let found = self.statuses.iter().find(|(at, _)| *at == slot).map(|(_, status)| &**status);
        found.or(self.absent.as_ref())
    }
}

impl fmt::Display for Diagnosis {
    /// The message of the event and of the condition.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "0/{} nodes are available:", self.all_nodes)?;
        if self.pre_filter.is_empty() {
            let mut reasons: BTreeMap<&str, usize> = BTreeMap::new();
            for (_, status) in &self.statuses {
                for reason in &status.reasons {
                    *reasons.entry(reason).or_default() += 1;
                }
            }
            if let Some(status) = &self.absent
                && self.statuses.len() < self.all_nodes
            {
                for reason in &status.reasons {
                    *reasons.entry(reason).or_default() += self.all_nodes - self.statuses.len();
                }
            }
            // Sorted as text with the counts in front, as upstream does: "10 …" comes before "9 …".
            let mut lines: Vec<String> = reasons.iter().map(|(reason, count)| format!("{count} {reason}")).collect();
            lines.sort();
            if !lines.is_empty() {
                write!(f, " {}.", lines.join(", "))?;
            }
        } else {
            write!(f, " {}.", self.pre_filter)?;
        }
        if !self.post_filter.is_empty() {
            write!(f, " {}", self.post_filter)?;
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn words() {
        let cpu = Arc::new(Status::unschedulable("Insufficient cpu"));
        let taint = Arc::new(Status::unresolvable("node(s) had untolerated taint(s)"));
        let mut diagnosis = Diagnosis { all_nodes: 3, ..Diagnosis::default() };
        diagnosis.statuses = vec![(Slot(0), cpu.clone()), (Slot(1), taint), (Slot(2), cpu)];
        assert_eq!(
            diagnosis.to_string(),
            "0/3 nodes are available: 1 node(s) had untolerated taint(s), 2 Insufficient cpu."
        );
        diagnosis.statuses.truncate(1);
        diagnosis.absent = Some(Status::unresolvable("Preemption is not helpful for scheduling"));
        diagnosis.post_filter = "preemption: not eligible due to preemptionPolicy=Never.".to_owned();
        assert_eq!(
            diagnosis.to_string(),
            "0/3 nodes are available: 1 Insufficient cpu, 2 Preemption is not helpful for scheduling. \
             preemption: not eligible due to preemptionPolicy=Never."
        );
        diagnosis.pre_filter = "pod has unbound immediate PersistentVolumeClaims".to_owned();
        diagnosis.post_filter.clear();
        assert_eq!(diagnosis.to_string(), "0/3 nodes are available: pod has unbound immediate PersistentVolumeClaims.");
    }
}
