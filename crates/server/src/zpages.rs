//! `/statusz` and `/flagz`: what runs here since when, and how it was started, for people and for programs.

use std::collections::BTreeMap;

use capstan_api::{Map, Status, Str, Time, Value, yaml};
use capstan_clock::Timestamp;

use crate::{
    discovery::version::{API_VERSION, VersionInfo},
    handlers::form::{Form, Wishes, answer},
    http::{Body, Response},
    pretty,
    registry::encode,
    request::{accept, negotiate::is_pretty},
    warnings::Warnings,
};

/// Whose pages these are.
const COMPONENT: &str = "apiserver";
const NOTICE: &str = "Warning: This endpoint is not meant to be machine parseable, has no formatting compatibility \
                      guarantees and is for debugging purposes only.";
const ACCEPTED: [&str; 3] = ["application/json", "application/yaml", "text/plain"];
/// What else can be asked about the server.
const PATHS: [&str; 7] = ["/flagz", "/healthz", "/livez", "/metrics", "/readyz", "/statusz", "/version"];
/// The versions of these pages, the oldest first, which is the one that goes.
const VERSIONS: [&str; 2] = ["v1alpha1", "v1beta1"];

/// The pages of a server.
#[derive(Debug)]
pub(crate) struct ZPages {
    pub(crate) started: Timestamp,
    pub(crate) flags: BTreeMap<String, String>,
}

/// A page in the form that was agreed on.
enum Shape {
    Text,
    Json(&'static str),
    Yaml(&'static str),
}

impl ZPages {
    /// The page at a path.
    pub(crate) fn answer(&self, path: &str, wishes: Wishes<'_>, now: Timestamp) -> Option<Response> {
        let kind = match path {
            "/statusz" => "Statusz",
            "/flagz" => "Flagz",
            _ => return None,
        };
        let Some(shape) = shape(wishes.accept, kind) else {
            return Some(Form::plain(wishes).status(&Status::not_acceptable(&ACCEPTED)));
        };
        let (version, subtype) = match shape {
            Shape::Text => {
                let lines = if kind == "Statusz" { self.status_lines(now) } else { self.flag_lines() };
                let text = format!("\n{COMPONENT} {}\n{NOTICE}\n{lines}", kind.to_lowercase());
                return Some(answer(200, "text/plain; charset=utf-8", Body::from(text)));
            }
            Shape::Json(version) => (version, "json"),
            Shape::Yaml(version) => (version, "yaml"),
        };
        let mut page = Map::new();
        page.insert("kind", kind);
        page.insert("apiVersion", format!("config.k8s.io/{version}"));
        page.insert("metadata", Map::from_iter([(Str::from("name"), Value::from(COMPONENT))]));
        if kind == "Statusz" {
            self.status(&mut page, now)
        } else {
            page.insert("flags", self.flags())
        };
        let body = match subtype {
            "yaml" => yaml::to_string(&page.into()).into_bytes(),
            _ if is_pretty(wishes.raw_query, wishes.query, wishes.user_agent) => pretty::indent(&encode(&page)),
            _ => encode(&page),
        };
        let content_type = format!("application/{subtype};g=config.k8s.io;v={version};as={kind}");
        let mut response = answer(200, &content_type, Body::from(body));
        if version == VERSIONS[0] {
            let mut told = Warnings::default();
            let path = &path[1..];
            told.add(format!("This version of the {path} endpoint is deprecated. Please use a newer version."));
            told.write(response.headers_mut());
        }
        Some(response)
    }

    fn up(&self, now: Timestamp) -> i64 {
        now.as_second() - self.started.as_second()
    }

    fn status_lines(&self, now: Timestamp) -> String {
        let (up, version) = (self.up(now), VersionInfo::default());
        let [major, minor, _] = API_VERSION;
        let started = self.started.strftime("%a %b %e %H:%M:%S UTC %Y");
        let (hours, minutes, seconds) = (up / 3600, up / 60 % 60, up % 60);
        format!(
            "\nStarted: {started}\nUp: {hours} hr {minutes:02} min {seconds:02} sec\nBinary version: {}\n\
             Emulation version: {major}.{minor}\nPaths: {}\n",
            version.git_version.trim_start_matches('v'),
            PATHS.join(" "),
        )
    }

    fn status(&self, page: &mut Map, now: Timestamp) -> Option<Value> {
        let [major, minor, _] = API_VERSION;
        page.insert("startTime", Time::from(self.started).to_string());
        page.insert("uptimeSeconds", self.up(now));
        page.insert("goVersion", VersionInfo::default().go_version);
        page.insert("binaryVersion", VersionInfo::default().git_version.trim_start_matches('v'));
        page.insert("emulationVersion", format!("{major}.{minor}"));
        page.insert("paths", PATHS.iter().map(|path| Value::from(*path)).collect::<Vec<_>>())
    }

    fn flag_lines(&self) -> String {
        self.flags.iter().map(|(name, value)| format!("{name}: {value}\n")).collect()
    }

    fn flags(&self) -> Map {
        self.flags.iter().map(|(name, value)| (Str::from(name.as_str()), Value::from(value.as_str()))).collect()
    }
}

/// The first form of those that a client would take which there is. Programs have to say which version they read.
fn shape(accept: &str, kind: &str) -> Option<Shape> {
    if accept.is_empty() {
        return Some(Shape::Text);
    }
    accept::parse(accept).iter().find_map(|clause| {
        let asks = |name: &str| clause.parameters().find(|(key, _)| *key == name).map(|(_, value)| value);
        let version = || {
            let is_it = asks("g") == Some("config.k8s.io") && asks("as") == Some(kind);
            VERSIONS.into_iter().find(|version| is_it && asks("v") == Some(version))
        };
        match (clause.ty, clause.subtype) {
            ("*", "*") | ("text", "*" | "plain") => Some(Shape::Text),
            ("application", "json") => version().map(Shape::Json),
            ("application", "yaml") => version().map(Shape::Yaml),
            _ => None,
        }
    })
}

#[cfg(test)]
mod tests {
    use std::{sync::Arc, time::Duration};

    use capstan_clock::ManualClock;
    use capstan_storage::{Memory, Options};
    use http_body_util::BodyExt as _;

    use super::*;
    use crate::{
        Config, InProcessUser, Server,
        authorization::{SYSTEM_MASTERS, UserInfo},
        http::Request,
    };

    #[tokio::test]
    async fn pages_for_people_and_for_programs() {
        let clock = Arc::new(ManualClock::at("2026-01-02T03:04:05Z".parse().unwrap()));
        let flags = BTreeMap::from([("secure-port".to_owned(), "6443".to_owned())]);
        let config = Config { clock: clock.clone(), flags, ..Config::default() };
        let server = Server::start(Arc::new(Memory::new(Options::default())), config).await.unwrap();
        clock.advance(Duration::from_secs(3_723));
        let asked = |path: &'static str, accept: &'static str| {
            let admin = UserInfo { name: "admin".into(), groups: vec![SYSTEM_MASTERS.into()], ..UserInfo::default() };
            let request = http::Request::get(path).header("accept", accept).extension(InProcessUser(admin));
            let request: Request = request.body(Body::empty()).unwrap();
            let server = server.clone();
            async move {
                let response = server.answer(request).await;
                let header = |name| response.headers().get(name).map(|value| value.to_str().unwrap().to_owned());
                let (code, form, warns) = (response.status().as_u16(), header("content-type"), header("warning"));
                let body = response.into_body().collect().await.unwrap().to_bytes();
                (code, form.unwrap(), warns, String::from_utf8(body.to_vec()).unwrap())
            }
        };
        let (code, form, _, text) = asked("/statusz", "*/*").await;
        assert_eq!((code, form.as_str()), (200, "text/plain; charset=utf-8"));
        let expected = "\nStarted: Fri Jan  2 03:04:05 UTC 2026\nUp: 1 hr 02 min 03 sec\nBinary version: 1.36.3\n\
                        Emulation version: 1.36\nPaths: /flagz /healthz /livez /metrics /readyz /statusz /version\n";
        assert_eq!(text, format!("\napiserver statusz\n{NOTICE}\n{expected}"));
        assert_eq!(asked("/flagz", "text/plain").await.3, format!("\napiserver flagz\n{NOTICE}\nsecure-port: 6443\n"));

        let beta = "application/json;v=v1beta1;g=config.k8s.io;as=Statusz";
        let (code, form, warns, page) = asked("/statusz", beta).await;
        assert_eq!((code, form.as_str(), warns), (200, "application/json;g=config.k8s.io;v=v1beta1;as=Statusz", None));
        let page = capstan_api::json::parse(page.as_bytes()).unwrap();
        assert_eq!(page.get("uptimeSeconds"), Some(&Value::from(3_723)));
        assert_eq!(page.get("startTime"), Some(&Value::from("2026-01-02T03:04:05Z")));
        let alpha = "application/yaml;as=Flagz;v=v1alpha1;g=config.k8s.io, */*";
        let (_, form, warns, page) = asked("/flagz", alpha).await;
        assert_eq!(form, "application/yaml;g=config.k8s.io;v=v1alpha1;as=Flagz");
        assert!(warns.unwrap().contains("This version of the flagz endpoint is deprecated."));
        assert!(page.contains("secure-port: \"6443\""), "{page}");

        for accept in ["application/json", "text/html", "application/json;v=v1beta1;g=config.k8s.io;as=Flagz"] {
            let (code, _, _, text) = asked("/statusz", accept).await;
            assert_eq!(code, 406, "{accept}");
            assert!(text.contains("accepted: application/json, application/yaml, text/plain"), "{text}");
        }
    }
}
