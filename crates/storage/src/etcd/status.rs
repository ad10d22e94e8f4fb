//! What etcd's errors, and those on the way to it, mean.

use std::error::Error;

use tonic::{Code, ConnectError, Status};

use crate::{Fault, FaultKind, ReadError};

/// A call that has no answer.
#[derive(Clone, Debug)]
pub(super) struct Failed {
    pub(super) problem: Problem,
    /// Whether it may have taken effect all the same, now or a little later.
    pub(super) sent: bool,
    /// Whether another member, or the same a little later, may do better.
    pub(super) elsewhere: bool,
}

/// Why.
#[derive(Clone, Debug)]
pub(super) enum Problem {
    /// The revision asked for was compacted.
    Compacted,
    /// The revision asked for has not happened.
    Future,
    /// The lease of a put has ended.
    LeaseGone,
    /// The token is not known to this member, or no longer.
    StaleToken(Fault),
    /// There are no users on this etcd.
    AuthenticationOff,
    /// The request is larger than this etcd accepts.
    RequestTooLarge,
    /// The request has more operations than this etcd accepts.
    TooManyOps,
    /// The answer is larger than anyone wants to receive.
    AnswerTooLarge,
    /// All else.
    Fault(Fault),
}

use FaultKind::{Busy, Corrupt, Denied, Full, NoQuorum, TimedOut, Unreachable};

/// The words with which etcd's messages begin that mean a fault, with: the kind, whether the call may have taken
/// effect, and whether another member may do better. The more special before the more general.
const FAULTS: &[(&str, FaultKind, bool, bool)] = &[
    // Refused before it was looked at, because every call says that it needs a leader.
    ("etcdserver: no leader", NoQuorum, false, true),
    ("etcdserver: leader changed", NoQuorum, true, true),
    ("etcdserver: not leader", NoQuorum, true, true),
    ("etcdserver: unhealthy cluster", NoQuorum, true, true),
    ("etcdserver: request timed out, possibly due to", NoQuorum, true, true),
    ("etcdserver: request timed out", TimedOut, true, true),
    ("etcdserver: server stopped", Unreachable, true, true),
    ("etcdserver: rpc not supported for learner", Unreachable, false, true),
    ("etcdserver: too many requests", Busy, false, false),
    ("etcdserver: mvcc: database space exceeded", Full, false, false),
    ("etcdserver: corrupt cluster", Corrupt, false, false),
    ("etcdserver: permission denied", Denied, false, false),
    ("etcdserver: authentication failed", Denied, false, false),
    ("etcdserver: user name", Denied, false, false),
];

/// What is added to the fault's own advice.
const HINTS: &[(&str, &str)] = &[
    ("etcdserver: mvcc: database space exceeded", "; compact, defragment, then disarm etcd's NOSPACE alarm"),
    ("etcdserver: user name is empty", "; etcd has authentication enabled: give a user"),
];

impl Failed {
    /// A fault of a call that cannot have taken effect.
    pub(super) fn certain(fault: Fault) -> Self {
        Failed { problem: Problem::Fault(fault), sent: false, elsewhere: false }
    }

    /// The bound of the wait has passed.
    pub(super) fn timed_out(endpoint: &str, sent: bool) -> Self {
        let fault = Fault::new(TimedOut, format_args!("{endpoint} did not answer"));
        Failed { problem: Problem::Fault(fault), sent, elsewhere: true }
    }

    /// The answer has more bytes than any that is read.
    pub(super) fn too_large() -> Self {
        Failed { problem: Problem::AnswerTooLarge, sent: false, elsewhere: false }
    }

    /// What a call was answered with, or what happened on the way.
    pub(super) fn from_status(status: &Status, endpoint: &str) -> Self {
        let known = Failed::from_message(status.message(), endpoint);
        known.unwrap_or_else(|| Failed::from_transport(status, endpoint))
    }

    /// What etcd says, in an answer or as the reason for the end of a watch; `None` when these are not words of etcd.
    pub(super) fn from_message(message: &str, endpoint: &str) -> Option<Self> {
        let problem = |problem| Failed { problem, sent: false, elsewhere: false };
        let detail = |kind, hint| Fault::new(kind, format_args!("{endpoint}: {message}{hint}"));
        let begins = |words: &str| message.starts_with(words);
        // The reason for the end of a watch has the code in front.
        if let Some((_, message)) = message.split_once("desc = ") {
            return Failed::from_message(message, endpoint);
        }
        Some(match message {
            "etcdserver: mvcc: required revision has been compacted" => problem(Problem::Compacted),
            "etcdserver: mvcc: required revision is a future revision" => problem(Problem::Future),
            "etcdserver: requested lease not found" => problem(Problem::LeaseGone),
            "etcdserver: authentication is not enabled" => problem(Problem::AuthenticationOff),
            "etcdserver: request is too large" => problem(Problem::RequestTooLarge),
            "etcdserver: too many operations in txn request" => problem(Problem::TooManyOps),
            "etcdserver: invalid auth token" | "etcdserver: revision of auth store is old" => {
                problem(Problem::StaleToken(detail(Denied, "")))
            }
            // These two are of the gRPC library on etcd's side, the third of the one on ours.
            _ if begins("grpc: received message larger than max") => problem(Problem::RequestTooLarge),
            _ if begins("grpc: trying to send message larger than max") => problem(Problem::AnswerTooLarge),
            _ if begins("Error, decoded message length too large") => problem(Problem::AnswerTooLarge),
            _ => {
                let (words, kind, sent, elsewhere) = *FAULTS.iter().find(|(words, ..)| begins(words))?;
                let hint = HINTS.iter().find(|(hinted, _)| hinted.starts_with(words) && begins(hinted));
                let fault = detail(kind, hint.map_or("", |(_, hint)| hint));
                Failed { problem: Problem::Fault(fault), sent, elsewhere }
            }
        })
    }

    fn from_transport(status: &Status, endpoint: &str) -> Self {
        let whole = whole(status);
        // With TLS 1.3 a member refuses our certificate only after it has let us connect, so the place of the error
        // tells nothing, and its type is that of a library two layers down.
        let refused = ["certificate", "fatal alert", "corrupt message"].iter().any(|word| whole.contains(word));
        let kind = match status.code() {
            _ if refused => Denied,
            Code::PermissionDenied | Code::Unauthenticated => Denied,
            Code::DeadlineExceeded => TimedOut,
            Code::DataLoss => Corrupt,
            Code::ResourceExhausted => Busy,
            _ => Unreachable,
        };
        let connecting = causes(status).any(<dyn Error>::is::<ConnectError>);
        let fault = Fault::new(kind, format_args!("{endpoint}: {whole}"));
        Failed { problem: Problem::Fault(fault), sent: !connecting, elsewhere: true }
    }

    /// Whether `other` says more about what is wrong.
    pub(super) fn is_outdone_by(&self, other: &Failed) -> bool {
        let weight = |failed: &Failed| match &failed.problem {
            Problem::Fault(fault) => match fault.kind {
                Unreachable => 0,
                TimedOut => 1,
                NoQuorum => 2,
                _ => 3,
            },
            _ => 4,
        };
        weight(other) >= weight(self)
    }

    /// Whether the same again may succeed a little later.
    pub(super) fn passes(&self) -> bool {
        let fault = if let Problem::Fault(fault) = &self.problem { fault } else { return false };
        self.elsewhere && fault.kind != Denied
    }

    /// As a fault, where nothing more special can be done about it.
    pub(super) fn into_fault(self) -> Fault {
        let odd = |what| Fault::new(Unreachable, format_args!("etcd answers what was not asked: {what}"));
        match self.problem {
            Problem::Fault(fault) | Problem::StaleToken(fault) => fault,
            Problem::Compacted => odd("compacted"),
            Problem::Future => odd("a future revision"),
            Problem::LeaseGone => odd("no such lease"),
            Problem::AuthenticationOff => odd("authentication is not enabled"),
            Problem::RequestTooLarge => odd("the request is too large"),
            Problem::TooManyOps => odd("too many operations"),
            Problem::AnswerTooLarge => Fault::new(Busy, "etcd's answer is too large to receive"),
        }
    }
}

impl From<Failed> for ReadError {
    fn from(failed: Failed) -> Self {
        ReadError::Fault(failed.into_fault())
    }
}

/// An error, its cause, the cause of that and so on.
fn causes<'a>(error: &'a (dyn Error + 'static)) -> impl Iterator<Item = &'a (dyn Error + 'static)> {
    std::iter::successors(Some(error), |&error| error.source())
}

/// The words of an error and of all its causes, each once.
pub(super) fn whole(error: &(dyn Error + 'static)) -> String {
    let mut text = String::new();
    for error in causes(error) {
        // A status prints its metadata too: its message is enough.
        let status = error.downcast_ref::<Status>();
        let words = status.map_or_else(|| error.to_string(), |status| status.message().to_owned());
        if !text.contains(&words) {
            text = if text.is_empty() { words } else { format!("{text}: {words}") };
        }
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_etcd_says_is_understood() {
        // The message, the kind, whether a commit is uncertain, whether another member is tried.
        let cases = [
            ("etcdserver: no leader", NoQuorum, false, true),
            ("etcdserver: leader changed", NoQuorum, true, true),
            ("etcdserver: request timed out", TimedOut, true, true),
            ("etcdserver: request timed out, possibly due to previous leader failure", NoQuorum, true, true),
            ("etcdserver: request timed out, waiting for the applied index took too long", TimedOut, true, true),
            ("etcdserver: too many requests", Busy, false, false),
            ("etcdserver: mvcc: database space exceeded", Full, false, false),
            ("etcdserver: permission denied", Denied, false, false),
            ("etcdserver: user name is empty", Denied, false, false),
            ("rpc error: code = PermissionDenied desc = etcdserver: permission denied", Denied, false, false),
            ("something new", Unreachable, true, true),
        ];
        for (message, kind, sent, elsewhere) in cases {
            let failed = Failed::from_status(&Status::unknown(message), "http://etcd");
            assert_eq!((failed.sent, failed.elsewhere), (sent, elsewhere), "{message}");
            let fault = failed.into_fault();
            assert_eq!(fault.kind, kind, "{message}");
            assert!(fault.detail.starts_with("http://etcd: "), "{fault}");
        }
        let full = Failed::from_message("etcdserver: mvcc: database space exceeded", "http://etcd").expect("known");
        assert!(full.into_fault().to_string().contains("disarm"));
    }

    #[test]
    fn a_connection_that_was_not_made_sent_nothing() {
        let refused = std::io::Error::from(std::io::ErrorKind::ConnectionRefused);
        let failed = Failed::from_status(&Status::from_error(Box::new(ConnectError(refused.into()))), "http://etcd");
        assert!(!failed.sent && failed.elsewhere);
        assert_eq!(failed.into_fault().kind, Unreachable);
        let reset = std::io::Error::from(std::io::ErrorKind::ConnectionReset);
        let failed = Failed::from_status(&Status::from_error(reset.into()), "http://etcd");
        assert!(failed.sent && failed.elsewhere);
    }
}
