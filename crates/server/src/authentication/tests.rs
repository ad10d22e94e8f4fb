//! Ways in, case by case, and what upstream said to the same.

use std::{collections::BTreeMap, sync::Arc};

use capstan_api::{GroupResource, Map, Value, json};
use capstan_clock::{ManualClock, SeededIds};
use capstan_storage::Revision;
use http::{HeaderName, HeaderValue};

use super::*;
use crate::{
    base64,
    cache::{FieldPaths, Object},
    pki::{PrivateKey, PublicKey},
};

const ISSUER: &str = "https://kubernetes.default.svc";
/// When upstream issued the token in `golden/`.
const ISSUED: i64 = 1_794_793_163;
const UPSTREAM_TOKEN: &str = include_str!("golden/token.txt");

/// Objects by `resource/namespace/name`.
#[derive(Default)]
pub(crate) struct Fake(BTreeMap<String, Arc<Object>>);

impl Fake {
    pub(crate) fn with(mut self, resource: &str, json: &str) -> Self {
        let object = json::parse(json.as_bytes()).unwrap();
        let meta =
            |field| object.get("metadata").and_then(|meta| meta.get(field)).and_then(Value::as_str).unwrap_or("");
        let key = [meta("namespace"), meta("name")].join("/");
        let fields = FieldPaths::new(Vec::<&'static str>::new());
        let key = key.trim_start_matches('/');
        let encoded = Object::encode(key.as_bytes(), json.as_bytes(), Revision(1), &fields).unwrap();
        self.0.insert(format!("{resource}/{key}"), Arc::new(encoded));
        self
    }
}

impl Objects for Fake {
    fn get(&self, resource: &GroupResource, namespace: &str, name: &str) -> Option<Arc<Object>> {
        let key = [resource.resource.as_str(), namespace, name].join("/").replace("//", "/");
        self.0.get(&key).cloned()
    }

    fn list(&self, _: &GroupResource, _: &str) -> Vec<Arc<Object>> {
        Vec::new()
    }
}

fn meta(namespace: &str, name: &str, uid: &str, more: &str) -> String {
    format!(r#""metadata":{{"namespace":"{namespace}","name":"{name}","uid":"{uid}"{more}}}"#)
}

/// What upstream had when it issued the golden token.
fn upstream_objects() -> Fake {
    let account = meta("default", "default", "7de3d99e-1a7a-42e2-870d-9fa6fe1fef8d", "");
    let pod = meta("default", "p1", "10f52e93-c180-4740-9d65-00218125dee5", "");
    let node = meta("", "n1", "ffbea1a8-1780-4742-99ac-106f8651c4a6", "");
    Fake::default()
        .with("serviceaccounts", &format!("{{{account}}}"))
        .with("nodes", &format!("{{{node}}}"))
        .with("pods", &format!(r#"{{{pod},"spec":{{"serviceAccountName":"default","nodeName":"n1"}}}}"#))
}

fn at(seconds: i64) -> Arc<ManualClock> {
    Arc::new(ManualClock::at(Timestamp::from_second(seconds).unwrap()))
}

fn keys(pem: &str) -> Vec<PublicKey> {
    PublicKey::all_from_pem(pem.as_bytes()).unwrap()
}

fn upstream_keys() -> Vec<PublicKey> {
    keys(concat!(include_str!("golden/rsa.pub"), include_str!("golden/ec.pub")))
}

fn config() -> Config {
    let tokens =
        StaticTokens::parse("secret,admin,admin,system:masters\n\nplain,jane,7\nmany,joe,8,\"a,b\"\n").unwrap();
    Config {
        api_audiences: vec![ISSUER.into()],
        static_tokens: Some(tokens),
        service_accounts: Some(ServiceAccountConfig { issuers: vec![ISSUER.into()], keys: upstream_keys() }),
        bootstrap_tokens: true,
        anonymous: true,
        ..Config::default()
    }
}

fn headers(lines: &[&str]) -> HeaderMap {
    let mut headers = HeaderMap::new();
    for line in lines {
        let (name, value) = line.split_once(": ").unwrap();
        headers.append(name.parse::<HeaderName>().unwrap(), HeaderValue::from_str(value).unwrap());
    }
    headers
}

/// A user as one line.
fn show(outcome: Result<Option<Authenticated>, AuthenticationError>) -> String {
    match outcome {
        Ok(None) => "nobody".into(),
        Ok(Some(Authenticated { user, warnings, .. })) => {
            let extra: Vec<String> =
                user.extra.iter().map(|(key, values)| format!("{key}={}", values.join(","))).collect();
            let mut shown = format!("{}|{}|{}", user.name, user.uid, user.groups.join(","));
            for more in extra.iter().map(String::as_str).chain(warnings) {
                shown.push('|');
                shown.push_str(more);
            }
            shown
        }
        Err(error) => format!("error: {error}"),
    }
}

#[test]
fn tokens_of_the_file_and_none() {
    let authenticator = Authenticator::new(config(), Arc::new(Fake::default()), at(0));
    let websocket = ["Upgrade: websocket", "Connection: keep-alive, Upgrade"];
    let protocol = |value: &str| format!("Sec-WebSocket-Protocol: {value}");
    let bearer =
        |token: &str| format!("base64url.bearer.authorization.k8s.io.{}", base64::encode_url(token.as_bytes()));
    for (lines, expected) in [
        (vec![], "system:anonymous||system:unauthenticated"),
        (vec!["Authorization: Basic x"], "system:anonymous||system:unauthenticated"),
        (vec!["Authorization: Bearer"], "system:anonymous||system:unauthenticated"),
        (
            vec!["Authorization: Bearer  secret"],
            "system:anonymous||system:unauthenticated|the provided Authorization header contains extra space before the \
             bearer token, and is ignored",
        ),
        (vec!["Authorization: Bearer secret"], "admin|admin|system:masters,system:authenticated"),
        (vec!["Authorization: bearer secret trailing"], "admin|admin|system:masters,system:authenticated"),
        (vec!["Authorization: Bearer plain"], "jane|7|system:authenticated"),
        (vec!["Authorization: Bearer many"], "joe|8|a,b,system:authenticated"),
        (vec!["Authorization: Bearer other"], "error: invalid bearer token"),
        (vec!["Authorization: Bearer a.b.c"], "error: invalid bearer token"),
    ] {
        assert_eq!(show(authenticator.authenticate(&headers(&lines), None)), expected, "{lines:?}");
    }
    let two = format!("{},{},v4", bearer("secret"), bearer("plain"));
    for (value, expected) in [
        (format!("v4.channel.k8s.io, {}", bearer("plain")), "jane|7|system:authenticated"),
        (format!("v4, {}", bearer("other")), "error: invalid bearer token"),
        (bearer("plain"), "error: missing additional subprotocol"),
        (format!("{}=!,v4", bearer("plain")), "error: invalid base64.bearer.authorization token encoding"),
        (two, "error: multiple base64.bearer.authorization tokens specified"),
        ("v4".to_owned(), "system:anonymous||system:unauthenticated"),
    ] {
        let line = protocol(&value);
        let lines = [websocket[0], websocket[1], &line];
        assert_eq!(show(authenticator.authenticate(&headers(&lines), None)), expected, "{value}");
        assert_eq!(
            show(authenticator.authenticate(&headers(&lines[1..]), None)),
            "system:anonymous||system:unauthenticated"
        );
    }
    let none = Authenticator::new(Config::default(), Arc::new(Fake::default()), at(0));
    assert_eq!(show(none.authenticate(&headers(&["Authorization: Bearer secret"]), None)), "nobody");
}

#[test]
fn what_was_shown_is_removed() {
    let authenticator = Authenticator::new(config(), Arc::new(Fake::default()), at(0));
    let mut headers = headers(&[
        "Authorization: Bearer x",
        "X-Remote-User: a",
        "X-Remote-Extra-Foo: b",
        "Sec-WebSocket-Protocol: v4,base64url.bearer.authorization.k8s.io.eA",
        "Sec-WebSocket-Protocol: v5",
        "Accept: c",
    ]);
    authenticator.strip(&mut headers);
    let left: Vec<String> =
        headers.iter().map(|(name, value)| format!("{name}: {}", value.to_str().unwrap())).collect();
    assert_eq!(left, ["accept: c", "sec-websocket-protocol: v4,v5"]);
}

#[test]
fn token_files() {
    for (text, expected) in [
        ("a,b", TokenFileError::Columns(2)),
        ("a,\"b,c", TokenFileError::Quote(1)),
        ("\na,b\"c,d", TokenFileError::Quote(2)),
        ("a,\"b\"c,d", TokenFileError::Quote(1)),
    ] {
        assert_eq!(StaticTokens::parse(text).unwrap_err(), expected, "{text}");
    }
    let tokens = StaticTokens::parse("a,\"b \"\"c\"\"\nd\",e\r\n,x,y\na2,b,c").unwrap();
    assert_eq!(tokens.get("a").unwrap().name, "b \"c\"\nd");
    assert!(tokens.get("").is_none());
    assert!(tokens.get("a2").is_some());
}

const POD_USER: &str = "system:serviceaccount:default:default|7de3d99e-1a7a-42e2-870d-9fa6fe1fef8d|\
    system:serviceaccounts,system:serviceaccounts:default,system:authenticated|\
    authentication.kubernetes.io/credential-id=JTI=7d123c2b-5aaf-43bd-871b-bd732cbcb15f|\
    authentication.kubernetes.io/node-name=n1|authentication.kubernetes.io/node-uid=ffbea1a8-1780-4742-99ac-106f8651c4a6|\
    authentication.kubernetes.io/pod-name=p1|authentication.kubernetes.io/pod-uid=10f52e93-c180-4740-9d65-00218125dee5";

fn who(objects: Fake, now: i64, token: &str) -> String {
    let authenticator = Authenticator::new(config(), Arc::new(objects), at(now));
    show(authenticator.authenticate(&headers(&[&format!("Authorization: Bearer {token}")]), None))
}

#[test]
fn upstreams_token_is_read_as_upstream_reads_it() {
    let token = UPSTREAM_TOKEN.trim();
    let year = 24 * 365 * 60 * 60;
    assert_eq!(who(upstream_objects(), ISSUED, token), POD_USER);
    assert_eq!(who(upstream_objects(), ISSUED - 60, token), POD_USER);
    assert_eq!(who(upstream_objects(), ISSUED + year + 60, token), POD_USER);
    let problem = |problem: &str| format!("error: [invalid bearer token, {problem}]");
    let not_yet = problem("service account token is not valid yet");
    assert_eq!(who(upstream_objects(), ISSUED - 61, token), not_yet);
    let expired = problem("service account token has expired");
    assert_eq!(who(upstream_objects(), ISSUED + year + 61, token), expired);
    let broken = format!("{}AAAAAA", &token[..token.len() - 6]);
    let crypto = problem("go-jose/go-jose: error in cryptographic primitive");
    assert_eq!(who(upstream_objects(), ISSUED, &broken), crypto);

    let account =
        r#"{"metadata":{"namespace":"default","name":"default","uid":"7de3d99e-1a7a-42e2-870d-9fa6fe1fef8d"}}"#;
    let pod =
        |uid: &str, more: &str| format!(r#"{{"metadata":{{"namespace":"default","name":"p1","uid":"{uid}"{more}}}}}"#);
    let own = "10f52e93-c180-4740-9d65-00218125dee5";
    let deleted =
        |seconds: i64| format!(r#","deletionTimestamp":"{}""#, capstan_api::Time::from_unix(ISSUED - seconds, 0));
    let invalidated = "service account token has been invalidated";
    let with = |pod: String| Fake::default().with("serviceaccounts", account).with("pods", &pod);
    for (objects, expected) in [
        (Fake::default(), r#"serviceaccounts "default" not found"#.to_owned()),
        (Fake::default().with("serviceaccounts", account), invalidated.to_owned()),
        (with(pod("x", "")), format!("pod UID (x) does not match service account pod ref claim ({own})")),
        (with(pod(own, &deleted(61))), invalidated.to_owned()),
        (
            Fake::default()
                .with("serviceaccounts", r#"{"metadata":{"namespace":"default","name":"default","uid":"x"}}"#),
            "service account UID (x) does not match claim (7de3d99e-1a7a-42e2-870d-9fa6fe1fef8d)".to_owned(),
        ),
    ] {
        assert_eq!(who(objects, ISSUED, token), problem(&expected));
    }
    assert_eq!(
        who(with(pod(own, &deleted(60))), ISSUED, token),
        POD_USER,
        "what is being deleted still works for a while"
    );
}

#[test]
fn documents_are_upstreams_byte_by_byte() {
    let jwks_uri = "https://192.0.2.2:48203/openid/v1/jwks";
    let documents = OpenIdDocuments::new(ISSUER, jwks_uri, &upstream_keys()).unwrap();
    assert_eq!(documents.keys, include_str!("golden/jwks.json").trim());
    assert_eq!(documents.configuration, include_str!("golden/openid-configuration.json").trim());
    for (issuer, expected) in [
        ("http://a", "issuer URL must use https scheme, got: http://a"),
        ("kubernetes", "issuer URL must use https scheme, got: kubernetes"),
        ("https://a?b", "issuer URL may not include a query, got: https://a?b"),
        ("https://a#b", "issuer URL may not include a fragment, got: https://a#b"),
    ] {
        assert_eq!(OpenIdDocuments::new(issuer, jwks_uri, &upstream_keys()).unwrap_err().to_string(), expected);
    }
}

fn map(json: &str) -> Map {
    json::parse(json.as_bytes()).unwrap().as_object().unwrap().clone()
}

#[test]
fn reviews_are_upstreams() {
    let authenticator = Authenticator::new(config(), Arc::new(upstream_objects()), at(ISSUED));
    let review = |spec: &str| match token_review(&authenticator, map(&format!(r#"{{"spec":{spec}}}"#))) {
        Ok(review) => review.get("status").unwrap().to_string(),
        Err(status) => status.message,
    };
    let token = UPSTREAM_TOKEN.trim();
    let user = r#"{"audiences":["https://kubernetes.default.svc"],"authenticated":true,"user":{"extra":{"authentication.kubernetes.io/credential-id":["JTI=7d123c2b-5aaf-43bd-871b-bd732cbcb15f"],"authentication.kubernetes.io/node-name":["n1"],"authentication.kubernetes.io/node-uid":["ffbea1a8-1780-4742-99ac-106f8651c4a6"],"authentication.kubernetes.io/pod-name":["p1"],"authentication.kubernetes.io/pod-uid":["10f52e93-c180-4740-9d65-00218125dee5"]},"groups":["system:serviceaccounts","system:serviceaccounts:default","system:authenticated"],"uid":"7de3d99e-1a7a-42e2-870d-9fa6fe1fef8d","username":"system:serviceaccount:default:default"}}"#;
    for (spec, expected) in [
        (format!(r#"{{"token":"{token}"}}"#), user),
        (
            format!(r#"{{"token":"{token}","audiences":["foo"]}}"#),
            r#"{"error":"[invalid bearer token, token audiences [\"https://kubernetes.default.svc\"] is invalid for the target audiences [\"foo\"]]","user":{}}"#,
        ),
        (r#"{"token":"secret","audiences":["foo"]}"#.into(), r#"{"error":"invalid bearer token","user":{}}"#),
        (
            r#"{"token":"secret"}"#.into(),
            r#"{"audiences":["https://kubernetes.default.svc"],"authenticated":true,"user":{"groups":["system:masters","system:authenticated"],"uid":"admin","username":"admin"}}"#,
        ),
        (r#"{"token":"bad"}"#.into(), r#"{"error":"invalid bearer token","user":{}}"#),
        (r#"{"token":"line\nbreak"}"#.into(), r#"{"error":"invalid bearer token","user":{}}"#),
        ("{}".into(), "token is required for TokenReview in authentication"),
    ] {
        assert_eq!(review(&spec), expected, "{spec}");
    }
    let user = UserInfo { uid: "admin".into(), ..UserInfo::new("admin", ["system:masters", "system:authenticated"]) };
    let review = self_subject_review(&user, Timestamp::from_second(1_794_793_161).unwrap());
    assert_eq!(
        Value::from(review).to_string(),
        r#"{"apiVersion":"authentication.k8s.io/v1","kind":"SelfSubjectReview","metadata":{"creationTimestamp":"2026-11-16T01:39:21Z"},"status":{"userInfo":{"groups":["system:masters","system:authenticated"],"uid":"admin","username":"admin"}}}"#
    );
    assert_eq!(unauthorized().message, "Unauthorized");
    assert_eq!(unauthorized().code, 401);
    assert!(unauthorized().details.is_none());
}

fn issuer() -> TokenIssuer {
    TokenIssuer {
        issuer: ISSUER.into(),
        key: Arc::new(PrivateKey::generate()),
        api_audiences: vec![ISSUER.into()],
        max_expiration_seconds: None,
        extend_expiration: true,
    }
}

fn request(issuer: &TokenIssuer, objects: &Fake, name: &str, request: &str) -> Result<Map, Status> {
    let now = Timestamp::from_second(ISSUED).unwrap();
    let ids = SeededIds::new(1);
    let context = TokenRequestContext { namespace: "default", name, objects, now, ids: &ids };
    token_request(issuer, &context, map(request), &mut Vec::new())
}

fn claims(response: &Map) -> String {
    let token = response.get("status").unwrap().get("token").and_then(Value::as_str).unwrap();
    let payload = token.split('.').nth(1).unwrap();
    String::from_utf8(base64::decode_url(payload.as_bytes()).unwrap()).unwrap()
}

#[test]
fn requested_tokens_claim_what_upstreams_do() {
    let issuer = issuer();
    let objects = upstream_objects().with("secrets", &format!("{{{}}}", meta("default", "s1", "su", "")));
    let own = r#""serviceaccount":{"name":"default","uid":"7de3d99e-1a7a-42e2-870d-9fa6fe1fef8d"}"#;
    let id = SeededIds::new(1);
    let id = capstan_clock::Ids::uid(&id);
    let tail = r#""nbf":1794793163,"sub":"system:serviceaccount:default:default""#;
    let bound = |reference: &str, seconds: i64| {
        format!(r#"{{"spec":{{"expirationSeconds":{seconds},"boundObjectRef":{{"apiVersion":"v1",{reference}}}}}}}"#)
    };
    let node = r#""node":{"name":"n1","uid":"ffbea1a8-1780-4742-99ac-106f8651c4a6"}"#;
    let pod = r#""pod":{"name":"p1","uid":"10f52e93-c180-4740-9d65-00218125dee5"}"#;
    for (body, audience, expires, bound) in [
        ("{}".to_owned(), ISSUER, 3600, own.to_owned()),
        (r#"{"spec":{"audiences":["a&b"],"expirationSeconds":600}}"#.into(), r"a\u0026b", 600, own.to_owned()),
        (bound(r#""kind":"Pod","name":"p1""#, 3600), ISSUER, 3600, format!("{node},{pod},{own}")),
        (
            bound(r#""kind":"Pod","name":"p1""#, 3607),
            ISSUER,
            31_536_000,
            format!(r#"{node},{pod},{own},"warnafter":1794796770"#),
        ),
        (bound(r#""kind":"Node","name":"n1""#, 3607), ISSUER, 3607, format!("{node},{own}")),
        (
            bound(r#""kind":"Secret","name":"s1""#, 3607),
            ISSUER,
            3607,
            format!(r#""secret":{{"name":"s1","uid":"su"}},{own}"#),
        ),
    ] {
        let response = request(&issuer, &objects, "default", &body).unwrap();
        let exp = ISSUED + expires;
        let expected = format!(
            r#"{{"aud":["{audience}"],"exp":{exp},"iat":1794793163,"iss":"{ISSUER}","jti":"{id}","kubernetes.io":{{"namespace":"default",{bound}}},{tail}}}"#
        );
        assert_eq!(claims(&response), expected);
        // What we issue, we take, if it is for us.
        let mut config = config();
        config.service_accounts.as_mut().unwrap().keys.push(issuer.key.public().clone());
        let objects = upstream_objects().with("secrets", &format!("{{{}}}", meta("default", "s1", "su", "")));
        let authenticator = Authenticator::new(config, Arc::new(objects), at(ISSUED));
        let token = response.get("status").unwrap().get("token").and_then(Value::as_str).unwrap();
        let found = authenticator.authenticate(&headers(&[&format!("Authorization: Bearer {token}")]), None);
        assert_eq!(found.is_ok(), audience == ISSUER, "{found:?}");
    }
    let response = request(&issuer, &objects, "default", &bound(r#""kind":"Pod","name":"p1""#, 3607)).unwrap();
    let mut response = Value::from(response);
    response.get_mut("status").unwrap().as_object_mut().unwrap().remove("token");
    assert_eq!(
        response.to_string(),
        r#"{"apiVersion":"authentication.k8s.io/v1","kind":"TokenRequest","metadata":{"creationTimestamp":"2026-11-16T01:39:23Z","name":"default","namespace":"default","uid":"7de3d99e-1a7a-42e2-870d-9fa6fe1fef8d"},"spec":{"audiences":["https://kubernetes.default.svc"],"boundObjectRef":{"apiVersion":"v1","kind":"Pod","name":"p1"},"expirationSeconds":3607},"status":{"expirationTimestamp":"2026-11-16T02:39:30Z"}}"#
    );
}

#[test]
fn token_requests_are_refused_in_upstreams_words() {
    let (issuer, objects) = (issuer(), upstream_objects());
    let bound = |reference: &str| format!(r#"{{"spec":{{"boundObjectRef":{reference}}}}}"#);
    for (name, body, code, expected) in [
        (
            "default",
            r#"{"spec":{"expirationSeconds":5}}"#.to_owned(),
            422,
            r#"TokenRequest.authentication.k8s.io "" is invalid: spec.expirationSeconds: Invalid value: 5: may not specify a duration less than 10 minutes"#,
        ),
        (
            "default",
            r#"{"spec":{"expirationSeconds":4294967297}}"#.to_owned(),
            422,
            r#"TokenRequest.authentication.k8s.io "" is invalid: spec.expirationSeconds: Invalid value: 4294967297: may not specify a duration larger than 2^32 seconds"#,
        ),
        (
            "default",
            r#"{"metadata":{"name":"other"}}"#.to_owned(),
            422,
            r#"TokenRequest.authentication.k8s.io "default" is invalid: metadata.name: Invalid value: "other": must match the service account name if specified"#,
        ),
        (
            "default",
            r#"{"metadata":{"uid":"other"}}"#.to_owned(),
            409,
            r#"Operation cannot be fulfilled on TokenRequest.authentication.k8s.io "default": the UID in the token request (other) does not match the UID of the service account (7de3d99e-1a7a-42e2-870d-9fa6fe1fef8d)"#,
        ),
        ("nope", "{}".to_owned(), 404, r#"serviceaccounts "nope" not found"#),
        ("default", bound(r#"{"kind":"Pod","apiVersion":"v1","name":"p"}"#), 404, r#"pods "p" not found"#),
        ("default", bound(r#"{"kind":"Node","apiVersion":"v1","name":"p"}"#), 404, r#"nodes "p" not found"#),
        ("default", bound(r#"{"kind":"Secret","apiVersion":"v1","name":"p"}"#), 404, r#"secrets "p" not found"#),
        (
            "default",
            bound(r#"{"kind":"Foo","apiVersion":"v1","name":"p"}"#),
            400,
            "cannot bind token to object of type /v1, Kind=Foo",
        ),
        ("default", bound("{}"), 400, "cannot bind token to object of type /, Kind="),
        (
            "default",
            bound(r#"{"kind":"Pod","apiVersion":"v1","name":"p1","uid":"x"}"#),
            409,
            r#"Operation cannot be fulfilled on Pod "p1": the UID in the bound object reference (x) does not match the UID in record. The object might have been deleted and then recreated"#,
        ),
    ] {
        let status = request(&issuer, &objects, name, &body).unwrap_err();
        assert_eq!((status.message.as_str(), status.code), (expected, code), "{body}");
    }
}

#[test]
fn tokens_of_secrets() {
    let key = PrivateKey::generate();
    let token = legacy_token(&key, "ns", "sa", "u", "s");
    let secret = |data: &str, more: &str| {
        format!(r#"{{{},"data":{{"token":"{}"}}}}"#, meta("ns", "s", "su", more), base64::encode(data.as_bytes()))
    };
    let account = |uid: &str, more: &str| format!(r#"{{{}{more}}}"#, meta("ns", "sa", uid, ""));
    let all =
        |secret: String, account: String| Fake::default().with("secrets", &secret).with("serviceaccounts", &account);
    let user = "system:serviceaccount:ns:sa|u|system:serviceaccounts,system:serviceaccounts:ns,system:authenticated";
    let problem = |problem: &str| format!("error: [invalid bearer token, {problem}]");
    for (objects, expected) in [
        (all(secret(&token, ""), account("u", "")), user.to_owned()),
        (
            all(secret(&token, ""), account("u", r#","secrets":[{"name":"s"}]"#)),
            format!(
                "{user}|Use tokens from the TokenRequest API or manually created secret-based tokens instead of \
                 auto-generated secret-based tokens."
            ),
        ),
        (Fake::default(), problem("Token has been invalidated")),
        (
            all(secret(&token, r#","deletionTimestamp":"2026-11-16T01:39:23Z""#), account("u", "")),
            problem("Token has been invalidated"),
        ),
        (all(secret("other", ""), account("u", "")), problem("Token does not match server's copy")),
        (all(secret(&token, ""), account("v", "")), problem("ServiceAccount UID (v) does not match claim (u)")),
        (
            all(secret(&token, r#","labels":{"kubernetes.io/legacy-token-invalid-since":"x"}"#), account("u", "")),
            problem(
                "the token in secret ns/s for service account ns/sa has been marked invalid. Use tokens from the \
                 TokenRequest API or manually created secret-based tokens, or remove the \
                 'kubernetes.io/legacy-token-invalid-since' label from the secret to temporarily allow use of this \
                 token",
            ),
        ),
    ] {
        let mut config = config();
        config.service_accounts.as_mut().unwrap().keys = vec![key.public().clone()];
        let authenticator = Authenticator::new(config, Arc::new(objects), at(ISSUED));
        let line = format!("Authorization: Bearer {token}");
        assert_eq!(show(authenticator.authenticate(&headers(&[&line]), None)), expected);
    }
    assert_eq!(who(Fake::default(), 0, &token), problem("invalid signature, no keys found"));
}

#[test]
fn bootstrap_tokens() {
    let secret = |change: (&str, &str)| {
        let mut data: BTreeMap<&str, &str> = [
            ("token-id", "abcdef"),
            ("token-secret", "0123456789abcdef"),
            ("usage-bootstrap-authentication", "true"),
            ("auth-extra-groups", "system:bootstrappers:b,system:bootstrappers:a"),
            ("expiration", "2026-11-16T01:39:24Z"),
        ]
        .into();
        data.insert(change.0, change.1);
        let data: Vec<String> =
            data.iter().map(|(key, value)| format!(r#""{key}":"{}""#, base64::encode(value.as_bytes()))).collect();
        let meta = meta("kube-system", "bootstrap-token-abcdef", "u", "");
        let secret = format!(r#"{{{meta},"type":"bootstrap.kubernetes.io/token","data":{{{}}}}}"#, data.join(","));
        Fake::default().with("secrets", &secret)
    };
    let token = "abcdef.0123456789abcdef";
    let user = "system:bootstrap:abcdef||system:bootstrappers,system:bootstrappers:a,system:bootstrappers:b,system:authenticated";
    assert_eq!(who(secret(("", "")), ISSUED, token), user);
    assert_eq!(who(secret(("expiration", "")), ISSUED + 1, token), user);
    let invalid = "error: invalid bearer token";
    assert_eq!(who(secret(("", "")), ISSUED + 1, token), invalid, "expired");
    for change in [
        ("token-secret", "0123456789abcdee"),
        ("token-id", "abcdeg"),
        ("usage-bootstrap-authentication", "false"),
        ("expiration", "soon"),
        ("auth-extra-groups", "system:masters"),
        ("auth-extra-groups", "system:bootstrappers:"),
        ("auth-extra-groups", "system:bootstrappers:a-"),
    ] {
        assert_eq!(who(secret(change), ISSUED, token), invalid, "{change:?}");
    }
    for token in ["abcdef.0123456789abcdeF", "abcdef.0123456789abcde", "abcde.0123456789abcdef"] {
        assert_eq!(who(secret(("", "")), ISSUED, token), invalid, "{token}");
    }
}
