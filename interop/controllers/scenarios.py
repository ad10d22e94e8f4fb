"""What is done to each pair of server and manager. A scenario has a namespace of its own and gives what is left there."""

import time

from world import SILENT, wait_for

ALL = []


def scenario(function):
    ALL.append(function)
    return function


def template(image="app:1", labels=None, annotations=None, **spec):
    container = {"name": "app", "image": image}
    return {"metadata": {"labels": labels or {"app": "web"}, "annotations": annotations or {}},
            "spec": {"containers": [container], "terminationGracePeriodSeconds": 5, **spec}}  # fmt: skip


def selector(**labels):
    return {"matchLabels": labels or {"app": "web"}}


def rolled_out(api, path):
    """Whether a Deployment is where it is wanted, as `kubectl rollout status` sees it."""
    value = api.get(path)
    wanted, status = value["spec"]["replicas"], value.get("status", {})
    return status.get("observedGeneration") == value["metadata"]["generation"] and all(
        status.get(field, 0) == wanted for field in ("replicas", "updatedReplicas", "availableReplicas")
    )


def image(name):
    return {"spec": {"template": {"spec": {"containers": [{"name": "app", "image": name}]}}}}


@scenario
def deployment(world):
    api, ns = world.api, world.namespace("deployment")
    path = api.path("Deployment", ns, "web")
    api.create("Service", ns, "web", {"selector": {"app": "web"}, "ports": [{"port": 80, "targetPort": 8080}]})
    api.create("Deployment", ns, "web", {"replicas": 10, "selector": selector(), "template": template()})
    wait_for("the first rollout", lambda: rolled_out(api, path))
    world.settled(ns)
    api.patch(path, image("app:2"))
    wait_for("the update", lambda: rolled_out(api, path))
    world.settled(ns)
    api.patch(path, image("app:1"))  # what undo does
    wait_for("the undo", lambda: rolled_out(api, path))
    world.settled(ns)
    api.patch(path, {"spec": {"paused": True, **image("app:3")["spec"]}})
    world.settled(ns)
    api.patch(path, {"spec": {"replicas": 7}})
    world.settled(ns)
    paused = world.snapshot(ns)
    api.patch(path, {"spec": {"paused": False}})
    wait_for("the update after the pause", lambda: rolled_out(api, path))
    final = world.snapshot(ns)
    for value in paused["objects"]:
        value["metadata"]["name"] += "-while-paused"
    return {"objects": final["objects"] + paused["objects"], "events": final["events"]}


@scenario
def recreate(world):
    api, ns = world.api, world.namespace("recreate")
    path = api.path("Deployment", ns, "web")
    spec = {"replicas": 3, "revisionHistoryLimit": 1, "strategy": {"type": "Recreate"}, "selector": selector(), "template": template()}
    api.create("Deployment", ns, "web", spec)
    wait_for("the first rollout", lambda: rolled_out(api, path))
    for name in ("app:2", "app:3"):
        world.settled(ns)
        api.patch(path, image(name))
        wait_for(f"the update to {name}", lambda: rolled_out(api, path))
    return world.snapshot(ns)


@scenario
def replicaset(world):
    """Scaling, adoption and release, and what a ReplicationController does alike."""
    api, ns = world.api, world.namespace("replicaset")
    api.create("Pod", ns, "adopted", template()["spec"], metadata={"labels": {"app": "web"}})
    world.settled(ns)
    api.create("ReplicaSet", ns, "web", {"replicas": 4, "selector": selector(), "template": template()})
    labels = {"app": "old"}
    api.create("ReplicationController", ns, "old", {"replicas": 2, "selector": labels, "template": template(labels=labels)})
    world.settled(ns)
    api.patch(api.path("Pod", ns, "adopted"), {"metadata": {"labels": {"app": "released"}}})
    world.settled(ns)
    api.patch(api.path("ReplicaSet", ns, "web"), {"spec": {"replicas": 2}})
    return world.snapshot(ns)


def updated(api, path):
    """Whether all pods of a StatefulSet are of its newest revision, and ready."""

    def done():
        value = api.get(path)
        wanted, status = value["spec"]["replicas"], value["status"]
        return status.get("observedGeneration") == value["metadata"]["generation"] and (
            status.get("currentRevision") == status.get("updateRevision") and status.get("availableReplicas") == wanted
        )

    return done


@scenario
def statefulset(world):
    api, ns = world.api, world.namespace("statefulset")
    api.create("Service", ns, "db", {"clusterIP": "None", "selector": {"app": "db"}, "ports": [{"port": 5432}]})
    claim = {"metadata": {"name": "data"}, "spec": {"accessModes": ["ReadWriteOnce"], "storageClassName": "absent",
                                                    "resources": {"requests": {"storage": "1Gi"}}}}  # fmt: skip
    spec = {"replicas": 3, "serviceName": "db", "selector": selector(app="db"), "template": template(labels={"app": "db"}),
            "volumeClaimTemplates": [claim], "updateStrategy": {"type": "RollingUpdate", "rollingUpdate": {"partition": 2}},
            "persistentVolumeClaimRetentionPolicy": {"whenScaled": "Delete", "whenDeleted": "Retain"}}  # fmt: skip
    path = api.path("StatefulSet", ns, "db")
    api.create("StatefulSet", ns, "db", spec)
    wait_for("three pods", lambda: api.get(path)["status"].get("availableReplicas") == 3)
    world.settled(ns)
    api.patch(path, image("app:2"))
    wait_for("one updated pod", lambda: api.get(path)["status"].get("updatedReplicas") == 1)
    world.settled(ns)
    api.patch(path, {"spec": {"updateStrategy": {"rollingUpdate": {"partition": 0}}}})
    wait_for("all updated", updated(api, path))
    world.settled(ns)
    api.patch(path, {"spec": {"replicas": 2}})
    wait_for("two pods", lambda: api.get(path)["status"].get("replicas") == 2)
    return world.snapshot(ns)


@scenario
def statefulset_parallel(world):
    api, ns = world.api, world.namespace("statefulset-parallel")
    spec = {"replicas": 4, "serviceName": "db", "selector": selector(app="db"), "template": template(labels={"app": "db"}),
            "podManagementPolicy": "Parallel", "ordinals": {"start": 3}}  # fmt: skip
    path = api.path("StatefulSet", ns, "db")
    api.create("StatefulSet", ns, "db", spec)
    wait_for("four pods", lambda: api.get(path)["status"].get("availableReplicas") == 4)
    world.settled(ns)
    api.patch(path, image("app:2"))
    wait_for("all updated", updated(api, path))
    return world.snapshot(ns)


def everywhere(api, path, count):
    """Whether so many nodes have an updated pod of a DaemonSet, and it is ready."""

    def done():
        value = api.get(path)
        status = value["status"]
        return status.get("observedGeneration") == value["metadata"]["generation"] and all(
            status.get(field) == count for field in ("updatedNumberScheduled", "numberAvailable", "currentNumberScheduled")
        )

    return done


@scenario
def daemonset(world):
    api, ns = world.api, world.namespace("daemonset")
    path = api.path("DaemonSet", ns, "agent")
    pods = template(labels={"app": "agent"}, nodeSelector={"agent": "yes"})
    for node in ("node-a", "node-b", "node-c"):
        api.patch(f"/api/v1/nodes/{node}", {"metadata": {"labels": {"agent": "yes"}}})
    api.create("DaemonSet", ns, "agent", {"selector": selector(app="agent"), "template": pods})
    ready = lambda count: lambda: api.get(path)["status"].get("numberAvailable") == count  # noqa: E731
    wait_for("three pods", ready(3))
    world.settled(ns)
    api.patch(path, image("app:2"))
    wait_for("all updated", everywhere(api, path, 3))
    world.settled(ns)
    api.patch("/api/v1/nodes/node-c", {"metadata": {"labels": {"agent": "no"}}})
    wait_for("two pods", lambda: api.get(path)["status"].get("desiredNumberScheduled") == 2)
    world.settled(ns)
    surge = {"spec": {"updateStrategy": {"rollingUpdate": {"maxSurge": 1, "maxUnavailable": 0}}, **image("app:3")["spec"]}}
    api.patch(path, surge)
    wait_for("all updated", everywhere(api, path, 2))
    return world.snapshot(ns)


def job(api, ns, name, exit="0", **spec):
    pods = template(annotations={"exit": exit}, restartPolicy="Never")
    # Without labels of its own it would share those of its template: a matter of servers.
    api.create("Job", ns, name, {"template": pods, **spec}, metadata={"labels": {"job": name}})
    return api.path("Job", ns, name)


def condition(api, path, wanted):
    return lambda: any(c["type"] == wanted and c["status"] == "True" for c in api.get(path).get("status", {}).get("conditions", []))


@scenario
def jobs(world):
    api, ns = world.api, world.namespace("jobs")
    indexed = {"completions": 4, "parallelism": 2, "completionMode": "Indexed", "backoffLimitPerIndex": 1}
    failing = {"podFailurePolicy": {"rules": [{"action": "FailJob", "onExitCodes": {"operator": "In", "values": [42]}}]}}
    waits = [
        (job(api, ns, "plain", completions=3, parallelism=2), "Complete"),
        (job(api, ns, "indexed", "1/0=3", **indexed), "Complete"),
        (job(api, ns, "partly", "0/0=1,0/1=1", **{**indexed, "completions": 2}), "Failed"),
        (job(api, ns, "failing", "1", backoffLimit=0), "Failed"),
        (job(api, ns, "policy", "42", **failing), "Failed"),
        (job(api, ns, "success", "0/0=0,else=run", completions=3, parallelism=3, completionMode="Indexed",
             successPolicy={"rules": [{"succeededIndexes": "0"}]}), "Complete"),
        (job(api, ns, "suspended", suspend=True), "Suspended"),
    ]  # fmt: skip
    for path, wanted in waits:
        wait_for(f"{path} is {wanted}", condition(api, path, wanted))
    return world.snapshot(ns)


@scenario
def cronjob(world):
    api, ns = world.api, world.namespace("cronjob")
    pods = {"metadata": {"labels": {"job": "cron"}}, "spec": {"template": template(restartPolicy="Never")}}
    api.create("CronJob", ns, "cron", {"schedule": "* * * * *", "jobTemplate": pods, "concurrencyPolicy": "Forbid"})
    api.create("CronJob", ns, "never", {"schedule": "0 0 31 2 *", "jobTemplate": pods})
    path = api.path("CronJob", ns, "cron")
    wait_for("a Job that has ended", lambda: api.get(path)["status"].get("lastSuccessfulTime"), 180)
    api.patch(path, {"spec": {"suspend": True}})
    return world.snapshot(ns)


@scenario
def namespace_of_custom_resources(world):
    api, ns, group = world.api, world.namespace("full"), "swap.example.com"
    schema = {"type": "object", "x-kubernetes-preserve-unknown-fields": True}
    version = {"name": "v1", "served": True, "storage": True, "schema": {"openAPIV3Schema": schema}}
    names = {"plural": "things", "singular": "thing", "kind": "Thing"}
    crd = {"apiVersion": "apiextensions.k8s.io/v1", "kind": "CustomResourceDefinition", "metadata": {"name": f"things.{group}"},
           "spec": {"group": group, "scope": "Namespaced", "names": names, "versions": [version]}}  # fmt: skip
    api.call("POST", "/apis/apiextensions.k8s.io/v1/customresourcedefinitions", crd)
    path = f"/apis/{group}/v1/namespaces/{ns}/things"
    wait_for("the kind is served", lambda: api.get(path))
    for number in range(20):
        meta = {"name": f"thing-{number}", "finalizers": ["example.com/stay"] if number == 7 else []}
        wait_for("it is made", lambda: api.call("POST", path, {"apiVersion": f"{group}/v1", "kind": "Thing", "metadata": meta}))
    api.create("Deployment", ns, "web", {"replicas": 2, "selector": selector(), "template": template()})
    world.settled(ns)
    api.call("DELETE", f"/api/v1/namespaces/{ns}")
    remains = lambda: [thing["metadata"]["name"] for thing in api.get(path)["items"]] == ["thing-7"]  # noqa: E731
    wait_for("one remains", remains)
    told = lambda: any(c["type"] == "NamespaceFinalizersRemaining" and c["status"] == "True"  # noqa: E731
                       for c in api.get(f"/api/v1/namespaces/{ns}")["status"].get("conditions", []))  # fmt: skip
    wait_for("the namespace says so", told)
    wait_for("its pods are gone", lambda: not api.list("Pod", ns))
    quiet = lambda: "thing" in str(api.get(f"/api/v1/namespaces/{ns}")["status"]) and "pods" not in str(  # noqa: E731
        api.get(f"/api/v1/namespaces/{ns}")["status"])  # fmt: skip
    wait_for("only that remains", quiet)
    left = api.get(f"/api/v1/namespaces/{ns}")
    api.patch(f"{path}/thing-7", {"metadata": {"finalizers": None}})
    wait_for("the namespace is gone", lambda: api.exists(f"/api/v1/namespaces/{ns}") is None)
    return {"objects": [left], "events": []}


@scenario
def deletions(world):
    """Foreground, background and orphan."""
    api, ns = world.api, world.namespace("deletions")
    for name in ("foreground", "background", "orphan"):
        labels = {"app": name}
        api.create("Deployment", ns, name, {"replicas": 2, "selector": selector(**labels), "template": template(labels=labels)})
    world.settled(ns)
    for name in ("foreground", "background", "orphan"):
        options = {"kind": "DeleteOptions", "apiVersion": "v1", "propagationPolicy": name.capitalize()}
        api.call("DELETE", api.path("Deployment", ns, name), options)
    # What is deleted in the foreground stays until those that it owns are gone.
    wait_for("the owner waits", lambda: "deletionTimestamp" in api.get(api.path("Deployment", ns, "foreground"))["metadata"])
    for name in ("foreground", "background", "orphan"):
        wait_for(f"{name} is gone", lambda: api.exists(api.path("Deployment", ns, name)) is None)
    return world.snapshot(ns)


@scenario
def quota_and_budget(world):
    api, ns = world.api, world.namespace("quota")
    hard = {"pods": "5", "requests.cpu": "1", "count/configmaps": "5", "services": "2", "count/deployments.apps": "2"}
    api.create("ResourceQuota", ns, "few", {"hard": hard})
    wait_for("it counts", lambda: "used" in api.get(api.path("ResourceQuota", ns, "few")).get("status", {}))
    pods = template()
    pods["spec"]["containers"][0]["resources"] = {"requests": {"cpu": "100m"}}
    labels = {"app": "api"}
    other = template(labels=labels)
    other["spec"]["containers"][0]["resources"] = pods["spec"]["containers"][0]["resources"]
    api.create("Deployment", ns, "api", {"replicas": 2, "selector": selector(**labels), "template": other})
    world.settled(ns)
    api.create("Deployment", ns, "web", {"replicas": 5, "selector": selector(), "template": pods})
    used = lambda: api.get(api.path("ResourceQuota", ns, "few"))["status"]["used"].get("pods") == "5"  # noqa: E731
    wait_for("all that fit", used)
    world.settled(ns)
    # Not before: whoever sees no pods yet says so in an Event.
    api.create("PodDisruptionBudget", ns, "two", {"minAvailable": 2, "selector": selector()})
    api.create("PodDisruptionBudget", ns, "half", {"maxUnavailable": "50%", "selector": selector(**labels)})
    api.create("PodDisruptionBudget", ns, "nobody", {"minAvailable": 1, "selector": selector(app="nobody")})
    healthy = lambda: api.get(api.path("PodDisruptionBudget", ns, "two"))["status"].get("currentHealthy") == 3  # noqa: E731
    wait_for("the budget counts", healthy)
    return world.snapshot(ns)


@scenario
def identity(world):
    """A token in a Secret, an account that comes back, a ClusterRole made of others."""
    api, ns = world.api, world.namespace("identity")
    meta = {"annotations": {"kubernetes.io/service-account.name": "default"}}
    api.create("Secret", ns, "token", type="kubernetes.io/service-account-token", metadata=meta)
    wait_for("a token", lambda: api.get(api.path("Secret", ns, "token")).get("data", {}).get("token"))
    uid = api.get(api.path("ServiceAccount", ns, "default"))["metadata"]["uid"]
    api.call("DELETE", api.path("ServiceAccount", ns, "default"))
    back = lambda: (found := api.exists(api.path("ServiceAccount", ns, "default"))) and found["metadata"]["uid"] != uid  # noqa: E731
    wait_for("the account comes back", back)
    wait_for("its token goes", lambda: api.exists(api.path("Secret", ns, "token")) is None)
    roles = "/apis/rbac.authorization.k8s.io/v1/clusterroles"
    base = {"apiVersion": "rbac.authorization.k8s.io/v1", "kind": "ClusterRole"}
    rule = {"apiGroups": [""], "resources": ["pods"], "verbs": ["get"]}
    api.call("POST", roles, {**base, "metadata": {"name": "part", "labels": {"part-of": "whole"}}, "rules": [rule]})
    aggregation = {"clusterRoleSelectors": [{"matchLabels": {"part-of": "whole"}}]}
    api.call("POST", roles, {**base, "metadata": {"name": "whole"}, "aggregationRule": aggregation, "rules": []})
    wait_for("the whole has its part", lambda: api.get(f"{roles}/whole").get("rules"))
    return world.snapshot(ns, more=(f"{roles}/whole",))


@scenario
def nodes(world):
    """A node that falls silent: its conditions, its taints, its pods."""
    api, ns = world.api, world.namespace("nodes")
    api.create("Pod", ns, "lost", {**template()["spec"], "nodeName": SILENT}, metadata={"labels": {"app": "lost"}})
    tolerations = [{"key": "node.kubernetes.io/unreachable", "operator": "Exists", "effect": "NoExecute", "tolerationSeconds": 2}]
    api.create("Pod", ns, "evicted", {**template()["spec"], "nodeName": SILENT, "tolerations": tolerations})
    path = f"/api/v1/nodes/{SILENT}"
    tainted = lambda: any(taint["effect"] == "NoExecute" for taint in api.get(path)["spec"].get("taints", []))  # noqa: E731
    wait_for("the node is tainted", tainted, 120)
    wait_for("one pod is evicted", lambda: api.exists(api.path("Pod", ns, "evicted")) is None)
    time.sleep(6)
    found = world.snapshot(ns, more=(path, "/api/v1/nodes/node-a"))
    found["events"] += [event for event in world.events("default") if event["involvedObject"]["name"] == SILENT]
    return found
