//! The node's server as kubectl's words reach it: logs, commands, terminals, ports.

use std::sync::Arc;

use capstan_client::{Client, ExplicitConfig};
use capstan_clock::{Clock as _, OsIds, RealClock};
use capstan_kubelet::server::{Everybody, KubeletServer};
use capstan_runtime::Stopper;
use capstan_server::{
    pki::{self, Pki},
    serve,
};
use capstan_spdy::{Decoder, Encoder, Frame, data};
use futures_util::{SinkExt as _, StreamExt as _};
use serde_json::json;
use tokio::{
    io::{AsyncReadExt as _, AsyncWriteExt as _},
    net::{TcpListener, TcpStream},
};
use tokio_tungstenite::{
    WebSocketStream, client_async,
    tungstenite::{Message, client::IntoClientRequest as _},
};

use crate::world::{TOKEN, World, ready, sh};

pub(crate) struct Reach {
    address: String,
    _stopper: Stopper,
}

impl Reach {
    pub(crate) async fn new(world: &World) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = listener.local_addr().unwrap().to_string();
        let (stopper, stop) = Stopper::new();
        let server = KubeletServer::new(world.shared.clone(), Arc::new(Everybody));
        tokio::spawn(server.serve(listener, None, stop));
        Reach { address, _stopper: stopper }
    }

    pub(crate) async fn get(&self, path: &str) -> String {
        let mut stream = TcpStream::connect(&self.address).await.unwrap();
        let request = format!("GET {path} HTTP/1.1\r\nhost: x\r\nconnection: close\r\n\r\n");
        stream.write_all(request.as_bytes()).await.unwrap();
        let mut answer = String::new();
        stream.read_to_string(&mut answer).await.unwrap();
        answer
    }

    pub(crate) async fn websocket(&self, path: &str, protocol: &str) -> WebSocketStream<TcpStream> {
        let mut request = format!("ws://{}{path}", self.address).into_client_request().unwrap();
        request.headers_mut().insert("sec-websocket-protocol", protocol.parse().unwrap());
        let stream = TcpStream::connect(&self.address).await.unwrap();
        let (socket, response) = client_async(request, stream).await.unwrap();
        assert_eq!(response.headers()["sec-websocket-protocol"], protocol);
        socket
    }
}

/// All that came on each channel until the other side closed.
pub(crate) async fn collect(socket: &mut WebSocketStream<TcpStream>) -> [String; 4] {
    let mut all: [String; 4] = Default::default();
    while let Some(Ok(message)) = socket.next().await {
        if let Message::Binary(bytes) = message {
            all[usize::from(bytes[0])].push_str(&String::from_utf8_lossy(&bytes[1..]));
        }
    }
    all
}

#[tokio::test(flavor = "multi_thread")]
async fn logs_commands_and_ports() {
    let Some(world) = World::new("server").await else { return };
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let port = listener.local_addr().unwrap().port();
    tokio::spawn(async move {
        while let Ok((mut stream, _)) = listener.accept().await {
            let mut word = [0; 4];
            stream.read_exact(&mut word).await.unwrap();
            stream.write_all(format!("{}!", String::from_utf8_lossy(&word)).as_bytes()).await.unwrap();
        }
    });
    let script = "trap 'echo bye; exit 0' TERM; echo one; echo two >&2; while :; do sleep 0.05; done";
    world
        .create(
            "p",
            json!({"automountServiceAccountToken": false,
                   "containers": [{"name": "c", "image": "busybox", "command": sh(script)}]}),
        )
        .await;
    world.until("p", ready).await;
    while world.log("p", "c", 0).lines().count() < 2 {
        tokio::task::yield_now().await;
    }
    let reach = Reach::new(&world).await;
    assert!(reach.get("/healthz").await.ends_with("ok"));
    assert!(reach.get("/pods").await.contains("\"name\":\"p\""));
    let logs = reach.get("/containerLogs/default/p/c?tailLines=1&stream=Stdout").await;
    assert!(!logs.contains("two"), "{logs}");
    let missing = reach.get("/containerLogs/default/p/nobody").await;
    assert!(
        missing.contains("400 Bad Request") && missing.contains("container \"nobody\" in pod \"p\" is not available")
    );

    let path =
        "/exec/default/p/c?command=sh&command=-c&command=cat%3B+echo+err+%3E%262%3B+exit+3&input=1&output=1&error=1";
    let mut socket = reach.websocket(path, "v5.channel.k8s.io").await;
    socket.send(Message::binary(b"\0typed".to_vec())).await.unwrap();
    socket.send(Message::binary(vec![255, 0])).await.unwrap();
    let [_, out, err, status] = collect(&mut socket).await;
    assert_eq!((out.as_str(), err.as_str()), ("typed", "err\n"));
    assert!(status.contains(r#""reason":"NonZeroExitCode""#) && status.contains(r#""message":"3""#), "{status}");

    let path = "/exec/default/p/c?command=sh&command=-c&command=stty+size&input=1&output=1&tty=1";
    let mut socket = reach.websocket(path, "v4.channel.k8s.io").await;
    let [_, out, _, status] = collect(&mut socket).await;
    assert!(out.trim_end().ends_with("0 0") && status.contains("Success"), "{out:?} {status}");

    // A forwarded port: SPDY inside a WebSocket, as kubectl does it.
    let mut socket = reach.websocket("/portForward/default/p", "SPDY/3.1+portforward.k8s.io").await;
    let mut encoder = Encoder::default();
    let headers = |kind: &str| {
        let pairs = [("streamtype", kind), ("port", &port.to_string()), ("requestid", "0")];
        pairs.map(|(name, value)| (name.to_owned(), value.to_owned())).to_vec()
    };
    for frame in [encoder.open(1, &headers("error")), encoder.open(3, &headers("data")), data(3, b"ping", false)] {
        socket.send(Message::Binary(frame)).await.unwrap();
    }
    let (mut decoder, mut answer) = (Decoder::default(), Vec::new());
    while answer.len() < 5 {
        if let Some(Ok(Message::Binary(bytes))) = socket.next().await {
            decoder.push(&bytes);
        }
        while let Some(frame) = decoder.decode().unwrap() {
            if let Frame::Data { stream: 3, bytes, .. } = frame {
                answer.extend(bytes);
            }
        }
    }
    assert_eq!(answer, b"ping!");

    // Who follows sees the end.
    let following = tokio::spawn(async move { reach.get("/containerLogs/default/p/c?follow=true").await });
    world.pods().delete("p", &capstan_api::options::DeleteOptions::default()).await.unwrap();
    let followed = following.await.unwrap();
    assert!(followed.contains("one") && followed.contains("bye"), "{followed}");
    world.end().await;
}

/// Ports of a pod as our own client forwards them: through the API server, to the node, into a real socket.
#[tokio::test(flavor = "multi_thread")]
async fn ports_by_our_client() {
    let kubelet = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let Some(world) = World::at_port("forward", kubelet.local_addr().unwrap().port()).await else { return };
    let options = pki::Options { host: "node-1".into(), service_ip: [10, 0, 0, 1].into(), extra: Vec::new() };
    let clock = Arc::new(RealClock::new());
    let keys = Pki::open(&world.dir.join("pki"), &options, clock.now(), &OsIds).unwrap();
    let tls = pki::server_config(&keys.serving, &keys.ca.own.chain()).unwrap();
    let (_stopper, stop) = Stopper::new();
    let server = KubeletServer::new(world.shared.clone(), Arc::new(Everybody));
    tokio::spawn(server.serve(kubelet, Some(Arc::new(tls)), stop));
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let host = format!("http://{}", listener.local_addr().unwrap());
    let _handle = serve::serve(vec![listener], None, world.server.clone(), serve::Limits::default(), clock).unwrap();
    let config = ExplicitConfig { host, bearer_token: TOKEN.to_owned(), ..ExplicitConfig::default() };
    let client = Client::from_config(&capstan_client::Config::explicit(&config).await.unwrap()).unwrap();

    // One answers when it has heard all, the other greets and closes.
    let (echo, greeter) =
        (TcpListener::bind("127.0.0.1:0").await.unwrap(), TcpListener::bind("127.0.0.1:0").await.unwrap());
    let [echo_port, greeter_port] = [&echo, &greeter].map(|listener| listener.local_addr().unwrap().port());
    let closed = TcpListener::bind("127.0.0.1:0").await.unwrap().local_addr().unwrap().port();
    tokio::spawn(async move {
        while let Ok((mut stream, _)) = echo.accept().await {
            tokio::spawn(async move {
                let mut heard = Vec::new();
                stream.read_to_end(&mut heard).await.unwrap();
                stream.write_all(&heard).await.unwrap();
            });
        }
    });
    tokio::spawn(async move {
        while let Ok((mut stream, _)) = greeter.accept().await {
            stream.write_all(b"hello").await.unwrap();
        }
    });
    let script = "trap 'exit 0' TERM; while :; do sleep 0.05; done";
    let spec = json!({"automountServiceAccountToken": false,
                      "containers": [{"name": "c", "image": "busybox", "command": sh(script)}]});
    world.create("p", spec).await;
    world.until("p", ready).await;

    let pods = client.core_v1().pods("default");
    assert!(pods.port_forward("nobody", &[echo_port]).await.unwrap_err().is_not_found());
    let forward = pods.port_forward("p", &[echo_port, greeter_port]).await.unwrap();
    let long: Vec<u8> = (0..1 << 20).map(|at: u32| at.to_le_bytes()[1]).collect();
    let talk = async |text: &[u8]| {
        let mut stream = forward.connect(echo_port).await.unwrap();
        stream.write_all(text).await.unwrap();
        stream.shutdown().await.unwrap();
        let mut heard = Vec::new();
        stream.read_to_end(&mut heard).await.unwrap();
        assert_eq!(stream.error().await, None);
        heard == text
    };
    let greeted = async {
        let mut stream = forward.connect(greeter_port).await.unwrap();
        let mut heard = String::new();
        stream.read_to_string(&mut heard).await.unwrap();
        (heard, stream.error().await)
    };
    let refused = async {
        let mut stream = forward.connect(closed).await.unwrap();
        assert_eq!(stream.read(&mut [0]).await.unwrap(), 0);
        stream.error().await.unwrap()
    };
    let (one, two, (greeting, fine), refused) = tokio::join!(talk(&long), talk(b"short"), greeted, refused);
    assert!(one && two);
    assert_eq!((greeting.as_str(), fine), ("hello", None));
    assert!(refused.starts_with(&format!("error forwarding port {closed} to pod ")), "{refused}");
    assert!(refused.contains("refused"), "{refused}");
    // One that failed takes nobody with it.
    assert!(talk(b"again").await);
    drop(forward);
    world.end().await;
}
