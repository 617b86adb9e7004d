"""Real processes on loopback for tests: jobs and data made here, daemons started, watched and always ended.

Every wait has a bound; no port is fixed (the kernel picks each); what a process said is kept for the message of a
failing test. Programs are found in the runfiles. Results go to bazel's XML file case by case, so that they are counted.
"""

import json
import os
import re
import signal
import sqlite3
import struct
import subprocess
import sys
import tempfile
import threading
import time
import unittest
from xml.sax.saxutils import quoteattr

# No wait of a healthy run comes near it, even on two busy cores.
PATIENCE_SECONDS = 180
ROOT = os.getcwd()
FASHION_MNIST = "/usr/share/datasets/fashion-mnist"


def program(role):
    if role == "lagrange":
        return os.path.join(ROOT, "cli/lagrange")
    if role == "counting-worker":
        return os.path.join(ROOT, "tests/process/counting_worker")
    return os.path.join(ROOT, role, "lagrange-" + role)


class Process:
    """A child whose output is read as it comes."""

    # All of this run, for a test that is itself ended.
    started = []

    def __init__(self, name, arguments, env=None):
        self.name = name
        self.lines = []
        self._changed = threading.Condition()
        environment = {k: v for k, v in os.environ.items() if not k.lower().endswith("_proxy")}
        environment.update(env or {})
        self.child = subprocess.Popen(arguments, stdout=subprocess.PIPE, stderr=subprocess.STDOUT,
                                      stdin=subprocess.DEVNULL, text=True, errors="replace", env=environment)
        Process.started.append(self)
        self._reader = threading.Thread(target=self._read, daemon=True)
        self._reader.start()

    def _read(self):
        for line in self.child.stdout:
            with self._changed:
                self.lines.append(line.rstrip("\n"))
                self._changed.notify_all()
        with self._changed:
            self._changed.notify_all()

    @property
    def pid(self):
        return self.child.pid

    def output(self):
        return "\n".join(self.lines)

    def wait_for_line(self, pattern, timeout=PATIENCE_SECONDS):
        """The first match of the pattern in any line, past ones included."""
        deadline = time.monotonic() + timeout
        seen = 0
        with self._changed:
            while True:
                while seen < len(self.lines):
                    found = re.search(pattern, self.lines[seen])
                    seen += 1
                    if found:
                        return found
                if not self._reader.is_alive() or not self._changed.wait(max(0.0, deadline - time.monotonic())):
                    if not self._reader.is_alive() and seen < len(self.lines):
                        continue
                    raise AssertionError("%s never said %r; it said:\n%s" % (self.name, pattern, "\n".join(self.lines)))

    def wait(self, timeout=PATIENCE_SECONDS):
        try:
            self.child.wait(timeout)
        except subprocess.TimeoutExpired as late:
            raise AssertionError("%s is still running after %d s; it said:\n%s" %
                                 (self.name, timeout, self.output())) from late
        self._reader.join(10)
        return self.child.returncode

    def signal(self, number):
        if self.child.poll() is None:
            self.child.send_signal(number)

    def end(self):
        if self.child.poll() is None:
            self.child.kill()
        self.child.wait()
        self._reader.join(10)


def wait_until(condition, what, timeout=PATIENCE_SECONDS):
    deadline = time.monotonic() + timeout
    while time.monotonic() < deadline:
        if condition():
            return
        time.sleep(0.02)
    raise AssertionError("waited %d s in vain for %s" % (timeout, what))


# ---- data and jobs ------------------------------------------------------------------------------------------------

def write_idx_images(path, images, rows, columns):
    """images: list of bytes of rows * columns each."""
    with open(path, "wb") as out:
        out.write(struct.pack(">IIII", 0x803, len(images), rows, columns))
        for image in images:
            out.write(image)


def write_idx_labels(path, labels):
    with open(path, "wb") as out:
        out.write(struct.pack(">II", 0x801, len(labels)))
        out.write(bytes(labels))


def make_dataset(directory, records, classes=4, prefix="train"):
    """2x2 images whose four bytes are the record's number, big-endian; labels number modulo classes."""
    images = os.path.join(directory, prefix + "-images")
    labels = os.path.join(directory, prefix + "-labels")
    write_idx_images(images, [struct.pack(">I", n) for n in range(records)], 2, 2)
    write_idx_labels(labels, [n % classes for n in range(records)])
    return images, labels


def make_job(directory, records=512, test_records=0, extra="", epochs=2, batch_size=8, lease=32, optimizer=None,
             layers=None, classes=4, ps=1, workers=1, name="job", consistency="asp {}", cluster=""):
    """Writes a small job and its data; gives the job file's path."""
    images, labels = make_dataset(directory, records, classes)
    test = ""
    if test_records:
        test_images, test_labels = make_dataset(directory, test_records, classes, "test")
        test = 'test { idx { images_path: "%s" labels_path: "%s" } }' % (test_images, test_labels)
    text = """
name: "%s" seed: 7 epochs: %d batch_size: %d
model {
  input_shape: 2 input_shape: 2 class_count: %d
  %s
}
data {
  train { idx { images_path: "%s" labels_path: "%s" } }
  %s
  examples_per_lease: %d
}
optimizer { %s }
consistency { %s }
cluster { ps_count: %d worker_count: %d %s }
%s
""" % (name, epochs, batch_size, classes,
       layers or "layers { flatten {} } layers { dense { units: 8 } } layers { relu {} } layers { dense { units: %d } }"
       % classes, images, labels, test, lease, optimizer or "sgd { learning_rate: 0.01 }", consistency, ps, workers,
       cluster, extra)
    path = os.path.join(directory, name + ".textproto")
    with open(path, "w", encoding="utf-8") as out:
        out.write(text)
    return path


def read_safetensors(path):
    """name -> (shape, list of floats), metadata. Written from the format's description, not from our writer."""
    with open(path, "rb") as source:
        length = struct.unpack("<Q", source.read(8))[0]
        header = json.loads(source.read(length))
        data = source.read()
    metadata = header.pop("__metadata__", {})
    tensors = {}
    for name, entry in header.items():
        begin, end = entry["data_offsets"]
        assert entry["dtype"] == "F32", entry
        count = (end - begin) // 4
        tensors[name] = (entry["shape"], list(struct.unpack("<%df" % count, data[begin:end])))
    return tensors, metadata


def read_checkpoint(directory):
    """variable or slot -> its floats, put together from all ps's files by their row ranges."""
    with open(os.path.join(directory, "manifest.json"), encoding="utf-8") as source:
        manifest = json.load(source)
    pieces = {}
    for entry in manifest["files"]:
        tensors, _ = read_safetensors(os.path.join(directory, entry["name"]))
        for name, (_, values) in tensors.items():
            whole, _, rows = name.partition("#rows=")
            begin = int(rows.split(":")[0]) if rows else 0
            pieces.setdefault(whole, []).append((begin, values))
    return {name: [v for _, values in sorted(parts, key=lambda part: part[0]) for v in values]
            for name, parts in pieces.items()}


# ---- clusters -----------------------------------------------------------------------------------------------------

class ProcessTest(unittest.TestCase):
    """Gives each test a directory, and ends every process that it started."""

    def setUp(self):
        scratch = tempfile.TemporaryDirectory(dir=os.environ.get("TEST_TMPDIR"))
        self.addCleanup(scratch.cleanup)
        self.directory = scratch.name
        self.processes = []
        self.addCleanup(self._end_all)

    def _end_all(self):
        for process in self.processes:
            process.end()

    def start(self, name, arguments, env=None):
        process = Process(name, arguments, env)
        self.processes.append(process)
        return process

    def path(self, name):
        return os.path.join(self.directory, name)

    def start_chief(self, job, *flags, listen="127.0.0.1:0", state="state", env=None):
        """Starts a chief and waits for its address, which lands in self.chief_address."""
        address_file = self.path("chief.address")
        if os.path.exists(address_file):
            os.remove(address_file)
        chief = self.start("chief", [program("chief"), "--job=" + job, "--listen=" + listen,
                                     "--state_dir=" + self.path(state), "--address_file=" + address_file,
                                     "--report=" + self.path("report.json"), "--log_level=info"] + list(flags), env)
        wait_until(lambda: os.path.exists(address_file) or chief.child.poll() is not None, "the chief to listen")
        self.assertTrue(os.path.exists(address_file), "the chief did not listen; it said:\n" + chief.output())
        with open(address_file, encoding="utf-8") as source:
            self.chief_address = source.read().strip()
        return chief

    def start_ps(self, *flags, env=None):
        return self.start("ps", [program("ps"), "--chief=" + self.chief_address, "--listen=127.0.0.1:0",
                                 "--log_level=info"] + list(flags), env)

    def start_worker(self, *flags, role="worker", env=None):
        return self.start("worker", [program(role), "--chief=" + self.chief_address, "--log_level=info"] + list(flags),
                          env)

    def report(self):
        """The last chief's."""
        with open(self.path("report.json"), encoding="utf-8") as source:
            return json.load(source)

    def run_local(self, job, *flags, timeout=PATIENCE_SECONDS, state="local-state"):
        """Runs `lagrange local` to its end: (exit status, output, report or None)."""
        report = self.path("local-report.json")
        if os.path.exists(report):
            os.remove(report)
        local = self.start("lagrange local", [program("lagrange"), "local", "--job=" + job, "--report=" + report,
                                              "--state_dir=" + self.path(state)] + list(flags))
        status = local.wait(timeout)
        result = None
        if os.path.exists(report):
            with open(report, encoding="utf-8") as source:
                result = json.load(source)
        return status, local.output(), result

    def job_status(self):
        run = subprocess.run([program("lagrange"), "status", "--chief=" + self.chief_address, "--timeout=5s"],
                             capture_output=True, text=True, check=False)
        return run.stdout

    def assert_all_exit(self, processes, status=0):
        for process in processes:
            self.assertEqual(process.wait(), status, process.name + " said:\n" + process.output())

    def query(self, sql, state="state"):
        connection = sqlite3.connect("file:%s?mode=ro" % os.path.join(self.path(state), "ledger.sqlite"), uri=True)
        try:
            return connection.execute(sql).fetchall()
        finally:
            connection.close()

    def assert_each_example_counted_once(self, records, epochs, state="state"):
        """By SQL on the ledger's file. The primary key makes a batch's second record impossible; the sums must fit."""
        rows = self.query("SELECT epoch, SUM(example_count), COUNT(*) FROM batches GROUP BY epoch ORDER BY epoch", state)
        self.assertEqual([(epoch, count) for epoch, count, _ in rows], [(e, records) for e in range(epochs)])
        twice = self.query("SELECT epoch, lease, batch FROM batches GROUP BY epoch, lease, batch HAVING COUNT(*) > 1",
                           state)
        self.assertEqual(twice, [])


def living_children(pid):
    """Process ids below pid, by the kernel's list."""
    found = []
    try:
        for task in os.listdir("/proc/%d/task" % pid):
            with open("/proc/%d/task/%s/children" % (pid, task), encoding="ascii") as source:
                found += [int(child) for child in source.read().split()]
    except FileNotFoundError:
        pass
    return found


def alive(pid):
    try:
        with open("/proc/%d/stat" % pid, encoding="ascii", errors="replace") as source:
            return source.read().rsplit(")", 1)[1].split()[0] not in "ZX"
    except FileNotFoundError:
        return False


# ---- results for bazel --------------------------------------------------------------------------------------------

class _XmlResult(unittest.TextTestResult):
    def __init__(self, *arguments):
        super().__init__(*arguments)
        self.cases = []

    def addSuccess(self, test):
        super().addSuccess(test)
        self.cases.append((test, ""))

    def addFailure(self, test, err):
        super().addFailure(test, err)
        self.cases.append((test, "<failure/>"))

    def addError(self, test, err):
        super().addError(test, err)
        self.cases.append((test, "<error/>"))

    def addSkip(self, test, reason):
        super().addSkip(test, reason)
        self.cases.append((test, "<skipped/>"))


def _end_with_children(number, _):
    for process in Process.started:
        process.signal(signal.SIGKILL)
    os._exit(128 + number)


def main():
    # As bazel ends a test that takes too long.
    for number in (signal.SIGTERM, signal.SIGINT):
        signal.signal(number, _end_with_children)
    runner = unittest.TextTestRunner(stream=sys.stdout, verbosity=2, resultclass=_XmlResult)
    loader = unittest.defaultTestLoader
    names = [argument for argument in sys.argv[1:] if not argument.startswith("-")]
    module = sys.modules["__main__"]
    suite = loader.loadTestsFromNames(names, module) if names else loader.loadTestsFromModule(module)
    result = runner.run(suite)
    xml = os.environ.get("XML_OUTPUT_FILE")
    if xml:
        with open(xml, "w", encoding="utf-8") as out:
            out.write("<testsuites><testsuite name='process'>")
            for test, mark in result.cases:
                out.write("<testcase classname=%s name=%s>%s</testcase>" %
                          (quoteattr(type(test).__name__), quoteattr(getattr(test, "_testMethodName", str(test))), mark))
            out.write("</testsuite></testsuites>")
    sys.exit(0 if result.wasSuccessful() and result.testsRun > 0 else 1)
