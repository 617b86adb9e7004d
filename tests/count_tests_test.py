"""tools/count_tests.py counts what made-up event files and results say. Usage: count_tests_test.py COUNT_TESTS"""

import json
import os
import subprocess
import sys
import tempfile
import unittest

CASE = '<testcase name="%s" classname="A" status="run" result="%s">%s</testcase>'
PASSED = CASE % ("Passes", "completed", "")
FAILED = CASE % ("Fails", "completed", '<failure message="x"/>')
SKIPPED = CASE % ("Skips", "skipped", "<skipped/>")


class CountTests(unittest.TestCase):
    def setUp(self):
        scratch = tempfile.TemporaryDirectory()
        self.addCleanup(scratch.cleanup)
        self.root = scratch.name
        self.events = [{"id": {"started": {}}, "started": {}}]

    def add(self, label, status, cases=None, shard=1, attempt=1):
        """A test result, with a test.xml of `cases` unless it is None."""
        outputs = []
        if cases is not None:
            # A space, which an event file writes as %20.
            path = os.path.join(self.root, "%s %d %d.xml" % (label, shard, attempt))
            with open(path, "w", encoding="utf-8") as results:
                results.write("<testsuites><testsuite>%s</testsuite></testsuites>" % cases)
            outputs.append({"name": "test.xml", "uri": "file://" + path.replace(" ", "%20")})
        key = {"label": label, "run": 1, "shard": shard, "attempt": attempt}
        self.events.append({"id": {"testResult": key}, "testResult": {"status": status, "testActionOutput": outputs}})

    def not_built(self, label):
        self.events.append({"id": {"targetCompleted": {"label": label}}, "completed": {}})

    def count(self):
        path = os.path.join(self.root, "events.json")
        with open(path, "w", encoding="utf-8") as events:
            events.writelines(json.dumps(event) + "\n" for event in self.events)
        run = subprocess.run([sys.executable, COUNT_TESTS, path], capture_output=True, text=True, check=True)
        self.stderr = run.stderr
        return run.stdout.strip()

    def test_counts_cases_not_targets(self):
        self.add("a", "PASSED", PASSED * 3)
        self.add("b", "PASSED", PASSED)
        self.assertEqual(self.count(), "4 0 0")

    def test_names_what_was_skipped(self):
        self.add("a", "PASSED", PASSED + SKIPPED)
        self.assertEqual(self.count(), "1 0 1")
        self.assertIn("skipped: a A.Skips", self.stderr)

    def test_names_the_target_that_failed(self):
        self.add("a", "FAILED", PASSED + FAILED + FAILED)
        self.assertEqual(self.count(), "1 2 0")
        self.assertIn("failed: a", self.stderr)

    def test_a_timeout_fails_whatever_its_results_say(self):
        self.add("a", "TIMEOUT", PASSED * 2)
        self.assertEqual(self.count(), "2 1 0")

    def test_a_test_without_results_counts_as_one(self):
        self.add("a", "PASSED")
        self.add("b", "FAILED")
        self.assertEqual(self.count(), "1 1 0")

    def test_results_cut_off_by_a_crash_count_as_one_failure(self):
        self.add("a", "FAILED", "<testcase")
        self.assertEqual(self.count(), "0 1 0")

    def test_shards_add_up(self):
        self.add("a", "PASSED", PASSED, shard=1)
        self.add("a", "PASSED", PASSED * 2, shard=2)
        self.assertEqual(self.count(), "3 0 0")

    def test_the_last_attempt_counts(self):
        self.add("a", "FAILED", FAILED, attempt=1)
        self.add("a", "PASSED", PASSED, attempt=2)
        self.assertEqual(self.count(), "1 0 0")

    def test_a_target_that_did_not_build_is_a_failure(self):
        self.add("a", "PASSED", PASSED)
        self.not_built("b")
        self.assertEqual(self.count(), "1 1 0")
        self.assertIn("not built: b", self.stderr)

    def test_a_run_without_tests_counts_nothing(self):
        self.assertEqual(self.count(), "0 0 0")


if __name__ == "__main__":
    COUNT_TESTS = sys.argv.pop(1)
    unittest.main()
