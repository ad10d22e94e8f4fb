//! The parts that are used without a socket.

use std::io::Read;

use http::{HeaderMap, HeaderValue, header};

use super::*;
use crate::request::RequestInfo;

async fn compressed(accept: &str, body: Body) -> (Option<HeaderValue>, Vec<u8>) {
    let mut headers = HeaderMap::new();
    headers.insert(header::ACCEPT_ENCODING, accept.parse().unwrap());
    let response = gzip(&headers, Response::new(body));
    let encoding = response.headers().get(header::CONTENT_ENCODING).cloned();
    assert_eq!(encoding.is_some(), response.headers().get(header::VARY).is_some());
    (encoding, collect(response.into_body()).await.0)
}

fn slices(length: usize) -> (Body, Vec<u8>) {
    let plain: Vec<u8> = (0..length).map(|n| (n * n / 7 % 251) as u8).collect();
    let body = Body::Slices(plain.chunks(777).map(Bytes::copy_from_slice).collect());
    (body, plain)
}

#[tokio::test]
async fn large_answers_are_compressed_for_those_who_want_it() {
    let large = 128 * 1024 + 1;
    for (accept, length, compresses) in [
        ("gzip", large, true),
        ("deflate, gzip ,br", large, true),
        ("gzip", 10_000_000, true),
        ("gzip", large - 1, false),
        ("gzip;q=1", large, false),
        ("identity", large, false),
        ("", large, false),
    ] {
        let (body, plain) = slices(length);
        let (encoding, sent) = compressed(accept, body).await;
        assert_eq!(encoding.is_some(), compresses, "{accept} {length}");
        if compresses {
            let mut unpacked = Vec::new();
            flate2::read::GzDecoder::new(&*sent).read_to_end(&mut unpacked).unwrap();
            assert!(sent.len() < plain.len());
            assert!(unpacked == plain, "{accept} {length}");
        } else {
            assert!(sent == plain, "{accept} {length}");
        }
    }
}

#[tokio::test]
async fn one_slice_of_nothing_but_zeros_is_compressed_in_steps() {
    let (encoding, sent) = compressed("gzip", Body::from(vec![0; 8 * 1024 * 1024])).await;
    assert!(encoding.is_some());
    let mut unpacked = Vec::new();
    flate2::read::GzDecoder::new(&*sent).read_to_end(&mut unpacked).unwrap();
    assert!(unpacked == vec![0; 8 * 1024 * 1024]);
}

#[tokio::test]
async fn watches_are_not_compressed() {
    let (sender, receiver) = mpsc::channel(1);
    sender.try_send(Bytes::from(vec![b'x'; 1024 * 1024])).unwrap();
    drop(sender);
    let (encoding, sent) = compressed("gzip", Body::stream(Events(receiver))).await;
    assert_eq!((encoding, sent.len()), (None, 1024 * 1024));
}

#[test]
fn loads() {
    let path = |verb: &str, path: &str| {
        let mut info = RequestInfo::default();
        (info.verb, info.path) = (verb.into(), path.into());
        info
    };
    let resource = |verb: &str, subresource: &str| {
        let mut info = path(verb, "/api");
        (info.is_resource_request, info.subresource) = (true, subresource.into());
        info
    };
    for (info, load) in [
        (resource("get", ""), Load::ReadOnly),
        (resource("list", ""), Load::ReadOnly),
        (resource("watch", ""), Load::LongRunning),
        (resource("get", "log"), Load::LongRunning),
        (resource("create", "exec"), Load::LongRunning),
        (resource("get", "status"), Load::ReadOnly),
        (resource("patch", "status"), Load::Mutating),
        (resource("deletecollection", ""), Load::Mutating),
        (path("get", "/healthz"), Load::ReadOnly),
        (path("post", "/healthz"), Load::Mutating),
        (path("get", "/debug/pprof/heap"), Load::LongRunning),
    ] {
        assert_eq!(Load::of(&info), load, "{info:?}");
    }
}

#[tokio::test]
async fn too_many_requests_are_told_so() {
    let in_flight = InFlight::new(2, 1);
    let first = in_flight.enter(Load::ReadOnly, false).unwrap();
    let _second = in_flight.enter(Load::ReadOnly, false).unwrap();
    let refusal = in_flight.enter(Load::ReadOnly, false).unwrap_err();
    assert_eq!(refusal.status(), StatusCode::TOO_MANY_REQUESTS);
    assert_eq!(refusal.headers()[header::RETRY_AFTER], "1");
    let text = b"Too many requests, please try again later.\n".to_vec();
    assert_eq!(collect(refusal.into_body()).await, (text, true));
    in_flight.enter(Load::ReadOnly, true).unwrap();
    in_flight.enter(Load::LongRunning, false).unwrap();
    let _write = in_flight.enter(Load::Mutating, false).unwrap();
    in_flight.enter(Load::Mutating, false).unwrap_err();
    drop(first);
    in_flight.enter(Load::ReadOnly, false).unwrap();
}
