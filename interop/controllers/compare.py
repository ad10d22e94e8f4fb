"""Objects without what may differ between two runs, and where two of them differ."""

import json
import re

TIME = re.compile(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d(\.\d+)?Z")
UID = re.compile(r"[0-9a-f]{8}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{12}")
ADDRESS = re.compile(r"\b10\.(1\.\d+|0\.0)\.\d+\b")
PEM = re.compile(r"-----BEGIN [A-Z ]+-----.*-----END [A-Z ]+-----\n?", re.DOTALL)
# A Job of a CronJob has the minute in its name.
MINUTE = re.compile(r"(cron-)\d{8}\b")
# The characters that random parts of names are made of.
RANDOM = "[bcdfghjklmnpqrstvwxz2456789]{5}"
# A rollout goes in more or fewer steps, by whether pods became ready one by one or together.
STEP = re.compile(r"(Scaled (?:up|down) replica set) \S+ from \d+ to \d+$")
# Which ReplicaSet the last word was about depends on when it was said, also between two runs of upstream's.
PROGRESSED = re.compile(r'(ReplicaSet) "[^"]+" (has successfully progressed)')
# Somebody was faster: told by whoever it happens to.
LOST = "the object has been modified; please apply your changes to the latest version and try again"
COMBINED = "(combined from similar events)"
# Set only if the last write came in a later second than the one before it.
TRIGGER = "endpoints.kubernetes.io/last-change-trigger-time"
# Kinds whose generation counts how often somebody was faster than somebody else.
COUNTED = ("ReplicaSet", "EndpointSlice")
DROPPED = {"resourceVersion", "selfLink"}
# Our server counts quotas and puts ClusterRoles together in the commit of the write itself, so nobody is noted as their writer.
SAME_COMMIT = ("ResourceQuota", "ClusterRole")


def untrigger(parent, field, key):
    if key in parent.get(field, {}):
        del parent[field][key]
        if not set(parent[field]) - {"."}:
            del parent[field]


class Normal:
    """Takes away what may differ. `prefixes` are those from which names were generated."""

    def __init__(self, prefixes):
        parts = "|".join(re.escape(prefix) for prefix in sorted(prefixes, key=len, reverse=True))
        self.generated = re.compile(rf"({parts}){RANDOM}\b") if parts else None

    def text(self, text):
        text = PEM.sub("<pem>", text)
        text = self.generated.sub(r"\1<random>", text) if self.generated else text
        text = UID.sub("<uid>", TIME.sub("<time>", text))
        return MINUTE.sub(r"\1<minute>", ADDRESS.sub("<address>", text))

    def value(self, value):
        if isinstance(value, dict):
            return {self.text(key): self.value(each) for key, each in value.items() if key not in DROPPED}
        if isinstance(value, list):
            return [self.value(each) for each in value]
        return self.text(value) if isinstance(value, str) else value

    def object(self, value):
        value = self.value(value)
        metadata = value.get("metadata", {})
        untrigger(metadata, "annotations", TRIGGER)
        for writer in metadata.get("managedFields", []):
            untrigger(writer.get("fieldsV1", {}).get("f:metadata", {}), "f:annotations", f"f:{TRIGGER}")
        # Who wrote what, in an order that does not depend on when.
        fields = metadata.get("managedFields", [])
        metadata["managedFields"] = sorted(fields, key=lambda field: json.dumps(field, sort_keys=True))
        if value.get("kind") in SAME_COMMIT:
            del metadata["managedFields"]
        # How many steps a rollout took depends on whether pods became ready one by one or together.
        if value.get("kind") in COUNTED:
            if value.get("status", {}).get("observedGeneration") == metadata.get("generation"):
                value["status"]["observedGeneration"] = "<generation>"
            metadata["generation"] = "<generation>"
        if value.get("kind") == "Secret" and "token" in value.get("data", {}):
            value["data"] = {key: "<data>" for key in value["data"]}
        conditions = value.get("status", {}).get("conditions") if isinstance(value.get("status"), dict) else None
        for condition in conditions or []:
            condition["message"] = PROGRESSED.sub(r"\1 \2", condition.get("message", ""))
        # What became true first comes first.
        (conditions or []).sort(key=lambda condition: condition.get("type", ""))
        for subset in value.get("subsets", []):
            subset.get("addresses", []).sort(key=lambda each: json.dumps(each, sort_keys=True))
        return value

    def snapshot(self, found):
        """Objects by kind and name, several of one name in an order of their own; events as a set."""
        objects = {}
        for value in found["objects"]:
            value = self.object(value)
            objects.setdefault(f"{value['kind']} {value['metadata']['name']}", []).append(value)
        for values in objects.values():
            values.sort(key=lambda value: json.dumps(value, sort_keys=True))
        events = {self.event(event) for event in found["events"] if LOST not in event.get("message", "")}
        # Where there were so many that only some are told, those say no more than what kinds there were.
        if any(COMBINED in event for event in events):
            events = {STEP.sub(r"\1", event) for event in events if COMBINED not in event}
        events = sorted(events)
        return {"objects": objects, "events": events}

    def event(self, event):
        about = event["involvedObject"]
        parts = [
            event.get("type", ""), event.get("reason", ""), f"{about.get('apiVersion')} {about.get('kind')} {about.get('name')}",
            about.get("fieldPath", ""), event.get("source", {}).get("component", ""), event.get("reportingComponent", ""),
            event.get("message", ""),
        ]  # fmt: skip
        return self.text(" | ".join(parts))


def walk(path, expected, got):
    if isinstance(expected, dict) and isinstance(got, dict):
        for key in sorted(expected.keys() | got.keys()):
            yield from walk(f"{path}.{key}", expected.get(key), got.get(key))
    elif isinstance(expected, list) and isinstance(got, list) and len(expected) == len(got):
        for at, (one, other) in enumerate(zip(expected, got)):
            yield from walk(f"{path}[{at}]", one, other)
    elif expected != got:
        short = lambda value: (text := json.dumps(value, sort_keys=True)) and (text if len(text) < 600 else text[:600] + "…")  # noqa: E731
        yield f"{path}: expected {short(expected)}, found {short(got)}"


def differences(expected, got):
    lines = []
    for name in sorted(expected["objects"].keys() | got["objects"].keys()):
        one, other = expected["objects"].get(name, []), got["objects"].get(name, [])
        if len(one) != len(other):
            lines.append(f"{name}: expected {len(one)}, found {len(other)}")
            continue
        for left, right in zip(one, other):
            lines.extend(walk(name, left, right))
    events = set(expected["events"]), set(got["events"])
    lines.extend(f"event missing: {event}" for event in sorted(events[0] - events[1]))
    lines.extend(f"event too many: {event}" for event in sorted(events[1] - events[0]))
    return list(dict.fromkeys(lines))
