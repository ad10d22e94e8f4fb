//! Streams that the runtime serves itself: the connection goes on there, byte for byte.

use http::{HeaderName, HeaderValue, Request, Response, StatusCode, Uri};
use hyper::body::Incoming;
use hyper_util::rt::TokioIo;
use tokio::{
    io::{AsyncReadExt as _, AsyncWriteExt as _},
    net::TcpStream,
    sync::oneshot,
};

use super::{body::Body, plain};

/// The largest head of the runtime's answer.
const MAX_HEAD: usize = 16 * 1024;

/// Asks at the runtime's address what was asked here, and joins the two connections if it agrees.
pub(super) async fn proxy(mut request: Request<Incoming>, url: &str) -> Response<Body> {
    let Ok(url) = url.parse::<Uri>() else {
        return plain(StatusCode::BAD_GATEWAY, "the runtime's address can't be read");
    };
    let authority = url.authority().map(ToString::to_string).unwrap_or_default();
    let target = url.path_and_query().map_or("/", |path| path.as_str());
    let mut head = format!("{} {target} HTTP/1.1\r\nhost: {authority}\r\n", request.method());
    for (name, value) in request.headers().iter().filter(|(name, _)| *name != http::header::HOST) {
        head.push_str(&format!("{name}: {}\r\n", String::from_utf8_lossy(value.as_bytes())));
    }
    head.push_str("\r\n");
    let (answered, answer) = oneshot::channel();
    tokio::spawn(async move {
        let asked = async {
            let mut stream = TcpStream::connect(&authority).await.ok()?;
            stream.write_all(head.as_bytes()).await.ok()?;
            let (response, rest) = read_head(&mut stream).await?;
            Some((stream, response, rest))
        };
        let Some((mut stream, response, rest)) = asked.await else { return };
        if answered.send(response).is_err() {
            return;
        }
        let Ok(upgraded) = hyper::upgrade::on(&mut request).await else { return };
        let mut client = TokioIo::new(upgraded);
        if client.write_all(&rest).await.is_ok() {
            // Either side may leave; then the other does.
            let _ = tokio::io::copy_bidirectional(&mut client, &mut stream).await;
        }
    });
    answer.await.unwrap_or_else(|_| plain(StatusCode::BAD_GATEWAY, "the runtime does not answer"))
}

/// The head of an answer, and what came after it already.
async fn read_head(stream: &mut TcpStream) -> Option<(Response<Body>, Vec<u8>)> {
    let mut bytes = Vec::new();
    let end = loop {
        let mut buffer = [0; 1024];
        let read = stream.read(&mut buffer).await.ok().filter(|read| *read > 0)?;
        bytes.extend_from_slice(&buffer[..read]);
        if let Some(end) = bytes.windows(4).position(|window| window == b"\r\n\r\n") {
            break end;
        }
        if bytes.len() > MAX_HEAD {
            return None;
        }
    };
    let rest = bytes.split_off(end + 4);
    let text = String::from_utf8_lossy(&bytes).into_owned();
    let mut lines = text.lines();
    let code = lines.next()?.split(' ').nth(1)?.parse::<u16>().ok()?;
    let mut response = Response::new(Body::empty());
    *response.status_mut() = StatusCode::from_u16(code).ok()?;
    for (name, value) in lines.filter_map(|line| line.split_once(':')) {
        let name = HeaderName::from_bytes(name.trim().as_bytes()).ok();
        if let (Some(name), Ok(value)) = (name, HeaderValue::from_str(value.trim())) {
            response.headers_mut().append(name, value);
        }
    }
    Some((response, rest))
}
