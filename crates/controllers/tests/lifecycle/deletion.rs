//! Namespaces that go, and what belongs to others.

use capstan_api::Unstructured;
use capstan_client::Patch;
use serde_json::{Value, json};

use crate::harness::{Cluster, named, owned, owner, pod, with};

const GC: &str = "garbage-collector-controller";
const NAMESPACE: &str = "namespace-controller";
const WIDGETS: &str = "x.io/v1/widgets";

fn map(name: &str) -> Value {
    named("v1", "ConfigMap", name)
}

fn widget(name: &str) -> Value {
    named("x.io/v1", "Widget", name)
}

/// Takes the finalizers off an object.
async fn release(cluster: &Cluster, resource: &str, namespace: &str, name: &str) {
    let patch = Patch::Merge(json!({"metadata": {"finalizers": null}}));
    cluster.api(resource, namespace).patch(name, &patch).await.unwrap();
}

#[tokio::test]
async fn every_namespace_has_an_account_and_the_root() {
    let cluster = Cluster::new().await;
    let manager = cluster.manager(&["root-ca-certificate-publisher-controller", "serviceaccount-controller"]);
    cluster.namespace("one").await;
    cluster.until("there is an account", || cluster.exists("v1/serviceaccounts", "one", "default")).await;
    cluster.until("there is the root", || cluster.exists("v1/configmaps", "one", "kube-root-ca.crt")).await;
    let map = cluster.get("v1/configmaps", "one", "kube-root-ca.crt").await.unwrap();
    assert_eq!(map["data"], json!({"ca.crt": "the root"}));
    assert!(map["metadata"]["annotations"]["kubernetes.io/description"].as_str().unwrap().starts_with("Contains a CA"));

    // What somebody deletes or changes comes back.
    cluster.delete("v1/serviceaccounts", "one", "default", "").await;
    cluster.until("the account is back", || cluster.exists("v1/serviceaccounts", "one", "default")).await;
    let patch = Patch::Merge(json!({"data": {"ca.crt": "mine"}}));
    cluster.api("v1/configmaps", "one").patch("kube-root-ca.crt", &patch).await.unwrap();
    cluster
        .until("the root is back", || async {
            cluster.get("v1/configmaps", "one", "kube-root-ca.crt").await.unwrap()["data"]["ca.crt"] == "the root"
        })
        .await;
    cluster.settle().await;
    manager.requests.take();
    cluster.advance(60).await;
    assert_eq!(manager.requests.take(), Vec::<String>::new(), "nothing to do, nothing asked");
}

/// A namespace with objects of many kinds, one of which somebody keeps.
async fn full(cluster: &Cluster) {
    cluster.namespace("full").await;
    cluster.create("v1/configmaps", "full", map("a")).await;
    cluster.create("v1/secrets", "full", named("v1", "Secret", "a")).await;
    cluster.create("v1/serviceaccounts", "full", named("v1", "ServiceAccount", "default")).await;
    cluster.create("v1/pods", "full", pod("a")).await;
    cluster.create("coordination.k8s.io/v1/leases", "full", named("coordination.k8s.io/v1", "Lease", "a")).await;
    cluster.create(WIDGETS, "full", widget("a")).await;
    cluster.create(WIDGETS, "full", with(widget("kept"), json!({"metadata": {"finalizers": ["x.io/keep"]}}))).await;
}

#[tokio::test]
async fn a_namespace_goes_with_all_it_has() {
    let cluster = Cluster::new().await;
    cluster.widgets().await;
    full(&cluster).await;
    let manager = cluster.manager(&[NAMESPACE]);
    cluster.delete("v1/namespaces", "", "full", "").await;
    cluster
        .until("only what is kept remains", || async {
            let namespace = cluster.get("v1/namespaces", "", "full").await.unwrap();
            namespace["status"]["conditions"].as_array().is_some_and(|conditions| conditions.len() == 5)
        })
        .await;
    assert_eq!(cluster.names(WIDGETS, "full").await, ["kept"]);
    assert_eq!(cluster.names("v1/configmaps", "full").await, [""; 0]);
    let namespace = cluster.get("v1/namespaces", "", "full").await.unwrap();
    let conditions = namespace["status"]["conditions"].as_array().unwrap();
    let words: Vec<_> = conditions
        .iter()
        .map(|condition| {
            format!("{} {} {}", condition["type"], condition["status"], condition["message"]).replace('"', "")
        })
        .collect();
    assert_eq!(
        words,
        [
            "NamespaceDeletionDiscoveryFailure False All resources successfully discovered",
            "NamespaceDeletionGroupVersionParsingFailure False All legacy kube types successfully parsed",
            "NamespaceDeletionContentFailure False All content successfully deleted, may be waiting on finalization",
            "NamespaceContentRemaining True Some resources are remaining: widgets.x.io has 1 resource instances",
            "NamespaceFinalizersRemaining True Some content in the namespace has finalizers remaining: x.io/keep in 1 \
             resource instances",
        ]
    );
    // While somebody keeps it, it is looked at every eight seconds, and no more.
    manager.requests.take();
    let before = manager.requests.writes();
    cluster.advance(60).await;
    let asked = manager.requests.take();
    let looked = asked.iter().filter(|request| *request == "GET /apis").count();
    assert!((6..=8).contains(&looked), "{looked}");
    assert!(manager.requests.writes() - before <= 8, "{asked:?}");
    release(&cluster, WIDGETS, "full", "kept").await;
    cluster.until("it is gone", || async { !cluster.exists("v1/namespaces", "", "full").await }).await;
}

#[tokio::test]
async fn a_namespace_goes_whenever_the_manager_dies() {
    for writes in 1.. {
        let cluster = Cluster::new().await;
        cluster.widgets().await;
        full(&cluster).await;
        release(&cluster, WIDGETS, "full", "kept").await;
        let first = cluster.manager_that_dies(&[NAMESPACE], writes);
        cluster.delete("v1/namespaces", "", "full", "").await;
        cluster.advance(20).await;
        let finished = !cluster.exists("v1/namespaces", "", "full").await;
        assert_eq!(finished, first.requests.writes() < writes || finished);
        first.kill();
        let _second = cluster.manager(&[NAMESPACE]);
        cluster.until("it is gone", || async { !cluster.exists("v1/namespaces", "", "full").await }).await;
        if finished {
            assert!(writes > 3, "there were several writes to die between");
            break;
        }
    }
}

/// `parent` owns `child` and, with another owner, `shared`; `child` owns `grandchild`. The parent is of any kind.
async fn family(cluster: &Cluster, resource: &str, parent: Value) -> Unstructured {
    let parent = cluster.create(resource, "default", parent).await;
    let other = cluster.create("v1/configmaps", "default", map("other")).await;
    let child = cluster.create("v1/configmaps", "default", owned(map("child"), &[owner(&parent, true)])).await;
    cluster
        .create("v1/configmaps", "default", owned(map("shared"), &[owner(&parent, true), owner(&other, false)]))
        .await;
    cluster.create("v1/secrets", "default", owned(named("v1", "Secret", "grandchild"), &[owner(&child, true)])).await;
    cluster.create(WIDGETS, "default", owned(widget("leaf"), &[owner(&parent, true)])).await;
    parent
}

async fn left(cluster: &Cluster) -> String {
    let mut names = cluster.names("v1/configmaps", "default").await;
    names.extend(cluster.names("v1/secrets", "default").await);
    names.extend(cluster.names(WIDGETS, "default").await);
    names.sort();
    names.join(" ")
}

async fn owners(cluster: &Cluster, resource: &str, name: &str) -> Vec<String> {
    let object = cluster.get(resource, "default", name).await.unwrap();
    let owners = object["metadata"]["ownerReferences"].as_array().cloned().unwrap_or_default();
    owners.iter().map(|owner| owner["name"].as_str().unwrap().to_owned()).collect()
}

#[tokio::test]
async fn dependents_go_in_every_way() {
    for (resource, kind) in [("v1/configmaps", map("parent")), (WIDGETS, widget("parent"))] {
        for (policy, expected) in [
            ("Background", "other shared"),
            ("Foreground", "other shared"),
            ("Orphan", "child grandchild leaf other shared"),
        ] {
            let cluster = Cluster::new().await;
            cluster.widgets().await;
            let _manager = cluster.manager(&[GC]);
            family(&cluster, resource, kind.clone()).await;
            cluster.settle().await;
            cluster.delete(resource, "default", "parent", policy).await;
            cluster.until(&format!("{policy} of {resource}"), || async { left(&cluster).await == expected }).await;
            assert_eq!(owners(&cluster, "v1/configmaps", "shared").await, ["other"], "{policy}");
            if policy == "Orphan" {
                assert_eq!(owners(&cluster, "v1/configmaps", "child").await, [""; 0]);
                assert_eq!(owners(&cluster, WIDGETS, "leaf").await, [""; 0]);
                assert_eq!(owners(&cluster, "v1/secrets", "grandchild").await, ["child"]);
            }
        }
    }
}

#[tokio::test]
async fn foreground_waits_and_circles_end() {
    let cluster = Cluster::new().await;
    cluster.widgets().await;
    let manager = cluster.manager(&[GC]);
    let kept = with(map("kept"), json!({"metadata": {"finalizers": ["x.io/keep"]}}));
    let parent = cluster.create("v1/configmaps", "default", map("parent")).await;
    cluster.create("v1/configmaps", "default", owned(kept, &[owner(&parent, true)])).await;
    cluster.settle().await;
    cluster.delete("v1/configmaps", "default", "parent", "Foreground").await;
    cluster.advance(10).await;
    manager.requests.take();
    cluster.advance(60).await;
    assert_eq!(manager.requests.besides_discovery(), [""; 0]);
    assert_eq!(left(&cluster).await, "kept parent");
    release(&cluster, "v1/configmaps", "default", "kept").await;
    cluster.until("both are gone", || async { left(&cluster).await.is_empty() }).await;

    // Two that own each other.
    let one = cluster.create("v1/configmaps", "default", map("one")).await;
    let two = cluster.create(WIDGETS, "default", owned(widget("two"), &[owner(&one, true)])).await;
    let patch = Patch::Merge(json!({"metadata": {"ownerReferences": [owner(&two, true)]}}));
    cluster.api("v1/configmaps", "default").patch("one", &patch).await.unwrap();
    cluster.settle().await;
    cluster.delete("v1/configmaps", "default", "one", "Foreground").await;
    cluster.until("the circle is gone", || async { left(&cluster).await.is_empty() }).await;
}

#[tokio::test]
async fn owners_that_are_not_there() {
    let cluster = Cluster::new().await;
    cluster.widgets().await;
    cluster.namespace("other").await;
    let elsewhere = cluster.create("v1/configmaps", "other", map("elsewhere")).await;
    let absent = json!({"apiVersion": "v1", "kind": "ConfigMap", "name": "never", "uid": "no-such-uid"});
    let unknown = json!({"apiVersion": "no.io/v1", "kind": "Nothing", "name": "x", "uid": "another"});
    let real = cluster.create("v1/configmaps", "default", map("real")).await;
    let wrong_uid = json!({"apiVersion": "v1", "kind": "ConfigMap", "name": "real", "uid": "not its uid"});
    cluster.create("v1/configmaps", "default", owned(map("of-absent"), std::slice::from_ref(&absent))).await;
    cluster.create("v1/configmaps", "default", owned(map("of-wrong-uid"), &[wrong_uid])).await;
    cluster.create("v1/configmaps", "default", owned(map("of-elsewhere"), &[owner(&elsewhere, true)])).await;
    let said = format!(
        "Warning OwnerRefInvalidNamespace of-elsewhere: ownerRef [v1/ConfigMap, namespace: default, name: elsewhere, \
         uid: {}] does not exist in namespace \"default\"",
        elsewhere.uid()
    );
    cluster.create("v1/configmaps", "default", owned(map("of-unknown"), &[unknown])).await;
    cluster.create("v1/configmaps", "default", owned(map("of-both"), &[owner(&real, true), absent])).await;
    let manager = cluster.manager(&[GC]);
    cluster.until("those without owners go", || async { left(&cluster).await == "of-both of-unknown real" }).await;
    cluster.until(&said, || cluster.has_event(&said)).await;
    cluster
        .until("what is absent is forgotten", || async {
            owners(&cluster, "v1/configmaps", "of-both").await == ["real"]
        })
        .await;
    // Nobody knows whether the owner of an unknown kind is there: it is not deleted, and nobody is asked often.
    cluster.advance(120).await;
    manager.requests.take();
    cluster.advance(60).await;
    assert_eq!(manager.requests.besides_discovery(), [""; 0]);
    assert_eq!(left(&cluster).await, "of-both of-unknown real");
}

#[tokio::test]
async fn kinds_come_and_go() {
    let cluster = Cluster::new().await;
    let _manager = cluster.manager(&[GC]);
    cluster.advance(5).await;
    cluster.widgets().await;
    let parent = cluster.create(WIDGETS, "default", widget("parent")).await;
    cluster.create("v1/configmaps", "default", owned(map("child"), &[owner(&parent, true)])).await;
    cluster.advance(40).await;
    cluster.delete(WIDGETS, "default", "parent", "").await;
    cluster.until("the child follows", || async { left(&cluster).await.is_empty() }).await;

    let parent = cluster.create(WIDGETS, "default", widget("parent")).await;
    cluster.create("v1/secrets", "default", owned(named("v1", "Secret", "child"), &[owner(&parent, true)])).await;
    cluster.delete("apiextensions.k8s.io/v1/customresourcedefinitions", "", "widgets.x.io", "").await;
    cluster
        .until("the child follows its kind", || async { cluster.names("v1/secrets", "default").await.is_empty() })
        .await;
}

#[tokio::test]
async fn a_foreground_deletion_ends_whenever_the_manager_dies() {
    for writes in 1.. {
        let cluster = Cluster::new().await;
        cluster.widgets().await;
        let first = cluster.manager_that_dies(&[GC], writes);
        family(&cluster, "v1/configmaps", map("parent")).await;
        cluster.settle().await;
        cluster.delete("v1/configmaps", "default", "parent", "Foreground").await;
        cluster.advance(5).await;
        let finished = first.requests.writes() < writes;
        first.kill();
        let _second = cluster.manager(&[GC]);
        cluster.until("the family is gone", || async { left(&cluster).await == "other shared" }).await;
        assert_eq!(owners(&cluster, "v1/configmaps", "shared").await, ["other"]);
        if finished {
            assert!(writes > 3, "there were several writes to die between");
            break;
        }
    }
}
