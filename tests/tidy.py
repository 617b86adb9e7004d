"""The house rules that a machine can check: see STYLE.md. Prints each breach as FILE:LINE: what, and fails on any.

Usage: tidy.py ROOT    (ROOT: the source tree)
       tidy.py --self-test
"""

import os
import re
import subprocess
import sys
import tempfile

MAX_FILE_LINES = 600
MAX_FUNCTION_LINES = 70
# Functions that may be longer, each with its reason.
LONG_FUNCTIONS = {
    # "path: name": "reason",
}
# INSTANTIATE_TEST_SUITE_P is a table of test cases: data, which may be as long as the facts are many.
NOT_A_FUNCTION = re.compile(
    r"\s*(namespace|class|struct|enum|union|extern|using|typedef|return|if|for|while|switch|do"
    r"|INSTANTIATE_TEST_SUITE_P)\b")
CODE = (".cc", ".h", ".cu", ".cuh")
LEFTOVERS = re.compile(r"\b(TODO|FIXME|XXX|HACK)\b")
# What a core must not name: threads, clocks, disks, sockets, chance.
CORE_BANNED = [
    (re.compile(r"#include <(thread|mutex|condition_variable|future|chrono|fstream|filesystem|random)>"),
     "a core owns no thread, lock, clock, file or chance"),
    (re.compile(r"\babsl::(Now|SleepFor)\b"), "time comes in with the event"),
    (re.compile(r"std::random_device"), "chance comes in as a seed"),
    (re.compile(r"#include \"(grpcpp|spdlog|sqlite3)"), "a core has no shell in it"),
]
EVERYWHERE_BANNED = [
    (re.compile(r"\busing namespace\b"), "name what is used"),
    (re.compile(r"\bstd::(system|getenv)\b|\bgetenv\("), "environment and shell stay below main"),
    (re.compile(r"#include <(iostream)>"), "library code logs through common/logging.h"),
    (re.compile(r"\bthrow\b(?! std::bad_alloc)"), "expected failure is an absl::Status"),
]
# Where the rule above it does not apply.
ALLOWED = {
    "#include <(iostream)>": ("cli/", "tests/", "_main.cc", "_test.cc", "worker/worker_main", "benchmark"),
    "getenv": ("_test.cc", "tests/", "_main.cc"),
}
WALLS = {
    "common": {"common", "proto"},
    "proto": {"proto", "common"},
    "kernels": {"kernels", "common"},
    "ps": {"ps", "proto", "common", "kernels"},
    "chief": {"chief", "proto", "common"},
    "worker": {"worker", "proto", "common", "kernels"},
    "cli": {"cli", "proto", "common", "worker"},
}


def code_files(root):
    listed = subprocess.run(["git", "-C", root, "ls-files", "-co", "--exclude-standard"], capture_output=True,
                            text=True, check=True)
    return [f for f in listed.stdout.split("\n") if f and os.path.exists(os.path.join(root, f))]


def functions(lines):
    """(name, first line from 1, lines) of each function defined at column 0 or 2, going by clang-format's layout."""
    start = header = None
    for number, line in enumerate(lines, 1):
        indent = len(line) - len(line.lstrip(" "))
        if start is not None:
            if indent == start[0] and line.startswith(" " * indent + "}"):
                yield start[2], start[1], number - start[1] + 1
                start = header = None
            continue
        if header is None or indent <= header[0]:
            header = None
            if indent in (0, 2) and "(" in line and line.lstrip()[0] not in "#}/*" and not NOT_A_FUNCTION.match(line):
                header = (indent, number, line)
        if header and line.rstrip().endswith(";"):
            header = None
        elif header and line.rstrip().endswith("{"):
            found = re.search(r"([\w:~]+|operator\S+)\(", header[2])
            start = (header[0], header[1], found.group(1) if found else header[2].strip())


def check_code(path, text, problems):
    lines = text.split("\n")
    if len(lines) - 1 > MAX_FILE_LINES:
        problems.append("%s:1: %d lines; the limit is %d" % (path, len(lines) - 1, MAX_FILE_LINES))
    for name, first, length in functions(lines):
        if length > MAX_FUNCTION_LINES and "%s: %s" % (path, name) not in LONG_FUNCTIONS:
            problems.append("%s:%d: %s has %d lines; the limit is %d" % (path, first, name, length, MAX_FUNCTION_LINES))
    in_core = "/core/" in path and not path.endswith("_test.cc")
    top = path.split("/")[0]
    for number, line in enumerate(lines, 1):
        code = line.split("//")[0]
        for pattern, reason in (CORE_BANNED if in_core else []):
            if pattern.search(code):
                problems.append("%s:%d: %s: %s" % (path, number, line.strip(), reason))
        for pattern, reason in EVERYWHERE_BANNED:
            spared = [paths for rule, paths in ALLOWED.items() if rule in pattern.pattern]
            if pattern.search(re.sub(r'"[^"]*"', '""', code) if "include" not in code else code) and not any(
                    part in path for paths in spared for part in paths):
                problems.append("%s:%d: %s: %s" % (path, number, line.strip(), reason))
        included = re.match(r'#include "([a-z_]+)/', line)
        if included and top in WALLS and not path.endswith("_test.cc"):
            target = included.group(1)
            if target in WALLS and target not in WALLS[top]:
                problems.append("%s:%d: %s may not include %s/" % (path, number, top, target))
    if path.endswith(".h"):
        guard = re.sub(r"[^A-Z0-9]", "_", path.upper()) + "_"
        if "#ifndef " + guard not in text:
            problems.append("%s:1: the include guard must be %s" % (path, guard))
        if not text.startswith("//"):
            problems.append("%s:1: a header opens with its contract" % path)


def check_file(root, path, problems):
    with open(os.path.join(root, path), encoding="utf-8", errors="replace") as source:
        text = source.read()
    if path.endswith(CODE):
        check_code(path, text, problems)
    if path.endswith(CODE + (".proto", ".bzl", ".sh", ".py", "BUILD")) and path != "tests/tidy.py":
        for number, line in enumerate(text.split("\n"), 1):
            if LEFTOVERS.search(line):
                problems.append("%s:%d: leftover: %s" % (path, number, line.strip()))


def check_format(root, paths, problems):
    sources = [p for p in paths if p.endswith(CODE)]
    for at in range(0, len(sources), 50):
        run = subprocess.run(["clang-format", "--dry-run", "-Werror"] + sources[at:at + 50], cwd=root,
                             capture_output=True, text=True, check=False)
        for line in run.stderr.split("\n"):
            if ": error: " in line:
                problems.append(line)


def self_test():
    """Each rule is shown a breach of it, and must see it."""
    breaches = {
        "ps/core/a.h": ("// x\n#include <thread>\n#ifndef PS_CORE_A_H_\n", "a core owns no thread"),
        "ps/a.cc": ('#include "worker/b.h"\n', "ps may not include worker/"),
        "ps/b.cc": ("int f() {  // TODO\n}\n", "leftover"),
        "ps/c.cc": ("int Long(\n    int a) {\n" + "  a;\n" * 70 + "}\n", "Long has 73 lines"),
        "ps/d.cc": ("\n" * 601, "601 lines"),
        "ps/e.h": ("// x\n#ifndef WRONG_H_\n", "the include guard must be PS_E_H_"),
        "ps/f.cc": ("int   f( );\n", "error: "),
        "chief/core/g.cc": ("auto t = absl::Now();\n", "time comes in with the event"),
        "ps/h.cc": ("void f() { throw 1; }\n", "expected failure is an absl::Status"),
    }
    with tempfile.TemporaryDirectory() as root:
        subprocess.run(["git", "init", "-q", root], check=True)
        with open(os.path.join(root, ".clang-format"), "w", encoding="utf-8") as style:
            style.write("BasedOnStyle: Google\nColumnLimit: 120\n")
        for path, (text, _) in breaches.items():
            os.makedirs(os.path.dirname(os.path.join(root, path)), exist_ok=True)
            with open(os.path.join(root, path), "w", encoding="utf-8") as source:
                source.write(text)
        problems = run_checks(root)
    for path, (_, expected) in breaches.items():
        if not any(p.startswith(path) and expected in p for p in problems):
            sys.exit("the breach in %s was not seen (%s); seen: %s" % (path, expected, "\n".join(problems)))
    print("%d breaches, all seen" % len(breaches))


def run_checks(root):
    problems = []
    paths = code_files(root)
    for path in paths:
        check_file(root, path, problems)
    check_format(root, paths, problems)
    return problems


def main():
    if sys.argv[1] == "--self-test":
        self_test()
        return
    problems = run_checks(sys.argv[1])
    for problem in problems:
        print(problem)
    print("%d problems" % len(problems))
    sys.exit(1 if problems else 0)


if __name__ == "__main__":
    main()
