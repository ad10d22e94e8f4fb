//! What the etcd engine says and does when etcd, or the way to it, fails: on real etcd, on loopback.

use std::{
    fs,
    io::{Read, Write},
    net::{TcpListener, TcpStream},
    path::Path,
    sync::Arc,
    time::Duration,
};

use capstan_clock::{Clock, ManualClock};
use capstan_storage::{
    At, CommitError, Etcd, EtcdConfig, EtcdTls, EtcdUser, Fault, FaultKind, InputError, KeyValue, Op, Options, Range,
    ReadError, Revision, Store, Watch, WatchItem, WatchRequest, limits::MAX_VALUE_BYTES,
};

use super::process::{self, Cluster, binary, ports};

/// Gives up at once where nothing gets better.
fn hasty<E: Into<String>>(endpoints: impl IntoIterator<Item = E>) -> EtcdConfig {
    let short = Duration::from_millis(300);
    EtcdConfig {
        connect_timeout: short,
        request_timeout: short,
        retry_for: Duration::ZERO,
        ..EtcdConfig::new(endpoints)
    }
}

/// Waits until etcd has started, which takes longer while others are built and tested.
fn patient<E: Into<String>>(endpoints: impl IntoIterator<Item = E>) -> EtcdConfig {
    let long = Duration::from_secs(30);
    EtcdConfig { request_timeout: long, retry_for: long, ..EtcdConfig::new(endpoints) }
}

async fn connect(config: EtcdConfig) -> Result<Etcd, Fault> {
    Etcd::connect(config, Options::default()).await
}

async fn put(store: &Etcd, key: &str, value: &str) -> Result<Revision, CommitError> {
    let committed = store.commit(vec![Op::put(key.to_owned(), value.to_owned())]).await;
    committed.map(|committed| committed.revision)
}

async fn get(store: &Etcd, key: &str, at: At) -> Result<Option<String>, ReadError> {
    let found = store.get(key.to_owned().into(), at).await?;
    Ok(found.item.map(|item| String::from_utf8_lossy(&item.value).into_owned()))
}

fn kind<T: std::fmt::Debug>(answer: Result<T, ReadError>) -> FaultKind {
    match answer {
        Err(ReadError::Fault(fault)) => fault.kind,
        other => panic!("a fault was due: {other:?}"),
    }
}

#[tokio::test]
async fn what_cannot_be_reached_is_said() {
    let nobody = format!("http://127.0.0.1:{}", ports(1)[0]);
    // It lets connections wait and answers none.
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let silent = format!("http://{}", listener.local_addr().unwrap());
    let cases: [(&[&str], FaultKind, &str); 6] = [
        (&[], FaultKind::Unreachable, "no endpoint is given"),
        (&["127.0.0.1:2379"], FaultKind::Unreachable, "begins with http"),
        (&["http://no host"], FaultKind::Unreachable, "no host"),
        (&[&nobody], FaultKind::Unreachable, &nobody),
        (&[&silent], FaultKind::TimedOut, &silent),
        (&["https://127.0.0.1:2379"], FaultKind::Denied, "no authorities"),
    ];
    for (endpoints, kind, words) in cases {
        let fault = connect(hasty(endpoints.iter().copied())).await.unwrap_err();
        assert_eq!(fault.kind, kind, "{endpoints:?}: {fault}");
        assert!(fault.detail.contains(words), "{endpoints:?}: {fault}");
    }
}

#[tokio::test]
async fn an_endpoint_that_is_down_is_passed_over() {
    let Some(etcd) = binary() else { return };
    let cluster = Cluster::start(&etcd, 1, "http", &[]);
    let nobody = format!("http://127.0.0.1:{}", ports(1)[0]);
    let store = connect(patient([&nobody, &cluster.endpoints[0]])).await.unwrap();
    put(&store, "k", "v").await.unwrap();
    assert_eq!(get(&store, "k", At::Present).await.unwrap().unwrap(), "v");
}

#[tokio::test]
async fn what_etcd_finds_too_large_is_refused() {
    let Some(etcd) = binary() else { return };
    let cluster = Cluster::start(&etcd, 1, "http", &["--max-txn-ops=8"]);
    let store = connect(patient(&cluster.endpoints)).await.unwrap();
    let many = (0..9).map(|n| Op::put(n.to_string(), "v")).collect();
    assert_eq!(store.commit(many).await, Err(CommitError::Input(InputError::TooManyOps { count: 9 })));
    // A little above etcd's bound for a request, and above the one for a message.
    for values in [1, 2] {
        let large = (0..values).map(|n| Op::put(n.to_string(), vec![0; MAX_VALUE_BYTES])).collect();
        let bytes = values * (MAX_VALUE_BYTES + 1);
        assert_eq!(store.commit(large).await, Err(CommitError::Input(InputError::CommitTooLarge { bytes })));
    }
    assert_eq!(store.range(Range::default()).await.unwrap().items, []);
}

/// Reads a watch up to `last`.
async fn keys_through(watch: &mut Watch, last: Revision) -> Vec<String> {
    let mut keys = Vec::new();
    watch.request_progress();
    loop {
        match watch.next().await.unwrap() {
            WatchItem::Batch(batch) => {
                keys.extend(batch.events.iter().map(|event| String::from_utf8_lossy(&event.key).into_owned()));
            }
            WatchItem::Progress(revision) if revision >= last => return keys,
            WatchItem::Progress(_) => watch.request_progress(),
        }
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_member_that_is_killed_is_replaced_by_another() {
    const WRITES: usize = 60;
    let Some(etcd) = binary() else { return };
    let mut cluster = Cluster::start(&etcd, 3, "http", &[]);
    let config = EtcdConfig { retry_for: Duration::from_secs(30), ..patient(&cluster.endpoints) };
    let store = connect(config).await.unwrap();
    let base = store.revision().await.unwrap();
    let mut watch = store.watch(WatchRequest { prefix: "k".into(), after: base }).await.unwrap();
    let (mut acknowledged, mut uncertain) = (Vec::new(), Vec::new());
    for n in 0..WRITES {
        if n == WRITES / 2 {
            // The one that is asked, which may be the leader.
            cluster.kill(0);
        }
        let key = format!("k{n:02}");
        match store.commit(vec![Op::create(key.clone(), "v")]).await {
            Ok(_) => acknowledged.push(key),
            Err(CommitError::Uncertain(_)) => uncertain.push(key),
            Err(error) => panic!("{key}: {error}"),
        }
    }
    assert!(uncertain.len() <= 2, "only what was under way: {uncertain:?}");
    let last = store.revision().await.unwrap();
    let page = store.range(Range::prefix("k")).await.unwrap();
    let stored: Vec<_> = page.items.iter().map(|item| String::from_utf8_lossy(&item.key).into_owned()).collect();
    assert!(acknowledged.iter().all(|key| stored.contains(key)), "an acknowledged write is gone");
    assert!(stored.iter().all(|key| acknowledged.contains(key) || uncertain.contains(key)));
    // The watch was taken up at another member: all changes, each once, in order.
    assert_eq!(keys_through(&mut watch, last).await, stored);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn without_a_quorum_writes_wait_and_then_fail_and_reads_of_any_age_go_on() {
    let Some(etcd) = binary() else { return };
    let mut cluster = Cluster::start(&etcd, 3, "http", &[]);
    connect(patient(&cluster.endpoints)).await.unwrap();
    let config = EtcdConfig { retry_for: Duration::from_millis(500), ..EtcdConfig::new(&cluster.endpoints) };
    let store = connect(config).await.unwrap();
    let written = put(&store, "k", "1").await.unwrap();
    let mut watch = store.watch(WatchRequest { prefix: "".into(), after: written }).await.unwrap();
    // All three have it now, also the one that stays.
    for endpoint in &cluster.endpoints {
        let member = connect(patient([endpoint])).await.unwrap();
        assert_eq!(get(&member, "k", At::Present).await.unwrap().unwrap(), "1");
    }
    cluster.kill(0);
    cluster.kill(1);
    // What is under way when the quorum is lost is uncertain; what comes after is not done.
    let fault = loop {
        match put(&store, "k", "2").await {
            Err(CommitError::Uncertain(_)) => {}
            Err(CommitError::Fault(fault)) => break fault,
            other => panic!("there is no quorum: {other:?}"),
        }
    };
    assert_eq!(fault.kind, FaultKind::NoQuorum, "{fault}");
    assert_eq!(kind(get(&store, "k", At::Present).await), FaultKind::NoQuorum);
    assert_eq!(kind(store.revision().await), FaultKind::NoQuorum);
    assert_eq!(kind(store.hash(At::Present).await), FaultKind::NoQuorum);
    let request = WatchRequest { prefix: "".into(), after: written };
    assert_eq!(kind(store.watch(request).await), FaultKind::NoQuorum);
    assert!(get(&store, "k", At::NotOlderThan(written)).await.unwrap().is_some(), "what is there can be read");
    // The members come back, and so does everything else.
    cluster.revive(0);
    cluster.revive(1);
    connect(patient(&cluster.endpoints)).await.unwrap();
    let last = loop {
        match put(&store, "after", "3").await {
            Ok(revision) => break revision,
            Err(CommitError::Uncertain(_) | CommitError::Fault(_)) => {}
            Err(error) => panic!("{error}"),
        }
    };
    let mut position = written;
    let mut keys = Vec::new();
    while position < last {
        match watch.next().await {
            Ok(WatchItem::Batch(batch)) => {
                position = batch.revision;
                keys.extend(batch.events.iter().map(|event| event.key.clone()));
            }
            Ok(WatchItem::Progress(revision)) => position = position.max(revision),
            // It had waited for longer than it does: where it stopped can be gone on from.
            Err(ReadError::Fault(_)) => {
                let request = WatchRequest { prefix: "".into(), after: position };
                watch = store.watch(request).await.unwrap();
            }
            Err(error) => panic!("{error}"),
        }
    }
    assert_eq!(keys.last().unwrap(), "after");
}

/// Asks etcd's JSON gateway for what the engine has no call for.
fn gateway(endpoint: &str, path: &str, body: &str) -> String {
    let address = endpoint.strip_prefix("http://").unwrap();
    let mut stream = TcpStream::connect(address).unwrap();
    let length = body.len();
    let request = format!(
        "POST {path} HTTP/1.1\r\nHost: {address}\r\nContent-Type: application/json\r\n\
         Content-Length: {length}\r\nConnection: close\r\n\r\n{body}"
    );
    stream.write_all(request.as_bytes()).unwrap();
    let mut answer = String::new();
    stream.read_to_string(&mut answer).unwrap();
    assert!(answer.starts_with("HTTP/1.1 200"), "{path}: {answer}");
    answer
}

#[tokio::test]
async fn when_etcd_is_full_reads_go_on_and_writes_resume() {
    let Some(etcd) = binary() else { return };
    let cluster = Cluster::start(&etcd, 1, "http", &["--quota-backend-bytes=1048576"]);
    let store = connect(patient(&cluster.endpoints)).await.unwrap();
    let value = "v".repeat(100 * 1024);
    let mut last = Revision::INITIAL;
    let error = loop {
        match put(&store, "k", &value).await {
            Ok(revision) => last = revision,
            Err(error) => break error,
        }
    };
    let CommitError::Fault(fault) = error else { panic!("nothing happened, for sure: {error}") };
    assert_eq!(fault.kind, FaultKind::Full);
    assert!(fault.to_string().contains("NOSPACE"), "{fault}");
    assert_eq!(get(&store, "k", At::Present).await.unwrap().unwrap(), value);
    assert_eq!(store.revision().await.unwrap(), last);
    let request = WatchRequest { prefix: "".into(), after: last };
    let mut watch = store.watch(request).await.unwrap();
    // Done as the error says. What is compacted goes a little later.
    store.compact(last).await.unwrap();
    let endpoint = &cluster.endpoints[0];
    let alarms = gateway(endpoint, "/v3/maintenance/alarm", r#"{"action": "GET"}"#);
    let member: String = alarms.split_once(r#""memberID":""#).unwrap().1.chars().take_while(|c| *c != '"').collect();
    let disarm = format!(r#"{{"action": "DEACTIVATE", "memberID": "{member}", "alarm": "NOSPACE"}}"#);
    let mut again = None;
    for _ in 0..100 {
        gateway(endpoint, "/v3/maintenance/defragment", "{}");
        gateway(endpoint, "/v3/maintenance/alarm", &disarm);
        match put(&store, "k", "small").await {
            Ok(revision) => again = Some(revision),
            Err(CommitError::Fault(fault)) if fault.kind == FaultKind::Full => continue,
            Err(error) => panic!("{error}"),
        }
        break;
    }
    let again = again.expect("there is room again");
    assert_eq!(keys_through(&mut watch, again).await, ["k"]);
}

#[tokio::test]
async fn users_are_known_by_their_password() {
    let Some(etcd) = binary() else { return };
    let mut cluster = Cluster::start(&etcd, 1, "http", &[]);
    let endpoint = cluster.endpoints[0].clone();
    let user = |name: &str, password: &str| {
        let user = EtcdUser { name: name.to_owned(), password: password.to_owned() };
        EtcdConfig { user: Some(user), ..patient([&endpoint]) }
    };
    // A user is given, but etcd does not ask: as etcd's own clients, that is no error.
    connect(user("root", "secret")).await.unwrap();
    let post = |path: &str, body: &str| drop(gateway(&endpoint, path, body));
    post("/v3/auth/user/add", r#"{"name": "root", "password": "secret"}"#);
    post("/v3/auth/user/grant", r#"{"user": "root", "role": "root"}"#);
    post("/v3/auth/user/add", r#"{"name": "app", "password": "pass"}"#);
    post("/v3/auth/role/add", r#"{"name": "app"}"#);
    // The keys from app/ to app0, and compact_rev_key.
    for range in [r#""key": "YXBwLw==", "range_end": "YXBwMA==""#, r#""key": "Y29tcGFjdF9yZXZfa2V5""#] {
        let body = format!(r#"{{"name": "app", "perm": {{"permType": "READWRITE", {range}}}}}"#);
        post("/v3/auth/role/grant", &body);
    }
    post("/v3/auth/user/grant", r#"{"user": "app", "role": "app"}"#);
    post("/v3/auth/enable", "{}");
    for config in [patient([&endpoint]), user("app", "wrong"), user("nobody", "pass")] {
        assert_eq!(connect(config).await.unwrap_err().kind, FaultKind::Denied);
    }
    let store = connect(user("app", "pass")).await.unwrap();
    let first = put(&store, "app/k", "1").await.unwrap();
    let mut watch = store.watch(WatchRequest { prefix: "app/".into(), after: first }).await.unwrap();
    assert!(
        matches!(put(&store, "other", "1").await, Err(CommitError::Fault(fault)) if fault.kind == FaultKind::Denied)
    );
    assert_eq!(kind(get(&store, "other", At::Present).await), FaultKind::Denied);
    let elsewhere = WatchRequest { prefix: "other".into(), after: first };
    assert_eq!(kind(store.watch(elsewhere).await), FaultKind::Denied);
    // A member that starts again has forgotten its tokens.
    cluster.kill(0);
    cluster.revive(0);
    let last = loop {
        match put(&store, "app/k", "2").await {
            Ok(revision) => break revision,
            Err(CommitError::Uncertain(_)) => {}
            Err(error) => panic!("{error}"),
        }
    };
    assert_eq!(keys_through(&mut watch, last).await.last().unwrap(), "app/k");
}

/// Makes a key, and a certificate signed by `ca` or, without one, by itself.
fn certificate(directory: &Path, name: &str, ca: Option<&str>, extension: &str) {
    let file = |name: &str, end: &str| directory.join(format!("{name}.{end}")).display().to_string();
    let subject = format!("/CN={name}");
    let (key, cert) = (file(name, "key"), file(name, "crt"));
    let mut arguments = vec!["req", "-x509", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:prime256v1", "-nodes"];
    arguments.extend(["-days", "2", "-subj", &subject, "-keyout", &key, "-out", &cert, "-addext", extension]);
    let signer = ca.map(|ca| (file(ca, "crt"), file(ca, "key")));
    if let Some((cert, key)) = &signer {
        arguments.extend(["-CA", cert, "-CAkey", key, "-addext", "basicConstraints=critical,CA:FALSE"]);
    }
    let output = std::process::Command::new("openssl").args(arguments).output().unwrap();
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
}

#[tokio::test]
async fn certificates_are_checked_on_both_sides() {
    let Some(etcd) = binary() else { return };
    if std::process::Command::new("openssl").arg("version").output().is_err() {
        println!("skipped: there is no openssl to make certificates with");
        return;
    }
    let directory = process::directory();
    certificate(&directory, "ca", None, "keyUsage=critical,keyCertSign");
    certificate(&directory, "stranger", None, "keyUsage=critical,keyCertSign");
    certificate(&directory, "server", Some("ca"), "subjectAltName=IP:127.0.0.1,DNS:etcd.test");
    certificate(&directory, "client", Some("ca"), "extendedKeyUsage=clientAuth");
    certificate(&directory, "other", Some("stranger"), "extendedKeyUsage=clientAuth");
    let file = |name: &str| directory.join(name).display().to_string();
    let arguments = [
        format!("--cert-file={}", file("server.crt")),
        format!("--key-file={}", file("server.key")),
        format!("--trusted-ca-file={}", file("ca.crt")),
        "--client-cert-auth".to_owned(),
    ];
    let arguments: Vec<_> = arguments.iter().map(String::as_str).collect();
    let cluster = Cluster::start(&etcd, 1, "https", &arguments);
    let pem = |name: &str| fs::read(directory.join(name)).unwrap().into();
    let config = |ca: &str, client: Option<&str>, server_name: Option<&str>| {
        let identity = client.map(|name| (pem(&format!("{name}.crt")), pem(&format!("{name}.key"))));
        let tls = EtcdTls { ca: pem(&format!("{ca}.crt")), identity, server_name: server_name.map(str::to_owned) };
        EtcdConfig { tls: Some(tls), ..patient(&cluster.endpoints) }
    };
    let store = connect(config("ca", Some("client"), None)).await.unwrap();
    put(&store, "k", "v").await.unwrap();
    let named = connect(config("ca", Some("client"), Some("etcd.test"))).await.unwrap();
    assert_eq!(get(&named, "k", At::Present).await.unwrap().unwrap(), "v");
    let denied = [
        config("stranger", Some("client"), None),
        config("ca", Some("client"), Some("elsewhere.test")),
        config("ca", Some("other"), None),
        config("ca", None, None),
    ];
    for config in denied {
        let shown = format!("{config:?}");
        let fault = connect(config).await.unwrap_err();
        assert_eq!(fault.kind, FaultKind::Denied, "{shown}: {fault}");
        assert!(!shown.contains("PRIVATE"), "a key is shown");
    }
    let plain = cluster.endpoints[0].replace("https", "http");
    let fault = connect(hasty([plain])).await.unwrap_err();
    assert!(matches!(fault.kind, FaultKind::Unreachable | FaultKind::TimedOut), "{fault}");
    let _ = fs::remove_dir_all(directory);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn servers_take_turns_to_compact() {
    let Some(etcd) = binary() else { return };
    let cluster = Cluster::start(&etcd, 1, "http", &[]);
    let observer = connect(patient(&cluster.endpoints)).await.unwrap();
    let clock = ManualClock::at("2026-01-01T00:00:00Z".parse().unwrap());
    let options = Options::with_clock(Arc::new(clock.clone()));
    let age = options.retention.age;
    let mut stores = Vec::new();
    for _ in 0..2 {
        stores.push(Etcd::connect(patient(&cluster.endpoints), options.clone()).await.unwrap());
    }
    let first = put(&observer, "k", "1").await.unwrap();
    // Both sleep until their next turn, and no call is under way, whose deadline would be sooner.
    let both_asleep = async || {
        let next_turn = clock.monotonic().plus(age);
        while clock.sleepers() != 2 || clock.next_deadline().is_some_and(|deadline| deadline < next_turn) {
            tokio::task::yield_now().await;
        }
        observer.get("compact_rev_key".into(), At::Present).await.unwrap().item
    };
    let mut turns = Vec::new();
    for _ in 0..4 {
        assert_eq!(both_asleep().await, turns.last().cloned(), "one of the two had the turn");
        clock.advance(age);
        let turn = loop {
            let found = observer.get("compact_rev_key".into(), At::Present).await.unwrap().item;
            if found.as_ref() != turns.last() {
                break found.expect("it is not deleted");
            }
        };
        turns.push(turn);
        put(&observer, "k", "2").await.unwrap();
    }
    let written = |turn: &KeyValue| Revision(std::str::from_utf8(&turn.value).unwrap().parse().unwrap());
    assert_eq!(written(&turns[0]), Revision(0), "at first nobody knows how old anything is");
    for pair in turns.windows(2) {
        let (last, turn) = (&pair[0], &pair[1]);
        // What was there a turn ago goes, what has come since stays.
        assert!(last.mod_revision <= written(turn) && written(turn) < turn.mod_revision, "{turns:?}");
    }
    let gone = observer.get("k".into(), At::Exactly(first)).await.unwrap_err();
    assert!(matches!(gone, ReadError::Compacted { .. }), "{gone}");
}
