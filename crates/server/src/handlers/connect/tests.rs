//! Where requests are led, and where they are not.

use capstan_api::json;

use super::location::{check_address, container, escape, split};

#[test]
fn places_are_named_with_scheme_and_port() {
    for (text, expected) in [
        ("web", Some((false, "web", ""))),
        ("web:80", Some((false, "web", "80"))),
        ("web:http", Some((false, "web", "http"))),
        ("https:web:", Some((true, "web", ""))),
        ("http:web:80", Some((false, "web", "80"))),
        ("ftp:web:80", None),
        (":80", None),
        ("a:b:c:d", None),
        ("", None),
    ] {
        assert_eq!(split(text), expected, "{text}");
    }
}

#[test]
fn nobody_is_led_to_this_machine() {
    for (ip, allowed) in [
        ("10.1.2.3", true),
        ("192.168.0.1", true),
        ("8.8.8.8", true),
        ("2001:db8::1", true),
        ("127.0.0.1", false),
        ("::1", false),
        ("::ffff:127.0.0.1", false),
        ("169.254.169.254", false),
        ("fe80::1", false),
        ("0.0.0.0", false),
        ("224.0.0.1", false),
        ("255.255.255.255", false),
    ] {
        assert_eq!(check_address(ip.parse().expect("an address")).is_ok(), allowed, "{ip}");
    }
}

#[test]
fn containers_are_chosen_or_named() {
    let pod = |text: &str| {
        let text = format!(r#"{{"metadata":{{"name":"p"}},"spec":{text}}}"#);
        json::parse(text.as_bytes()).expect("valid JSON").as_object().expect("an object").clone()
    };
    let one = pod(r#"{"containers":[{"name":"a"}],"initContainers":[{"name":"i"}]}"#);
    let two = pod(r#"{"containers":[{"name":"a"},{"name":"b"}],"initContainers":[{"name":"i"}]}"#);
    assert_eq!(container(&one, "").expect("the only one"), "a");
    assert_eq!(container(&one, "i").expect("one that is there"), "i");
    let message = |result: Result<String, capstan_api::Status>| result.expect_err("refused").message;
    assert_eq!(message(container(&one, "x")), "container x is not valid for pod p");
    assert_eq!(message(container(&two, "")), "a container name must be specified for pod p, choose one of: [i a b]");
}

#[test]
fn texts_are_escaped() {
    assert_eq!(escape("a b/&=é~-._"), "a%20b%2F%26%3D%C3%A9~-._");
}
