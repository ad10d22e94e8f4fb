//! Whom one may be, case by case. The messages are upstream's.

use http::{HeaderName, HeaderValue};

use super::*;
use crate::authorization::Decision;

fn headers(lines: &[&str]) -> HeaderMap {
    let mut headers = HeaderMap::new();
    for line in lines {
        let (name, value) = line.split_once(": ").unwrap();
        headers.append(name.parse::<HeaderName>().unwrap(), HeaderValue::from_str(value).unwrap());
    }
    headers
}

/// Allows what begins with one of its lines: `verb group resource[/subresource] [namespace/]name`.
struct Allow(&'static [&'static str]);

impl Authorizer for Allow {
    fn authorize(&self, asked: &Attributes<'_>) -> Decision {
        let mut line = format!("{} {} {}", asked.verb, asked.group, asked.resource);
        for (before, part) in [("/", asked.subresource), (" in ", asked.namespace), (" ", asked.name)] {
            if !part.is_empty() {
                line.push_str(before);
                line.push_str(part);
            }
        }
        let extra = asked.user.extra.contains_key(ASSOCIATED_NODE_KEYS);
        if extra != asked.verb.contains("associated-node") {
            return Decision::Deny("the wrong extra".into());
        }
        if self.0.contains(&line.as_str()) { Decision::Allow(String::new()) } else { Decision::NoOpinion("no".into()) }
    }
}

fn check(allowed: &'static [&'static str], asker: &UserInfo, lines: &[&str], expected: &str) {
    let attributes = Attributes::resource(asker, "list", "", "pods");
    let found = match wanted_user(&headers(lines)) {
        Ok(Some(wanted)) => impersonate(&wanted, &attributes, &Allow(allowed)),
        Ok(None) => return assert_eq!("nobody", expected),
        Err(status) => Err(status),
    };
    let shown = match found {
        Ok(Impersonated { user, constraint }) => {
            let extra: Vec<String> =
                user.extra.iter().map(|(key, values)| format!("{key}={}", values.join(","))).collect();
            format!("{}|{}|{}|{}|{constraint}", user.name, user.uid, user.groups.join(","), extra.join(" "))
        }
        Err(status) => format!("{} {}", status.code, status.message),
    };
    assert_eq!(shown, expected, "{lines:?}");
}

#[test]
fn modes() {
    let asker = UserInfo::new("x", []);
    let on_n1 = UserInfo {
        extra: [(NODE_NAME.into(), vec!["n1".into()])].into(),
        ..UserInfo::new("system:serviceaccount:a:b", [])
    };
    check(&[], &asker, &[], "nobody");
    let without_name = [
        (&["Impersonate-Group: a"][..], r#"Groups:[]string{"a"}, Extra:map[string][]string(nil)}"#),
        (
            &["Impersonate-Extra-Foo: u", "Impersonate-Extra-a%2fb: u"],
            r#"Groups:[]string(nil), Extra:map[string][]string{"a/b":[]string{"u"}, "foo":[]string{"u"}}}"#,
        ),
    ];
    for (lines, rest) in without_name {
        let expected =
            format!(r#"400 requested &user.DefaultInfo{{Name:"", UID:"", {rest} without impersonating a user name"#);
        check(&[], &asker, lines, &expected);
    }
    let all: &[&str] =
        &["Impersonate-User: jane", "Impersonate-Uid: 7", "Impersonate-Group: g", "Impersonate-Extra-K: v"];
    let user = "jane|7|g,system:authenticated|k=v|";
    let legacy = &[
        "impersonate  users jane",
        "impersonate  groups g",
        "impersonate authentication.k8s.io uids 7",
        "impersonate authentication.k8s.io userextras/k v",
    ];
    check(legacy, &asker, all, user);
    for missing in 0..4 {
        let mut some = legacy.to_vec();
        some.remove(missing);
        let some: &'static [&'static str] = some.leak();
        let first = r#"403 pods is forbidden: User "x" cannot impersonate-on:user-info:list resource "pods" in API group "" at the cluster scope: no"#;
        check(some, &asker, all, first);
    }
    check(
        &[
            "impersonate-on:user-info:list  pods",
            "impersonate:user-info authentication.k8s.io users jane",
            "impersonate:user-info authentication.k8s.io uids 7",
            "impersonate:user-info authentication.k8s.io groups g",
            "impersonate:user-info authentication.k8s.io userextras/k v",
        ],
        &asker,
        &["Impersonate-User: jane", "Impersonate-Uid: 7", "Impersonate-Group: g"],
        "jane|7|g,system:authenticated||impersonate:user-info",
    );
    let account = "Impersonate-User: system:serviceaccount:n:s";
    let account_groups = "system:serviceaccounts,system:serviceaccounts:n,system:authenticated";
    check(
        &["impersonate  serviceaccounts in n s"],
        &asker,
        &[account],
        &format!("system:serviceaccount:n:s||{account_groups}||"),
    );
    check(
        &[
            "impersonate-on:serviceaccount:list  pods",
            "impersonate:serviceaccount authentication.k8s.io serviceaccounts in n s",
        ],
        &asker,
        &[account],
        &format!("system:serviceaccount:n:s||{account_groups}||impersonate:serviceaccount"),
    );
    let node = "Impersonate-User: system:node:n1";
    let arbitrary =
        &["impersonate-on:arbitrary-node:list  pods", "impersonate:arbitrary-node authentication.k8s.io nodes n1"];
    let as_node = "system:node:n1||system:nodes,system:authenticated||impersonate:";
    check(arbitrary, &asker, &[node], &format!("{as_node}arbitrary-node"));
    let associated =
        &["impersonate-on:associated-node:list  pods", "impersonate:associated-node authentication.k8s.io nodes *"];
    check(associated, &on_n1, &[node], &format!("{as_node}associated-node"));
    let refused = r#"403 pods is forbidden: User "x" cannot impersonate-on:arbitrary-node:list resource "pods" in API group "" at the cluster scope: no"#;
    check(associated, &asker, &[node], refused);
    check(
        &["impersonate  users system:anonymous"],
        &asker,
        &["Impersonate-User: system:anonymous"],
        "system:anonymous||system:unauthenticated||",
    );
}

#[test]
fn narrow_modes_are_careful() {
    let asker = UserInfo::new("x", []);
    let allowed = &[
        "impersonate-on:user-info:list  pods",
        "impersonate:user-info authentication.k8s.io users jane",
        "impersonate:user-info authentication.k8s.io groups *",
        "impersonate:user-info authentication.k8s.io userextras/* *",
    ];
    let jane = "Impersonate-User: jane";
    let masters = r#"403 groups.authentication.k8s.io "system:masters" is forbidden: User "x" cannot impersonate:user-info resource "groups" in API group "authentication.k8s.io" at the cluster scope: impersonating the system:masters group is not allowed"#;
    check(allowed, &asker, &[jane, "Impersonate-Group: system:masters"], masters);
    let many = ["Impersonate-Group: a", "Impersonate-Group: b", "Impersonate-Group: c", "Impersonate-Group: d"];
    let lines: Vec<&str> = [jane].into_iter().chain(many).collect();
    check(allowed, &asker, &lines, "jane||a,b,c,d,system:authenticated||impersonate:user-info");
    let few = r#"403 groups.authentication.k8s.io "a" is forbidden: User "x" cannot impersonate:user-info resource "groups" in API group "authentication.k8s.io" at the cluster scope: no"#;
    check(allowed, &asker, &lines[..4], few);
    let empty = r#"403 userextras.authentication.k8s.io is forbidden: User "x" cannot impersonate:user-info resource "userextras" in API group "authentication.k8s.io" at the cluster scope: impersonating the empty string value in extra is not allowed"#;
    check(allowed, &asker, &[jane, "Impersonate-Extra-a.b%2fc: "], empty);
    let upper = r#"impersonating a non-lowercase key in extra is not allowed: "a.b/C""#;
    let upper = empty.replace("impersonating the empty string value in extra is not allowed", upper);
    check(allowed, &asker, &[jane, "Impersonate-Extra-a.b%2f%43: v"], &upper);
}

#[test]
fn headers_are_removed() {
    let mut headers = headers(&["Impersonate-User: a", "Impersonate-Extra-X: b", "Impersonate-Group: c", "Accept: d"]);
    strip(&mut headers);
    assert_eq!(headers.len(), 1);
}
