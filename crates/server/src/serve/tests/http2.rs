//! HTTP/2 without TLS, for clients that know in advance.

use super::*;

#[tokio::test]
async fn many_streams_share_one_connection() {
    let server = Server::start().await;
    let client = http2_client(server.connect().await).await;
    let mut asked = tokio::task::JoinSet::new();
    for n in 0..300 {
        let mut client = client.clone();
        asked.spawn(async move {
            let response = client.send_request(http2_get(&format!("/{n}"))).await.unwrap();
            assert_eq!(collect(response.into_body()).await, (format!("hello /{n}").into_bytes(), true));
        });
    }
    assert_eq!(asked.join_all().await.len(), 300);
}

#[tokio::test]
async fn a_large_answer_comes_whole_and_a_panic_breaks_no_other() {
    let server = Server::start().await;
    let mut client = http2_client(server.connect().await).await;
    let large = client.send_request(http2_get("/large")).await.unwrap();
    let panic = client.send_request(http2_get("/panic")).await.unwrap();
    assert_eq!(panic.status(), StatusCode::INTERNAL_SERVER_ERROR);
    assert_eq!(collect(large.into_body()).await, (vec![b'x'; 1_000_000], true));
}

#[tokio::test]
async fn a_body_that_is_too_large_is_refused() {
    let server = Server::start().await;
    let mut client = http2_client(server.connect().await).await;
    let body = "x".repeat(4 * 1024 * 1024);
    let response = client.send_request(http::Request::post("http://a/echo").body(body).unwrap()).await.unwrap();
    assert_eq!(response.status(), StatusCode::PAYLOAD_TOO_LARGE);
    assert_eq!(client.send_request(http2_get("/a")).await.unwrap().status(), StatusCode::OK);
}

#[tokio::test]
async fn an_idle_client_is_sent_away() {
    let server = Server::start().await;
    let mut client = http2_client(server.connect().await).await;
    assert_eq!(client.send_request(http2_get("/a")).await.unwrap().status(), StatusCode::OK);
    let start = server.clock.monotonic();
    while !client.is_closed() {
        for _ in 0..100 {
            tokio::task::yield_now().await;
        }
        server.clock.advance(Duration::from_secs(1));
    }
    // The pings that ask whether it is there do not count as doing something.
    assert!(server.clock.monotonic().since(start) >= limits::IDLE_TIMEOUT);
    server.is_well().await;
}

#[tokio::test]
async fn a_head_that_is_too_large_is_refused() {
    let server = Server::start().await;
    let mut client = http2_client(server.connect().await).await;
    let with = |length: usize| {
        let request = http::Request::get("http://a/a").header("x-long", "b".repeat(length));
        request.body(String::new()).unwrap()
    };
    for (length, status) in [
        (500_000, StatusCode::OK),
        (1_000_000, StatusCode::OK),
        ((1 << 20) + 1, StatusCode::REQUEST_HEADER_FIELDS_TOO_LARGE),
        (5, StatusCode::OK),
    ] {
        assert_eq!(client.send_request(with(length)).await.unwrap().status(), status, "{length}");
    }
    server.is_well().await;
}

#[tokio::test]
async fn requests_that_are_taken_back_leave_nothing_behind() {
    let server = Server::start().await;
    let mut client = http2_client(server.connect().await).await;
    for round in 0..500 {
        // A client that resets too fast is sent away, and comes back.
        if client.ready().await.is_err() {
            client = http2_client(server.connect().await).await;
        }
        let asked = client.send_request(http2_get("/hang"));
        if round % 2 == 0 {
            drop(asked);
            continue;
        }
        tokio::select! {
            biased;
            _ = asked => {}
            () = server.hanging(1) => {}
        }
        while server.app.hanging.load(Ordering::Relaxed) > 0 {
            tokio::task::yield_now().await;
        }
    }
    server.is_well().await;
}

/// A frame of HTTP/2.
fn frame(kind: u8, flags: u8, stream: u32, payload: &[u8]) -> Vec<u8> {
    let length = u32::try_from(payload.len()).unwrap().to_be_bytes();
    [&length[1..], &[kind, flags], &stream.to_be_bytes(), payload].concat()
}

#[tokio::test]
async fn who_takes_back_many_requests_at_once_is_answered_the_next() {
    const HEADERS: u8 = 1;
    const RST_STREAM: u8 = 3;
    const SETTINGS: u8 = 4;
    const GOAWAY: u8 = 7;
    let server = Server::start().await;
    let mut stream = server.connect().await;
    let get = [&[0x82, 0x86, 0x84, 0x01, 1][..], b"a"].concat();
    let mut sent = [&b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n"[..], &frame(SETTINGS, 0, 0, &[])].concat();
    for request in 0..200 {
        sent.extend(frame(HEADERS, 5, 2 * request + 1, &get));
        sent.extend(frame(RST_STREAM, 0, 2 * request + 1, &[0, 0, 0, 8]));
    }
    sent.extend(frame(HEADERS, 5, 401, &get));
    stream.write_all(&sent).await.unwrap();
    loop {
        let mut head = [0; 9];
        stream.read_exact(&mut head).await.unwrap();
        let mut payload = vec![0; u32::from_be_bytes([0, head[0], head[1], head[2]]) as usize];
        stream.read_exact(&mut payload).await.unwrap();
        assert_ne!(head[3], GOAWAY, "it is not sent away: {payload:?}");
        if head[3] == HEADERS && head[5..] == 401u32.to_be_bytes() {
            return;
        }
    }
}
