//! Commands, ports and logs of pods, against a server that speaks as those of Kubernetes do.

#![expect(clippy::unwrap_used, reason = "all of it is a test")]

use capstan_client::{
    Client, Config, ExplicitConfig,
    stream::{AttachOptions, Forwarded, LogOptions, Output, exit_code},
};
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

#[tokio::test]
async fn ports() {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let pods = client(&listener).await.core_v1().pods("default");
    let server = tokio::spawn(async move {
        let (mut socket, uri, _) = accept(&listener, "v4.channel.k8s.io").await;
        assert_eq!(uri, "/api/v1/namespaces/default/pods/web/portforward?ports=80&ports=81");
        for (stream, port) in [(0, 80), (1, 80), (2, 81), (3, 81)] {
            socket.send(Message::Binary(vec![stream, port, 0].into())).await.unwrap();
        }
        let asked = socket.next().await.unwrap().unwrap();
        assert_eq!(asked.into_data().as_ref(), b"\x02ping");
        socket.send(message(2, "pong")).await.unwrap();
        socket.send(message(1, "nobody listens")).await.unwrap();
        socket.close(None).await.unwrap();
    });
    let mut forward = pods.port_forward("web", &[80, 81]).await.unwrap();
    assert!(forward.write(2, b"x").await.is_err());
    forward.write(1, b"ping").await.unwrap();
    assert_eq!(forward.next().await.unwrap(), Some(Forwarded::Data(1, "pong".into())));
    assert_eq!(forward.next().await.unwrap(), Some(Forwarded::Failed(0, "nobody listens".into())));
    assert_eq!(forward.next().await.unwrap(), None);
    server.await.unwrap();
    assert!(pods.port_forward("web", &[]).await.is_err());
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
