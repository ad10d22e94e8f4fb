//! Discovery against upstream's, byte for byte, by hashes of what a real one answered.

use capstan_api::{GroupVersion, GroupVersionKind, Name};

use super::*;

fn discovery() -> Discovery {
    let version = VersionInfo {
        git_commit: "$Format:%H$".to_owned(),
        go_version: "go1.26.8".to_owned(),
        compiler: "gc".to_owned(),
        platform: "linux/amd64".to_owned(),
        ..VersionInfo::default()
    };
    let other_paths = vec!["/version".to_owned(), "/healthz".to_owned()];
    Discovery::new(Config { server_address: "192.0.2.2:6443".to_owned(), version, other_paths })
}

fn names(text: &'static str) -> Vec<Name> {
    text.split_whitespace().map(Name::from_static).collect()
}

/// A namespaced resource with all there is in three versions, and a plain one of the cluster in one.
fn custom() -> Vec<ApiResource> {
    let group = "stable.example.com";
    let verbs = names("delete deletecollection get list patch create update watch");
    let part_verbs = names("get patch update");
    let crontabs = ["v1beta1", "v2alpha1", "v1"].map(|version| ApiResource {
        group_version: GroupVersion::from_static(group, version),
        kind: "CronTab".into(),
        resource: "crontabs".into(),
        singular: "crontab".into(),
        namespaced: true,
        short_names: names("ct"),
        categories: names("all"),
        verbs: verbs.clone(),
        subresources: [("status", group, version, "CronTab"), ("scale", "autoscaling", "v1", "Scale")]
            .map(|(name, group, version, kind)| ApiSubresource {
                name: name.into(),
                kind: GroupVersionKind::from_static(group, version, kind),
                verbs: part_verbs.clone(),
            })
            .into(),
        storage: Some(GroupVersionKind::from_static(group, "v1", "CronTab")),
        custom: true,
    });
    let abbas = ApiResource {
        kind: "Abba".into(),
        resource: "abbas".into(),
        singular: "abba".into(),
        namespaced: false,
        short_names: Vec::new(),
        categories: Vec::new(),
        subresources: Vec::new(),
        storage: Some(GroupVersionKind::from_static(group, "v1", "Abba")),
        ..crontabs[2].clone()
    };
    crontabs.into_iter().chain([abbas]).collect()
}

/// Says what there is of the groups that the cases have.
fn set_custom(discovery: &Discovery, resources: Vec<ApiResource>) -> bool {
    let mut changed = false;
    for known in custom() {
        let (group, resource) = (&known.group_version.group, &known.resource);
        let of_this = |one: &&ApiResource| one.group_version.group == *group && one.resource == *resource;
        changed |= discovery.set_custom(group, resource, resources.iter().filter(of_this).cloned().collect());
    }
    changed
}

#[test]
fn documents_of_upstream() {
    let discovery = discovery();
    let without = discovery.documents();
    assert!(set_custom(&discovery, custom()));
    let with = discovery.documents();
    let (mut wrong, mut right) = (Vec::new(), 0);
    for line in include_str!("upstream.txt").lines().filter(|line| !line.starts_with('#')) {
        let (name, expected) = line.split_once(' ').unwrap();
        let (documents, name) = name.strip_prefix('+').map_or((&without, name), |name| (&with, name));
        let document = match name.strip_prefix('*') {
            Some(path) => documents.aggregated(path),
            None => documents.get(name),
        };
        let document = document.unwrap_or_else(|| panic!("there is no {name}"));
        if hex(&sha256(&document.json)).starts_with(expected) { right += 1 } else { wrong.push(line) }
    }
    assert_eq!((right, &wrong[..]), (54, &[][..]));
}

#[test]
fn rendered_once() {
    let discovery = discovery();
    let first = discovery.documents();
    assert!(Arc::ptr_eq(&first, &discovery.documents()));
    assert!(!set_custom(&discovery, Vec::new()));
    assert!(Arc::ptr_eq(&first, &discovery.documents()));
    assert!(set_custom(&discovery, custom()));
    let second = discovery.documents();
    assert!(!set_custom(&discovery, custom()));
    assert!(Arc::ptr_eq(&second, &discovery.documents()));
    assert!(first.get("/apis/stable.example.com").is_none() && second.get("/apis/stable.example.com").is_some());
    assert!(set_custom(&discovery, Vec::new()));
    assert_eq!(discovery.documents().get("/apis").unwrap().json, first.get("/apis").unwrap().json);
}

#[test]
fn paths_and_tags() {
    let discovery = discovery();
    let documents = discovery.documents();
    for path in ["/", "/api", "/api/", "/apis/", "/apis/apps/", "/apis/apps/v1//", "/version//"] {
        assert!(documents.get(path).is_some_and(|document| document.etag.is_none()), "{path}");
    }
    for path in ["", "//", "/apis//", "/apis/nope", "/apis/apps/v2", "/api/v1/pods", "/healthz"] {
        assert!(documents.get(path).is_none(), "{path}");
    }
    let (core, named) = (documents.aggregated("/api").unwrap(), documents.aggregated("/apis/").unwrap());
    let tag = named.etag.clone().unwrap();
    assert!(named.matches(&tag) && !core.matches(&tag) && !named.matches("") && !named.matches(tag.trim_matches('"')));
    set_custom(&discovery, custom());
    let changed = discovery.documents();
    assert!(!changed.aggregated("/apis").unwrap().matches(&tag));
    assert_eq!(changed.aggregated("/api").unwrap().etag, core.etag);
}

#[test]
fn other_forms() {
    let documents = discovery().documents();
    let api = documents.get("/api").unwrap();
    let yaml = "kind: APIVersions\nserverAddressByClientCIDRs:\n- clientCIDR: 0.0.0.0/0\n  serverAddress: 192.0.2.2:6443\nversions:\n- v1\n";
    assert_eq!(api.yaml(), yaml);
    assert!(api.indent().starts_with(b"{\n  \"kind\": \"APIVersions\",\n  \"versions\": [\n    \"v1\"\n  ],"));
}

#[test]
fn groups_stand_where_their_services_say() {
    let discovery = discovery();
    set_custom(&discovery, custom());
    let names = |discovery: &Discovery| -> Vec<String> {
        let list = api_json::parse(&discovery.documents().get("/apis").unwrap().json).unwrap();
        let groups = list.get("groups").unwrap().as_array().unwrap();
        groups.iter().map(|group| group.get("name").unwrap().as_str().unwrap().to_owned()).collect()
    };
    let before = names(&discovery);
    assert_eq!(before.first().map(String::as_str), Some("apiregistration.k8s.io"));
    assert_eq!(before.last().map(String::as_str), Some("stable.example.com"));
    let remote = |group_priority| GroupVersionService {
        group_priority,
        version_priority: 5,
        remote: Some(Bytes::from_static(br#"{"version":"v1","freshness":"Stale"}"#)),
    };
    let other = GroupVersion::from_static("a.example.com", "v1");
    assert!(discovery.set_service(&other, Some(remote(100))));
    assert!(!discovery.set_service(&other, Some(remote(100))));
    assert_eq!(names(&discovery).last().map(String::as_str), Some("a.example.com"));
    let documents = discovery.documents();
    let all = String::from_utf8(documents.aggregated("/apis").unwrap().json.to_vec()).unwrap();
    assert!(all.contains(r#"{"metadata":{"name":"a.example.com"},"versions":[{"version":"v1","freshness":"Stale"}]}"#));
    assert!(documents.get("/apis/a.example.com").is_some());
    assert!(documents.get("/apis/a.example.com/v1").is_none(), "its server says that");
    assert!(String::from_utf8_lossy(&documents.get("/").unwrap().json).contains("/apis/a.example.com/v1"));
    discovery.set_service(&other, Some(remote(19_000)));
    assert_eq!(names(&discovery).get(1).map(String::as_str), Some("a.example.com"));
    // What another server has hides what is here; without it, all is as before.
    let ours = GroupVersion::from_static("stable.example.com", "v1");
    discovery.set_service(&ours, Some(remote(1000)));
    assert!(discovery.documents().get("/apis/stable.example.com/v1").is_none());
    discovery.set_service(&ours, None);
    discovery.set_service(&other, None);
    assert!(discovery.documents().get("/apis/stable.example.com/v1").is_some());
    assert_eq!(names(&discovery), before);
}
