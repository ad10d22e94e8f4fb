//! HTTP/1.1, well and badly spoken.

use super::*;

/// Asks once, on a connection of its own; the server has to go on afterwards.
async fn check(request: impl AsRef<[u8]>, status: &str, end: &str) {
    let server = Server::start().await;
    let request = request.as_ref();
    let answer = server.ask(request).await;
    let shown = String::from_utf8_lossy(&request[..request.len().min(200)]);
    assert!(answer.starts_with(&format!("HTTP/1.1 {status}")), "{shown}: {answer}");
    assert!(answer.ends_with(end), "{shown}: {answer}");
    server.is_well().await;
}

fn get(path: &str, headers: &str) -> String {
    format!("GET {path} HTTP/1.1\r\nHost: a\r\nConnection: close\r\n{headers}\r\n")
}

fn post(headers: &str, body: &str) -> String {
    format!("POST /echo HTTP/1.1\r\nHost: a\r\nConnection: close\r\n{headers}\r\n{body}")
}

#[tokio::test]
async fn requests_are_answered() {
    check(get("/a", ""), "200 OK", "hello /a").await;
    check(get("/peer", ""), "200 OK", "127.0.0.1 0").await;
    check("GET http://b/a HTTP/1.1\r\nHost: a\r\nConnection: close\r\n\r\n", "200 OK", "hello /a").await;
    check("GET /%2e%2e/%00 HTTP/1.1\r\nHost: a\r\nConnection: close\r\n\r\n", "200 OK", "hello /%2e%2e/%00").await;
    check(post("Content-Length: 5\r\n", "12345"), "200 OK", "read 5").await;
    check(post("Transfer-Encoding: chunked\r\n", "3\r\nabc\r\n2\r\nde\r\n0\r\n\r\n"), "200 OK", "read 5").await;
    check(get("/a", &"X-Many: b\r\n".repeat(500)), "200 OK", "hello /a").await;
    check(get("/a", &format!("X-Long: {}\r\n", "b".repeat(1 << 20))), "200 OK", "hello /a").await;
}

#[tokio::test]
async fn what_is_wrong_is_refused() {
    check("nonsense\r\n\r\n", "400 Bad Request", "\r\n\r\n").await;
    check("GET /a HTTP/1.1\r\n\r\n", "400 Bad Request", "400 Bad Request: missing required Host header").await;
    let hosts = "GET /a HTTP/1.1\r\nHost: a\r\nHost: b\r\n\r\n";
    check(hosts, "400 Bad Request", "\r\n400 Bad Request").await;
    check(get("/a\0", ""), "400 Bad Request", "\r\n\r\n").await;
    check(get("/a", "X\0: b\r\n"), "400 Bad Request", "\r\n\r\n").await;
    check(get("/a", &"X-Many: b\r\n".repeat(600)), "431 Request Header Fields Too Large", "\r\n\r\n").await;
    // hyper looks at the limit between reads, and a read may be as large as the limit.
    let long = format!("X-Long: {}\r\n", "b".repeat(3 << 20));
    check(get("/a", &long), "431 Request Header Fields Too Large", "\r\n\r\n").await;
}

#[tokio::test]
async fn a_body_that_lies_about_its_length_smuggles_nothing() {
    let smuggled = "GET /smuggled HTTP/1.1\r\nHost: a\r\n\r\n";
    check(post("Content-Length: 5\r\nContent-Length: 6\r\n", smuggled), "400 Bad Request", "\r\n\r\n").await;
    check(post("Content-Length: -5\r\n", smuggled), "400 Bad Request", "\r\n\r\n").await;
    check(post("Transfer-Encoding: chunked, identity\r\n", smuggled), "400 Bad Request", "\r\n\r\n").await;
    let both = "Content-Length: 5\r\nTransfer-Encoding: chunked\r\n";
    check(post(both, &format!("0\r\n\r\n{smuggled}")), "200 OK", "read 0").await;
    let chunked = "Transfer-Encoding: chunked\r\n";
    check(post(chunked, "zz\r\n"), "500 Internal Server Error", "invalid byte in chunk length").await;
}

#[tokio::test]
async fn a_body_that_is_too_large_is_refused_and_the_client_sees_it() {
    let refusal = "Request entity too large: limit is 3145728";
    let limit = 3 * 1024 * 1024;
    let body = "x".repeat(limit + 1);
    check(post(&format!("Content-Length: {limit}\r\n"), &body[1..]), "200 OK", "read 3145728").await;
    check(post("Content-Length: 3145729\r\n", &body), "413 Payload Too Large", refusal).await;
    check(post("Content-Length: 99999999999\r\n", "x"), "413 Payload Too Large", refusal).await;
    let chunked = format!("300001\r\n{body}\r\n0\r\n\r\n");
    check(post("Transfer-Encoding: chunked\r\n", &chunked), "413 Payload Too Large", refusal).await;
}

#[tokio::test]
async fn a_panic_is_answered_and_the_connection_lives() {
    let server = Server::start().await;
    let mut stream = server.connect().await;
    stream.write_all(b"GET /panic HTTP/1.1\r\nHost: a\r\n\r\n").await.unwrap();
    let answer = read_until(&mut stream, "Look in the logs for details.\n").await;
    assert!(answer.starts_with("HTTP/1.1 500 Internal Server Error\r\n"), "{answer}");
    stream.write_all(b"GET /a HTTP/1.1\r\nHost: a\r\n\r\n").await.unwrap();
    read_until(&mut stream, "hello /a").await;
}

#[tokio::test]
async fn requests_on_one_connection_are_answered_in_their_order() {
    let server = Server::start().await;
    let mut stream = server.connect().await;
    let many: String = (0..100).map(|n| format!("GET /{n} HTTP/1.1\r\nHost: a\r\n\r\n")).collect();
    stream.write_all(many.as_bytes()).await.unwrap();
    for n in 0..100 {
        let answer = read_until(&mut stream, &format!("hello /{n}")).await;
        assert_eq!(answer.matches("HTTP/1.1 200 OK").count(), 1, "{answer}");
    }
}

#[tokio::test]
async fn a_client_that_was_refused_may_finish_its_sentence() {
    let server = Server::start().await;
    let mut stream = server.connect().await;
    stream.write_all(post("Content-Length: 9999999\r\n", "x").as_bytes()).await.unwrap();
    read_until(&mut stream, "limit is 3145728").await;
    // A server that had closed by now would answer the first write with a reset, and the next would fail.
    for _ in 0..10 {
        stream.write_all(&[b'x'; 10_000]).await.unwrap();
        tokio::task::yield_now().await;
    }
    stream.shutdown().await.unwrap();
    assert_eq!(stream.read(&mut [0]).await.unwrap(), 0);
}
