//! Clients that are slow, idle, deaf or too many.

use super::*;

/// Says `first`, then nothing; how long the server puts up with it.
async fn patience(first: &[u8], answered: Option<&str>) -> Duration {
    let server = Server::start().await;
    let mut stream = server.connect().await;
    stream.write_all(first).await.unwrap();
    if let Some(answered) = answered {
        read_until(&mut stream, answered).await;
    }
    server.sleepers(1).await;
    let patience = server.until_closed(&mut stream).await;
    server.is_well().await;
    patience
}

#[tokio::test]
async fn slow_heads_and_idle_connections_are_ended() {
    let head = limits::HEADER_TIMEOUT..limits::IDLE_TIMEOUT;
    assert!(head.contains(&patience(b"", None).await));
    assert!(head.contains(&patience(b"G", None).await));
    assert!(head.contains(&patience(b"PRI * HTTP/2.0\r\n", None).await));
    assert!(head.contains(&patience(b"GET / HTTP/1.1\r\nHost: a\r\nX-Slow: ", None).await));
    let request = b"GET /a HTTP/1.1\r\nHost: a\r\n\r\n";
    assert!(patience(request, Some("hello /a")).await >= limits::IDLE_TIMEOUT);
}

#[tokio::test]
async fn the_next_head_may_not_be_slow_either() {
    let server = Server::start().await;
    let mut stream = server.connect().await;
    stream.write_all(b"GET /a HTTP/1.1\r\nHost: a\r\n\r\n").await.unwrap();
    read_until(&mut stream, "hello /a").await;
    stream.write_all(b"GET /b HTTP/1.1\r\n").await.unwrap();
    let patience = server.until_closed(&mut stream).await;
    assert!((limits::HEADER_TIMEOUT..limits::IDLE_TIMEOUT).contains(&patience), "{patience:?}");
}

#[tokio::test]
async fn a_slow_body_is_answered() {
    let server = Server::start().await;
    let mut stream = server.connect().await;
    stream.write_all(b"POST /echo HTTP/1.1\r\nHost: a\r\nContent-Length: 5\r\n\r\n12").await.unwrap();
    server.sleepers(2).await;
    server.clock.advance(limits::REQUEST_TIMEOUT);
    let end = "Timeout: request did not complete within the allotted timeout";
    let answer = read_until(&mut stream, end).await;
    assert!(answer.starts_with("HTTP/1.1 504 Gateway Timeout\r\n"), "{answer}");
}

#[tokio::test]
async fn a_slow_answer_is_replaced() {
    let server = Server::start().await;
    let mut stream = server.connect().await;
    stream.write_all(b"GET /timeout HTTP/1.1\r\nHost: a\r\n\r\n").await.unwrap();
    server.sleepers(2).await;
    server.clock.advance(limits::REQUEST_TIMEOUT);
    let answer = read_until(&mut stream, "\"reason\":\"Timeout\",\"details\":{},\"code\":504}\n").await;
    assert!(answer.starts_with("HTTP/1.1 504 Gateway Timeout\r\n"), "{answer}");
}

#[tokio::test]
async fn a_client_that_does_not_read_is_cut_off() {
    let server = Server::start().await;
    let mut stream = server.connect().await;
    stream.write_all(b"GET /huge HTTP/1.1\r\nHost: a\r\n\r\n").await.unwrap();
    // One waits for the connection's deadline, the other for the client.
    server.sleepers(2).await;
    server.clock.advance(limits::WRITE_TIMEOUT);
    let mut received = Vec::new();
    let _ = stream.read_to_end(&mut received).await;
    assert!(received.len() < HUGE);
    server.is_well().await;
}

#[tokio::test]
async fn more_connections_than_allowed_wait_for_their_turn() {
    let server = Server::with(Limits { connections: 1, ..Limits::default() }, None).await;
    let request = b"GET /a HTTP/1.1\r\nHost: a\r\n\r\n";
    let mut first = server.connect().await;
    first.write_all(request).await.unwrap();
    read_until(&mut first, "hello /a").await;
    let mut second = server.connect().await;
    second.write_all(request).await.unwrap();
    first.write_all(request).await.unwrap();
    read_until(&mut first, "hello /a").await;
    let error = second.try_read(&mut [0]).unwrap_err();
    assert_eq!(error.kind(), std::io::ErrorKind::WouldBlock);
    drop(first);
    read_until(&mut second, "hello /a").await;
}
