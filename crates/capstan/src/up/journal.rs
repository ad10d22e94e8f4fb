//! The journal of a cluster: what its parts do, in one file, for `capstan logs`.
//!
//! No part writes here by itself. All of them reach the server by [`Told`], which writes down every Event that they
//! record, and every request that the server refuses although a part that works as it should would not be refused.

use std::{
    fmt,
    fs::{self, File},
    io::Write as _,
    path::{Path, PathBuf},
    sync::{Arc, Mutex, PoisonError},
};

use bytes::Bytes;
use capstan_client::{Body, BoxFuture, Error, Transport};
use capstan_clock::{Clock as _, RealClock};
use capstan_server::{InProcess, http as server};
use http::{Method, Request, Response, StatusCode};
use serde_json::Value;

/// How long the file grows before it is put aside as `.1`, in place of the one that was.
const MAX_BYTES: u64 = 16 << 20;

/// How much of a refusal is written down.
const MAX_MESSAGE: usize = 1000;

/// The file.
pub(super) struct Journal {
    path: PathBuf,
    open: Mutex<Open>,
    clock: RealClock,
}

struct Open {
    file: File,
    bytes: u64,
}

impl Journal {
    /// Goes on with the file, or begins it.
    pub(super) fn open(path: &Path) -> Result<Arc<Self>, String> {
        let fail = |error: std::io::Error| format!("cannot write {}: {error}", path.display());
        if let Some(directory) = path.parent() {
            fs::create_dir_all(directory).map_err(fail)?;
        }
        let open = Mutex::new(append(path).map_err(fail)?);
        Ok(Arc::new(Journal { path: path.to_owned(), open, clock: RealClock::new() }))
    }

    /// Writes one line: when, who, what.
    pub(super) fn say(&self, who: &str, what: impl fmt::Display) {
        let what = what.to_string().replace('\n', " ");
        let line = format!("{:.3} {who:<28} {what}\n", self.clock.now());
        let mut open = self.open.lock().unwrap_or_else(PoisonError::into_inner);
        if open.bytes > MAX_BYTES && fs::rename(&self.path, self.path.with_extension("log.1")).is_ok() {
            match append(&self.path) {
                Ok(new) => *open = new,
                Err(_) => return,
            }
        }
        // A full disk stops nobody.
        if open.file.write_all(line.as_bytes()).is_ok() {
            open.bytes += line.len() as u64;
        }
    }
}

fn append(path: &Path) -> std::io::Result<Open> {
    let file = File::options().create(true).append(true).open(path)?;
    let bytes = file.metadata()?.len();
    Ok(Open { file, bytes })
}

/// The road of a part to the server in the same process.
pub(super) struct Told {
    pub(super) service: InProcess,
    pub(super) who: Arc<str>,
    pub(super) journal: Arc<Journal>,
}

impl Transport for Told {
    fn send(&self, request: Request<Bytes>) -> BoxFuture<'static, Result<Response<Body>, Error>> {
        let (mut service, who, journal) = (self.service.clone(), Arc::clone(&self.who), Arc::clone(&self.journal));
        Box::pin(async move {
            let (method, uri) = (request.method().clone(), request.uri().clone());
            let event = (method == Method::POST && uri.path().ends_with("/events")).then(|| request.body().clone());
            let answer = tower_service::Service::call(&mut service, request.map(server::Body::from)).await;
            let answer = answer.map_err(|never| Error::Transport(never.to_string()))?;
            if let Some(event) = event.filter(|_| answer.status().is_success()) {
                if let Some(text) = event_line(&event) {
                    journal.say(&who, text);
                }
            } else if is_told(answer.status()) {
                let (parts, body) = answer.into_parts();
                let body = Body::new(body).bytes().await?;
                let message = refusal(&body);
                journal.say(&who, format_args!("{method} {} is refused, {}: {message}", uri.path(), parts.status));
                return Ok(Response::from_parts(parts, Body::new(server::Body::from(body))));
            }
            Ok(answer.map(Body::new))
        })
    }
}

/// Whether a part that works as it should would not get such an answer: conflicts and what is gone are no faults.
fn is_told(status: StatusCode) -> bool {
    status.is_server_error()
        || matches!(
            status,
            StatusCode::BAD_REQUEST
                | StatusCode::UNAUTHORIZED
                | StatusCode::FORBIDDEN
                | StatusCode::UNPROCESSABLE_ENTITY
                | StatusCode::UNSUPPORTED_MEDIA_TYPE
        )
}

/// The message of a Status, or what else there is.
fn refusal(body: &[u8]) -> String {
    let status = serde_json::from_slice::<Value>(body).ok();
    let message = status.as_ref().and_then(|status| status.get("message")?.as_str());
    let text = message.map_or_else(|| String::from_utf8_lossy(body).into_owned(), str::to_owned);
    text.chars().take(MAX_MESSAGE).collect()
}

/// An Event in one line: about what, why, and in words.
fn event_line(body: &[u8]) -> Option<String> {
    let event = serde_json::from_slice::<Value>(body).ok()?;
    let about = event.get("involvedObject").or_else(|| event.get("regarding"))?;
    let text = |value: &Value, name: &str| value.get(name).and_then(Value::as_str).unwrap_or_default().to_owned();
    let (kind, name, namespace) = (text(about, "kind"), text(about, "name"), text(about, "namespace"));
    let place = if namespace.is_empty() { name } else { format!("{namespace}/{name}") };
    let words = event.get("message").or_else(|| event.get("note")).and_then(Value::as_str).unwrap_or_default();
    let mark = if text(&event, "type") == "Warning" { "WARNING " } else { "" };
    Some(format!("{mark}{kind} {place}: {}: {words}", text(&event, "reason")))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn events_are_lines() {
        let event = br#"{"involvedObject":{"kind":"Pod","namespace":"default","name":"a"},"reason":"BackOff",
                         "type":"Warning","message":"Back-off restarting"}"#;
        assert_eq!(event_line(event).unwrap(), "WARNING Pod default/a: BackOff: Back-off restarting");
        let newer = br#"{"regarding":{"kind":"Node","name":"n"},"reason":"NodeReady","type":"Normal","note":"ready"}"#;
        assert_eq!(event_line(newer).unwrap(), "Node n: NodeReady: ready");
        assert_eq!(event_line(b"k8s\0"), None);
    }

    #[test]
    fn refusals_are_told_in_the_servers_words() {
        assert_eq!(refusal(br#"{"kind":"Status","message":"pods is forbidden"}"#), "pods is forbidden");
        assert_eq!(refusal(b"404 page not found"), "404 page not found");
        assert!(is_told(StatusCode::FORBIDDEN) && is_told(StatusCode::INTERNAL_SERVER_ERROR));
        assert!(!is_told(StatusCode::CONFLICT) && !is_told(StatusCode::NOT_FOUND));
    }

    #[test]
    fn the_journal_does_not_grow_without_end() {
        let path = std::env::temp_dir().join(format!("capstan-journal-{}.log", std::process::id()));
        let aside = path.with_extension("log.1");
        for file in [&path, &aside] {
            let _ = fs::remove_file(file);
        }
        let journal = Journal::open(&path).unwrap();
        journal.say("up", "first\nline");
        journal.open.lock().unwrap().bytes = MAX_BYTES + 1;
        journal.say("up", "second");
        assert!(fs::read_to_string(&aside).unwrap().ends_with("up                           first line\n"));
        assert!(fs::read_to_string(&path).unwrap().ends_with("second\n"));
        for file in [&path, &aside] {
            fs::remove_file(file).unwrap();
        }
    }
}
