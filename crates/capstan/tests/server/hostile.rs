//! Hostile requests: each gets the right answer, and the server goes on for everybody else.

use crate::harness::{Capstan, Door, directory};

const MAPS: &str = "/api/v1/namespaces/default/configmaps";
const SECRETS: &str = "/api/v1/namespaces/default/secrets";
const JSON: &str = "application/json";
const JSON_PATCH: &str = "application/json-patch+json";
const MERGE_PATCH: &str = "application/merge-patch+json";
const STRATEGIC_PATCH: &str = "application/strategic-merge-patch+json";
const PROTOBUF: &str = "application/vnd.kubernetes.protobuf";
/// One byte more than a body may have.
const TOO_LONG: usize = 3 * 1024 * 1024 + 1;

/// A request with a body, as bytes.
fn request(method: &str, path: &str, content_type: &str, body: impl AsRef<[u8]>) -> Vec<u8> {
    let body = body.as_ref();
    let length = body.len();
    let mut bytes = format!(
        "{method} {path} HTTP/1.1\r\nHost: x\r\nContent-Type: {content_type}\r\nContent-Length: {length}\r\n\r\n"
    )
    .into_bytes();
    bytes.extend_from_slice(body);
    bytes
}

fn post(body: impl AsRef<[u8]>) -> Vec<u8> {
    request("POST", MAPS, JSON, body)
}

fn patch(content_type: &str, body: impl AsRef<[u8]>) -> Vec<u8> {
    request("PATCH", &format!("{MAPS}/target"), content_type, body)
}

fn get(target: &str) -> Vec<u8> {
    with(target, "Accept: application/json")
}

/// A read with headers.
fn with(target: &str, headers: &str) -> Vec<u8> {
    format!("GET {target} HTTP/1.1\r\nHost: x\r\n{headers}\r\n\r\n").into_bytes()
}

/// A name, the request, the code of the answer, and a piece of its text.
type Case = (&'static str, Vec<u8>, u16, &'static str);

fn parsers() -> Vec<Case> {
    let nested = |depth: usize| format!(r#"{{"data":{}{}}}"#, r#"{"a":"#.repeat(depth), "}".repeat(depth));
    let lists = |depth: usize| "[".repeat(depth);
    let map = |rest: &str| format!(r#"{{"apiVersion":"v1","kind":"ConfigMap","metadata":{{"name":"x"}}{rest}}}"#);
    let operations =
        |n: usize| format!("[{}]", vec![r#"{"op":"test","path":"/kind","value":"ConfigMap"}"#; n].join(","));
    let copies = format!("[{}]", vec![r#"{"op":"copy","from":"/data","path":"/data/x"}"#; 40].join(","));
    let aliases = (1..12).fold("a0: &a0 [x,x,x,x,x,x,x,x,x,x]\n".to_owned(), |text, n| {
        let before = n - 1;
        text + &format!("a{n}: &a{n} [{}]\n", vec![format!("*a{before}"); 10].join(","))
    });
    vec![
        ("nothing", post(""), 400, "BadRequest"),
        ("not an object", post("[]"), 400, "BadRequest"),
        ("unbalanced", post(r#"{"metadata":{"name":"x""#), 400, "BadRequest"),
        ("objects without end", post(nested(20_000)), 400, "BadRequest"),
        ("lists without end", post(lists(100_000)), 400, "BadRequest"),
        ("too long", post(vec![b' '; TOO_LONG]), 413, "RequestEntityTooLarge"),
        ("one long string", post(map(&format!(r#","data":{{"a":"{}"}}"#, "x".repeat(2_000_000)))), 422, "Too long"),
        (
            "many fields",
            post(map(&format!(r#","data":{{{}}}"#, r#""/":"","#.repeat(200_000) + r#""/":"""#))),
            422,
            "Invalid",
        ),
        ("aliases of aliases", request("POST", MAPS, "application/yaml", aliases), 400, "BadRequest"),
        (
            "a body that only says it is compressed",
            request("POST", MAPS, JSON, b"\x1f\x8b\x08\0\0\0\0\0\0\0"),
            400,
            "BadRequest",
        ),
        ("protobuf without its mark", request("POST", MAPS, PROTOBUF, "x"), 400, "BadRequest"),
        (
            "protobuf that lies about a length",
            request("POST", MAPS, PROTOBUF, b"k8s\0\x0a\xff\xff\xff\xff\x0f"),
            400,
            "BadRequest",
        ),
        (
            "a number too large",
            post(r#"{"metadata":{"name":"x","generation":9223372036854775808}}"#),
            400,
            "BadRequest",
        ),
        ("a number for a string", post(map(r#","data":{"a":1e400}"#)), 400, "BadRequest"),
        (
            "a field twice",
            request("POST", &format!("{MAPS}?fieldValidation=Strict"), JSON, map(r#","data":{},"data":{}"#)),
            400,
            "duplicate field",
        ),
        ("an unknown type", request("POST", MAPS, "text/plain", "x"), 415, "UnsupportedMediaType"),
        ("another kind", post(r#"{"apiVersion":"v1","kind":"Secret","metadata":{"name":"x"}}"#), 400, "BadRequest"),
        (
            "another version",
            post(r#"{"apiVersion":"v9","kind":"ConfigMap","metadata":{"name":"x"}}"#),
            400,
            "BadRequest",
        ),
        ("too many operations", patch(JSON_PATCH, operations(10_001)), 413, "RequestEntityTooLarge"),
        ("copies of copies", patch(JSON_PATCH, copies), 422, "Invalid"),
        ("a patch that is no list", patch(JSON_PATCH, "{}"), 400, "BadRequest"),
        ("a path into nothing", patch(JSON_PATCH, r#"[{"op":"add","path":"/a/b/c","value":1}]"#), 422, "Invalid"),
        ("a deep merge", patch(MERGE_PATCH, nested(20_000)), 400, "BadRequest"),
        (
            "a directive nobody knows",
            patch(STRATEGIC_PATCH, r#"{"data":{"$patch":"explode"}}"#),
            500,
            "unknown patch type",
        ),
        ("an unknown patch", patch("application/nope", "{}"), 415, "UnsupportedMediaType"),
    ]
}

fn sizes() -> Vec<Case> {
    let named = |name: &str| format!(r#"{{"metadata":{{"name":"{name}"}}}}"#);
    let long = "x".repeat(300 * 1024);
    vec![
        ("a long name", post(named(&"x".repeat(254))), 422, "must be no more than 253"),
        ("dots for a name", post(named("..")), 422, "Invalid"),
        ("no name", post("{}"), 422, "name or generateName is required"),
        (
            "long annotations",
            post(format!(r#"{{"metadata":{{"name":"x","annotations":{{"a":"{long}"}}}}}}"#)),
            422,
            "Too long",
        ),
        (
            "a large secret",
            request(
                "POST",
                SECRETS,
                JSON,
                format!(r#"{{"metadata":{{"name":"x"}},"stringData":{{"a":"{}"}}}}"#, "x".repeat(1_100_000)),
            ),
            422,
            "Too long",
        ),
        ("another namespace", post(r#"{"metadata":{"name":"x","namespace":"kube-system"}}"#), 400, "does not match"),
        (
            "a namespace that is not there",
            request("POST", "/api/v1/namespaces/nowhere/configmaps", JSON, named("x")),
            404,
            "NotFound",
        ),
    ]
}

fn questions() -> Vec<Case> {
    vec![
        ("labels", get(&format!("{MAPS}?labelSelector=a%20b")), 400, "BadRequest"),
        ("many labels", get(&format!("{MAPS}?labelSelector=a+in+({})", "b,".repeat(20_000))), 200, "items"),
        ("fields", get(&format!("{MAPS}?fieldSelector=nope%3D1")), 400, "is not a known field selector"),
        ("a limit", get(&format!("{MAPS}?limit=x")), 400, "BadRequest"),
        ("a negative limit", get(&format!("{MAPS}?limit=-1")), 200, "items"),
        ("a version", get(&format!("{MAPS}?resourceVersion=x")), 400, "BadRequest"),
        (
            "a version of the future",
            get(&format!("{MAPS}?resourceVersion=9999999999")),
            504,
            "Too large resource version",
        ),
        (
            "a version of the future, and no patience",
            get(&format!("{MAPS}?resourceVersion=9999999999&timeout=1s")),
            504,
            "request did not complete within the allotted timeout",
        ),
        (
            "a continue token",
            get(&format!("{MAPS}?continue=eyJ2IjoibWV0YS5rOHMuaW8vdjEiLCJydiI6MSwic3RhcnQiOiIuLi8uLi9zZWNyZXRzIn0")),
            400,
            "BadRequest",
        ),
        (
            "a match without a version",
            get(&format!("{MAPS}?resourceVersionMatch=Exact")),
            422,
            "resourceVersionMatch is forbidden",
        ),
        (
            "a dry run of what",
            request("POST", &format!("{MAPS}?dryRun=some"), JSON, r#"{"metadata":{"name":"x"}}"#),
            422,
            "Unsupported value",
        ),
        ("an answer nobody has", with(MAPS, "Accept: text/html"), 406, "NotAcceptable"),
        ("a form nobody has", with(MAPS, "Accept: application/json;as=Nope;g=meta.k8s.io;v=v1"), 406, "NotAcceptable"),
    ]
}

fn scope() -> Vec<Case> {
    vec![
        ("dots", get("/api/v1/namespaces/default/../kube-system/configmaps"), 404, "NotFound"),
        // Upstream finds its key invalid (500); here no object can be in such a namespace, and none is shown.
        ("dots that hide", get("/api/v1/namespaces/%2e%2e/configmaps"), 200, r#""items":[]"#),
        ("dots that hide a namespace", get("/api/v1/namespaces/%2e%2e/configmaps/target"), 404, "NotFound"),
        ("a slash that hides", get("/api/v1/namespaces/default%2f..%2fkube-system/configmaps"), 404, "NotFound"),
        ("nodes of a namespace", get("/api/v1/namespaces/default/nodes"), 404, ""),
        ("NUL in a name", get(&format!("{MAPS}/a%00b")), 404, "NotFound"),
        ("a name of dots", get(&format!("{MAPS}/...")), 404, "NotFound"),
        ("a kind that is not there", get("/api/v1/namespaces/default/nope"), 404, ""),
        ("a group that is not there", get("/apis/nope.example.com/v1/nopes"), 404, ""),
        ("a subresource that is not there", get(&format!("{MAPS}/target/status")), 404, ""),
        ("a method that is not there", request("POST", &format!("{MAPS}/target"), JSON, "{}"), 405, "MethodNotAllowed"),
    ]
}

fn http() -> Vec<Case> {
    let chunked = format!(
        "POST {MAPS} HTTP/1.1\r\nHost: x\r\nContent-Type: {JSON}\r\nContent-Length: 3\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n"
    );
    let twice = format!("POST {MAPS} HTTP/1.1\r\nHost: x\r\nContent-Length: 2\r\nContent-Length: 3\r\n\r\n{{}}x");
    vec![
        ("a whole address", get("https://elsewhere.example.com/healthz"), 200, "ok"),
        ("NUL in the request", b"GET /\0 HTTP/1.1\r\nHost: x\r\n\r\n".to_vec(), 400, ""),
        ("no HTTP", b"hello\r\n\r\n".to_vec(), 400, ""),
        ("two lengths", twice.into_bytes(), 400, ""),
        ("a length and chunks", chunked.into_bytes(), 400, ""),
        ("a long header", with("/healthz", &format!("X-Long: {}", "x".repeat(3_000_000))), 431, ""),
        ("an unknown method", request("BREW", MAPS, JSON, ""), 405, ""),
        ("a bad percent", get("/api/v1/%zz"), 400, ""),
    ]
}

fn identity() -> Vec<Case> {
    vec![
        ("nobody", get(MAPS), 403, r#"User \"system:anonymous\" cannot list resource"#),
        ("a wrong token", with(MAPS, "Authorization: Bearer nope"), 401, "Unauthorized"),
        ("a token of parts", with(MAPS, "Authorization: Bearer a.b.c"), 401, "Unauthorized"),
        (
            "a signature of none",
            with(
                MAPS,
                "Authorization: Bearer eyJhbGciOiJub25lIn0.eyJpc3MiOiJodHRwczovL2t1YmVybmV0ZXMuZGVmYXVsdC5zdmMuY2x1c3Rlci5sb2NhbCJ9.",
            ),
            401,
            "Unauthorized",
        ),
        (
            "a proxy that is none",
            with(MAPS, "X-Remote-User: admin\r\nX-Remote-Group: system:masters"),
            403,
            "system:anonymous",
        ),
        ("another's name", with(MAPS, "Impersonate-User: admin"), 403, "cannot impersonate-on:user-info:list resource"),
        ("what everybody may read", get("/healthz"), 200, "ok"),
    ]
}

fn masks() -> Vec<Case> {
    vec![
        (
            "a group without a user",
            with(MAPS, "Impersonate-Group: system:masters"),
            400,
            "without impersonating a user",
        ),
        ("somebody who may not", with(MAPS, "Impersonate-User: jane"), 403, r#"User \"jane\" cannot list"#),
    ]
}

fn check(server: &mut Capstan, part: &str, door: &Door, cases: Vec<Case>) -> Vec<String> {
    let well = server.door(true);
    let mut wrong = Vec::new();
    for (name, bytes, code, piece) in cases {
        let ask = || {
            let mut connection = door.connect().expect("the server takes connections");
            // A server may answer before it has read all, and stop reading: then the rest cannot be sent.
            let _ = connection.send(&bytes);
            connection.answer()
        };
        let mut answer = ask();
        // Who was still writing when the connection was closed has lost the answer, and asks again.
        for _ in 0..4 {
            if !matches!(&answer, Err(error) if error.kind() == std::io::ErrorKind::BrokenPipe) {
                break;
            }
            answer = ask();
        }
        match answer {
            Ok(answer) if answer.code == code && answer.text.contains(piece) => {}
            other => {
                let got = format!("{other:?}").chars().take(300).collect::<String>();
                wrong.push(format!("{part}, {name}: not {code} {piece}: {got}"));
            }
        }
        let after = well.ask("GET", "/healthz", "").map(|answer| answer.code);
        assert!(matches!(after, Ok(200)) && server.runs(), "{part}, {name}: and then {after:?}");
    }
    wrong
}

#[test]
fn hostile_requests_are_answered() {
    let directory = directory("hostile");
    let mut server = Capstan::start(&directory);
    let (known, nobody) = (server.door(true), server.door(false));
    let target = format!(r#"{{"metadata":{{"name":"target"}},"data":{{"a":"{}"}}}}"#, "x".repeat(100_000));
    assert_eq!(known.ask("POST", MAPS, &target).unwrap().code, 201);
    let mut wrong = Vec::new();
    for (part, door, cases) in [
        ("parsers", &known, parsers()),
        ("sizes", &known, sizes()),
        ("questions", &known, questions()),
        ("scope", &known, scope()),
        ("http", &known, http()),
        ("identity", &nobody, identity()),
        ("masks", &known, masks()),
    ] {
        wrong.extend(check(&mut server, part, door, cases));
    }
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
    let names = known.ask("GET", MAPS, "").unwrap().text;
    assert_eq!(names.matches(r#""name":"x""#).count(), 0, "nothing of it was stored");
    drop(server);
    std::fs::remove_dir_all(&directory).unwrap();
}

/// How many clients ask and never read.
const DEAF: usize = 100;

#[test]
fn clients_that_never_read_do_no_harm() {
    let directory = directory("deaf");
    let server = Capstan::start(&directory);
    let door = server.door(true);
    for n in 0..4 {
        let large = format!(r#"{{"metadata":{{"name":"large-{n}"}},"data":{{"a":"{}"}}}}"#, "x".repeat(900_000));
        assert_eq!(door.ask("POST", MAPS, &large).unwrap().code, 201);
    }
    let deaf: Vec<_> = (0..DEAF)
        .map(|n| {
            let mut connection = door.connect().unwrap();
            let watch = if n % 2 == 0 { "?watch=1" } else { "" };
            connection.send(&get(&format!("{MAPS}{watch}"))).unwrap();
            connection
        })
        .collect();
    for n in 0..20 {
        let body = format!(r#"{{"metadata":{{"name":"after-{n}"}}}}"#);
        assert_eq!(door.ask("POST", MAPS, &body).unwrap().code, 201);
    }
    assert!(door.ask("GET", MAPS, "").unwrap().text.contains("after-19"));
    drop(deaf);
    drop(server);
    std::fs::remove_dir_all(&directory).unwrap();
}
