//! Counting pods that have ended, and the end of the Job.

use super::{Indexed, Sync, Told, condition, find, index_of, uid};
use crate::{
    job::{indexes::Indexes, policy},
    pod::Pod,
    pods::{count, nonzero, phase},
};

/// How many uids a status has at most.
const MAX_UNCOUNTED_PODS: usize = 500;

impl<'a> Sync<'a> {
    /// Turns uids whose pods have lost their finalizers into numbers.
    fn clean_uncounted(&mut self) {
        let with_finalizer = &self.with_finalizer;
        let Some(uncounted) = &mut self.status.uncounted_terminated_pods else { return };
        let mut clean = |list: &mut Option<Vec<String>>, number: &mut Option<i32>| {
            let uids = list.take().unwrap_or_default();
            let before = uids.len();
            let kept: Vec<String> = uids.into_iter().filter(|uid| with_finalizer.contains(uid)).collect();
            let counted = count(before - kept.len());
            if counted > 0 {
                *number = nonzero(number.unwrap_or_default() + counted);
                self.flush = true;
            }
            *list = Some(kept).filter(|kept| !kept.is_empty());
        };
        clean(&mut uncounted.succeeded, &mut self.status.succeeded);
        clean(&mut uncounted.failed, &mut self.status.failed);
    }

    fn may_lose_finalizer(&self, pod: &Pod, failed: bool) -> bool {
        if self.job.metadata.deletion_timestamp.is_some() || self.finished.is_some() || phase(pod) == "Succeeded" {
            return true;
        }
        let waits = self.indexed.as_ref().is_some_and(|indexed| {
            index_of(pod).and_then(|index| indexed.waiting.get(&index)).is_some_and(|waiting| uid(waiting) == uid(pod))
        });
        failed && !waits
    }

    /// Notes the pods that have ended in the status. Gives those that lose their finalizer once that is written;
    /// [`Sync::flush`] says whether it must be.
    pub(in crate::job) fn track(&mut self) -> Vec<&'a Pod> {
        self.clean_uncounted();
        let (mut free, mut new_indexes) = (Vec::new(), Vec::new());
        let mut pods = self.pods.clone();
        if self.is_indexed() {
            pods.sort_by_key(|pod| index_of(pod));
        }
        let fails_all = self.finished.as_ref().is_some_and(|finished| finished.type_ != "SuccessCriteriaMet");
        for pod in pods {
            let failed = self.is_failed(pod);
            if !self.with_finalizer.contains(uid(pod)) || !self.may_lose_finalizer(pod, failed) {
                continue;
            }
            free.push(pod);
            let index = self.valid_index(pod);
            let is_uncounted = (self.is_uncounted(pod, false), self.is_uncounted(pod, true));
            let known = |indexed: &Indexed<'_>, index: i32| indexed.before.contains(index);
            let uncounted = self.status.uncounted_terminated_pods.get_or_insert_default();
            if phase(pod) == "Succeeded" && !is_uncounted.1 {
                match (&self.indexed, index) {
                    (None, _) if !is_uncounted.0 => {
                        uncounted.succeeded.get_or_insert_default().push(uid(pod).to_owned());
                        self.flush = true;
                    }
                    (Some(indexed), Some(index)) if !known(indexed, index) => {
                        new_indexes.push(index);
                        self.flush = true;
                    }
                    _ => {}
                }
            } else if (failed || fails_all)
                && !is_uncounted.1
                && (self.indexed.is_none() || index.is_some())
                && policy::failure(self.spec.pod_failure_policy.as_ref(), pod).counts()
            {
                uncounted.failed.get_or_insert_default().push(uid(pod).to_owned());
                self.flush = true;
            }
            if new_indexes.len() + self.uncounted(false).len() + self.uncounted(true).len() >= MAX_UNCOUNTED_PODS {
                self.too_many = true;
                break;
            }
        }
        self.note_indexes(new_indexes);
        self.note_verdict();
        free
    }

    fn note_indexes(&mut self, new: Vec<i32>) {
        let Some(indexed) = &mut self.indexed else { return };
        indexed.succeeded = indexed.succeeded.with(new);
        let completed = nonzero(indexed.succeeded.to_string());
        let failed = indexed.failed.as_ref().map(Indexes::to_string);
        self.flush |= completed != self.status.completed_indexes || failed != self.status.failed_indexes;
        self.status.succeeded = nonzero(indexed.succeeded.total());
        (self.status.completed_indexes, self.status.failed_indexes) = (completed, failed);
    }

    /// The verdict is written before the pods are gone, the end only after.
    fn note_verdict(&mut self) {
        let Some(finished) = self.finished.clone() else { return };
        let end = match finished.type_.as_str() {
            "FailureTarget" => "Failed",
            "SuccessCriteriaMet" => "Complete",
            _ => return,
        };
        if find(&self.status, &finished.type_).is_none() {
            self.status.conditions.get_or_insert_default().push(finished.clone());
            self.flush = true;
        }
        let (reason, message) = (finished.reason.unwrap_or_default(), finished.message.unwrap_or_default());
        self.finished = Some(condition(end, "True", &reason, &message, self.now));
    }

    /// Whether the status must be written now. Asked once, it begins anew.
    pub(in crate::job) fn flush(&mut self) -> bool {
        std::mem::take(&mut self.flush)
    }

    /// These pods have lost their finalizers.
    pub(in crate::job) fn counted<'p>(&mut self, pods: impl IntoIterator<Item = &'p Pod>) {
        for pod in pods {
            self.with_finalizer.remove(uid(pod));
        }
        self.clean_uncounted();
    }

    /// Ends the Job, if all its pods are counted and gone.
    pub(in crate::job) fn finish(&mut self) {
        let open = !self.uncounted(false).is_empty() || !self.uncounted(true).is_empty() || self.counts.2 > 0;
        let Some(finished) = self.finished.clone().filter(|_| !self.too_many && !open) else { return };
        self.flush = true;
        let (reason, message) = (finished.reason.clone(), finished.message.clone());
        if finished.type_ == "Complete" {
            self.status.completion_time = finished.last_transition_time.clone();
            let too_many =
                self.spec.completions.is_some_and(|wanted| self.status.succeeded.unwrap_or_default() > wanted);
            if too_many {
                let message = "Too many succeeded pods running after completion count reached".to_owned();
                self.tell.push(Told { warning: true, reason: "TooManySucceededPods".to_owned(), message });
            }
            let message = "Job completed".to_owned();
            self.tell.push(Told { warning: false, reason: "Completed".to_owned(), message });
        } else {
            let (reason, message) = (reason.unwrap_or_default(), message.unwrap_or_default());
            self.tell.push(Told { warning: true, reason, message });
        }
        self.status.conditions.get_or_insert_default().push(finished);
    }
}
