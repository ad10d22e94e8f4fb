//! `capstan controllers` as processes beside a server: what they do, what they say of themselves, and who leads.

#![expect(clippy::unwrap_used, reason = "a test that fails may panic")]

use std::{
    io::{BufRead as _, BufReader, Read as _, Write as _},
    net::{TcpListener, TcpStream},
    path::Path,
    process::{Child, Command, Stdio},
};

use crate::harness::{Capstan, Door, Watch, directory, text};

const ACCOUNTS: &str = "/api/v1/namespaces/default/serviceaccounts";
const LEASES: &str = "/apis/coordination.k8s.io/v1/namespaces/kube-system/leases";

/// A manager that runs; it is killed when this is dropped.
struct Manager {
    child: Child,
    address: String,
}

impl Manager {
    fn start(kubeconfig: &Path, pki: &Path) -> Self {
        let free = TcpListener::bind("127.0.0.1:0").unwrap();
        let address = free.local_addr().unwrap().to_string();
        drop(free);
        let mut command = Command::new(env!("CARGO_BIN_EXE_capstan"));
        command.args(["controllers", "--controllers=*,-cronjob-controller", "--metrics-address", &address]);
        command.args(["--health-address", &address]).arg("--kubeconfig").arg(kubeconfig);
        for (flag, file) in [
            ("--root-ca-file", "ca.crt"),
            ("--cluster-signing-cert-file", "ca.crt"),
            ("--cluster-signing-key-file", "ca.key"),
            ("--service-account-private-key-file", "sa.key"),
        ] {
            command.arg(flag).arg(pki.join(file));
        }
        let mut child = command.stdin(Stdio::null()).stdout(Stdio::piped()).spawn().unwrap();
        let mut first = String::new();
        BufReader::new(child.stdout.take().unwrap()).read_line(&mut first).unwrap();
        assert!(first.ends_with(" control loops\n"), "{first}");
        let manager = Manager { child, address };
        // It listens a moment after it has said so.
        while TcpStream::connect(&manager.address).is_err() {
            std::thread::yield_now();
        }
        manager
    }

    fn get(&self, path: &str) -> String {
        let mut stream = TcpStream::connect(&self.address).unwrap();
        write!(stream, "GET {path} HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n").unwrap();
        let mut answer = String::new();
        stream.read_to_string(&mut answer).unwrap();
        answer
    }

    fn end(mut self) {
        let sent = Command::new("kill").args(["-TERM", &self.child.id().to_string()]).status();
        assert!(sent.unwrap().success());
        assert!(self.child.wait().unwrap().success(), "it ends in order");
    }
}

impl Drop for Manager {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// Waits until the Lease is held so, and says by whom.
fn until_held(door: &Door, is_so: impl Fn(&str) -> bool) -> String {
    let mut watch = Watch::start(door, LEASES, "0").unwrap();
    loop {
        let event = watch.next().unwrap().expect("the watch goes on");
        let holder = text(&event, &["object", "spec", "holderIdentity"]);
        if text(&event, &["object", "metadata", "name"]) == "kube-controller-manager" && is_so(holder) {
            return holder.to_owned();
        }
    }
}

#[test]
fn one_leads_and_the_next_one_goes_on() {
    let directory = directory("controllers");
    let server = Capstan::start(&directory);
    let (door, pki) = (server.door(true), directory.join("pki"));
    let kubeconfig = directory.join("manager.kubeconfig");
    let (address, files) = (&server.address, pki.display());
    let text_of = format!(
        "{{apiVersion: v1, kind: Config, current-context: c, contexts: [{{name: c, context: {{cluster: c, user: u}}}}], \
           clusters: [{{name: c, cluster: {{server: 'https://{address}', certificate-authority: {files}/ca.crt}}}}], \
           users: [{{name: u, user: {{client-certificate: {files}/admin.crt, client-key: {files}/admin.key}}}}]}}"
    );
    std::fs::write(&kubeconfig, text_of).unwrap();

    let first = Manager::start(&kubeconfig, &pki);
    let leader = until_held(&door, |holder| !holder.is_empty());
    let mut accounts = Watch::start(&door, ACCOUNTS, "0").unwrap();
    let event = accounts.next().unwrap().expect("the watch goes on");
    assert_eq!(text(&event, &["object", "metadata", "name"]), "default", "the loops work");
    assert!(first.get("/healthz").starts_with("HTTP/1.1 200"));
    assert!(first.get("/readyz?verbose").contains("[+]informer-sync ok"));
    let numbers = first.get("/metrics");
    for expected in [
        "workqueue_adds_total{name=\"serviceaccount\"}",
        "workqueue_depth{name=\"replicaset\"}",
        "leader_election_master_status{name=\"kube-controller-manager\"} 1",
        "rest_client_requests_total{code=\"201\"",
    ] {
        assert!(numbers.contains(expected), "{expected} in {numbers}");
    }
    assert!(!numbers.contains("\"cronjob\""), "that loop was left out");
    let page = first.get("/debug/queues");
    assert!(page.contains("garbage_collector_attempt_to_delete"), "{page}");

    let second = Manager::start(&kubeconfig, &pki);
    let waits = "leader_election_master_status{name=\"kube-controller-manager\"} 0";
    assert!(second.get("/metrics").contains(waits));
    first.end();
    until_held(&door, |holder| !holder.is_empty() && holder != leader);
    // The server knows of a new leader before the leader does.
    let leads = "leader_election_master_status{name=\"kube-controller-manager\"} 1";
    while !second.get("/metrics").contains(leads) || !second.get("/readyz?verbose").contains("[+]informer-sync ok") {
        std::thread::yield_now();
    }
    second.end();
    let lease = door.ask("GET", &format!("{LEASES}/kube-controller-manager"), "").unwrap().json();
    assert_eq!(text(&lease, &["spec", "holderIdentity"]), "", "who goes frees the Lease");
    drop(server);
    std::fs::remove_dir_all(&directory).unwrap();
}
