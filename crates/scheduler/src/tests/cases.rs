//! Plugin by plugin.

use super::check;

/// What follows a refusal when nobody can be evicted.
const NOBODY: &str = "no new claims to deallocate, preemption: 0/1 nodes are available: 1 No preemption victims found \
                      for incoming pod.";
/// What follows every refusal that evicting would not mend.
const USELESS: &str =
    "no new claims to deallocate, preemption: 0/1 nodes are available: 1 Preemption is not helpful for scheduling.";

#[track_caller]
fn refused(lines: &str, pod: &str, reason: &str) {
    check(lines, pod, &format!("0/1 nodes are available: 1 {reason}. {USELESS}"));
}

#[test]
fn resources() {
    check("", "p", "no nodes");
    check("node a cpu=1 mem=1Gi", "p cpu=1 mem=1Gi", "a*");
    refused("node a cpu=1 mem=1Gi", "p cpu=1001m", "Insufficient cpu");
    refused("node a", "p mem=1", "Insufficient memory");
    refused("node a gpu=1", "p gpu=2", "Insufficient example.com/gpu");
    check(
        "node a cpu=1 pods=1\npod x on=a cpu=1",
        "p cpu=1",
        &format!("0/1 nodes are available: 1 Insufficient cpu, 1 Too many pods. {NOBODY}"),
    );
    // The emptier node is better; a pod without requests counts for a little all the same.
    check("node a cpu=4 mem=4Gi\nnode b cpu=4 mem=4Gi\npod x on=a cpu=1 mem=1Gi", "p cpu=1 mem=1Gi", "a b*");
    check("node a cpu=4 mem=4Gi\nnode b cpu=4 mem=4Gi\npod x on=b", "p", "a* b");
    // Of nodes that are equally empty, the one where CPU and memory are used evenly with the pod.
    check("node a cpu=10 mem=10Gi\nnode b cpu=10 mem=10Gi\npod x on=a cpu=4\npod y on=b mem=4Gi", "p cpu=2", "a b*");
}

#[test]
fn nodes() {
    refused("node a unschedulable", "p", "node(s) were unschedulable");
    check("node a unschedulable", "p yaml:tolerations: [{operator: Exists}]", "a*");
    refused("node a taint:k=v:NoSchedule", "p", "node(s) had untolerated taint(s)");
    refused("node a taint:k=v:NoExecute", "p tolerate:k=w", "node(s) had untolerated taint(s)");
    check("node a taint:k=v:NoSchedule", "p tolerate:k=v", "a*");
    check("node a cpu=1 taint:k=v:PreferNoSchedule\nnode b cpu=1", "p", "a b*");
    refused("node a", "p select:disk=ssd", "node(s) didn't match Pod's node affinity/selector");
    check("node a\nnode b label:disk=ssd", "p select:disk=ssd", "b*");
    let required = |terms: &str| {
        format!(
            "p yaml:affinity: {{nodeAffinity: {{requiredDuringSchedulingIgnoredDuringExecution: \
             {{nodeSelectorTerms: [{terms}]}}}}}}"
        )
    };
    let clusters = "node a label:num=1\nnode b label:num=5\nnode c";
    for (term, expected) in [
        ("{matchExpressions: [{key: num, operator: Gt, values: ['3']}]}", "b*"),
        ("{matchExpressions: [{key: num, operator: DoesNotExist}]}", "c*"),
        ("{matchExpressions: [{key: num, operator: Exists}, {key: num, operator: NotIn, values: ['5']}]}", "a*"),
        ("{matchFields: [{key: metadata.name, operator: In, values: [b]}]}", "b*"),
    ] {
        check(clusters, &required(term), expected);
    }
    check(
        "node a\nnode b",
        &required("{matchFields: [{key: metadata.name, operator: In, values: [x]}]}"),
        "0/2 nodes are available: 2 node(s) didn't satisfy plugin(s) [NodeAffinity]. \
         no new claims to deallocate, preemption: 0/2 nodes are available: 2 Preemption is not helpful for scheduling.",
    );
    check(
        "node a",
        &required(
            "{matchFields: [{key: metadata.name, operator: In, values: [a]}, \
             {key: metadata.name, operator: In, values: [b]}]}",
        ),
        "0/1 nodes are available: pod affinity terms conflict. not found",
    );
    check(
        "node a cpu=9 label:d=x\nnode b cpu=1 label:d=why",
        "p yaml:affinity: {nodeAffinity: {preferredDuringSchedulingIgnoredDuringExecution: [{weight: 9, preference: \
         {matchExpressions: [{key: d, operator: In, values: [why]}]}}]}}",
        "a b*",
    );
    check(
        "node a\npod x on=a port=80",
        "p port=80",
        &format!("0/1 nodes are available: 1 node(s) didn't have free ports for the requested pod ports. {NOBODY}"),
    );
    check("node a\npod x on=a port=80", "p port=81", "a*");
    refused("node a", "p yaml:hostNetwork: true, hostUsers: false", "node(s) didn't match Pod's required features");
    check(
        "node a yaml:declaredFeatures: [UserNamespacesHostNetworkSupport]",
        "p yaml:hostNetwork: true, hostUsers: false",
        "a*",
    );
}

#[test]
fn pods_nearby() {
    let zones = "node a zone=1\nnode b zone=1\nnode c zone=2\npod x on=a label:app=web";
    check(zones, "p near:app=web@host", "a*");
    check(zones, "p far:app=web@zone", "c*");
    // The first of those that want each other near may go anywhere, but only where the label is.
    check("node a zone=1\nnode b", "p label:app=db near:app=db@zone", "a*");
    refused("node a zone=1", "p near:app=db@zone", "node(s) didn't match pod affinity rules");
    check(
        "node a\npod x on=a far:app=web@host",
        "p label:app=web",
        &format!("0/1 nodes are available: 1 node(s) didn't satisfy existing pods anti-affinity rules. {NOBODY}"),
    );
    check(
        "node a\npod x on=a label:app=web",
        "p far:app=web@host",
        &format!("0/1 nodes are available: 1 node(s) didn't match pod anti-affinity rules. {NOBODY}"),
    );
    check("node a\npod x on=a ns=other label:app=web", "p far:app=web@host", "a*");
    let bare = "node a cpu=1\nnode b cpu=1\npod x on=b label:app=web";
    check(bare, "p like-near:app=web@host", "a b*");
    check(bare, "p like-far:app=web@host", "a* b");
    check("node a cpu=1\nnode b cpu=1\npod x on=b like-near:app=web@host", "p label:app=web", "a b*");
    check(
        "namespace metadata: {name: other, labels: {team: x}}\nnode a\nnode b\npod x on=a ns=other label:app=web",
        "p yaml:affinity: {podAntiAffinity: {requiredDuringSchedulingIgnoredDuringExecution: [{labelSelector: {}, \
         namespaceSelector: {matchLabels: {team: x}}, topologyKey: kubernetes.io/hostname}]}}",
        "b*",
    );
}

#[test]
fn spread() {
    let zones = "node a zone=1\nnode b zone=2\npod x on=a label:app=web";
    check(zones, "p label:app=web spread:app=web@zone:1", "b*");
    check(
        "node a cpu=2 zone=1\nnode b cpu=2 zone=2\npod x on=a cpu=1 label:app=web",
        "p label:app=web spread:app=web@zone:2 cpu=1",
        "a b*",
    );
    check("node a zone=1\nnode b", "p label:app=web spread:app=web@zone:1", "a*");
    refused(
        "node a",
        "p label:app=web spread:app=web@zone:1",
        "node(s) didn't match pod topology spread constraints (missing required label)",
    );
    // A domain that does not count because the pod cannot go there does not hold the others back.
    check(
        "node a zone=1 label:d=x\nnode b zone=2\npod x on=a label:app=web",
        "p label:app=web select:d=x spread:app=web@zone:1",
        "a*",
    );
    // Pods that are going away do not count.
    check(
        "node a zone=1\nnode b zone=2\npod x on=a label:app=web deleted\npod y on=b label:app=web",
        "p label:app=web spread:app=web@zone:1",
        "a*",
    );
    check(
        "node a cpu=1 zone=1\nnode b cpu=1 zone=2\npod x on=b label:app=web",
        "p label:app=web like-spread:app=web@zone:1",
        "a* b",
    );
    // Pods of a service are spread over hosts and zones without asking for it.
    check(
        "service {metadata: {name: s, namespace: default}, spec: {selector: {app: web}}}\nnode a cpu=9 zone=1\n\
         node b cpu=1 zone=2\npod x on=a label:app=web\npod y on=a label:app=web",
        "p label:app=web",
        "a b*",
    );
    check(
        "node a zone=1\npod x on=a label:app=web",
        "p label:app=web yaml:topologySpreadConstraints: [{maxSkew: 1, minDomains: 2, topologyKey: \
         topology.kubernetes.io/zone, whenUnsatisfiable: DoNotSchedule, labelSelector: {matchLabels: {app: web}}}]",
        &format!("0/1 nodes are available: 1 node(s) didn't match pod topology spread constraints. {NOBODY}"),
    );
}

#[test]
fn images() {
    let images = "images: [{names: ['img:latest'], sizeBytes: 500000000}]";
    check(&format!("node a cpu=1\nnode b cpu=1 yaml:{images}"), "p", "a b*");
}

#[test]
fn preemption() {
    let full = "node a cpu=1\npod x on=a cpu=600m prio=1\npod y on=a cpu=400m prio=2";
    let refused = "0/1 nodes are available: 1 Insufficient cpu.";
    check(full, "p cpu=1 prio=5", &format!("{refused} => a without y,x (0)"));
    // No more than needed: the less important alone.
    check(full, "p cpu=500m prio=5", &format!("{refused} => a without x (0)"));
    check(full, "p cpu=300m prio=2", &format!("{refused} => a without x (0)"));
    check(
        full,
        "p cpu=1 prio=2",
        &format!("{refused} no new claims to deallocate, preemption: 0/1 nodes are available: 1 Insufficient cpu."),
    );
    check(
        full,
        "p cpu=1 prio=5 never",
        &format!("{refused} no new claims to deallocate, preemption: not eligible due to preemptionPolicy=Never."),
    );
    let two = |a: &str, b: &str| format!("node a cpu=1\nnode b cpu=1\npod x on=a cpu=1 {a}\npod y on=b cpu=1 {b}");
    let refused = "0/2 nodes are available: 2 Insufficient cpu.";
    check(&two("prio=3", "prio=1"), "p cpu=1 prio=5", &format!("{refused} => b without y (0)"));
    check(&two("started=1", "started=2"), "p cpu=1 prio=5", &format!("{refused} => b without y (0)"));
    // A protected pod goes only if there is no other way.
    let budget = "budget {metadata: {name: b, namespace: default}, spec: {selector: {matchLabels: {app: x}}}, status: \
                  {disruptionsAllowed: 0, expectedPods: 1, currentHealthy: 1, desiredHealthy: 1}}\n";
    check(
        &format!("{budget}{}", two("prio=1 label:app=x", "prio=3")),
        "p cpu=1 prio=5",
        &format!("{refused} => b without y (0)"),
    );
    check(
        &format!("{budget}node a cpu=1\npod x on=a cpu=1 label:app=x"),
        "p cpu=1 prio=5",
        "0/1 nodes are available: 1 Insufficient cpu. => a without x (1)",
    );
    // Evicting a pod that keeps others away helps too.
    check(
        "node a\npod x on=a far:app=web@host",
        "p label:app=web prio=1",
        "0/1 nodes are available: 1 node(s) didn't satisfy existing pods anti-affinity rules. => a without x (0)",
    );
    // Whoever waits for others to go does not evict more.
    check(
        "node a cpu=1\npod x on=a cpu=1 deleted yaml:priority: 0",
        "p cpu=1 prio=5 nominated=a",
        "0/1 nodes are available: 1 Insufficient cpu. => a without x (0)",
    );
}

#[test]
fn volumes() {
    let pod = "p yaml:volumes: [{name: v, persistentVolumeClaim: {claimName: c}}]";
    let useless = |reason: &str| format!("0/1 nodes are available: {reason}. not found");
    check("node a", pod, &useless("persistentvolumeclaim \"c\" not found"));
    let claim = |spec: &str, more: &str| {
        format!(
            "claim {{metadata: {{name: c, namespace: default{more}}}, \
             spec: {{accessModes: [ReadWriteOnce], {spec}}}}}\n"
        )
    };
    let class = |mode: &str, provisioner: &str| {
        format!("class {{metadata: {{name: s}}, volumeBindingMode: {mode}, provisioner: {provisioner}}}\n")
    };
    let immediate = claim("storageClassName: s", "") + &class("Immediate", "example.com/disk");
    check(&format!("{immediate}node a"), pod, &useless("pod has unbound immediate PersistentVolumeClaims"));

    // Bound to a volume that is only on one node.
    let bound = claim("volumeName: v", ", annotations: {pv.kubernetes.io/bind-completed: 'yes'}");
    let volume = |spec: &str, more: &str| {
        format!(
            "volume {{metadata: {{name: v{more}}}, spec: {{storageClassName: s, accessModes: [ReadWriteOnce], \
                 capacity: {{storage: 1Gi}}, {spec}}}, status: {{phase: Available}}}}\n"
        )
    };
    let on_b = "nodeAffinity: {required: {nodeSelectorTerms: [{matchExpressions: [{key: kubernetes.io/hostname, \
                operator: In, values: [b]}]}]}}";
    check(&format!("{bound}{}node a\nnode b", volume(on_b, "")), pod, "b*");
    refused(
        &format!("{bound}{}node a", volume(on_b, "")),
        pod,
        "node(s) didn't match PersistentVolume's node affinity",
    );
    // In a zone.
    let zoned = volume("local: {path: /x}", ", labels: {topology.kubernetes.io/zone: z2}");
    check(&format!("{bound}{zoned}node a zone=z1\nnode b zone=z2"), pod, "b*");
    refused(&format!("{bound}{zoned}node a zone=z1"), pod, "node(s) had no available volume zone");

    // Not bound yet: a volume that fits, or one that can be made.
    let waiting = claim("storageClassName: s, resources: {requests: {storage: 1Gi}}", "");
    let none = class("WaitForFirstConsumer", "kubernetes.io/no-provisioner");
    check(&format!("{waiting}{none}{}node a\nnode b", volume(on_b, "")), pod, "b*");
    refused(&format!("{waiting}{none}node a"), pod, "node(s) didn't find available persistent volumes to bind");
    check(&format!("{waiting}{}node a", class("WaitForFirstConsumer", "example.com/disk")), pod, "a*");

    // Only one pod may have it.
    let once = "claim {metadata: {name: c, namespace: default, annotations: {pv.kubernetes.io/bind-completed: 'yes'}}, \
                spec: {volumeName: v, accessModes: [ReadWriteOncePod]}}\n";
    check(
        &format!(
            "{once}{}node a\npod x on=a yaml:volumes: [{{name: v, persistentVolumeClaim: {{claimName: c}}}}]",
            volume("local: {path: /x}", "")
        ),
        pod,
        &format!(
            "0/1 nodes are available: 1 node(s) unavailable due to PersistentVolumeClaim with ReadWriteOncePod access mode \
             already in-use by another pod. {NOBODY}"
        ),
    );
    // A node that has as many as it can.
    let csi = "csi: {driver: d, volumeHandle: h}";
    check(
        &format!(
            "{bound}{}csinode {{metadata: {{name: a}}, spec: {{drivers: [{{name: d, nodeID: a, allocatable: \
             {{count: 0}}}}]}}}}\nnode a\nnode b",
            volume(csi, "")
        ),
        pod,
        "b*",
    );
}
