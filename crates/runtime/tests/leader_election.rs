//! Two processes that want to lead, one of which is killed, paused or told to go: never two act at the same time.
//!
//! The test starts itself again as `candidate NAME ADDRESS`. Candidates reach the server of the test over a socket, and
//! act by writing into one ConfigMap, with the number of their term.

#![expect(clippy::unwrap_used, reason = "all of it is a test")]

use std::{
    collections::HashMap,
    net::SocketAddr,
    process::{Child, Command, Stdio},
    sync::Arc,
    time::Duration,
};

use bytes::Bytes;
use capstan_api::{GroupVersionResource, Unstructured, options::ListOptions};
use capstan_client::{
    Api, Body, BoxFuture, Client, Error, Event, Transport, TypedWatch,
    beat::{Either, race},
};
use capstan_clock::{Clock as _, OsIds, RealClock};
use capstan_runtime::{
    leader_election::{LeaderElection, LeaderElectionConfig, LeaseLock},
    operator::setup_signal_handler,
};
use capstan_server::{Config, Server, authorization::UserInfo};
use capstan_storage::{Memory, Options};
use http::{Request, Response};
use http_body_util::{BodyExt as _, Full};
use hyper::body::Incoming;
use hyper_util::rt::TokioIo;
use tokio::net::{TcpListener, TcpStream};

/// The longest that anything may take.
const PATIENCE: Duration = Duration::from_secs(120);

/// How long between two acts.
const ACT: Duration = Duration::from_millis(20);

#[tokio::main]
async fn main() {
    let words: Vec<String> = std::env::args().collect();
    match words.get(1).map(String::as_str) {
        Some("candidate") => candidate(&words[2], words[3].parse().unwrap()).await,
        // What lists tests wants none.
        Some("--list") => {}
        _ => never_two().await,
    }
}

/// A server at an address, a connection for each request.
struct Socket(SocketAddr);

impl Transport for Socket {
    fn send(&self, mut request: Request<Bytes>) -> BoxFuture<'static, Result<Response<Body>, Error>> {
        let address = self.0;
        Box::pin(async move {
            let failed = |error: &dyn std::fmt::Display| Error::Transport(error.to_string());
            let socket = TcpStream::connect(address).await.map_err(|error| failed(&error))?;
            let (mut sender, connection) =
                hyper::client::conn::http1::handshake(TokioIo::new(socket)).await.map_err(|error| failed(&error))?;
            tokio::spawn(connection);
            request.headers_mut().insert(http::header::HOST, http::HeaderValue::from_static("server"));
            let answer = sender.send_request(request.map(Full::new)).await.map_err(|error| failed(&error))?;
            Ok(answer.map(Body::new))
        })
    }
}

fn config_maps(client: &Client) -> Api<Unstructured> {
    Api::dynamic(client, GroupVersionResource::new("", "v1", "configmaps"), "default")
}

fn number(object: &Unstructured, field: &str) -> u64 {
    object.nested_str(["data", field]).unwrap().and_then(|text| text.parse().ok()).unwrap_or_default()
}

/// Wants to lead, again and again, and acts while it does.
async fn candidate(name: &str, address: SocketAddr) {
    let stop = setup_signal_handler().unwrap();
    let (client, clock) = (Client::new(Socket(address)), Arc::new(RealClock::new()));
    let config = LeaderElectionConfig {
        lease_duration: Duration::from_secs(2),
        renew_deadline: Duration::from_millis(1200),
        retry_period: Duration::from_millis(200),
        ..LeaderElectionConfig::new(name)
    };
    while !stop.is_stopped() {
        let lock = LeaseLock::new(&client, "default", "two");
        let election = LeaderElection::new(config.clone(), lock, clock.clone(), Arc::new(OsIds)).unwrap();
        let leadership = election.leadership();
        let acting = async {
            while leadership.acquired().await {
                while let Some(term) = leadership.fencing_token() {
                    let acts = config_maps(&client);
                    if let Ok(mut known) = acts.get("acts").await
                        && leadership.is_leader()
                    {
                        if number(&known, "term") > term {
                            println!("two leaders: {name} in {term}, though there is a later one");
                        }
                        let count = number(&known, "count") + 1;
                        for (field, value) in
                            [("term", term.to_string()), ("count", count.to_string()), ("holder", name.to_owned())]
                        {
                            known.set_nested(["data", field], value).unwrap();
                        }
                        // Who was quicker wrote a later version, and this one is refused.
                        let _ = acts.update(&known).await;
                    }
                    clock.sleep(ACT).await;
                }
                clock.sleep(ACT).await;
            }
        };
        race(election.run(stop.clone(), |change| println!("{change:?}")), acting).await;
    }
}

/// The server, for whoever comes.
async fn serve(listener: TcpListener, server: Server) {
    loop {
        let (socket, _) = listener.accept().await.unwrap();
        let server = server.clone();
        tokio::spawn(async move {
            let service = hyper::service::service_fn(|request: Request<Incoming>| {
                let server = server.clone();
                async move {
                    let (head, body) = request.into_parts();
                    let body = body.collect().await?.to_bytes();
                    let mut user = server.as_user(UserInfo::new("admin", ["system:masters"]));
                    let request = Request::from_parts(head, body.to_vec().into());
                    let Ok(answer) = tower_service::Service::call(&mut user, request).await;
                    Ok::<_, hyper::Error>(answer)
                }
            });
            let _ = hyper::server::conn::http1::Builder::new().serve_connection(TokioIo::new(socket), service).await;
        });
    }
}

struct Candidates {
    address: SocketAddr,
    running: HashMap<String, Child>,
    watch: TypedWatch<Unstructured>,
    /// Who acted in which term.
    holders: HashMap<u64, String>,
    last: (u64, String),
}

impl Candidates {
    fn start(&mut self, name: &str) {
        let mut command = Command::new(std::env::current_exe().unwrap());
        let child = command.args(["candidate", name, &self.address.to_string()]).stdout(Stdio::piped());
        self.running.insert(name.to_owned(), child.spawn().unwrap());
    }

    fn signal(&self, name: &str, signal: &str) {
        let process = self.running[name].id().to_string();
        assert!(Command::new("kill").args([signal, &process]).status().unwrap().success());
    }

    /// Sees one act, which must be of the last leader or of a later one.
    async fn act(&mut self, clock: &RealClock) {
        let act = match race(self.watch.try_next(), clock.sleep(PATIENCE)).await {
            Either::First(event) => event.unwrap().unwrap(),
            Either::Second(()) => panic!("nobody acts"),
        };
        let Event::Modified(act) = act else { return };
        let (term, holder) = (number(&act, "term"), act.nested_str(["data", "holder"]).unwrap().unwrap().to_owned());
        assert!(term >= self.last.0, "{holder} acts in {term} after {:?}", self.last);
        let first = self.holders.entry(term).or_insert_with(|| holder.clone());
        assert_eq!(*first, holder, "two act in {term}");
        self.last = (term, holder);
    }

    /// Sees acts until the leader is another one than this, and acted several times.
    async fn until_not(&mut self, old: &str, clock: &RealClock) -> String {
        let mut acts = 0;
        while acts < 5 {
            self.act(clock).await;
            acts = if self.last.1 == old { 0 } else { acts + 1 };
        }
        self.last.1.clone()
    }

    /// What it said after it was ended.
    fn said(&mut self, name: &str) -> String {
        let child = self.running.remove(name).unwrap();
        let output = child.wait_with_output().unwrap();
        String::from_utf8(output.stdout).unwrap()
    }
}

async fn never_two() {
    let server = Server::start(Arc::new(Memory::new(Options::default())), Config::default()).await.unwrap();
    let client = Client::from_service(server.as_user(UserInfo::new("admin", ["system:masters"])));
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = listener.local_addr().unwrap();
    tokio::spawn(serve(listener, server));
    let acts = r#"{"apiVersion":"v1","kind":"ConfigMap","metadata":{"name":"acts"}}"#;
    config_maps(&client).create(&Unstructured::decode(acts.as_bytes()).unwrap()).await.unwrap();
    let only = ListOptions { field_selector: "metadata.name=acts".to_owned(), ..ListOptions::default() };
    let watch = config_maps(&client).watch(&only).await.unwrap();
    let (clock, nobody) = (RealClock::new(), (0, String::new()));
    let (running, holders) = (HashMap::new(), HashMap::new());
    let mut candidates = Candidates { address, running, watch, holders, last: nobody };

    candidates.start("a");
    candidates.start("b");
    let mut said = Vec::new();
    let first = candidates.until_not("", &clock).await;
    candidates.running.get_mut(&first).unwrap().kill().unwrap();
    let second = candidates.until_not(&first, &clock).await;
    said.push(candidates.said(&first));

    candidates.start("c");
    candidates.signal(&second, "-STOP");
    let third = candidates.until_not(&second, &clock).await;
    candidates.signal(&second, "-CONT");
    // The one that slept is awake, and the other goes on.
    for _ in 0..100 {
        candidates.act(&clock).await;
    }
    assert_eq!(candidates.last.1, third, "who slept does not come back by itself");

    candidates.signal(&third, "-TERM");
    let told = clock.monotonic();
    let fourth = candidates.until_not(&third, &clock).await;
    println!("the next one acts {:?} after the leader was told to go", clock.monotonic().since(told));
    assert_eq!(fourth, second);
    candidates.signal(&fourth, "-TERM");
    said.extend([third, fourth].map(|name| candidates.said(&name)));
    for lines in &said {
        assert!(!lines.contains("two leaders"), "{lines}");
    }
    let slept = &said[2];
    assert!(slept.matches("StoppedLeading").count() >= 2, "who slept knows that it no longer led: {slept}");
    println!("test never_two ... ok: {} terms, {said:?}", candidates.holders.len());
}
