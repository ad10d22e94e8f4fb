"""Upstream's kube-controller-manager and kube-scheduler on our server.

Both speak protobuf, watch nearly everything and write all the time. Seen are: both stay healthy; a Deployment gets its
ReplicaSet and Pods, and the Pods their node; the children of a deleted owner go; a deleted namespace empties and goes.
"""

import json
import pathlib
import shutil
import ssl
import subprocess
import time
import urllib.request

# What the components have to say that is no fault: words of errors that upstream's own server gets as well.
EXPECTED = (
    "The manifest file is empty",  # they log this without a manifest
    "is not as new as written version",  # a watch event that is a few milliseconds away
    "the object has been modified",  # two controllers wrote the same object; one tries again
    "because it is being terminated",  # a controller that has not heard yet
    "not found",  # the same
)

DEPLOYMENT = {
    "apiVersion": "apps/v1", "kind": "Deployment", "metadata": {"name": "web", "namespace": "managed"},
    "spec": {"replicas": 3, "selector": {"matchLabels": {"app": "web"}},
             "template": {"metadata": {"labels": {"app": "web"}},
                          "spec": {"terminationGracePeriodSeconds": 0, "containers": [{"name": "web", "image": "nginx"}]}}},
}  # fmt: skip
JOB = {
    "apiVersion": "batch/v1", "kind": "Job", "metadata": {"name": "once", "namespace": "managed"},
    "spec": {"template": {"spec": {"restartPolicy": "Never", "terminationGracePeriodSeconds": 0,
                                   "containers": [{"name": "once", "image": "busybox"}]}}},
}  # fmt: skip
NODE = {"apiVersion": "v1", "kind": "Node", "metadata": {"name": "worker"}}
READY = {"status": {
    "capacity": {"cpu": "8", "memory": "16Gi", "pods": "110"},
    "conditions": [{"type": "Ready", "status": "True", "reason": "KubeletReady", "message": "ready"}],
}}  # fmt: skip


class Component:
    """A process whose health can be asked for."""

    def __init__(self, binary, kubeconfig, directory, arguments):
        self.name, self.port = pathlib.Path(binary).name, free_port()
        self.log = directory / f"{self.name}.log"
        command = [
            str(binary), "--kubeconfig", str(kubeconfig), "--bind-address", "127.0.0.1", "--secure-port", str(self.port),
            "--cert-dir", str(directory / self.name), "--leader-elect=true", *arguments,
        ]  # fmt: skip
        self.process = subprocess.Popen(command, stdout=self.log.open("w"), stderr=subprocess.STDOUT, stdin=subprocess.DEVNULL)

    def health(self):
        """What it says of itself, or why it cannot be asked."""
        if self.process.poll() is not None:
            return f"it has ended with {self.process.returncode}"
        context = ssl.create_default_context()
        context.check_hostname, context.verify_mode = False, ssl.CERT_NONE
        try:
            with urllib.request.urlopen(f"https://127.0.0.1:{self.port}/healthz", context=context, timeout=5) as answer:
                return answer.read().decode()
        except OSError as error:
            return str(error)

    def errors(self):
        lines = [line for line in self.log.read_text().splitlines() if line.startswith(("E", "F"))]
        return [line for line in lines if not any(words in line for words in EXPECTED)]

    def end(self):
        self.process.terminate()
        try:
            self.process.wait(20)
        except subprocess.TimeoutExpired:
            self.process.kill()
            self.process.wait()


def free_port():
    import socket

    with socket.socket() as listener:
        listener.bind(("127.0.0.1", 0))
        return listener.getsockname()[1]


def run(report, kubectl, manager, scheduler, kubeconfig, keys, directory, seconds):
    """Runs both for at least so many seconds. `keys` has sa.key and ca.crt of the server."""

    def k(*arguments, body=None):
        command = [str(kubectl), "--kubeconfig", str(kubeconfig), *arguments]
        done = subprocess.run(command, input=body and json.dumps(body), capture_output=True, text=True, timeout=60)
        return done.stdout if done.returncode == 0 else f"error: {done.stderr}"

    def names(kind, *arguments):
        return k("get", kind, "-n", "managed", "-o", "name", *arguments).split()

    def until(what, condition, wait=60):
        deadline, seen = time.monotonic() + wait, None
        while time.monotonic() < deadline:
            seen = condition()
            if seen is True:
                return report.check(f"manager: {what}")
            time.sleep(0.2)
        report.check(f"manager: {what}", f"not within {wait} s: {seen}")

    directory = pathlib.Path(directory) / "manager"
    directory.mkdir()
    began = time.monotonic()
    components = [
        Component(manager, kubeconfig, directory, ["--service-account-private-key-file", str(keys / "sa.key"),
                                                   "--root-ca-file", str(keys / "ca.crt"),
                                                   "--use-service-account-credentials=true"]),
        Component(scheduler, kubeconfig, directory, []),
    ]  # fmt: skip
    try:
        for component in components:
            until(f"{component.name} is healthy", lambda: component.health() == "ok" or component.health())
        k("create", "namespace", "managed")
        until("a namespace gets its account", lambda: names("serviceaccounts") == ["serviceaccount/default"])
        k("create", "-f", "-", body=NODE)
        k("patch", "node", "worker", "--subresource=status", "--type=merge", "-p", json.dumps(READY))
        for body in (DEPLOYMENT, JOB):
            k("create", "-f", "-", body=body)
        until("a Deployment gets a ReplicaSet", lambda: len(names("replicasets")) == 1 or names("replicasets"))
        until("a ReplicaSet gets its Pods", lambda: len(names("pods", "-l", "app=web")) == 3 or names("pods"))
        scheduled = ("--field-selector", "spec.nodeName=worker")
        until("Pods get their node", lambda: len(names("pods", *scheduled)) == 4 or names("pods", *scheduled))
        while time.monotonic() - began < seconds:
            time.sleep(0.5)
        k("delete", "deployment", "web", "-n", "managed")
        until("the children of a deleted owner go", lambda: names("replicasets,pods", "-l", "app=web") == [] or names("pods"))
        k("delete", "namespace", "managed", "--wait=false")
        until("a deleted namespace goes", lambda: "NotFound" in k("get", "namespace", "managed") or names("all"))
        for component in components:
            health, errors = component.health(), component.errors()
            report.check(f"manager: {component.name} stayed healthy", None if health == "ok" else health)
            report.check(f"manager: {component.name} met no error", "\n".join(errors[:10]) or None)
    finally:
        for component in components:
            component.end()
        k("delete", "node", "worker")
        shutil.rmtree(directory, ignore_errors=True)
