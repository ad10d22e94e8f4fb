//! Commands, ports and logs of pods, against a server that speaks as those of Kubernetes do.

#![expect(clippy::unwrap_used, reason = "all of it is a test")]

use capstan_client::{
    Client, Config, Error, ExplicitConfig,
    stream::{AttachOptions, LogOptions, Output, PortStream, exit_code},
};
use capstan_spdy::{Frame, data};
use futures_util::{SinkExt as _, StreamExt as _};
use http::header::SEC_WEBSOCKET_PROTOCOL;
use tokio::{
    io::{AsyncReadExt as _, AsyncWriteExt as _},
    net::{TcpListener, TcpStream},
};
use tokio_tungstenite::{
    WebSocketStream, accept_hdr_async,
    tungstenite::{
        Message,
        handshake::server::{Request, Response},
    },
};

async fn accept(listener: &TcpListener, protocol: &'static str) -> (WebSocketStream<TcpStream>, String, String) {
    let (stream, _) = listener.accept().await.unwrap();
    let (mut uri, mut offered) = (String::new(), String::new());
    #[expect(clippy::result_large_err, reason = "the type of the callback")]
    let answer = |request: &Request, mut response: Response| {
        uri = request.uri().to_string();
        request.headers()[SEC_WEBSOCKET_PROTOCOL].to_str().unwrap().clone_into(&mut offered);
        response.headers_mut().insert(SEC_WEBSOCKET_PROTOCOL, protocol.parse().unwrap());
        Ok(response)
    };
    let socket = accept_hdr_async(stream, answer).await.unwrap();
    (socket, uri, offered)
}

async fn client(listener: &TcpListener) -> Client {
    let host = format!("http://{}", listener.local_addr().unwrap());
    let config = ExplicitConfig { host, ..ExplicitConfig::default() };
    Client::from_config(&Config::explicit(&config).await.unwrap()).unwrap()
}

fn message(stream: u8, text: &str) -> Message {
    Message::Binary([&[stream], text.as_bytes()].concat().into())
}

#[tokio::test]
async fn commands() {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let pods = client(&listener).await.core_v1().pods("default");
    let server = tokio::spawn(async move {
        let (mut socket, uri, offered) = accept(&listener, "v5.channel.k8s.io").await;
        assert_eq!(
            uri,
            "/api/v1/namespaces/default/pods/web/exec?command=cat&command=-n&stdin=true&stdout=true&stderr=true"
        );
        assert_eq!(offered, "v5.channel.k8s.io, v4.channel.k8s.io");
        socket.send(message(1, "")).await.unwrap();
        let mut heard = Vec::new();
        while let Some(Ok(Message::Binary(bytes))) = socket.next().await {
            heard.push(bytes.to_vec());
            match bytes.as_ref() {
                [0, input @ ..] => socket.send(message(1, str::from_utf8(input).unwrap())).await.unwrap(),
                [255, 0] => break,
                _ => {}
            }
        }
        socket.send(message(2, "oh")).await.unwrap();
        let failed = r#"{"metadata":{},"status":"Failure","message":"command terminated with non-zero exit code","reason":"NonZeroExitCode","details":{"causes":[{"reason":"ExitCode","message":"7"}]}}"#;
        socket.send(message(3, failed)).await.unwrap();
        socket.close(None).await.unwrap();
        heard
    });
    let options = AttachOptions { stdin: true, ..AttachOptions::command(["cat", "-n"]) };
    let mut command = pods.exec("web", &options).await.unwrap();
    command.stdin().resize(80, 24).await.unwrap();
    command.stdin().write(b"hello").await.unwrap();
    assert_eq!(command.next().await.unwrap(), Some(Output::Stdout("hello".into())));
    let (stdout, stderr, status) = command.output().await.unwrap();
    assert_eq!((stdout.as_slice(), stderr.as_slice(), exit_code(&status)), (&b""[..], &b"oh"[..], Some(7)));
    let heard = server.await.unwrap();
    assert_eq!(heard, [b"\x04{\"Width\":80,\"Height\":24}".to_vec(), b"\0hello".to_vec(), b"\xff\0".to_vec()]);
}

/// All that comes from a port.
async fn read(stream: &mut PortStream) -> String {
    let mut text = String::new();
    stream.read_to_string(&mut text).await.unwrap();
    text
}

/// The older protocol: a WebSocket has one connection to each port.
#[tokio::test]
async fn ports_of_servers_without_tunnels() {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let pods = client(&listener).await.core_v1().pods("default");
    let server = tokio::spawn(async move {
        let (mut socket, uri, offered) = accept(&listener, "v4.channel.k8s.io").await;
        assert_eq!(offered, "SPDY/3.1+portforward.k8s.io, v4.channel.k8s.io");
        assert_eq!(uri, "/api/v1/namespaces/default/pods/web/portforward?ports=80&ports=81");
        for (stream, port) in [(0, 80), (1, 80), (2, 81), (3, 81)] {
            socket.send(Message::Binary(vec![stream, port, 0].into())).await.unwrap();
        }
        let asked = socket.next().await.unwrap().unwrap();
        assert_eq!(asked.into_data().as_ref(), b"\x02ping");
        socket.send(message(2, "pong")).await.unwrap();
        socket.send(message(1, "nobody listens")).await.unwrap();

        let (mut second, uri, _) = accept(&listener, "v4.channel.k8s.io").await;
        assert_eq!(uri, "/api/v1/namespaces/default/pods/web/portforward?ports=81");
        for stream in [0, 1] {
            second.send(Message::Binary(vec![stream, 81, 0].into())).await.unwrap();
        }
        second.send(message(0, "again")).await.unwrap();
        second.close(None).await.unwrap();
        socket.close(None).await.unwrap();
    });
    let forward = pods.port_forward("web", &[80, 81]).await.unwrap();
    let (mut one, mut two) = (forward.connect(80).await.unwrap(), forward.connect(81).await.unwrap());
    two.write_all(b"ping").await.unwrap();
    let mut pong = [0; 4];
    two.read_exact(&mut pong).await.unwrap();
    assert_eq!(&pong, b"pong");
    assert_eq!(read(&mut one).await, "");
    assert_eq!(one.error().await.as_deref(), Some("nobody listens"));
    let mut three = forward.connect(81).await.unwrap();
    assert_eq!((read(&mut three).await.as_str(), three.error().await), ("again", None));
    assert_eq!((read(&mut two).await.as_str(), two.error().await), ("", None));
    server.await.unwrap();
    for ports in [&[][..], &[0]] {
        assert!(pods.port_forward("web", ports).await.is_err());
    }
}

/// SPDY inside the WebSocket: what goes over the wire is what kubectl sends.
#[tokio::test]
async fn ports_by_tunnel() {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let pods = client(&listener).await.core_v1().pods("default");
    let server = tokio::spawn(async move {
        let (socket, _, _) = accept(&listener, "SPDY/3.1+portforward.k8s.io").await;
        let (mut connection, _writing) = capstan_spdy::split(capstan_spdy::tunnel(socket));
        let (mut heard, mut ended) = (Vec::new(), Vec::new());
        while let Some(frame) = connection.next().await {
            let answers = match frame {
                Frame::Open { stream, headers, fin } => {
                    assert!(!fin);
                    let header = |name: &str| headers.iter().find(|(known, _)| known == name).unwrap().1.clone();
                    heard.push((stream, header("streamtype"), header("port"), header("requestid")));
                    match (header("streamtype").as_str(), header("port").as_str()) {
                        ("data", "81") => {
                            let reason = [data(stream - 2, b"nobody ", false), data(stream - 2, b"listens", true)];
                            reason.into_iter().chain([data(stream, b"", true)]).collect()
                        }
                        ("data", "82") => vec![capstan_spdy::reset(stream), capstan_spdy::reset(stream - 2)],
                        _ => Vec::new(),
                    }
                }
                // An echo, in capitals; it ends when the client has.
                Frame::Data { stream, bytes, fin } if stream % 4 == 3 => {
                    let mut answers = vec![data(stream, &bytes.to_ascii_uppercase(), fin)];
                    answers.extend(fin.then(|| data(stream - 2, b"", true)));
                    answers
                }
                Frame::Data { stream, bytes, fin: true } if bytes.is_empty() => {
                    ended.push(stream);
                    Vec::new()
                }
                Frame::Reset { stream } => {
                    ended.push(stream);
                    Vec::new()
                }
                other => panic!("{other:?}"),
            };
            for answer in answers {
                connection.frames.send(answer).await.unwrap();
            }
        }
        (heard, ended)
    });
    let forward = pods.port_forward("web", &[80]).await.unwrap();
    let (mut one, mut two) = (forward.connect(80).await.unwrap(), forward.connect(80).await.unwrap());
    two.write_all(b"second").await.unwrap();
    one.write_all(b"first").await.unwrap();
    one.shutdown().await.unwrap();
    assert_eq!((read(&mut one).await.as_str(), one.error().await), ("FIRST", None));

    let mut three = forward.connect(81).await.unwrap();
    assert_eq!(three.error().await.as_deref(), Some("nobody listens"));
    let mut four = forward.connect(82).await.unwrap();
    assert_eq!((read(&mut four).await.as_str(), four.error().await), ("", Some("the stream was reset".to_owned())));

    // A failure ends nobody else.
    two.shutdown().await.unwrap();
    assert_eq!(read(&mut two).await, "SECOND");

    let (near, mut far) = tokio::io::duplex(64);
    let (sent, carried) = tokio::join!(
        async {
            far.write_all(b"carried").await.unwrap();
            far.shutdown().await.unwrap();
            let mut text = String::new();
            far.read_to_string(&mut text).await.unwrap();
            text
        },
        forward.forward(80, near)
    );
    assert_eq!((sent.as_str(), carried), ("CARRIED", Ok(())));
    let refused = forward.forward(81, tokio::io::duplex(64).0).await;
    assert_eq!(refused, Err(Error::Transport("nobody listens".into())));

    drop((forward, one, two, three, four));
    let (heard, ended) = server.await.unwrap();
    let ports = ["80", "80", "81", "82", "80", "81"];
    let expected: Vec<_> = (0u32..)
        .zip(ports)
        .flat_map(|(at, port)| {
            let stream = |of, kind: &str| (at * 4 + of, kind.to_owned(), port.to_owned(), at.to_string());
            [stream(1, "error"), stream(3, "data")]
        })
        .collect();
    assert_eq!(heard, expected);
    // The client says at once that it writes no errors, and gives up each stream of data when that is over.
    for (stream, kind, ..) in &heard {
        assert!(ended.contains(stream), "{kind} stream {stream} in {ended:?}");
    }
}

/// What waits for a server that goes away is told so.
#[tokio::test]
async fn ports_of_a_server_that_goes_away() {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let pods = client(&listener).await.core_v1().pods("default");
    let server = tokio::spawn(async move {
        let (mut socket, _, _) = accept(&listener, "SPDY/3.1+portforward.k8s.io").await;
        // The streams are asked for; then it ends.
        socket.next().await.unwrap().unwrap();
    });
    let forward = pods.port_forward("web", &[80]).await.unwrap();
    let mut stream = forward.connect(80).await.unwrap();
    assert_eq!(read(&mut stream).await, "");
    assert_eq!(stream.error().await.as_deref(), Some("lost connection to pod"));
    assert!(forward.connect(80).await.is_err());
    server.await.unwrap();
}

/// A server that answers one request as it is told.
async fn answers(listener: TcpListener, answer: &str) -> String {
    let (mut stream, _) = listener.accept().await.unwrap();
    let mut asked = vec![0; 4096];
    let read = stream.read(&mut asked).await.unwrap();
    stream.write_all(answer.as_bytes()).await.unwrap();
    String::from_utf8_lossy(&asked[..read]).lines().next().unwrap().to_owned()
}

#[tokio::test]
async fn refusals_and_logs() {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let pods = client(&listener).await.core_v1().pods("default");
    let text =
        r#"{"kind":"Status","status":"Failure","reason":"NotFound","code":404,"message":"pods \"web\" not found"}"#;
    let answer = format!("HTTP/1.1 404 Not Found\r\ncontent-length: {}\r\n\r\n{text}", text.len());
    let server = tokio::spawn(async move { answers(listener, &answer).await });
    let error = pods.exec("web", &AttachOptions::command(["ls"])).await.unwrap_err();
    assert!(error.is_not_found(), "{error}");
    server.await.unwrap();

    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let pods = client(&listener).await.core_v1().pods("default");
    let server = tokio::spawn(answers(listener, "HTTP/1.1 200 OK\r\ncontent-length: 6\r\n\r\nhello\n"));
    let options = LogOptions { container: "c".into(), tail_lines: Some(1), ..LogOptions::default() };
    assert_eq!(pods.logs("web", &options).await.unwrap(), "hello\n");
    assert_eq!(server.await.unwrap(), "GET /api/v1/namespaces/default/pods/web/log?container=c&tailLines=1 HTTP/1.1");
}
