//! How a server ends.

use capstan_clock::Moment;

use super::*;

const BOUND: Duration = Duration::from_secs(10);

#[tokio::test]
async fn watches_end_cleanly() {
    let server = Server::start().await;
    let mut http1 = server.connect().await;
    http1.write_all(b"GET /watch HTTP/1.1\r\nHost: a\r\n\r\n").await.unwrap();
    read_until(&mut http1, "{\"two\":2}\n\r\n").await;
    let mut client = http2_client(server.connect().await).await;
    let http2 = client.send_request(http2_get("/watch")).await.unwrap();
    let mut idle = server.connect().await;
    idle.write_all(b"GET /a HTTP/1.1\r\nHost: a\r\n\r\n").await.unwrap();
    read_until(&mut idle, "hello /a").await;
    let mut silent = server.connect().await;
    server.sleepers(4).await;

    let address = server.handle.local_addr();
    let ended = tokio::spawn(server.handle.shutdown(BOUND));
    let mut rest = String::new();
    http1.read_to_string(&mut rest).await.unwrap();
    assert_eq!(rest, "0\r\n\r\n");
    assert_eq!(collect(http2.into_body()).await, (b"{\"one\":1}\n{\"two\":2}\n".to_vec(), true));
    assert_eq!(idle.read(&mut [0]).await.unwrap(), 0);
    assert_eq!(silent.read(&mut [0]).await.unwrap(), 0);
    assert!(ended.await.unwrap());
    TcpStream::connect(address).await.unwrap_err();
}

#[tokio::test]
async fn a_request_that_does_not_end_is_cut_off() {
    let server = Server::start().await;
    let mut stream = server.connect().await;
    stream.write_all(b"GET /hang HTTP/1.1\r\nHost: a\r\n\r\n").await.unwrap();
    let mut client = http2_client(server.connect().await).await;
    let hanging = tokio::spawn(async move { client.send_request(http2_get("/hang")).await.is_err() });
    server.hanging(2).await;
    let ended = tokio::spawn(server.handle.shutdown(BOUND));
    while server.clock.next_deadline() != Some(Moment(BOUND)) {
        tokio::task::yield_now().await;
    }
    server.clock.advance(BOUND);
    assert!(!ended.await.unwrap());
    assert_eq!(stream.read(&mut [0]).await.unwrap(), 0);
    assert!(hanging.await.unwrap());
}

#[tokio::test]
async fn dropping_the_handle_ends_all() {
    let server = Server::start().await;
    let mut stream = server.connect().await;
    stream.write_all(b"GET /hang HTTP/1.1\r\nHost: a\r\n\r\n").await.unwrap();
    server.hanging(1).await;
    drop(server.handle);
    assert_eq!(stream.read(&mut [0]).await.unwrap(), 0);
}
