//! Watches over WebSocket.

use super::*;

const KEY: &str = "Sec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ==\r\nSec-WebSocket-Version: 13\r\n";

fn request(query: &str, headers: &str) -> String {
    let upgrade = "Connection: keep-alive, Upgrade\r\nUpgrade: WebSocket\r\n";
    format!("GET /websocket{query} HTTP/1.1\r\nHost: a\r\n{upgrade}{headers}\r\n")
}

async fn frame(stream: &mut TcpStream) -> (u8, Vec<u8>) {
    let (kind, length) = (stream.read_u8().await.unwrap(), stream.read_u8().await.unwrap());
    assert!(length < 126, "not masked, and short");
    let mut payload = vec![0; length.into()];
    stream.read_exact(&mut payload).await.unwrap();
    (kind, payload)
}

async fn open(server: &Server, query: &str) -> TcpStream {
    let mut stream = server.connect().await;
    stream.write_all(request(query, &format!("{KEY}Origin: http://a\r\n")).as_bytes()).await.unwrap();
    let answer = read_until(&mut stream, "\r\n\r\n").await;
    assert!(answer.starts_with("HTTP/1.1 101 Switching Protocols\r\n"), "{answer}");
    assert!(answer.to_lowercase().contains("sec-websocket-accept: s3pplmbitxaq9kygzzhzrbk+xoo=\r\n"), "{answer}");
    stream
}

#[tokio::test]
async fn each_event_is_a_message() {
    let server = Server::start().await;
    let mut stream = open(&server, "").await;
    assert_eq!(frame(&mut stream).await, (0x81, b"{\"one\":1}\n".to_vec()));
    assert_eq!(frame(&mut stream).await, (0x81, b"{\"two\":2}\n".to_vec()));
    // A ping with a mask of zeros, a text to ignore, another ping.
    stream.write_all(&[0x89, 0x81, 0, 0, 0, 0, b'p']).await.unwrap();
    stream.write_all(&[0x81, 0x81, 0, 0, 0, 0, b't', 0x89, 0x81, 0, 0, 0, 0, b'q']).await.unwrap();
    assert_eq!(frame(&mut stream).await, (0x8a, b"p".to_vec()));
    assert_eq!(frame(&mut stream).await, (0x8a, b"q".to_vec()));

    let ended = tokio::spawn(server.handle.shutdown(Duration::from_secs(10)));
    assert_eq!(frame(&mut stream).await, (0x88, 1000_u16.to_be_bytes().to_vec()));
    assert_eq!(stream.read(&mut [0]).await.unwrap(), 0);
    drop(stream);
    assert!(ended.await.unwrap());
}

#[tokio::test]
async fn protobuf_events_lose_their_length() {
    let server = Server::start().await;
    let mut stream = open(&server, "?application/vnd.kubernetes.protobuf;stream=watch").await;
    assert_eq!(frame(&mut stream).await, (0x82, b"ne\":1}\n"[1..].to_vec()));
}

#[tokio::test]
async fn who_says_goodbye_gets_it_back_and_who_talks_too_much_is_left() {
    let server = Server::start().await;
    for (said, answered) in [
        (&[0x88, 0x82, 0, 0, 0, 0, 3, 232][..], Some(vec![3, 232])),
        (&[0x81, 0xff, 0, 0, 0, 0, 0, 2, 0, 0, 0, 0, 0, 0][..], None),
        (&[0xff, 0x80, 0, 0, 0, 0][..], None),
    ] {
        let mut stream = open(&server, "").await;
        frame(&mut stream).await;
        frame(&mut stream).await;
        stream.write_all(said).await.unwrap();
        if let Some(answered) = answered {
            assert_eq!(frame(&mut stream).await, (0x88, answered));
        }
        let _ = stream.read_to_end(&mut Vec::new()).await;
    }
    server.is_well().await;
}

async fn refused(headers: &str, status: &str, text: &str) {
    let server = Server::start().await;
    let answer = server.ask(request("", headers).as_bytes()).await;
    assert!(answer.starts_with(&format!("HTTP/1.1 {status}")) && answer.ends_with(text), "{headers}: {answer}");
}

#[tokio::test]
async fn handshakes_that_fail() {
    let origin = "Origin: http://a\r\n";
    refused(KEY, "403 Forbidden", "\r\n\r\n").await;
    for origin in ["", "a b", "foo", "null"] {
        refused(&format!("{KEY}Origin: {origin}\r\n"), "403 Forbidden", "\r\n\r\n").await;
    }
    refused(origin, "400 Bad Request", "mismatch challenge/response").await;
    let old = "Sec-WebSocket-Key: a\r\nSec-WebSocket-Version: 8\r\n";
    refused(&format!("{old}{origin}"), "400 Bad Request", "missing or bad WebSocket Version").await;
    let several = "Sec-WebSocket-Protocol: a, b\r\n";
    refused(&format!("{KEY}{origin}{several}"), "400 Bad Request", "\r\n\r\n").await;
}

#[tokio::test]
async fn one_protocol_is_said_back() {
    let server = Server::start().await;
    let mut stream = server.connect().await;
    let headers = format!("{KEY}Origin: http://a\r\nSec-WebSocket-Protocol: base64.binary.k8s.io\r\n");
    stream.write_all(request("", &headers).as_bytes()).await.unwrap();
    let answer = read_until(&mut stream, "\r\n\r\n").await.to_lowercase();
    assert!(answer.contains("sec-websocket-protocol: base64.binary.k8s.io\r\n"), "{answer}");
}
