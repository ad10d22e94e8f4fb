//! `/containerLogs`: what a container printed.

use std::time::Duration;

use http::{Request, Response, StatusCode};
use hyper::body::Incoming;
use tokio::sync::mpsc;

use super::{KubeletServer, body::Body, parameters, plain};
use crate::logs::{self, LogOptions, Stream};

/// How many chunks may wait for a slow reader.
const CHUNKS: usize = 16;

impl KubeletServer {
    pub(super) fn logs(
        &self,
        request: &Request<Incoming>,
        namespace: &str,
        pod: &str,
        container: &str,
    ) -> Response<Body> {
        let Some(handle) = self.shared.pod(namespace, pod) else {
            return plain(StatusCode::NOT_FOUND, format!("pod \"{pod}\" not found"));
        };
        let mut options = LogOptions::default();
        let mut previous = false;
        let now = self.shared.clock().now();
        for (name, value) in parameters(request.uri().query().unwrap_or_default()) {
            let yes = matches!(value.as_str(), "true" | "1");
            match name.as_str() {
                "follow" => options.follow = yes,
                "previous" => previous = yes,
                "timestamps" => options.timestamps = yes,
                "tailLines" => options.tail = value.parse().ok(),
                "limitBytes" => options.limit = value.parse().ok(),
                "sinceTime" => options.since = value.parse().ok(),
                "sinceSeconds" => {
                    let ago = value.parse().map_or(Duration::ZERO, Duration::from_secs);
                    options.since = now.checked_sub(ago).ok();
                }
                "stream" if value == "Stdout" => options.stream = Some(Stream::Stdout),
                "stream" if value == "Stderr" => options.stream = Some(Stream::Stderr),
                _ => {}
            }
        }
        let Some(known) = handle.containers.get(container) else {
            let spec = handle.pod.spec.as_ref();
            let is_there = spec.is_some_and(|spec| {
                let names = spec.containers.iter().chain(spec.init_containers.iter().flatten()).map(|c| &c.name);
                let ephemeral = spec.ephemeral_containers.iter().flatten().map(|c| &c.name);
                names.chain(ephemeral).any(|name| name == container)
            });
            let text = if !is_there {
                format!("container \"{container}\" in pod \"{pod}\" is not available")
            } else if previous {
                format!("previous terminated container \"{container}\" in pod \"{pod}\" not found")
            } else {
                let statuses = [&handle.status.container_statuses, &handle.status.init_container_statuses];
                let status = statuses.into_iter().flatten().flatten().find(|status| status.name == container);
                let waiting = status.and_then(|status| status.state.as_ref()?.waiting.clone()).unwrap_or_default();
                let reason = waiting.reason.unwrap_or_default();
                match reason.as_str() {
                    "ErrImagePull" | "ImagePullBackOff" | "ErrImageNeverPull" | "InvalidImageName" => format!(
                        "container \"{container}\" in pod \"{pod}\" is waiting to start: {}",
                        if reason == "ErrImagePull" {
                            "image can't be pulled"
                        } else {
                            "trying and failing to pull image"
                        }
                    ),
                    reason => format!("container \"{container}\" in pod \"{pod}\" is waiting to start: {reason}"),
                }
            };
            return plain(StatusCode::BAD_REQUEST, text);
        };
        let attempt = if previous { known.attempt.checked_sub(1) } else { Some(known.attempt) };
        let path = attempt.map(|attempt| handle.logs.join(container).join(format!("{attempt}.log")));
        let Some(path) = path.filter(|path| path.exists()) else {
            let text = format!("previous terminated container \"{container}\" in pod \"{pod}\" not found");
            return plain(StatusCode::BAD_REQUEST, text);
        };
        let (out, chunks) = mpsc::channel(CHUNKS);
        let shared = self.shared.clone();
        let (uid, name, id) =
            (handle.pod.metadata.uid.clone().unwrap_or_default(), container.to_owned(), known.id.clone());
        tokio::spawn(async move {
            let ended = || {
                let pods = shared.pods();
                let container = pods.get(&uid).and_then(|handle| handle.containers.get(&name));
                !container.is_some_and(|container| container.id == id && container.running)
            };
            // A log that can't be read any more ends.
            let _ = logs::read(&path, &options, &**shared.clock(), ended, out).await;
        });
        let mut response = Response::new(Body::Chunks(chunks));
        let text = http::HeaderValue::from_static("text/plain");
        response.headers_mut().insert(http::header::CONTENT_TYPE, text);
        response
    }
}
