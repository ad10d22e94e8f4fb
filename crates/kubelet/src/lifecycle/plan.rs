//! What a pod needs next: volumes, a sandbox, init containers in their order, the others, probes; or its end, in order.

use std::time::Duration;

use capstan_clock::Timestamp;

use super::{
    Action, Cause, Lifecycle, MINIMUM_GRACE, ProbeKind, Role, Sandbox, Slot, State, Termination, Volumes, phase, plus,
    should_restart, since,
};

impl Lifecycle {
    /// What is to be done now. Each action is given once: what is under way is not asked for again.
    pub fn next(&mut self, now: Timestamp) -> Vec<Action> {
        let mut actions = Vec::new();
        self.notice_the_end(now);
        if self.termination.is_some() {
            self.plan_the_end(now, &mut actions);
        } else if self.ground_is_laid(now, &mut actions) && !self.plan_restart_of_all(now, &mut actions) {
            self.plan_containers(now, &mut actions);
            self.plan_resizes(now, &mut actions);
        }
        self.plan_probes(now, &mut actions);
        actions
    }

    /// When to call [`next`](Lifecycle::next) although nothing has happened.
    #[must_use]
    pub fn deadline(&self) -> Option<Timestamp> {
        if self.finished() {
            return None;
        }
        let mut times: Vec<Timestamp> = self.retry_at.into_iter().collect();
        for slot in &self.slots {
            times.extend(slot.retry_at);
            if matches!(slot.state, State::Running { hooked: true, .. }) {
                let asking = slot.probers.iter().filter(|prober| prober.asks(slot.startup_passed()));
                times.extend(asking.map(|prober| prober.due));
            }
        }
        if self.termination.is_none() {
            times.extend(self.active_deadline());
        }
        times.into_iter().min()
    }

    fn active_deadline(&self) -> Option<Timestamp> {
        let seconds = self.pod.spec.as_ref()?.active_deadline_seconds?;
        Some(plus(self.started_at, Duration::from_secs(u64::try_from(seconds).unwrap_or(0))))
    }

    fn notice_the_end(&mut self, now: Timestamp) {
        if self.pod.metadata.deletion_timestamp.is_some() {
            let deadline = plus(now, self.grace());
            match &mut self.termination {
                // A second deletion may shorten the time that is left, never lengthen it.
                Some(termination) if termination.cause == Cause::Deleted => {
                    termination.deadline = termination.deadline.min(deadline);
                }
                Some(termination) => {
                    if matches!(termination.cause, Cause::Completed) {
                        termination.deadline = termination.deadline.min(deadline);
                    }
                }
                None => self.termination = Some(Termination { cause: Cause::Deleted, deadline, stopped: false }),
            }
        }
        if self.termination.is_none() && self.active_deadline().is_some_and(|deadline| deadline <= now) {
            let message = "Pod was active on the node longer than the specified deadline";
            self.fail("DeadlineExceeded", message, None, now);
        }
        if self.termination.is_none() && self.is_done() {
            let deadline = plus(now, self.grace());
            self.termination = Some(Termination { cause: Cause::Completed, deadline, stopped: false });
        }
    }

    /// Whether nothing that the pod is for will run again.
    fn is_done(&self) -> bool {
        let Some(spec) = self.pod.spec.as_ref() else { return true };
        let over =
            |slot: &Slot| slot.exited().is_some_and(|end| !should_restart(&slot.spec, spec, slot.role, end.exit_code));
        let init_failed = !self.initialized
            && self.slots.iter().any(|slot| slot.role == Role::Init && over(slot) && !slot.is_ready());
        let mut regular = self.slots.iter().filter(|slot| slot.role == Role::Regular).peekable();
        init_failed || (regular.peek().is_some() && regular.all(over))
    }

    /// Volumes and sandbox; true when both are there.
    fn ground_is_laid(&mut self, now: Timestamp, actions: &mut Vec<Action>) -> bool {
        if self.volumes == Volumes::Ready && self.sandbox == Sandbox::Ready {
            self.retry_at = None;
            return true;
        }
        if self.retry_at.is_some_and(|at| at > now) {
            return false;
        }
        match (self.volumes, self.sandbox) {
            (Volumes::Missing, _) => {
                self.volumes = Volumes::Preparing;
                self.retry_at = None;
                actions.push(Action::Prepare);
            }
            (Volumes::Ready, Sandbox::None) => {
                self.sandbox = Sandbox::Creating;
                self.retry_at = None;
                actions.push(Action::CreateSandbox);
            }
            _ => {}
        }
        false
    }

    fn plan_containers(&mut self, now: Timestamp, actions: &mut Vec<Action>) {
        let mut may_go_on = true;
        for index in 0..self.slots.len() {
            self.plan_kills(index, now, actions);
            let slot = &self.slots[index];
            match slot.role {
                Role::Init if self.initialized || slot.is_ready() => {}
                Role::Init => {
                    if may_go_on {
                        self.plan_start(index, now, actions);
                    }
                    may_go_on = false;
                }
                Role::Sidecar => {
                    if may_go_on {
                        self.plan_start(index, now, actions);
                        may_go_on = self.initialized || self.slots[index].is_up();
                    }
                }
                Role::Regular if may_go_on => self.plan_start(index, now, actions),
                Role::Regular => {}
                Role::Ephemeral => self.plan_start(index, now, actions),
            }
        }
    }

    /// Starts a container that is to run and doesn't, unless it has to wait.
    fn plan_start(&mut self, index: usize, now: Timestamp, actions: &mut Vec<Action>) {
        let Some(spec) = self.pod.spec.as_ref() else { return };
        let pod = format!(
            "{}_{}({})",
            self.pod.metadata.name.as_deref().unwrap_or_default(),
            self.pod.metadata.namespace.as_deref().unwrap_or_default(),
            self.pod.metadata.uid.as_deref().unwrap_or_default()
        );
        let busy = self.slots.iter().any(Slot::is_coming_up);
        let slot = &mut self.slots[index];
        let name = slot.spec.name.clone();
        match &slot.state {
            State::Running { .. } | State::Starting => return,
            State::Exited(end) if !should_restart(&slot.spec, spec, slot.role, end.exit_code) => return,
            _ => {}
        }
        if slot.retry_at.is_some_and(|at| at > now) {
            return;
        }
        if busy {
            // One after the other: it is its turn when that one is up, or can't be.
            slot.retry_at = None;
            return;
        }
        if let Some(message) = slot.pull_backoff(now) {
            actions.push(event(index, "BackOff", message));
        }
        if slot.retry_at.is_some_and(|at| at > now) {
            return;
        }
        if slot.exited().is_some() {
            let ended = slot.ended_at().unwrap_or(now);
            if let Some((until, delay)) = slot.crash.until(ended).filter(|(until, _)| *until > now) {
                let delay = go_duration(delay);
                let text = format!("back-off {delay} restarting failed container={name} pod={pod}");
                slot.waiting = Some(("CrashLoopBackOff", text));
                slot.retry_at = Some(until);
                let message = format!("Back-off restarting failed container {name} in pod {pod}");
                actions.push(event(index, "BackOff", message));
                return;
            }
            slot.crash.next(ended, now);
            slot.restarts += 1;
            if let State::Exited(end) = std::mem::replace(&mut slot.state, State::Starting) {
                slot.last = Some(end);
            }
        }
        slot.retry_at = None;
        slot.state = State::Starting;
        actions.push(Action::Start { container: index, attempt: u32::try_from(slot.restarts).unwrap_or(0) });
    }

    /// Ends a container that runs and should not go on as it is.
    fn plan_kills(&mut self, index: usize, now: Timestamp, actions: &mut Vec<Action>) {
        let pod_grace = self.grace();
        let Some(spec) = self.pod.spec.as_ref() else { return };
        let slot = &mut self.slots[index];
        let restarts = slot.resize_restarts();
        let State::Running { id, killed, .. } = &mut slot.state else { return };
        if killed.is_some() {
            return;
        }
        let name = &slot.spec.name;
        let failed = |kind| slot.probers.iter().any(|p| p.kind == kind && p.result == Some(false));
        let (why, probe) = if failed(ProbeKind::Liveness) {
            (format!("Container {name} failed liveness probe"), slot.spec.liveness_probe.as_ref())
        } else if failed(ProbeKind::Startup) {
            (format!("Container {name} failed startup probe"), slot.spec.startup_probe.as_ref())
        } else if slot.role != Role::Ephemeral && slot.spec.image.as_deref().unwrap_or_default() != slot.image {
            (format!("Container {name} definition changed"), None)
        } else if restarts {
            (format!("Container {name} resize requires restart"), None)
        } else if slot.hook_failed {
            ("FailedPostStartHook".to_owned(), None)
        } else {
            return;
        };
        let why = if slot.role == Role::Init || slot.role == Role::Sidecar {
            why.replacen("Container", "Init container", 1)
        } else {
            why
        };
        // What the probe ends counts as a failure: 137 stands for whatever it will be.
        let again = should_restart(&slot.spec, spec, slot.role, 137);
        let message = if again && !slot.hook_failed && !restarts { format!("{why}, will be restarted") } else { why };
        let grace = probe
            .and_then(|probe| probe.termination_grace_period_seconds)
            .map_or(pod_grace, |seconds| Duration::from_secs(u64::try_from(seconds).unwrap_or(0)));
        *killed = Some(plus(now, grace));
        let id = id.clone();
        actions.push(Action::Event { container: Some(index), warning: false, reason: "Killing", message });
        actions.push(Action::Kill { container: index, id, grace });
    }

    /// All but sidecars at once, then sidecars from the last to the first, then the sandbox.
    fn plan_the_end(&mut self, now: Timestamp, actions: &mut Vec<Action>) {
        let Some(termination) = self.termination.clone() else { return };
        let mut alive = false;
        for index in 0..self.slots.len() {
            if self.slots[index].role != Role::Sidecar {
                alive |= self.end(index, &termination, now, actions);
            }
        }
        for index in (0..self.slots.len()).rev() {
            if !alive && self.slots[index].role == Role::Sidecar {
                alive |= self.end(index, &termination, now, actions);
            }
        }
        if alive || self.volumes == Volumes::Preparing {
            return;
        }
        match self.sandbox {
            Sandbox::Ready => {
                self.sandbox = Sandbox::Stopping;
                actions.push(Action::StopSandbox);
            }
            Sandbox::None | Sandbox::Stopped => {
                if let Some(termination) = &mut self.termination {
                    termination.stopped = true;
                }
            }
            Sandbox::Creating | Sandbox::Stopping => {}
        }
    }

    /// Asks a container to end; false when it has.
    fn end(&mut self, index: usize, termination: &Termination, now: Timestamp, actions: &mut Vec<Action>) -> bool {
        // Who is to go at once goes at once; anybody else gets the minimum, however late it is.
        let minimum = if self.grace().is_zero() { Duration::ZERO } else { MINIMUM_GRACE };
        let slot = &mut self.slots[index];
        slot.retry_at = None;
        let name = &slot.spec.name;
        match &mut slot.state {
            // It ends once it has started; the others need not wait for it.
            State::Starting => true,
            State::Running { id, killed, .. } => {
                let grace = since(termination.deadline, now).max(minimum);
                let until = plus(now, grace);
                if killed.is_none() {
                    let message = format!("Stopping container {name}");
                    actions.push(Action::Event { container: Some(index), warning: false, reason: "Killing", message });
                }
                // The same deadline again is not news; a nearer one is.
                if killed.is_none_or(|killed| until < killed && termination.deadline < killed) {
                    *killed = Some(until);
                    actions.push(Action::Kill { container: index, id: id.clone(), grace });
                }
                true
            }
            State::Waiting | State::Exited(_) => false,
        }
    }

    fn plan_probes(&mut self, now: Timestamp, actions: &mut Vec<Action>) {
        let ending = self.termination.is_some();
        for (index, slot) in self.slots.iter_mut().enumerate() {
            let started = slot.startup_passed();
            let State::Running { id, killed, hooked: true, .. } = &slot.state else { continue };
            for prober in &mut slot.probers {
                let kind = prober.kind;
                let quiet = (ending || killed.is_some()) && kind != ProbeKind::Readiness;
                if quiet || prober.due > now || !prober.asks(started) {
                    continue;
                }
                if let Some(probe) = kind.of(&slot.spec) {
                    prober.ask(probe, now);
                    actions.push(Action::Probe { container: index, id: id.clone(), kind });
                }
            }
        }
    }

    /// The phase as it is now.
    pub(super) fn phase(&self) -> &'static str {
        let Some(spec) = self.pod.spec.as_ref() else { return "Pending" };
        let computed = phase::phase(&self.slots, spec, self.finished(), self.initialized);
        match &self.termination {
            Some(Termination { cause: Cause::Failed { .. }, .. }) => "Failed",
            Some(Termination { stopped: true, .. }) if !matches!(computed, "Succeeded" | "Failed") => "Failed",
            _ => computed,
        }
    }
}

fn event(container: usize, reason: &'static str, message: String) -> Action {
    Action::Event { container: Some(container), warning: true, reason, message }
}

/// A duration as Go writes it: `1m20s`.
fn go_duration(duration: Duration) -> capstan_api::Duration {
    capstan_api::Duration(i64::try_from(duration.as_nanos()).unwrap_or(i64::MAX))
}
