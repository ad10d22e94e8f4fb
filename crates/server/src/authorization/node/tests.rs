//! What nodes may do, case by case.

use capstan_api::{json, selector::FieldRequirement};

use super::*;

fn value(text: &str) -> Value {
    json::parse(text.as_bytes()).unwrap()
}

/// A pod that refers to something in every way.
const POD: &str = r#"{"metadata":{"namespace":"ns","name":"p","uid":"u"},"spec":{"nodeName":"n1","serviceAccountName":"sa",
"imagePullSecrets":[{"name":"pull"}],
"containers":[{"envFrom":[{"secretRef":{"name":"from"}},{"configMapRef":{"name":"cm-from"}}],
  "env":[{"valueFrom":{"secretKeyRef":{"name":"env"}}},{"valueFrom":{"configMapKeyRef":{"name":"cm-env"}}}]}],
"initContainers":[{"envFrom":[{"secretRef":{"name":"init"}}]}],"ephemeralContainers":[{"envFrom":[{"secretRef":{"name":"eph"}}]}],
"volumes":[{"name":"a","secret":{"secretName":"vol"}},{"name":"b","configMap":{"name":"cm-vol"}},
  {"name":"c","projected":{"sources":[{"secret":{"name":"proj"}},{"configMap":{"name":"cm-proj"}}]}},
  {"name":"d","persistentVolumeClaim":{"claimName":"pvc"}},{"name":"e","ephemeral":{}},{"name":"f","csi":{"nodePublishSecretRef":{"name":"csi"}}}],
"resourceClaims":[{"name":"r1","resourceClaimName":"rc1"},{"name":"r2","resourceClaimTemplateName":"t"},{"name":"r3","resourceClaimTemplateName":"t"}]},
"status":{"resourceClaimStatuses":[{"name":"r2","resourceClaimName":"rc2"}]}}"#;
const VOLUME: &str = r#"{"metadata":{"name":"pv"},"spec":{"claimRef":{"namespace":"ns","name":"pvc"},
"csi":{"nodeStageSecretRef":{"namespace":"other","name":"stage"},"controllerPublishSecretRef":{"namespace":"other","name":"controller"}}}}"#;
const RBD: &str = r#"{"metadata":{"name":"rbd"},"spec":{"claimRef":{"namespace":"ns","name":"p-e"},"rbd":{"secretRef":{"name":"rbd"}}}}"#;
const ATTACHMENT: &str = r#"{"metadata":{"name":"va"},"spec":{"nodeName":"n1"}}"#;

fn filled() -> NodeAuthorizer {
    let authorizer = NodeAuthorizer::default();
    authorizer.upsert(NodeKind::Pod, &value(POD));
    authorizer.upsert(NodeKind::PersistentVolume, &value(VOLUME));
    authorizer.upsert(NodeKind::PersistentVolume, &value(RBD));
    authorizer.upsert(NodeKind::VolumeAttachment, &value(ATTACHMENT));
    authorizer.upsert(NodeKind::ResourceSlice, &value(ATTACHMENT));
    authorizer
}

/// `verb group resource[/subresource] namespace name [selected node]`, where `-` is empty.
fn ask(authorizer: &NodeAuthorizer, node: &str, request: &str) -> Decision {
    let user = UserInfo::new(&format!("system:node:{node}"), ["system:nodes"]);
    let words: Vec<&str> = request.split(' ').map(|word| if word == "-" { "" } else { word }).collect();
    let [verb, group, resource, namespace, name, ref rest @ ..] = words[..] else { panic!("{request}") };
    let (resource, subresource) = resource.split_once('/').unwrap_or((resource, ""));
    let selector: Vec<FieldRequirement> = rest
        .iter()
        .map(|node| FieldRequirement { field: "spec.nodeName".into(), negated: false, value: (*node).into() })
        .collect();
    let attributes = Attributes {
        subresource,
        name,
        namespace,
        field_selector: &selector,
        ..Attributes::resource(&user, verb, group, resource)
    };
    authorizer.authorize(&attributes)
}

#[test]
fn what_pods_refer_to() {
    let authorizer = filled();
    let mut requests = vec![
        "get - persistentvolumeclaims ns pvc".to_owned(),
        "get - persistentvolumeclaims ns p-e".into(),
        "update - persistentvolumeclaims/status ns pvc".into(),
        "get - persistentvolumes - pv".into(),
        "get - secrets other stage".into(),
        "get - secrets ns rbd".into(),
        "get resource.k8s.io resourceclaims ns rc1".into(),
        "get resource.k8s.io resourceclaims ns rc2".into(),
        "get storage.k8s.io volumeattachments - va".into(),
        "get resource.k8s.io resourceslices - va".into(),
        "get - serviceaccounts ns sa".into(),
        "create - serviceaccounts/token ns sa".into(),
        "get - pods ns p".into(),
        "watch - pods ns p".into(),
        "list - secrets ns pull".into(),
    ];
    requests.extend(
        ["pull", "from", "env", "init", "eph", "vol", "proj", "csi"].map(|name| format!("get - secrets ns {name}")),
    );
    requests.extend(["cm-from", "cm-env", "cm-vol", "cm-proj"].map(|name| format!("watch - configmaps ns {name}")));
    for request in &requests {
        assert_eq!(ask(&authorizer, "n1", request), Decision::Allow(String::new()), "{request}");
        let other = ask(&authorizer, "n2", request);
        let reason = "no relationship found between node 'n2' and this object";
        assert_eq!(other, Decision::NoOpinion(reason.into()), "{request}");
    }
    for request in ["get - secrets other controller", "get - secrets ns nope", "get - secrets other pull"] {
        assert!(!ask(&authorizer, "n1", request).is_allowed(), "{request}");
    }
    authorizer.upsert(NodeKind::Pod, &value(POD));
    let bare = r#"{"metadata":{"namespace":"ns","name":"p"},"spec":{"nodeName":"n2"}}"#;
    authorizer.upsert(NodeKind::Pod, &value(bare));
    assert!(
        requests.iter().filter(|request| ask(&authorizer, "n1", request).is_allowed()).count() == 2,
        "attachment and slice"
    );
    assert!(ask(&authorizer, "n2", "get - pods ns p").is_allowed());
    for (kind, namespace, name) in [
        (NodeKind::Pod, "ns", "p"),
        (NodeKind::PersistentVolume, "", "pv"),
        (NodeKind::PersistentVolume, "", "rbd"),
        (NodeKind::VolumeAttachment, "", "va"),
        (NodeKind::ResourceSlice, "", "va"),
    ] {
        authorizer.remove(kind, namespace, name);
    }
    assert!(authorizer.graph.read().unwrap().is_empty(), "nothing is left behind");
}

#[test]
fn mirror_pods_open_no_doors() {
    let authorizer = NodeAuthorizer::default();
    let pod = POD.replacen(r#""uid":"u""#, r#""annotations":{"kubernetes.io/config.mirror":"x"}"#, 1);
    authorizer.upsert(NodeKind::Pod, &value(&pod));
    assert!(ask(&authorizer, "n1", "get - pods ns p").is_allowed());
    assert!(!ask(&authorizer, "n1", "get - secrets ns vol").is_allowed());
}

#[test]
fn what_is_the_same_for_all() {
    let authorizer = filled();
    let lease = "can only access leases in the \"kube-node-lease\" system namespace";
    for (request, expected) in [
        ("list - services - -", None),
        ("create authorization.k8s.io subjectaccessreviews - -", None),
        ("delete - services ns a", Some("")),
        ("delete - secrets ns pull", Some("can only read resources of this type")),
        ("get - secrets/x ns pull", Some("cannot read subresource")),
        ("list - secrets - -", Some("can only read namespaced object of this type")),
        ("list - secrets ns -", Some("No Object name found")),
        ("list - persistentvolumes - -", Some("can only get individual resources of this type")),
        ("get - persistentvolumes/status - pv", Some("cannot get subresource")),
        ("get - persistentvolumeclaims/status ns pvc", Some("can only get/update/patch this type")),
        ("list - serviceaccounts ns -", Some("can only create tokens for individual service accounts")),
        ("create - serviceaccounts ns sa", Some("can only create token subresource of serviceaccount")),
        ("get coordination.k8s.io leases kube-node-lease n1", None),
        ("create coordination.k8s.io leases kube-node-lease -", None),
        ("get coordination.k8s.io leases default n1", Some(lease)),
        (
            "get coordination.k8s.io leases kube-node-lease n2",
            Some("can only access node lease with the same name as the requesting node"),
        ),
        (
            "list coordination.k8s.io leases kube-node-lease -",
            Some("can only get, create, update, patch, or delete a node lease"),
        ),
        ("update storage.k8s.io csinodes - n1", None),
        (
            "update storage.k8s.io csinodes - n2",
            Some("can only access CSINode with the same name as the requesting node"),
        ),
        ("update storage.k8s.io csinodes/status - n1", Some("cannot authorize CSINode subresources")),
        ("list storage.k8s.io csinodes - -", Some("can only get, create, update, patch, or delete a CSINode")),
        ("get - nodes - n1", None),
        ("get - nodes - n2", Some("node 'n1' cannot read 'n2', only its own Node object")),
        ("list - nodes - -", Some("node 'n1' cannot read all nodes, only its own Node object")),
        ("patch - nodes/status - n1", None),
        ("delete - nodes - n1", Some("")),
        ("list - pods - - n1", None),
        ("list - pods - - n2", Some("can only list/watch pods with spec.nodeName field selector")),
        ("create - pods/eviction ns p", None),
        ("update - pods ns p", Some("")),
        ("list resource.k8s.io resourceslices - - n1", None),
        (
            "list resource.k8s.io resourceslices - -",
            Some("can only list/watch/deletecollection resourceslices with nodeName field selector"),
        ),
        ("get certificates.k8s.io podcertificaterequests ns a", Some("")),
    ] {
        let expected = expected.map_or(Decision::Allow(String::new()), |reason| Decision::NoOpinion(reason.into()));
        assert_eq!(ask(&authorizer, "n1", request), expected, "{request}");
    }
    assert_eq!(
        ask(&authorizer, "", "get - nodes - n1"),
        Decision::NoOpinion("unknown node for user \"system:node:\"".into())
    );
    for user in [UserInfo::new("system:node:n1", []), UserInfo::new("n1", ["system:nodes"])] {
        let attributes = Attributes { name: "n1", ..Attributes::resource(&user, "get", "", "nodes") };
        assert_eq!(authorizer.authorize(&attributes), Decision::NoOpinion(String::new()));
        assert!(!authorizer.rules_for(&user, "").incomplete);
    }
    assert!(authorizer.rules_for(&UserInfo::new("system:node:n1", ["system:nodes"]), "").incomplete);
}
