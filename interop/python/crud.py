"""The Python client: a Pod is created, read, updated in a loop that retries on conflict, watched and deleted."""

import os
import sys
import threading

from kubernetes import client, config, dynamic, watch
from kubernetes.client.rest import ApiException


def that(name, holds, got=None):
    if not holds:
        print(f"FAIL {name}: {got}")
        sys.exit(1)
    print(f"ok {name}", flush=True)


def refused(name, code, call, *arguments, **options):
    try:
        got = call(*arguments, **options)
    except ApiException as error:
        that(name, error.status == code, error)
    else:
        that(name, False, got)


config.load_kube_config(os.environ["KUBECONFIG"])
core = client.CoreV1Api()
namespace = core.create_namespace(client.V1Namespace(metadata=client.V1ObjectMeta(generate_name="python-"))).metadata.name

pod = client.V1Pod(
    metadata=client.V1ObjectMeta(name="web", labels={"app": "web"}),
    spec=client.V1PodSpec(containers=[client.V1Container(name="web", image="nginx:1.27")]),
)
created = core.create_namespaced_pod(namespace, pod)
that("a created pod is defaulted", created.spec.restart_policy == "Always" and created.status.phase == "Pending", created)
refused("a second create already exists", 409, core.create_namespaced_pod, namespace, pod)
empty = {"metadata": {"name": "x"}, "spec": {"containers": []}}
refused("a pod without containers is invalid", 422, core.create_namespaced_pod, namespace, empty)
listed = core.list_namespaced_pod(namespace, label_selector="app=web").items
that("a list finds it", [item.metadata.uid for item in listed] == [created.metadata.uid], listed)

attempts = 0
while True:
    attempts += 1
    got = core.read_namespaced_pod("web", namespace)
    if attempts == 1:
        # Another writer gets in between.
        core.patch_namespaced_pod("web", namespace, {"metadata": {"labels": {"other": "writer"}}})
    got.spec.containers[0].image = "nginx:1.28"
    try:
        got = core.replace_namespaced_pod("web", namespace, got)
        break
    except ApiException as error:
        that("a stale update conflicts", error.status == 409, error)
kept = got.metadata.labels.get("other") == "writer" and got.spec.containers[0].image == "nginx:1.28"
that("the loop of get, update and retry keeps both changes", attempts == 2 and kept, got)

for body, kind in (
    ({"metadata": {"annotations": {"a": "1"}}}, "application/merge-patch+json"),
    ([{"op": "add", "path": "/metadata/annotations/b", "value": "2"}], "application/json-patch+json"),
    ({"metadata": {"annotations": {"c": "3"}}}, "application/strategic-merge-patch+json"),
):
    got = core.patch_namespaced_pod("web", namespace, body, _content_type=kind)
that("three types of patch are taken", got.metadata.annotations == {"a": "1", "b": "2", "c": "3"}, got.metadata.annotations)

start = core.list_namespaced_config_map(namespace).metadata.resource_version


def change():
    core.create_namespaced_config_map(namespace, {"metadata": {"name": "seen"}})
    core.patch_namespaced_config_map("seen", namespace, {"data": {"a": "1"}})
    core.delete_namespaced_config_map("seen", namespace)


thread = threading.Thread(target=change)
thread.start()
events = []
watcher = watch.Watch()
for event in watcher.stream(core.list_namespaced_config_map, namespace, resource_version=start, timeout_seconds=60):
    events.append((event["type"], event["object"].metadata.name))
    if event["type"] == "DELETED":
        watcher.stop()
thread.join()
that("a watch tells of all changes", events == [("ADDED", "seen"), ("MODIFIED", "seen"), ("DELETED", "seen")], events)

core.delete_namespaced_pod("web", namespace, grace_period_seconds=0)
refused("what is deleted is not found", 404, core.read_namespaced_pod, "web", namespace)

apps = client.AppsV1Api()
labels = {"app": "web"}
template = {"metadata": {"labels": labels}, "spec": {"containers": [{"name": "web", "image": "nginx"}]}}
deployment = {"metadata": {"name": "web"}, "spec": {"selector": {"matchLabels": labels}, "template": template}}
that("a deployment is created", apps.create_namespaced_deployment(namespace, deployment).spec.replicas == 1)
scale = apps.patch_namespaced_deployment_scale("web", namespace, {"spec": {"replicas": 3}})
that("it is scaled", scale.spec.replicas == 3, scale)

# Discovery by the dynamic client, that works on any kind.
secrets = dynamic.DynamicClient(client.ApiClient()).resources.get(api_version="v1", kind="Secret")
secrets.create(body={"metadata": {"name": "s"}, "stringData": {"a": "b"}}, namespace=namespace)
that("the dynamic client finds a kind and uses it", secrets.get(name="s", namespace=namespace).data["a"] == "Yg==")
that("the version is told", client.VersionApi().get_code().minor == "36")
