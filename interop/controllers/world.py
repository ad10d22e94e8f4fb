"""A server as the scenarios see it, and the writer that stands for scheduler and nodes."""

import http.client
import json
import re
import socket
import ssl
import threading
import time

# What a namespace can hold that control loops make or change.
KINDS = {
    "Pod": "/api/v1/{}pods", "Service": "/api/v1/{}services", "Endpoints": "/api/v1/{}endpoints",
    "ConfigMap": "/api/v1/{}configmaps", "Secret": "/api/v1/{}secrets", "ServiceAccount": "/api/v1/{}serviceaccounts",
    "ResourceQuota": "/api/v1/{}resourcequotas", "PersistentVolumeClaim": "/api/v1/{}persistentvolumeclaims",
    "ReplicationController": "/api/v1/{}replicationcontrollers",
    "ReplicaSet": "/apis/apps/v1/{}replicasets", "Deployment": "/apis/apps/v1/{}deployments",
    "StatefulSet": "/apis/apps/v1/{}statefulsets", "DaemonSet": "/apis/apps/v1/{}daemonsets",
    "ControllerRevision": "/apis/apps/v1/{}controllerrevisions",
    "Job": "/apis/batch/v1/{}jobs", "CronJob": "/apis/batch/v1/{}cronjobs",
    "PodDisruptionBudget": "/apis/policy/v1/{}poddisruptionbudgets",
    "EndpointSlice": "/apis/discovery.k8s.io/v1/{}endpointslices",
}  # fmt: skip
# What the writer looks at to know whether a namespace has come to rest.
WATCHED = ("Pod", "ReplicaSet", "ReplicationController", "Deployment", "StatefulSet", "DaemonSet", "Job")
NODES = ("node-a", "node-b", "node-c")
# A node that nobody hears of.
SILENT = "node-silent"
TICK = 0.3
# A Job of upstream's waits a second for more of its pods to end.
REST = 1.5


class Failed(Exception):
    pass


def free_port():
    with socket.socket() as listener:
        listener.bind(("127.0.0.1", 0))
        return str(listener.getsockname()[1])


def wait_for(what, condition, seconds=120):
    last, end = None, time.monotonic() + seconds
    while time.monotonic() < end:
        try:
            last = condition()
            if last:
                return last
        except (Failed, OSError) as error:
            last = error
        time.sleep(0.1)
    raise Failed(f"not within {seconds} s: {what} (last: {last})")


class Api:
    """JSON over one connection a thread, as the user of a kubeconfig."""

    def __init__(self, kubeconfig):
        text = kubeconfig.read_text()
        found = lambda word: re.search(rf'{word}: "?([^\s",}}]+)', text)[1]  # noqa: E731
        self.host, self.token, self.local = found("server").removeprefix("https://"), found("token"), threading.local()

    def call(self, method, path, body=None, content="application/json"):
        for attempt in (1, 2):
            if not hasattr(self.local, "connection"):
                # It is a server of ours on the loopback, made a moment ago.
                context = ssl._create_unverified_context()
                self.local.connection = http.client.HTTPSConnection(self.host, context=context, timeout=30)
            headers = {"Authorization": f"Bearer {self.token}", "Content-Type": content, "User-Agent": "writer/1"}
            try:
                self.local.connection.request(method, path, body and json.dumps(body), headers)
                answer = self.local.connection.getresponse()
                status, text = answer.status, answer.read()
                break
            except (OSError, http.client.HTTPException):
                self.local.connection.close()
                del self.local.connection
                if attempt == 2:
                    raise
        if status >= 400:
            raise Failed(f"{method} {path}: {status} {text.decode(errors='replace')[:500]}")
        return json.loads(text)

    def get(self, path):
        return self.call("GET", path)

    def list(self, kind, namespace=None):
        path = KINDS[kind].format(f"namespaces/{namespace}/" if namespace else "")
        found = self.get(path)
        return [{"kind": kind, "apiVersion": found["apiVersion"], **item} for item in found["items"]]

    def path(self, kind, namespace, name=""):
        return KINDS[kind].format(f"namespaces/{namespace}/") + (f"/{name}" if name else "")

    def create(self, kind, namespace, name, spec=None, **rest):
        group = re.match(r"/apis?/(.*?)/\{\}", KINDS[kind])[1]
        body = {"apiVersion": group, "kind": kind, "metadata": {"name": name, **rest.pop("metadata", {})}, **rest}
        if spec is not None:
            body["spec"] = spec
        return self.call("POST", self.path(kind, namespace), body)

    def patch(self, path, body):
        return self.call("PATCH", path, body, "application/merge-patch+json")

    def exists(self, path):
        try:
            return self.get(path)
        except Failed as error:
            if " 404 " in str(error):
                return None
            raise


def now():
    return time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime())


class World:
    """Nodes that live, and pods that run on them: those of Jobs end as their annotation `exit` says, all others become ready."""

    def __init__(self, api):
        self.api, self.ended, self.addresses = api, threading.Event(), 0
        self.lock, self.seen, self.resting, self.generated, self.error = threading.Lock(), {}, {}, set(), None
        self.thread = threading.Thread(target=self.run, daemon=True)

    def start(self):
        for name in (*NODES, SILENT):
            body = {"apiVersion": "v1", "kind": "Node", "metadata": {"name": name, "labels": {"kubernetes.io/hostname": name}}}
            self.api.call("POST", "/api/v1/nodes", body)
            conditions = [{"type": "Ready", "status": "True", "reason": "KubeletReady", "message": "ready",
                           "lastHeartbeatTime": now(), "lastTransitionTime": now()}]  # fmt: skip
            amounts = {"cpu": "8", "memory": "16Gi", "pods": "110"}
            status = {"status": {"capacity": amounts, "allocatable": amounts, "conditions": conditions}}
            self.api.patch(f"/api/v1/nodes/{name}/status", status)
        self.beat()
        self.thread.start()
        untainted = lambda: all(not self.api.get(f"/api/v1/nodes/{name}")["spec"].get("taints") for name in NODES)  # noqa: E731
        wait_for("nodes without taints", untainted, 60)

    def stop(self):
        self.ended.set()
        self.thread.join()

    def prefixes(self):
        return self.generated

    def beat(self):
        for name in NODES:
            path, spec = "/apis/coordination.k8s.io/v1/namespaces/kube-node-lease/leases", {"holderIdentity": name, "leaseDurationSeconds": 40}
            spec["renewTime"] = time.strftime("%Y-%m-%dT%H:%M:%S.000000Z", time.gmtime())
            if self.api.exists(f"{path}/{name}"):
                self.api.patch(f"{path}/{name}", {"spec": spec})
            else:
                lease = {"apiVersion": "coordination.k8s.io/v1", "kind": "Lease", "metadata": {"name": name}, "spec": spec}
                self.api.call("POST", path, lease)

    def run(self):
        beaten = time.monotonic()
        while not self.ended.wait(TICK):
            try:
                if time.monotonic() - beaten > 10:
                    self.beat()
                    beaten = time.monotonic()
                self.tick()
            except (Failed, OSError) as error:
                self.error = error

    def tick(self):
        """Looks at all namespaces; in those that have come to rest, all pods take their next step."""
        state, pods = {}, {}
        for kind in WATCHED:
            for item in self.api.list(kind):
                meta = item["metadata"]
                if meta.get("generateName"):
                    self.generated.add(meta["generateName"])
                state.setdefault(meta["namespace"], []).append((kind, meta["name"], meta["resourceVersion"]))
                if kind == "Pod":
                    pods.setdefault(meta["namespace"], []).append(item)
        with self.lock:
            for namespace in self.seen.keys() | state.keys():
                value, (was, since) = state.get(namespace, []), self.seen.get(namespace, (None, 0))
                if value != was:
                    self.seen[namespace] = (value, time.monotonic())
                self.resting[namespace] = value == was and time.monotonic() - since >= REST
        for namespace, all_of in pods.items():
            if self.resting.get(namespace):
                for pod in sorted(all_of, key=lambda pod: pod["metadata"]["name"]):
                    self.step(pod)

    def step(self, pod):
        meta, spec, status = pod["metadata"], pod["spec"], pod.get("status", {})
        path = self.api.path("Pod", meta["namespace"], meta["name"])
        try:
            if "deletionTimestamp" in meta:
                self.api.call("DELETE", path, {"kind": "DeleteOptions", "apiVersion": "v1", "gracePeriodSeconds": 0})
            elif not spec.get("nodeName"):
                target = {"apiVersion": "v1", "kind": "Node", "name": chosen_node(spec)}
                binding = {"apiVersion": "v1", "kind": "Binding", "metadata": {"name": meta["name"]}, "target": target}
                self.api.call("POST", f"{path}/binding", binding)
            elif status.get("phase") == "Pending":
                self.addresses += 1
                self.api.patch(f"{path}/status", {"status": lives(pod, self.addresses)})
        except Failed as error:
            # Somebody was faster.
            if not re.search(" (404|409) ", str(error)):
                raise

    def settled(self, namespace, seconds=60):
        """Waits until nothing has changed there for a while and nothing is left for the writer to do."""

        def done():
            with self.lock:
                resting = self.resting.get(namespace, True)
            pods = self.api.list("Pod", namespace)
            waiting = [pod for pod in pods if "deletionTimestamp" in pod["metadata"] or pod["status"].get("phase") == "Pending"]
            return resting and not waiting

        # A change that was made just now is not seen yet.
        time.sleep(REST + 2 * TICK)
        wait_for(f"{namespace} comes to rest", done, seconds)

    def namespace(self, name):
        self.api.call("POST", "/api/v1/namespaces", {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": name}})
        wait_for(f"the account of {name}", lambda: self.api.exists(self.api.path("ServiceAccount", name, "default")))
        wait_for(f"the authority of {name}", lambda: self.api.exists(self.api.path("ConfigMap", name, "kube-root-ca.crt")))
        return name

    def snapshot(self, namespace, settle=True, more=()):
        if settle:
            self.settled(namespace)
        objects = [item for kind in KINDS for item in self.api.list(kind, namespace)]
        objects += [self.api.get(path) for path in ("/api/v1/namespaces/" + namespace, *more)]
        return {"objects": objects, "events": self.events(namespace)}

    def events(self, namespace):
        return self.api.get(f"/api/v1/namespaces/{namespace}/events")["items"]


def chosen_node(spec):
    """The one that the pod of a DaemonSet names; the first for all others."""
    terms = spec.get("affinity", {}).get("nodeAffinity", {}).get("requiredDuringSchedulingIgnoredDuringExecution", {})
    for term in terms.get("nodeSelectorTerms", []):
        for field in term.get("matchFields", []):
            return field["values"][0]
    return NODES[0]


def lives(pod, address):
    """The status of a pod that runs, or that has ended."""
    of_job = any(owner["kind"] == "Job" for owner in pod["metadata"].get("ownerReferences", []))
    ends = of_job and outcome(pod["metadata"]) != "run"
    code = int(outcome(pod["metadata"])) if ends else 0
    phase = ("Failed" if code else "Succeeded") if ends else "Running"
    state = {"terminated": {"exitCode": code, "reason": "Error" if code else "Completed", "startedAt": now(), "finishedAt": now()}}
    container = {"name": pod["spec"]["containers"][0]["name"], "image": pod["spec"]["containers"][0]["image"], "imageID": "",
                 "ready": not ends, "restartCount": 0, "state": state if ends else {"running": {"startedAt": now()}}}  # fmt: skip
    ready = {"status": "False", "reason": "PodCompleted" if not code else "PodFailed"} if ends else {"status": "True"}
    conditions = [{"type": kind, "lastTransitionTime": now(), **ready} for kind in ("Ready", "ContainersReady")]
    conditions += [{"type": kind, "lastTransitionTime": now(), "status": "True"} for kind in ("Initialized", "PodScheduled")]
    ip = f"10.1.{address // 250}.{address % 250 + 1}"
    return {"phase": phase, "conditions": conditions, "podIP": ip, "podIPs": [{"ip": ip}], "hostIP": "10.1.255.1",
            "startTime": now(), "containerStatuses": [container]}  # fmt: skip


def outcome(meta):
    """How the pod of a Job ends: `exit` is a code, or codes by index and attempt as `1/0=3`; `else=run` is for those that do not."""
    annotations = meta.get("annotations", {})
    text = annotations.get("exit", "0")
    if "=" not in text:
        return text
    key = f"{annotations.get('batch.kubernetes.io/job-completion-index')}/{annotations.get('batch.kubernetes.io/job-index-failure-count', 0)}"
    codes = dict(pair.split("=") for pair in text.split(","))
    return codes.get(key, codes.get("else", "0"))
