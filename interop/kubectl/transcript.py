"""Transcripts of kubectl: commands, and what they print against upstream's API server.

    # words for the reader
    % differs: why            the next command is known to answer otherwise on ours; an error once it does not
    % client: v1.36           older clients answer the next command in other words, and are not compared
    $ kubectl get pods        a command for bash; `> ` lines continue it
    | NAME  READY             its output
    ! Error from server …     its words on standard error
    ? 1                       its exit code, unless 0

What differs from run to run (ages, times, uids, versions, addresses, tokens) is written as a word in capitals, and
columns are set apart by two spaces. Transcripts run in the order of their names, each on what the ones before left.
"""

import dataclasses
import difflib
import os
import re
import signal
import subprocess

TIMEOUT = 90

# In this order: what stands first is not seen by what follows.
VOLATILE = [
    (r"^[IWE]\d{4} [\d:.]+ +\d+ ", "LOG "),
    (r"eyJ[\w-]+\.[\w-]+\.[\w-]+", "TOKEN"),
    (r"[0-9a-f]{8}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{12}", "UID"),
    (r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d(\.\d+)?Z", "TIME"),
    (r"\d{4}-\d\d-\d\d \d\d:\d\d:\d\d \+0000 UTC", "TIME"),
    (r"\b(Mon|Tue|Wed|Thu|Fri|Sat|Sun), \d\d \w{3} \d{4} \d\d:\d\d:\d\d [+-]\d{4}", "TIME"),
    (r'([rR]esourceVersion"?: ?)"?\d+"?', r"\1RV"),
    (r'"serverAddress":"[^"]*"', '"serverAddress":"ADDRESS"'),
    (r'^Context "[^"]*" modified', "Context NAME modified"),
    (r"(Resource Version: +)\d+", r"\1RV"),
    (r"(Expected resource version to be 1, was )\d+", r"\1RV"),
    (r"https://127\.0\.0\.1:\d+", "SERVER"),
    (r"127\.0\.0\.1:\d+", "ADDRESS"),
    (r"\b10\.0\.0\.\d+\b", "IP"),
    (r"\b3[0-2]\d{3}\b", "NODEPORT"),
    (r"\bv1\.36\.\d+\S*", "VERSION"),
    (r"/tmp/\S*?/scratch\b", "SCRATCH"),
    (r"(?m)(?<=  )(\d+[dhm])?\d+(\.\d+)?(ms|s|m|h)(?=  |$| \()", "AGE"),
    (r"\b\d{3,}d\b", "DAYS"),
]


@dataclasses.dataclass
class Case:
    comments: list
    command: list
    stdout: list
    stderr: list
    code: int = 0
    differs: str = ""
    client: str = ""

    def text(self):
        marks = [("differs", self.differs), ("client", self.client)]
        lines = [*self.comments, *(f"% {mark}: {value}" for mark, value in marks if value)]
        lines += [("$ " if at == 0 else "> ") + line for at, line in enumerate(self.command)]
        return "\n".join(lines + self.answer())

    def answer(self):
        lines = [f"| {line}".rstrip() for line in self.stdout] + [f"! {line}".rstrip() for line in self.stderr]
        return lines + ([f"? {self.code}"] if self.code else [])


def parse(text):
    cases, comments, marks = [], [], {}
    for number, line in enumerate(text.splitlines(), 1):
        mark, rest = line[:1], line[2:]
        if mark == "$":
            cases.append(Case(comments, [rest], [], [], **marks))
            comments, marks = [], {}
        elif mark in ("#", ""):
            comments.append(line)
        elif mark == "%":
            mark, _, value = rest.partition(": ")
            marks[mark] = value
        elif mark == ">":
            cases[-1].command.append(rest)
        elif mark == "|":
            cases[-1].stdout.append(rest)
        elif mark == "!":
            cases[-1].stderr.append(rest)
        elif mark == "?":
            cases[-1].code = int(rest)
        else:
            raise ValueError(f"line {number}: {line!r}")
    return cases, comments


def normalise(text):
    for pattern, word in VOLATILE:
        text = re.sub(pattern, word, text, flags=re.M)
    return [re.sub(r"(?<=\S) {2,}", "  ", line).rstrip() for line in text.splitlines()]


def ask(case, environment, cwd):
    script = ". ./prelude.sh\n" + "\n".join(case.command)
    process = subprocess.Popen(["bash", "-c", script], cwd=cwd, env=environment, stdin=subprocess.DEVNULL, text=True,
                               errors="replace", stdout=subprocess.PIPE, stderr=subprocess.PIPE, start_new_session=True)
    try:
        stdout, stderr = process.communicate(timeout=TIMEOUT)
    except subprocess.TimeoutExpired:
        os.killpg(process.pid, signal.SIGKILL)
        stdout, stderr = process.communicate()
        stderr += f"\nnot within {TIMEOUT} s"
    answer = {"stdout": normalise(stdout), "stderr": normalise(stderr), "code": process.returncode}
    return dataclasses.replace(case, **answer)


def run_all(report, folder, kubectl, kubeconfig, directory, ours, record, only):
    told = subprocess.run([kubectl, "version", "--client"], capture_output=True, text=True, check=True).stdout
    version = re.search(r"v1\.\d+", told)[0]
    scratch, home, bin_dir = directory / "scratch", directory / "home", directory / "bin"
    for new in (scratch, home, bin_dir):
        new.mkdir()
    (bin_dir / "kubectl").symlink_to(kubectl)
    environment = {
        "PATH": f"{bin_dir}:{os.environ['PATH']}", "HOME": str(home), "KUBECONFIG": str(scratch / "kubeconfig"),
        "SCRATCH": str(scratch), "LANG": "C.UTF-8", "TZ": "UTC",
    }  # fmt: skip
    # A copy: `kubectl config` writes to it.
    (scratch / "kubeconfig").write_bytes(kubeconfig.read_bytes())
    for path in sorted(folder.glob("*.txt")):
        if only and path.stem not in only:
            continue
        cases, rest = parse(path.read_text())
        answers = []
        for case in cases:
            answers.append(ask(case, environment, folder))
            if not case.client or case.client == version:
                check(report, f"kubectl {version} {path.stem}", case, answers[-1], ours, record)
        if record:
            path.write_text("\n".join([*(answer.text() for answer in answers), *rest]) + "\n")


def check(report, name, expected, got, ours, record):
    title = f"{name}: {expected.command[0]}"
    wanted, answer = expected.answer(), got.answer()
    same = wanted == answer
    if record:
        report.check(title)
    elif ours and expected.differs and same:
        report.check(title, "marked as differing, and does not any more: take the mark away")
    elif ours and expected.differs:
        report.check(f"{title} (known to differ: {expected.differs})")
    else:
        difference = difflib.unified_diff(wanted, answer, "upstream", "this server", lineterm="", n=2)
        report.check(title, None if same else "\n".join(difference))
