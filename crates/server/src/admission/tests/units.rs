//! Cases that a real server's authorizer or validation would keep from a plugin, and what has no object to show.

use std::sync::Arc;

use capstan_api::{GroupVersionKind, GroupVersionResource};

use super::{Chain, Operation, World, Write, chain, parse, parts, user};
use crate::admission::{AlwaysPullImages, Plugin, PodNodeSelector, common::same_meaning};

const NODE: &[&str] = &["system:node:n", "system:nodes"];
const NOBODY: &[&str] = &["u"];

/// A write of `group/version/resource[/subresource]`.
fn write<'a>(
    operation: Operation,
    resource: &'a str,
    (namespace, name): (&'a str, &'a str),
    who: &[&str],
    object: &str,
    old: &str,
) -> Write<'a> {
    let mut steps = resource.split('/');
    let mut next = || steps.next().unwrap_or_default();
    let resource = GroupVersionResource::new(next(), next(), next());
    Write {
        operation,
        kind: GroupVersionKind::new(resource.group.clone(), resource.version.clone(), "Kind"),
        resource,
        subresource: next(),
        namespace,
        name,
        user: user(who.iter().copied()),
        object: (!object.is_empty()).then(|| parse(object)),
        old: (!old.is_empty()).then(|| parse(old)),
    }
}

fn answer(write: &Write<'_>, chain: &Chain, world: &World) -> String {
    match write.run(chain, world) {
        Ok(object) => capstan_api::Value::from(object).to_string(),
        Err(status) => format!("{} {}", status.code, status.message),
    }
}

#[test]
fn what_nodes_may_do() {
    let check = |operation, resource, place, who: &[&str], object: &str, old: &str, expected: &str| {
        let world = World::of(&[
            ("namespaces", "", r#"{"metadata":{"name":"a"}}"#),
            ("namespaces", "", r#"{"metadata":{"name":"kube-node-lease"}}"#),
        ]);
        let write = write(operation, resource, place, who, object, old);
        let answer = answer(&write, &chain(&["NodeRestriction"]), &world);
        let answer = if answer.starts_with('{') { "" } else { &answer };
        assert_eq!(answer, expected, "{resource} {object} {old}");
    };
    let (create, update, delete) = (Operation::Create, Operation::Update, Operation::Delete);
    let unnamed = &["system:node:", "system:nodes"];
    check(
        create,
        "/v1/nodes",
        ("", "n"),
        unnamed,
        "{}",
        "",
        r#"403 nodes "n" is forbidden: could not determine node from user "system:node:""#,
    );
    // One that only calls itself a node is none.
    check(create, "/v1/nodes", ("", "x"), &["system:node:n"], "{}", "", "");
    let pod = |text: &str| format!(r#"403 pods "p" is forbidden: {text}"#);
    check(
        update,
        "/v1/pods",
        ("a", "p"),
        NODE,
        "{}",
        "{}",
        &pod(r#"unexpected operation "UPDATE", node "n" can only create and delete mirror pods"#),
    );
    check(
        update,
        "/v1/pods/resize",
        ("a", "p"),
        NODE,
        "{}",
        "{}",
        &pod("unexpected pod subresource \"resize\", only 'status' and 'eviction' are allowed"),
    );
    check(delete, "/v1/pods/status", ("a", "p"), NODE, "", "{}", &pod(r#"unexpected operation "DELETE""#));
    check(delete, "/v1/pods/eviction", ("a", "p"), NODE, "", "{}", &pod("unexpected operation DELETE"));
    check(delete, "/v1/pods", ("a", "p"), NODE, "", "{}", r#"404 pod "p" not found"#);
    let lease = |text: &str| format!(r#"403 leases.coordination.k8s.io "m" is forbidden: {text}"#);
    let leases = "coordination.k8s.io/v1/leases";
    check(
        create,
        leases,
        ("a", "m"),
        NODE,
        "{}",
        "",
        &lease(r#"can only access leases in the "kube-node-lease" system namespace"#),
    );
    check(
        update,
        leases,
        ("kube-node-lease", "m"),
        NODE,
        "{}",
        "{}",
        &lease("can only access node lease with the same name as the requesting node"),
    );
    check(delete, leases, ("kube-node-lease", "n"), NODE, "", "{}", "");
    let slices = "resource.k8s.io/v1/resourceslices";
    check(create, slices, ("", "s"), NODE, r#"{"spec":{"nodeName":"n"}}"#, "", "");
    let slice = |verb| {
        format!(
            "403 resourceslices.resource.k8s.io \"s\" is forbidden: can only {verb} ResourceSlice with the same \
             NodeName as the requesting node"
        )
    };
    check(create, slices, ("", "s"), NODE, r#"{"spec":{}}"#, "", &slice("create"));
    check(delete, slices, ("", "s"), NODE, "", r#"{"spec":{"nodeName":"m"}}"#, &slice("delete"));
    check(update, slices, ("", "s"), NODE, "{}", "{}", "");
    let requests = "certificates.k8s.io/v1beta1/podcertificaterequests";
    check(
        create,
        requests,
        ("a", "r"),
        NODE,
        "{}",
        "",
        "403 podcertificaterequests.certificates.k8s.io \"r\" is forbidden: PodCertificateRequest feature gate is \
         disabled",
    );
    let claim = |text: &str| format!(r#"403 persistentvolumeclaims "c" is forbidden: {text}"#);
    check(update, "/v1/persistentvolumeclaims", ("a", "c"), NODE, "{}", "{}", &claim("may only update PVC status"));
    let old = r#"{"metadata":{"resourceVersion":"1","labels":{}},"status":{"capacity":{"storage":"1"}}}"#;
    let new =
        r#"{"metadata":{"resourceVersion":"2"},"status":{"conditions":[{"type":"Resizing"}],"allocatedResources":{}}}"#;
    check(update, "/v1/persistentvolumeclaims/status", ("a", "c"), NODE, new, old, "");
    let new = r#"{"metadata":{"labels":{"a":"b"}}}"#;
    check(
        update,
        "/v1/persistentvolumeclaims/status",
        ("a", "c"),
        NODE,
        new,
        old,
        &claim(
            r#"node "n" is not allowed to update fields other than status.quantity and status.conditions: metadata"#,
        ),
    );
    let csr = r#"{"spec":{"signerName":"kubernetes.io/kubelet-serving","request":"eA=="}}"#;
    check(
        create,
        "certificates.k8s.io/v1/certificatesigningrequests",
        ("", "c"),
        NODE,
        csr,
        "",
        "403 certificatesigningrequests.certificates.k8s.io \"c\" is forbidden: unable to parse csr: PEM block type \
         must be CERTIFICATE REQUEST",
    );
    let source = r#"{"spec":{"configSource":{}}}"#;
    check(
        create,
        "/v1/nodes",
        ("", "n"),
        NODE,
        source,
        "",
        r#"403 nodes "n" is forbidden: node "n" is not allowed to create pods with a non-nil configSource"#,
    );
    check(
        update,
        "/v1/nodes",
        ("", "n"),
        NODE,
        r#"{"spec":{"configSource":{"configMap":{}}}}"#,
        source,
        r#"403 nodes "n" is forbidden: node "n" is not allowed to update configSource to a new non-nil configSource"#,
    );
    // A connection is nobody's business here.
    check(Operation::Connect, "/v1/pods/exec", ("a", "p"), NODE, "{}", "", "");
}

#[test]
fn tokens_for_the_audiences_of_drivers() {
    fn check(volume: &str, expected: &str) {
        let pod = format!(r#"{{"metadata":{{"name":"p","uid":"1"}},"spec":{{"nodeName":"n","volumes":[{volume}]}}}}"#);
        let world = World::of(&[
            ("namespaces", "", r#"{"metadata":{"name":"a"}}"#),
            ("pods", "a", &pod),
            ("persistentvolumeclaims", "a", r#"{"metadata":{"name":"c"},"spec":{"volumeName":"v"}}"#),
            ("persistentvolumeclaims", "a", r#"{"metadata":{"name":"p-e"},"spec":{"volumeName":"ebs"}}"#),
            ("persistentvolumes", "", r#"{"metadata":{"name":"v"},"spec":{"csi":{"driver":"d"}}}"#),
            ("persistentvolumes", "", r#"{"metadata":{"name":"ebs"},"spec":{"awsElasticBlockStore":{}}}"#),
            (
                "storage.k8s.io/csidrivers",
                "",
                r#"{"metadata":{"name":"d"},"spec":{"tokenRequests":[{"audience":"x"}]}}"#,
            ),
            (
                "storage.k8s.io/csidrivers",
                "",
                r#"{"metadata":{"name":"ebs.csi.aws.com"},"spec":{"tokenRequests":[{"audience":"x"}]}}"#,
            ),
        ]);
        let token =
            r#"{"spec":{"audiences":["x"],"boundObjectRef":{"apiVersion":"v1","kind":"Pod","name":"p","uid":"1"}}}"#;
        let write = write(Operation::Create, "/v1/serviceaccounts/token", ("a", "default"), NODE, token, "");
        let answer = answer(&write, &chain(&["NodeRestriction"]), &world);
        let answer = answer.strip_prefix(r#"403 serviceaccounts "default" is forbidden: "#).unwrap_or("");
        assert_eq!(answer, expected, "{volume}");
    }
    const NOT_FOUND: &str = r#"error validating audience "x": "#;
    check(r#"{"csi":{"driver":"d"}}"#, "");
    check(r#"{"persistentVolumeClaim":{"claimName":"c"}}"#, "");
    check(r#"{"name":"e","ephemeral":{"volumeClaimTemplate":{"spec":{}}}}"#, "");
    check(r#"{"awsElasticBlockStore":{"volumeID":"v"}}"#, "");
    check(
        r#"{"persistentVolumeClaim":{"claimName":"q"}}"#,
        &format!("{NOT_FOUND}persistentvolumeclaim \"q\" not found"),
    );
    check(
        r#"{"persistentVolumeClaim":{"claimName":"q"}},{"csi":{"driver":"z"}}"#,
        &format!("{NOT_FOUND}[persistentvolumeclaim \"q\" not found, csidriver.storage.k8s.io \"z\" not found]"),
    );
    check(r#"{"persistentVolumeClaim":{"claimName":"q"}},{"csi":{"driver":"d"}}"#, "");
    check(
        r#"{"emptyDir":{}}"#,
        "audience \"x\" not found in pod spec volume, system:node:n is not authorized to request tokens for \
         this audience",
    );
}

#[test]
fn claims_grow_by_class() {
    fn check(class: &str, phase: &str, sizes: [&str; 2], expected: &str) {
        let world = World::of(&[
            ("namespaces", "", r#"{"metadata":{"name":"a"}}"#),
            ("storage.k8s.io/storageclasses", "", r#"{"metadata":{"name":"yes"},"allowVolumeExpansion":true}"#),
            ("storage.k8s.io/storageclasses", "", r#"{"metadata":{"name":"no"},"allowVolumeExpansion":false}"#),
        ]);
        let claim = |size| {
            format!(
                r#"{{"spec":{{"storageClassName":"{class}","resources":{{"requests":{{"storage":"{size}"}}}}}},
                "status":{{"phase":"{phase}"}}}}"#
            )
        };
        let [old, new] = sizes.map(claim);
        let write = write(Operation::Update, "/v1/persistentvolumeclaims", ("a", "c"), NOBODY, &new, &old);
        let answer = answer(&write, &chain(&[]), &world);
        let answer = answer.strip_prefix(r#"403 persistentvolumeclaims "c" is forbidden: "#).unwrap_or("");
        assert_eq!(answer, expected, "{class} {phase} {sizes:?}");
    }
    const REFUSED: &str = "only dynamically provisioned pvc can be resized and the storageclass that provisions the \
                           pvc must support resize";
    check("yes", "Bound", ["1Gi", "2Gi"], "");
    check("yes", "Pending", ["1Gi", "2Gi"], "Only bound persistent volume claims can be expanded");
    check("no", "Bound", ["1Gi", "1025Mi"], REFUSED);
    check("nope", "Bound", ["1Gi", "2Gi"], REFUSED);
    check("", "Bound", ["1Gi", "2Gi"], REFUSED);
    check("no", "Bound", ["1Gi", "1024Mi"], "");
    check("no", "Bound", ["2Gi", "1Gi"], "");
}

#[test]
fn the_newest_default_class() {
    fn check(classes: &[(&str, &str, &str)], expected: &str) {
        let mut world = World::of(&[("namespaces", "", r#"{"metadata":{"name":"a"}}"#)]);
        for (name, created, mark) in classes {
            let class = format!(
                r#"{{"metadata":{{"name":"{name}","creationTimestamp":"{created}",
                "annotations":{{"{mark}":"true"}}}}}}"#
            );
            world.add("storage.k8s.io", "storageclasses", "", &parse(&class).into());
        }
        let write = write(Operation::Create, "/v1/persistentvolumeclaims", ("a", "c"), NOBODY, "{}", "");
        let object = write.run(&chain(&[]), &world).unwrap();
        assert_eq!(crate::registry::paths::text(&object, "spec.storageClassName"), expected, "{classes:?}");
    }
    const MARK: &str = "storageclass.kubernetes.io/is-default-class";
    const BETA: &str = "storageclass.beta.kubernetes.io/is-default-class";
    let (early, late) = ("2026-01-01T00:00:00Z", "2026-01-01T00:00:01Z");
    check(&[], "");
    check(&[("a", early, "other")], "");
    check(&[("a", early, MARK), ("b", late, MARK)], "b");
    check(&[("b", late, BETA), ("a", late, MARK)], "a");
    check(&[("b", late, BETA), ("a", early, MARK)], "b");
}

#[test]
fn images_are_pulled() {
    let plugin: Vec<Arc<dyn Plugin>> = vec![Arc::new(AlwaysPullImages)];
    let chain = Chain::new(plugin.clone(), &["AlwaysPullImages"], &[]).unwrap();
    let check = |operation, new: &str, old: &str, expected: &str| {
        let write = write(operation, "/v1/pods", ("a", "p"), NOBODY, new, old);
        assert_eq!(answer(&write, &chain, &World::default()), expected);
    };
    let pod = r#"{"spec":{"containers":[{"image":"i"}],"initContainers":[{"image":"j"}],"volumes":[{"image":{}}]}}"#;
    let pulled = concat!(
        r#"{"spec":{"containers":[{"image":"i","imagePullPolicy":"Always"}],"#,
        r#""initContainers":[{"image":"j","imagePullPolicy":"Always"}],"volumes":[{"image":{"pullPolicy":"Always"}}]}}"#
    );
    check(Operation::Create, pod, "", pulled);
    check(Operation::Update, pod, pod, pod);
    check(Operation::Update, pod, r#"{"spec":{"containers":[{"image":"i"}]}}"#, pulled);
    // Somebody has changed it after the plugin had.
    let late = Late(plugin);
    let chain = Chain::new(vec![Arc::new(late) as Arc<dyn Plugin>], &["AlwaysPullImages"], &[]).unwrap();
    let write = write(Operation::Create, "/v1/pods", ("a", "p"), NOBODY, pod, "");
    let one = |field: &str| {
        format!(r#"pods "p" is forbidden: spec.{field}: Unsupported value: "": supported values: "Always""#)
    };
    let all = ["initContainers[0].imagePullPolicy", "containers[0].imagePullPolicy", "volumes[0].image.pullPolicy"];
    let expected = format!("500 [{}]", all.map(one).join(", "));
    assert_eq!(answer(&write, &chain, &World::default()), expected);
}

/// A plugin that only judges.
struct Late(Vec<Arc<dyn Plugin>>);

impl Plugin for Late {
    fn name(&self) -> &'static str {
        self.0[0].name()
    }

    fn validate(&self, request: &mut crate::admission::Request<'_>) -> Result<(), capstan_api::Status> {
        self.0[0].validate(request)
    }
}

#[test]
fn nodes_of_namespaces() {
    fn check(config: &[(&str, &str)], own: &str, expected: &str) {
        let config = config.iter().map(|(key, value)| ((*key).to_owned(), (*value).to_owned())).collect();
        let mut plugins = parts().plugins();
        plugins.push(Arc::new(PodNodeSelector::new(config)));
        let chain = Chain::new(plugins, &["PodNodeSelector"], &["ServiceAccount"]).unwrap();
        let world = World::of(&[("namespaces", "", r#"{"metadata":{"name":"a"}}"#)]);
        let pod = format!(r#"{{"metadata":{{"name":"p"}},"spec":{{"nodeSelector":{own}}}}}"#);
        let answer = match write(Operation::Create, "/v1/pods", ("a", "p"), NOBODY, &pod, "").run(&chain, &world) {
            Ok(pod) => crate::registry::paths::get(&pod, "spec.nodeSelector").unwrap().to_string(),
            Err(status) => status.message,
        };
        assert_eq!(answer, expected, "{own}");
    }
    let default = ("clusterDefaultNodeSelector", "x=1");
    check(&[default], "{}", r#"{"x":"1"}"#);
    check(&[default], r#"{"y":"2"}"#, r#"{"x":"1","y":"2"}"#);
    check(
        &[default],
        r#"{"x":"2"}"#,
        r#"pods "p" is forbidden: pod node label selector conflicts with its namespace node label selector"#,
    );
    check(&[("a", "x=1, y=2")], r#"{"y":"2"}"#, r#"{"y":"2"}"#);
    check(
        &[("a", "x=1")],
        r#"{"y":"2"}"#,
        r#"pods "p" is forbidden: pod node label selector labels conflict with its namespace whitelist"#,
    );
    check(&[("a", "x")], "{}", "invalid selector: [x]");
}

#[test]
fn bundles_are_attested() {
    fn check(operation: Operation, who: &[&str], new: &str, old: &str, is_allowed: bool) {
        let resource = "certificates.k8s.io/v1beta1/clustertrustbundles";
        let answer = answer(&write(operation, resource, ("", "b"), who, new, old), &chain(&[]), &World::default());
        let expected = "403 clustertrustbundles.certificates.k8s.io \"b\" is forbidden: user not permitted to attest \
                        for signerName \"x.io/s\"";
        assert_eq!(answer != expected, is_allowed, "{answer}");
    }
    let bundle = r#"{"metadata":{},"spec":{"signerName":"x.io/s","trustBundle":"t"}}"#;
    let held = r#"{"metadata":{"finalizers":["f"]},"spec":{"signerName":"x.io/s","trustBundle":"t"}}"#;
    let other = r#"{"metadata":{},"spec":{"signerName":"x.io/s","trustBundle":"u"}}"#;
    check(Operation::Create, NOBODY, bundle, "", false);
    check(Operation::Create, &["u", "system:masters"], bundle, "", true);
    check(Operation::Create, NOBODY, r#"{"spec":{"trustBundle":"t"}}"#, "", true);
    check(Operation::Update, NOBODY, held, bundle, true);
    check(Operation::Update, NOBODY, other, bundle, false);
}

#[test]
fn what_means_the_same() {
    fn check(a: &str, b: &str, expected: bool) {
        assert_eq!(
            (same_meaning(&parse(a), &parse(b)), same_meaning(&parse(b), &parse(a))),
            (expected, expected),
            "{a} {b}"
        );
    }
    check("{}", r#"{"a":null,"b":"","c":[],"d":{}}"#, true);
    check(r#"{"a":{"b":{"c":null}}}"#, r#"{"a":{"b":{}}}"#, true);
    check(r#"{"a":[{"b":1}],"z":1}"#, r#"{"a":[{"b":2}],"z":1}"#, false);
    check(r#"{"a":[1]}"#, r#"{"a":[1,1]}"#, false);
    check(r#"{"a":{"b":{"c":1}}}"#, r#"{"a":{"b":{}}}"#, false);
    check(r#"{"a":false}"#, "{}", false);
    let deep = |inner: &str| format!("{}{inner}{}", r#"{"a":"#.repeat(5_000), "}".repeat(5_000));
    check(&deep("1"), &deep("2"), false);
    check(&deep("1"), &deep("1"), true);
}
