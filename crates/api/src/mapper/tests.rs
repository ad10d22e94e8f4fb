//! The answers of upstream's mappers, name by name.

use super::*;
use crate::GroupVersion;

fn row(gvk: (&str, &str, &str), plural: &str, short: &[&str], categories: &[&str], scope: Scope) -> ResourceInfo {
    let names = |names: &[&str]| names.iter().map(|name| Name::from(*name)).collect();
    ResourceInfo {
        gvk: GroupVersionKind::new(gvk.0, gvk.1, gvk.2),
        plural: plural.into(),
        singular: gvk.2.to_lowercase().into(),
        short_names: names(short),
        categories: names(categories),
        scope,
    }
}

fn mapper() -> ResourceMapper {
    use Scope::{Cluster, Namespaced};
    ResourceMapper::new(vec![
        row(("apps", "v1", "Deployment"), "deployments", &["deploy"], &["all"], Namespaced),
        row(("apps", "v1beta1", "Deployment"), "deployments", &["deploy"], &["all"], Namespaced),
        row(("apps", "v1beta1", "Old"), "olds", &[], &[], Namespaced),
        row(("", "v1", "Event"), "events", &["ev"], &[], Namespaced),
        row(("", "v1", "Pod"), "pods", &["po"], &["all"], Namespaced),
        row(("", "v1", "Node"), "nodes", &["no"], &[], Cluster),
        row(("", "v1", "Endpoints"), "endpoints", &["ep"], &[], Namespaced),
        row(("", "v1", "Pod"), "pods/status", &[], &[], Namespaced),
        row(("events.k8s.io", "v1", "Event"), "events", &["ev"], &[], Namespaced),
        row(("storage.k8s.io", "v1", "StorageClass"), "storageclasses", &["sc"], &[], Cluster),
        row(("metrics.k8s.io", "v1beta1", "PodMetrics"), "pods", &[], &[], Namespaced),
        row(("shop.example.com", "v1", "Deploy"), "deploys", &["no"], &["all", "shop"], Namespaced),
    ])
}

/// The answers of upstream's mapper, made from the same rows as discovery: a line asks one question.
#[test]
fn answers_of_upstream() {
    let mapper = mapper();
    let show_mapping = |mapping: RESTMapping| {
        let scope = if mapping.scope == Scope::Namespaced { "namespace" } else { "root" };
        format!("{} {} {scope}", mapping.gvk, mapping.resource)
    };
    crate::golden::check("rest_mapper.jsonl", |line| {
        let (question, name) = line.split_once(' ').unwrap();
        let parts: Vec<&str> = name.split('/').collect();
        let resource = || GroupVersionResource::new(parts[0], parts[1], parts[2]);
        let answer = match question {
            "kind_for" => mapper.kind_for(&resource()).map(|kind| kind.to_string()),
            "resource_for" => mapper.resource_for(&resource()).map(|resource| resource.to_string()),
            "mapping_for" => mapper.mapping_for(name).map(show_mapping),
            "rest_mapping" => mapper.rest_mapping(&GroupKind::new(parts[0], parts[1]), &parts[2..]).map(show_mapping),
            "singular" => mapper.resource_singularizer(name).map(|name| name.to_string()),
            _ => panic!("{line}"),
        };
        answer.unwrap_or_else(|error| error.to_string())
    });
}

#[test]
fn without_priority_several_versions_are_ambiguous() {
    let mut mapper =
        DefaultRESTMapper::new(vec![GroupVersion::from_static("apps", "v2"), GroupVersion::from_static("apps", "v1")]);
    for version in ["v1", "v2"] {
        mapper.add(GroupVersionKind::new("apps", version, "Deployment"), Scope::Namespaced);
    }
    let deployments = GroupVersionResource::from_static("", "", "deployments");
    for (answer, expected) in [
        (
            mapper.kind_for(&deployments).unwrap_err().to_string(),
            "/, Resource=deployments matches multiple kinds [apps/v2, Kind=Deployment apps/v1, Kind=Deployment]",
        ),
        (
            mapper.resource_for(&deployments).unwrap_err().to_string(),
            "/, Resource=deployments matches multiple resources [apps/v2, Resource=deployments apps/v1, Resource=deployments]",
        ),
        (
            mapper.rest_mapping(&GroupKind::from_static("apps", "Nope"), &[]).unwrap_err().to_string(),
            "no matches for apps/, Resource=Nope",
        ),
        (
            mapper.rest_mapping(&GroupKind::from_static("other", "Nope"), &[]).unwrap_err().to_string(),
            r#"no matches for kind "Nope" in group "other""#,
        ),
        (
            MatchError::ambiguous_kinds(&deployments, Vec::new()).to_string(),
            "/, Resource=deployments matches multiple resources or kinds",
        ),
    ] {
        assert_eq!(answer, expected);
    }
    let preferred = mapper.rest_mapping(&GroupKind::from_static("apps", "Deployment"), &[]).unwrap();
    assert_eq!(preferred.gvk.version, "v2");
    assert_eq!(mapper.resource_singularizer("deployments").unwrap(), "deployment");

    let chooser = PriorityRESTMapper {
        delegate: mapper,
        resource_priority: vec![GroupVersionResource::from_static(ANY, "v1", ANY)],
        kind_priority: vec![],
    };
    assert_eq!(chooser.resource_for(&deployments).unwrap().version, "v1");
    let error = chooser.rest_mapping(&GroupKind::from_static("apps", "Deployment"), &[]).unwrap_err();
    assert!(error.is_ambiguous());
    assert_eq!(
        error.to_string(),
        "apps/, Kind=Deployment matches multiple kinds [apps/v2, Kind=Deployment apps/v1, Kind=Deployment]"
    );
}

#[test]
fn categories_and_short_names() {
    let mapper = mapper();
    let all = mapper.expand_category("all").unwrap();
    let all: Vec<String> = all.iter().map(ToString::to_string).collect();
    assert_eq!(all, ["deployments.apps", "pods", "deploys.shop.example.com"]);
    assert_eq!(mapper.expand_category("none"), None);
    let (long, warnings) = mapper.expand_shortcut(&GroupVersionResource::from_static("", "", "no"));
    assert_eq!(long.to_string(), "/, Resource=nodes");
    assert_eq!(warnings, [r#"short name "no" could also match lower priority resource deploys.shop.example.com"#]);
    assert_eq!(mapper.resource_singularizer("po").unwrap(), "pod");
}

#[test]
fn guesses() {
    for (kind, plural, singular) in [
        ("Pod", "pods", "pod"),
        ("Policy", "policies", "policy"),
        ("Ingress", "ingresses", "ingress"),
        ("Endpoints", "endpoints", "endpoints"),
        ("MyEndpoints", "myendpoints", "myendpoints"),
        ("Y", "ies", "y"),
        ("", "", ""),
    ] {
        let (guessed_plural, guessed) = unsafe_guess_kind_to_resource(&GroupVersionKind::new("g", "v", kind));
        assert_eq!((guessed_plural.resource.as_str(), guessed.resource.as_str()), (plural, singular));
    }
}

proptest::proptest! {
    #[test]
    fn any_name_is_survived(arg in "[a-zA-Z./ é0-9]{0,20}") {
        let mapper = mapper();
        let (resource, part) = parse_resource_arg(&arg);
        for resource in resource.into_iter().chain([part.with_version("")]) {
            drop((mapper.kind_for(&resource), mapper.resource_for(&resource)));
        }
        drop((mapper.mapping_for(&arg), mapper.resource_singularizer(&arg), mapper.expand_category(&arg)));
        let (_, singular) = unsafe_guess_kind_to_resource(&GroupVersionKind::new("", "v1", arg.as_str()));
        proptest::prop_assert_eq!(singular.resource.as_str(), arg.to_lowercase());
    }
}
