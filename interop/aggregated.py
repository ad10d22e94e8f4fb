#!/usr/bin/env python3
"""A server of an API of its own, as one that extends Kubernetes: interop/up runs it in a pod behind an APIService.

    aggregated.py PORT DIR      serve things.example.com/v1 on PORT; DIR has tls.crt, tls.key and proxy-ca.crt

It answers only those whose certificate proxy-ca.crt signed, and believes what they say of the user.
"""

import http.server
import json
import ssl
import sys
import time

GROUP, VERSION = "things.example.com", "v1"
BASE = f"/apis/{GROUP}/{VERSION}"
RESOURCES = {"kind": "APIResourceList", "apiVersion": "v1", "groupVersion": f"{GROUP}/{VERSION}", "resources": [
    {"name": "things", "singularName": "thing", "namespaced": True, "kind": "Thing", "verbs": ["get", "list", "watch"], "shortNames": ["th"]}]}
SCHEMA = {"type": "object", "description": "Something.", "properties": {"colour": {"type": "string", "description": "What it looks like."}},
          "x-kubernetes-group-version-kind": [{"group": GROUP, "version": VERSION, "kind": "Thing"}]}
OPENAPI = {"openapi": "3.0.0", "info": {"title": "things", "version": "v1"},
           "paths": {f"{BASE}/namespaces/{{namespace}}/things": {"get": {"responses": {"200": {"description": "OK"}}, "x-kubernetes-action": "list",
                     "x-kubernetes-group-version-kind": {"group": GROUP, "version": VERSION, "kind": "Thing"}}}},
           "components": {"schemas": {"com.example.things.v1.Thing": SCHEMA}}}


def thing(name, namespace, user):
    return {"apiVersion": f"{GROUP}/{VERSION}", "kind": "Thing", "metadata": {"name": name, "namespace": namespace, "uid": name}, "colour": f"as {user} likes it"}


class Handler(http.server.BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"

    def do_GET(self):
        path, _, query = self.path.partition("?")
        user, parts = self.headers.get("X-Remote-User", ""), path.strip("/").split("/")
        if path == BASE:
            self.answer(RESOURCES)
        elif path == "/openapi/v3":
            self.answer({"paths": {BASE[1:]: {"serverRelativeURL": f"/openapi/v3{BASE}?hash=1"}}})
        elif path == f"/openapi/v3{BASE}":
            self.answer(OPENAPI)
        elif "watch=true" in query or "watch=1" in query:
            self.watch(parts[4] if len(parts) > 4 else "default", user)
        elif len(parts) == 7:
            self.answer(thing(parts[6], parts[4], user))
        elif path.startswith(BASE):
            self.answer({"apiVersion": f"{GROUP}/{VERSION}", "kind": "ThingList", "metadata": {"resourceVersion": "1"}, "items": [thing("one", "default", user)]})
        else:
            self.answer({"kind": "Status", "apiVersion": "v1", "status": "Failure", "reason": "NotFound", "code": 404, "message": f"no {path}"}, 404)

    def answer(self, document, code=200):
        body = json.dumps(document).encode()
        self.send_response(code)
        self.send_header("Content-Type", "application/json")
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def watch(self, namespace, user):
        self.send_response(200)
        self.send_header("Content-Type", "application/json")
        self.send_header("Transfer-Encoding", "chunked")
        self.end_headers()
        for name in ("one", "two", "three"):
            event = json.dumps({"type": "ADDED", "object": thing(name, namespace, user)}).encode() + b"\n"
            self.wfile.write(b"%x\r\n%s\r\n" % (len(event), event))
            self.wfile.flush()
            time.sleep(0.2)
        self.wfile.write(b"0\r\n\r\n")

    def log_message(self, *arguments):
        print(self.headers.get("X-Remote-User"), self.path, flush=True)


def main():
    port, directory = int(sys.argv[1]), sys.argv[2]
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(f"{directory}/tls.crt", f"{directory}/tls.key")
    context.load_verify_locations(f"{directory}/proxy-ca.crt")
    context.verify_mode = ssl.CERT_REQUIRED
    server = http.server.ThreadingHTTPServer(("0.0.0.0", port), Handler)
    server.socket = context.wrap_socket(server.socket, server_side=True)
    server.serve_forever()


if __name__ == "__main__":
    main()
