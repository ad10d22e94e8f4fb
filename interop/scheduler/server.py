"""The servers that the cases are run on, and the few requests that are needed."""

import base64
import json
import os
import pathlib
import secrets
import shutil
import socket
import ssl
import subprocess
import tempfile
import time
import urllib.error
import urllib.request

import yaml

# Everything that a case may make, by kind: where it is, and whether it is in a namespace. Deleted in this order.
KINDS = {
    "Pod": ("/api/v1", "pods", True),
    "Node": ("/api/v1", "nodes", False),
    "Service": ("/api/v1", "services", True),
    "PodDisruptionBudget": ("/apis/policy/v1", "poddisruptionbudgets", True),
    "PersistentVolumeClaim": ("/api/v1", "persistentvolumeclaims", True),
    "PersistentVolume": ("/api/v1", "persistentvolumes", False),
    "StorageClass": ("/apis/storage.k8s.io/v1", "storageclasses", False),
    "CSIDriver": ("/apis/storage.k8s.io/v1", "csidrivers", False),
    "CSINode": ("/apis/storage.k8s.io/v1", "csinodes", False),
    "CSIStorageCapacity": ("/apis/storage.k8s.io/v1", "csistoragecapacities", True),
    "ResourceClaim": ("/apis/resource.k8s.io/v1", "resourceclaims", True),
    "ResourceSlice": ("/apis/resource.k8s.io/v1", "resourceslices", False),
    "DeviceClass": ("/apis/resource.k8s.io/v1", "deviceclasses", False),
    "Event": ("/apis/events.k8s.io/v1", "events", True),
}
MERGE = "application/merge-patch+json"


def path(kind, name=""):
    """Where objects of a kind are, or one of them."""
    root, plural, namespaced = KINDS[kind]
    return f"{root}{'/namespaces/default' if namespaced else ''}/{plural}{'/' + name if name else ''}"


def port():
    with socket.socket() as s:
        s.bind(("127.0.0.1", 0))
        return s.getsockname()[1]


class Server:
    """A server that somebody started."""

    def __init__(self, kubeconfig):
        self.kubeconfig = str(kubeconfig)
        config = yaml.safe_load(pathlib.Path(kubeconfig).read_text())
        cluster, user = config["clusters"][0]["cluster"], config["users"][0]["user"]
        self.url, self.context = cluster["server"], ssl._create_unverified_context()
        self.headers = {"Content-Type": "application/json"}
        if "token" in user:
            self.headers["Authorization"] = f"Bearer {user['token']}"
        if "client-certificate-data" in user:
            self.files = tempfile.TemporaryDirectory()
            for name in ("client-certificate", "client-key"):
                (pathlib.Path(self.files.name) / name).write_bytes(base64.b64decode(user[name + "-data"]))
            self.context.load_cert_chain(f"{self.files.name}/client-certificate", f"{self.files.name}/client-key")

    def ask(self, method, where, body=None, content_type=None):
        headers = dict(self.headers, **({"Content-Type": content_type} if content_type else {}))
        # Without spaces, as other clients write: what drivers are to be told is compared byte by byte.
        data = json.dumps(body, separators=(",", ":")).encode() if body is not None else None
        request = urllib.request.Request(self.url + where, data, headers, method=method)
        try:
            with urllib.request.urlopen(request, context=self.context) as answer:
                return json.load(answer)
        except urllib.error.HTTPError as error:
            error.msg += f": {method} {where}: {error.read().decode()[:2000]}"
            raise

    def list(self, kind):
        return self.ask("GET", path(kind))["items"]

    def make(self, thing):
        """Creates an object, and its status if it says one."""
        thing = dict({"apiVersion": KINDS[thing["kind"]][0].removeprefix("/apis/").removeprefix("/api/")}, **thing)
        made = self.ask("POST", path(thing["kind"]), thing)
        if "status" in thing and thing["kind"] not in ("Node", "Pod"):
            made["status"] = thing["status"]
            made = self.ask("PUT", path(thing["kind"], made["metadata"]["name"]) + "/status", made)
        return made

    def clean(self):
        """Deletes everything that a case may have made."""
        for kind in KINDS:
            for item in self.list(kind):
                name, metadata = item["metadata"]["name"], item["metadata"]
                if (kind, name) == ("Service", "kubernetes"):
                    continue
                try:
                    if metadata.get("finalizers"):
                        self.ask("PATCH", path(kind, name), {"metadata": {"finalizers": None}}, MERGE)
                    if "deletionTimestamp" not in metadata:
                        self.ask("DELETE", path(kind, name) + "?gracePeriodSeconds=0")
                except urllib.error.HTTPError as error:
                    if error.code != 404:
                        raise

    def bind_volumes(self):
        """What the controller of volumes would do: a volume that is meant for a claim is given to it."""
        claims = {item["metadata"]["name"]: item for item in self.list("PersistentVolumeClaim")}
        for volume in self.list("PersistentVolume") if claims else []:
            claim = claims.get(volume["spec"].get("claimRef", {}).get("name"))
            if claim and not claim["spec"].get("volumeName"):
                name = claim["metadata"]["name"]
                patch = {"metadata": {"annotations": {"pv.kubernetes.io/bind-completed": "yes"}},
                         "spec": {"volumeName": volume["metadata"]["name"]}}
                self.ask("PATCH", path("PersistentVolumeClaim", name), patch, MERGE)
                self.ask("PATCH", path("PersistentVolumeClaim", name) + "/status", {"status": {"phase": "Bound"}}, MERGE)


class Processes:
    """Programs that are ended in the end, the last one first."""

    def __init__(self, directory):
        self.directory, self.running = pathlib.Path(directory), []

    def start(self, name, *command):
        log = (self.directory / f"{name}.log").open("w")
        process = subprocess.Popen([str(word) for word in command], stdout=log, stderr=subprocess.STDOUT, stdin=subprocess.DEVNULL)
        self.running.append(process)
        return process

    def end(self, process):
        process.terminate()
        try:
            process.wait(10)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()
        self.running.remove(process)

    def __enter__(self):
        return self

    def __exit__(self, *_):
        for process in reversed(list(self.running)):
            self.end(process)


def kubeconfig(directory, secure, token):
    at = directory / "kubeconfig"
    at.write_text(yaml.safe_dump({
        "apiVersion": "v1", "kind": "Config", "current-context": "it",
        "clusters": [{"name": "it", "cluster": {"server": f"https://127.0.0.1:{secure}", "insecure-skip-tls-verify": True}}],
        "users": [{"name": "it", "user": {"token": token}}],
        "contexts": [{"name": "it", "context": {"cluster": "it", "user": "it"}}]}))
    (directory / "tokens.csv").write_text(f"{token},admin,admin,system:masters\n")
    return at


def ready(server, process, what, log):
    for _ in range(600):
        if process.poll() is not None:
            break
        try:
            server.ask("GET", "/api/v1/namespaces/default")
            return server
        except (OSError, ssl.SSLError):
            time.sleep(0.1)
    raise SystemExit(f"error: {what} is not ready; its last words:\n{log.read_text()[-2000:]}")


def start_capstan(processes, directory, binary):
    """Our server, without anything else."""
    directory.mkdir()
    secure, token = port(), secrets.token_hex(16)
    at = kubeconfig(directory, secure, token)
    process = processes.start(
        f"{directory.name}-capstan", binary, "server", f"--data-dir={directory}/data", f"--secure-port={secure}",
        "--bind-address=127.0.0.1", f"--token-auth-file={directory}/tokens.csv", "--authorization-mode=Node,RBAC",
        "--disable-admission-plugins=ServiceAccount")
    return ready(Server(at), process, "capstan server", processes.directory / f"{directory.name}-capstan.log")


def start_upstream(processes, directory, binaries):
    """etcd and kube-apiserver."""
    directory.mkdir()
    client, peer, secure, token = port(), port(), port(), secrets.token_hex(16)
    at = kubeconfig(directory, secure, token)
    subprocess.run(["openssl", "genrsa", "-out", f"{directory}/sa.key", "2048"], check=True, capture_output=True)
    processes.start(
        f"{directory.name}-etcd", binaries["etcd"], f"--data-dir={directory}/etcd", "--log-level=warn",
        f"--listen-client-urls=http://127.0.0.1:{client}", f"--advertise-client-urls=http://127.0.0.1:{client}",
        f"--listen-peer-urls=http://127.0.0.1:{peer}", f"--initial-advertise-peer-urls=http://127.0.0.1:{peer}",
        f"--initial-cluster=default=http://127.0.0.1:{peer}")
    process = processes.start(
        f"{directory.name}-kube-apiserver", binaries["kube-apiserver"], f"--etcd-servers=http://127.0.0.1:{client}",
        "--bind-address=127.0.0.1", f"--secure-port={secure}", f"--cert-dir={directory}/certs",
        f"--token-auth-file={directory}/tokens.csv", "--authorization-mode=Node,RBAC", "--allow-privileged",
        "--disable-admission-plugins=ServiceAccount", "--service-cluster-ip-range=10.0.0.0/24",
        "--service-account-issuer=https://kubernetes.default.svc", f"--service-account-key-file={directory}/sa.key",
        f"--service-account-signing-key-file={directory}/sa.key")
    return ready(Server(at), process, "kube-apiserver", processes.directory / f"{directory.name}-kube-apiserver.log")


def find(name, folder):
    """A program of upstream's: in a folder, else where CI keeps them, else wherever the shell finds it."""
    cache = pathlib.Path(os.environ.get("XDG_CACHE_HOME", pathlib.Path.home() / ".cache")) / "capstan-ci" / "bin"
    for at in [folder and pathlib.Path(folder) / name, cache / name, name]:
        found = at and shutil.which(str(at))
        if found:
            return found
    return None
