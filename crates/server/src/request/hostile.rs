//! Whatever a client sends, reading it ends, and ends well.

use capstan_api::codec::Format;
use proptest::prelude::*;

use super::{
    DeleteOptions, Endpoint, ListOptions, PatchOptions, PatchType, Query, RequestInfo, Url, WriteOptions,
    body::body_media_type,
    negotiate::{Protobuf, Serves, is_pretty},
    options::table_options,
    resource_version::parse_resource_version,
};

const ENDPOINT: Endpoint =
    Endpoint { protobuf: Protobuf::Yes, serves: Serves::Objects { tables: true }, streams: true };

fn read(method: &str, target: &str) {
    let Ok(url) = Url::parse(target) else { return };
    let query = Query::parse(url.query);
    if let Ok(info) = RequestInfo::new(method, &url, &query) {
        // What the parts say and what the fields say is the same.
        if let Some(resource) = info.parts().next() {
            assert_eq!(resource, info.resource);
        }
    }
    let _ = ListOptions::parse(&query).and_then(|options| options.start());
    let _ = DeleteOptions::from_query(&query);
    let _ = WriteOptions::for_create(&query);
    let _ = PatchOptions::parse(&query, PatchType::Apply);
    let _ = table_options(&query);
    let _ = is_pretty(url.query, &query, "");
}

fn headers(text: &str) {
    let _ = ENDPOINT.check_accept(text);
    let _ = ENDPOINT.negotiate(text);
    let _ = ENDPOINT.negotiate_stream(text);
    let _ = body_media_type(text, Protobuf::Yes);
    let _ = PatchType::parse(text);
    let _ = PatchType::parse_custom(text);
    let _ = parse_resource_version(text);
}

/// What is long must not take longer than its length: these would not end in this life if it took the square.
#[test]
fn long_input() {
    const LENGTH: usize = 1 << 18;
    for part in ["/", "/a", "%2e", "%00", "/..", "a"] {
        read("GET", &format!("/api/v1/{}", part.repeat(LENGTH / part.len())));
    }
    for part in ["&", "a=1&", "dryRun=All&", "=", "%", ";", "+", "labelSelector=a,"] {
        read("GET", &format!("/api/v1/pods?{}", part.repeat(LENGTH / part.len())));
    }
    read("GET", &format!("/api/v1/pods?labelSelector={}", "a,".repeat(LENGTH / 64)));
    read("GET", &format!("/api/v1/pods?fieldSelector={}", "a%3Db,".repeat(LENGTH / 64)));
    read("GET", &format!("/api/v1/pods?continue={}", "W1tb".repeat(LENGTH / 4)));
    for part in [",", "a/b,", "*/*;q=0.5,", ";", "application/json;", "a=b;", "\"", "application/json;as=x,"] {
        headers(&part.repeat(LENGTH / part.len()));
        headers(&format!("application/json;{}", part.repeat(LENGTH / part.len())));
    }
    let _ = DeleteOptions::from_body("[".repeat(LENGTH).as_bytes(), Format::Json);
}

proptest! {
    #[test]
    fn any_target(method in "[A-Z]{0,7}", target: String) {
        read(&method, &target);
        read(&method, &format!("/{target}"));
    }

    #[test]
    fn likely_targets(
        segments in prop::collection::vec("|api|apis|v1|watch|proxy|namespaces|status|pods|%2e%2e|%2f|%00", 0..9),
        pairs in prop::collection::vec(
            "(watch|limit|continue|fieldSelector|labelSelector|resourceVersionMatch|sendInitialEvents|dryRun|pretty)(=[a-z0-9,!=%\\\\]{0,9})?",
            0..5,
        ),
    ) {
        read("GET", &format!("/{}?{}", segments.join("/"), pairs.join("&")));
    }

    #[test]
    fn any_header(text: String, likely in "(application/json|\\*|/|;|,|q=0\\.5|as=Table|g=meta\\.k8s\\.io|\"|=| ){0,12}") {
        headers(&text);
        headers(&likely);
    }

    #[test]
    fn any_body(bytes: Vec<u8>, likely in "\\{?(\"kind\"|\"dryRun\"|:|,|\"a\"|\\[|\\]|1|null|\\{|\\}){0,12}") {
        for body in [&bytes, likely.as_bytes()] {
            let _ = DeleteOptions::from_body(body, Format::Json);
            let _ = DeleteOptions::from_body(body, Format::Yaml);
        }
    }
}
