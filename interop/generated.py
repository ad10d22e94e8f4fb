"""A client that openapi-generator makes of the server's own documents, used: create, list, read, delete."""

import json
import os
import subprocess
import sys

# The documents: the whole API as OpenAPI v2, one group version as v3.
DOCUMENTS = {"v2": "/openapi/v2", "v3": "/openapi/v3/apis/apps/v1"}

PROGRAM = """
import importlib, sys
sys.path.insert(0, sys.argv[1])
client = importlib.import_module("generated")
configuration = client.Configuration(host=sys.argv[2])
configuration.verify_ssl = False
importlib.import_module("urllib3").disable_warnings()
with client.ApiClient(configuration) as connection:
    connection.default_headers["Authorization"] = "Bearer " + sys.argv[3]
    api = client.AppsV1Api(connection)
    pod = {"metadata": {"labels": {"a": "b"}}, "spec": {"containers": [{"name": "c", "image": "x"}]}}
    spec = {"replicas": 1, "selector": {"matchLabels": {"a": "b"}}, "template": pod}
    wanted = client.IoK8sApiAppsV1Deployment.from_dict({"metadata": {"name": "generated"}, "spec": spec})
    made = api.create_apps_v1_namespaced_deployment("default", wanted)
    assert made.spec.strategy.type == "RollingUpdate", made
    listed = api.list_apps_v1_namespaced_deployment("default")
    assert "generated" in [item.metadata.name for item in listed.items], listed
    assert api.read_apps_v1_namespaced_deployment("generated", "default").metadata.uid == made.metadata.uid
    assert api.delete_apps_v1_namespaced_deployment("generated", "default").status == "Success"
"""


def run(report, kubectl, venv, kubeconfig, directory):
    environment = {**os.environ, "KUBECONFIG": str(kubeconfig)}

    def ask(*arguments):
        done = subprocess.run([kubectl, *arguments], env=environment, capture_output=True, text=True, check=True)
        return done.stdout

    ask("create", "serviceaccount", "generated")
    ask("create", "clusterrolebinding", "generated", "--clusterrole=cluster-admin", "--serviceaccount=default:generated")
    token = ask("create", "token", "generated").strip()
    server = json.loads(ask("config", "view", "-o", "json"))["clusters"][0]["cluster"]["server"]
    for name, path in DOCUMENTS.items():
        document, client = directory / f"{name}.json", directory / f"client-{name}"
        document.write_text(ask("get", "--raw", path))
        made = subprocess.run(
            [venv / "bin/openapi-generator-cli", "generate", "-g", "python", "-i", document, "-o", client,
             "--package-name", "generated"],
            capture_output=True, text=True,
        )  # fmt: skip
        report.check(f"generated: a client from {path}", made.stdout + made.stderr if made.returncode else None)
        if made.returncode == 0:
            used = subprocess.run([venv / "bin/python", "-c", PROGRAM, client, server, token], capture_output=True, text=True)
            report.check(f"generated: it works ({name})", used.stderr if used.returncode else None)


if __name__ == "__main__":
    sys.exit("interop/run generated")
