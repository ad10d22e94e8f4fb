//! The gRPC client: which member to ask, until when, as whom, and when to ask again.
//!
//! Retried is what cannot have happened: a connection that was not made, a member without a leader. What may have
//! happened is retried only if it changes nothing. Whoever fails is left for the next member, and calls stay with a
//! member that answers.

use std::{
    future::Future,
    sync::{
        Arc, Mutex,
        atomic::{AtomicUsize, Ordering},
    },
    time::Duration,
};

use capstan_clock::{Moment, SharedClock};
use tokio::sync::mpsc;
use tokio_stream::wrappers::ReceiverStream;
use tonic::{
    Request, Status, Streaming,
    client::Grpc,
    metadata::{Ascii, MetadataValue},
    transport::Channel,
};
use tonic_prost::ProstCodec;

use super::{
    config::{EtcdConfig, EtcdUser, Windows},
    status::{Failed, Problem},
    wire::{
        AuthenticateRequest, Call, MAX_ANSWER_BYTES, WATCH_PATH, WatchAsk, WatchCreateRequest, WatchProgressRequest,
        WatchRequest, WatchResponse,
    },
};
use crate::{Fault, FaultKind, limits::MAX_WATCHES};

/// The windows of the connection for calls: large answers at full speed.
const CALL_WINDOWS: Windows = Windows { connection: 64 << 20, stream: 8 << 20 };

/// The windows of a connection for watches: what readers leave unread adds up, and must not stop the other streams.
const WATCH_WINDOWS: Windows = Windows { connection: (1 << 31) - 1, stream: 64 << 10 };

/// How many connections to a member the watches share.
const WATCH_CONNECTIONS: usize = 4;

const _: () = assert!(
    WATCH_CONNECTIONS * (WATCH_WINDOWS.connection / WATCH_WINDOWS.stream) as usize > MAX_WATCHES,
    "watches that nobody reads do not stop each other"
);

/// How many requests wait to be sent on a watch: the creation, and a request for progress.
const WATCH_REQUESTS: usize = 4;

/// The first pause before all members are tried again; it doubles up to the last.
const FIRST_PAUSE: Duration = Duration::from_millis(20);
const LAST_PAUSE: Duration = Duration::from_millis(500);

type Token = MetadataValue<Ascii>;

pub(super) struct Client {
    members: Vec<Member>,
    /// The member that is asked first, counted on without end.
    preferred: AtomicUsize,
    watches: AtomicUsize,
    user: Option<EtcdUser>,
    token: Mutex<Option<Token>>,
    /// Held while a new token is fetched, so that many calls fetch one.
    login: tokio::sync::Mutex<()>,
    pub(super) clock: SharedClock,
    request_timeout: Duration,
    retry_for: Duration,
}

struct Member {
    endpoint: String,
    calls: Channel,
    watches: Vec<Channel>,
}

/// A watch that etcd has created.
pub(super) struct Stream {
    pub(super) endpoint: String,
    requests: mpsc::Sender<WatchRequest>,
    responses: Streaming<WatchResponse>,
}

impl Stream {
    /// The next message. May be cancelled without loss.
    pub(super) async fn next(&mut self) -> Result<WatchResponse, Failed> {
        match self.responses.message().await {
            Ok(Some(message)) => Ok(message),
            Ok(None) => Err(Failed::from_status(&Status::unavailable("the stream ended"), &self.endpoint)),
            Err(status) => Err(Failed::from_status(&status, &self.endpoint)),
        }
    }

    /// Asks for progress; one request that waits to be sent is enough.
    pub(super) fn request_progress(&self) {
        let _ = self.requests.try_send(WatchRequest { ask: Some(WatchAsk::Progress(WatchProgressRequest {})) });
    }
}

impl Client {
    /// A client that has not connected yet.
    pub(super) fn new(config: EtcdConfig, clock: SharedClock) -> Result<Self, Fault> {
        if config.endpoints.is_empty() {
            return Err(Fault::new(FaultKind::Unreachable, "no endpoint is given"));
        }
        let member = |endpoint: &String| {
            let calls = config.endpoint(endpoint, &CALL_WINDOWS)?.connect_lazy();
            let watches = config.endpoint(endpoint, &WATCH_WINDOWS)?;
            let watches = (0..WATCH_CONNECTIONS).map(|_| watches.connect_lazy()).collect();
            Ok(Member { endpoint: endpoint.clone(), calls, watches })
        };
        Ok(Client {
            members: config.endpoints.iter().map(member).collect::<Result<_, Fault>>()?,
            preferred: AtomicUsize::new(0),
            watches: AtomicUsize::new(0),
            user: config.user,
            token: Mutex::new(None),
            login: tokio::sync::Mutex::new(()),
            clock,
            request_timeout: config.request_timeout,
            retry_for: config.retry_for.min(config.request_timeout),
        })
    }

    /// Calls until there is an answer, as long as that is safe and the bound has not passed.
    pub(super) async fn call<C: Call>(&self, request: C) -> Result<C::Answer, Failed> {
        self.call_within(request, MAX_ANSWER_BYTES).await
    }

    /// As [`call`](Client::call), with an answer of at most so many bytes.
    pub(super) async fn call_within<C: Call>(&self, request: C, bytes: usize) -> Result<C::Answer, Failed> {
        let mut attempts = Attempts::new(self);
        loop {
            let member = attempts.member();
            let work = async {
                let mut grpc = Grpc::new(member.calls.clone()).max_decoding_message_size(bytes);
                grpc.ready().await.map_err(|error| Status::from_error(error.into()))?;
                let path = C::PATH.parse().expect("the path of a call");
                grpc.unary(
                    self.request(request.clone(), request.needs_leader()),
                    path,
                    ProstCodec::<C, C::Answer>::default(),
                )
                .await
            };
            let failed = match self.before(attempts.deadline, work).await {
                Some(Ok(answer)) => return Ok(answer.into_inner()),
                Some(Err(status)) => Failed::from_status(&status, &member.endpoint),
                None => Failed::timed_out(&member.endpoint, true),
            };
            attempts.failed(failed, C::CHANGES).await?;
        }
    }

    /// Starts a watch; returns when etcd says that it is in place.
    pub(super) async fn watch(&self, create: WatchCreateRequest) -> Result<Stream, Failed> {
        let mut attempts = Attempts::new(self);
        loop {
            let member = attempts.member();
            let work = self.start_watch(member, create.clone());
            let failed = match self.before(attempts.deadline, work).await {
                Some(Ok(stream)) => return Ok(stream),
                Some(Err(failed)) => failed,
                None => Failed::timed_out(&member.endpoint, true),
            };
            attempts.failed(failed, false).await?;
        }
    }

    async fn start_watch(&self, member: &Member, create: WatchCreateRequest) -> Result<Stream, Failed> {
        let failed = |status: &Status| Failed::from_status(status, &member.endpoint);
        let turn = self.watches.fetch_add(1, Ordering::Relaxed) % member.watches.len();
        let mut grpc = Grpc::new(member.watches[turn].clone()).max_decoding_message_size(MAX_ANSWER_BYTES);
        grpc.ready().await.map_err(|error| failed(&Status::from_error(error.into())))?;
        let (requests, receiver) = mpsc::channel(WATCH_REQUESTS);
        let create = WatchRequest { ask: Some(WatchAsk::Create(create)) };
        requests.try_send(create).expect("a new channel has room");
        let codec = ProstCodec::<WatchRequest, WatchResponse>::default();
        let path = WATCH_PATH.parse().expect("the path of a call");
        let answer = grpc.streaming(self.request(ReceiverStream::new(receiver), true), path, codec).await;
        let responses = answer.map_err(|status| failed(&status))?.into_inner();
        let mut stream = Stream { endpoint: member.endpoint.clone(), requests, responses };
        let created = stream.next().await?;
        if created.created && !created.canceled {
            return Ok(stream);
        }
        let reason = Failed::from_message(&created.cancel_reason, &member.endpoint);
        Err(reason.unwrap_or_else(|| failed(&Status::unknown(created.cancel_reason))))
    }

    /// The output of `future`, unless the deadline comes first.
    pub(super) async fn before<T>(&self, deadline: Moment, future: impl Future<Output = T>) -> Option<T> {
        tokio::select! {
            biased;
            output = future => Some(output),
            () = self.clock.sleep_until(deadline) => None,
        }
    }

    /// When a call that begins now must have ended.
    pub(super) fn deadline(&self) -> Moment {
        self.clock.monotonic().plus(self.request_timeout)
    }

    fn request<M>(&self, message: M, needs_leader: bool) -> Request<M> {
        let mut request = Request::new(message);
        if needs_leader {
            // Without this, a member that has lost the others lets calls wait until it does not know what became of
            // them.
            request.metadata_mut().insert("hasleader", MetadataValue::from_static("true"));
        }
        if let Some(token) = self.token() {
            request.metadata_mut().insert("token", token);
        }
        request
    }

    fn token(&self) -> Option<Token> {
        self.token.lock().expect("nothing panics while the token is locked").clone()
    }

    /// Fetches a token, if there is a user and nobody has replaced `stale` in the meantime.
    pub(super) async fn login(&self, stale: Option<Token>) -> Result<(), Failed> {
        let Some(EtcdUser { name, password }) = self.user.clone() else { return Ok(()) };
        let Some(_turn) = self.before(self.deadline(), self.login.lock()).await else {
            return Err(Failed::timed_out("the login", false));
        };
        if self.token() != stale {
            return Ok(());
        }
        let token = match self.call(AuthenticateRequest { name, password }).await {
            Ok(answer) => Some(answer.token.parse().map_err(|_| {
                Failed::certain(Fault::new(FaultKind::Denied, "etcd gave a token that cannot be sent back"))
            })?),
            Err(Failed { problem: Problem::AuthenticationOff, .. }) => None,
            Err(failed) => return Err(failed),
        };
        *self.token.lock().expect("nothing panics while the token is locked") = token;
        Ok(())
    }
}

/// The attempts of one call: at each member in turn, and after a pause once more.
struct Attempts<'a> {
    client: &'a Client,
    deadline: Moment,
    /// When to give up on what may pass.
    patience: Moment,
    pause: Duration,
    /// The member that is tried, counted on as the client's preference.
    at: usize,
    /// How many members have failed since the last pause.
    failures: usize,
    /// The failure so far that says most.
    worst: Option<Failed>,
    token: Option<Token>,
    renewed: bool,
}

impl<'a> Attempts<'a> {
    fn new(client: &'a Client) -> Self {
        Attempts {
            client,
            deadline: client.deadline(),
            patience: client.clock.monotonic().plus(client.retry_for),
            pause: FIRST_PAUSE,
            at: client.preferred.load(Ordering::Relaxed),
            failures: 0,
            worst: None,
            token: client.token(),
            renewed: false,
        }
    }

    fn member(&self) -> &'a Member {
        &self.client.members[self.at % self.client.members.len()]
    }

    /// Returns when the next attempt is due, or why there is none.
    async fn failed(&mut self, failed: Failed, changes: bool) -> Result<(), Failed> {
        if matches!(failed.problem, Problem::StaleToken(_)) && self.client.user.is_some() && !self.renewed {
            self.renewed = true;
            // A login is a call too, one that does not get here: the box is for the compiler.
            let login = Box::pin(self.client.login(self.token.take())).await;
            // Whatever became of the login, the call itself was refused.
            return login.map_err(|failed| Failed { sent: false, ..failed });
        }
        if !failed.elsewhere {
            return Err(failed);
        }
        // Others may have moved on already.
        let next = self.at.wrapping_add(1);
        let _ = self.client.preferred.compare_exchange(self.at, next, Ordering::Relaxed, Ordering::Relaxed);
        self.at = next;
        if changes && failed.sent {
            return Err(failed);
        }
        let passes = failed.passes();
        let worst = self.worst.take().filter(|worst| !worst.is_outdone_by(&failed)).unwrap_or(failed);
        self.failures += 1;
        if self.failures < self.client.members.len() {
            self.worst = Some(worst);
            return Ok(());
        }
        let resume = self.client.clock.monotonic().plus(self.pause);
        if !passes || !worst.passes() || resume > self.patience {
            return Err(worst);
        }
        // What the last round said, not what an earlier one did, is what is wrong.
        (self.failures, self.pause) = (0, (self.pause * 2).min(LAST_PAUSE));
        self.client.clock.sleep_until(resume).await;
        Ok(())
    }
}

/// What tasks share.
pub(super) type SharedClient = Arc<Client>;
