"""`lagrange local`, `validate` and `status`: what they print, how they exit, and that no process outlives them."""

import gzip
import os
import pty
import re
import shutil
import signal
import struct
import subprocess

import harness


class Local(harness.ProcessTest):

    def test_trains_reports_and_exits_zero(self):
        job = harness.make_job(self.directory, test_records=64, ps=2, workers=2)
        status, output, report = self.run_local(job)
        self.assertEqual(status, 0, output)
        for field in ("test_accuracy", "test_loss", "examples_per_second", "staleness_mean", "staleness_p99",
                      "staleness_clocks_max", "checkpoint", "epochs"):
            self.assertIn(field, report)
        self.assertEqual([row["epoch"] for row in report["epochs"]], [1, 2])
        self.assertEqual([int(row["examples_done"]) for row in report["epochs"]], [512, 512])
        self.assertTrue(os.path.exists(os.path.join(report["checkpoint"], "manifest.json")), report)
        self.assertIn(report["checkpoint"], output)
        self.assert_each_example_counted_once(512, 2, state="local-state")

    def test_flags_override_the_job(self):
        job = harness.make_job(self.directory)
        status, output, report = self.run_local(job, "--ps=3", "--workers=2", "--epochs=1", "--consistency=ssp:2")
        self.assertEqual(status, 0, output)
        self.assertEqual(len(report["epochs"]), 1)
        self.assertLessEqual(report["staleness_clocks_max"], 2)

    def test_a_lost_ps_fails_the_run_and_leaves_no_process(self):
        job = harness.make_job(self.directory, records=4096, epochs=1000)
        local = self.start_local(job)
        os.kill(self.child_of(local, "lagrange-ps"), signal.SIGKILL)
        self.assertEqual(local.wait(), 1, local.output())
        self.assertRegex(local.output(), "ps 0")
        self.assert_none_left()

    def test_a_terminal_gets_a_bar_and_a_pipe_gets_lines(self):
        job = harness.make_job(self.directory, records=4096, epochs=3)
        ours, theirs = pty.openpty()
        run = subprocess.Popen([harness.program("lagrange"), "local", "--job=" + job,
                                "--state_dir=" + self.path("on-terminal")], stdout=subprocess.DEVNULL, stderr=theirs)
        os.close(theirs)
        shown = b""
        while True:
            try:
                piece = os.read(ours, 65536)
            except OSError:  # How Linux says that the other end is closed.
                break
            if not piece:
                break
            shown += piece
        os.close(ours)
        self.assertEqual(run.wait(harness.PATIENCE_SECONDS), 0, shown)
        self.assertRegex(shown.decode(), r"\r\x1b\[Kepoch [123]/3 \[[=> ]+\] +\d+%  [\d,]+ examples/s  [-\d:]+ left")
        status, output, _ = self.run_local(job)
        self.assertEqual(status, 0, output)
        self.assertNotIn("\x1b", output)
        self.assertIn("epoch 3 of 3", output)

    def test_a_state_directory_in_use_is_refused_and_left_alone(self):
        status, output, _ = self.run_local(harness.make_job(self.directory))
        self.assertEqual(status, 0, output)
        job = self.path("local-state/job.textproto")
        with open(job, encoding="utf-8") as source:
            before = source.read()
        status, output, _ = self.run_local(harness.make_job(self.directory, name="another"))
        self.assertEqual(status, 2, output)
        self.assertIn(self.path("local-state"), output)
        self.assertIn("--restore", output)
        with open(job, encoding="utf-8") as source:
            self.assertEqual(source.read(), before)

    def test_an_interrupted_run_says_how_to_go_on_and_does(self):
        job = harness.make_job(self.directory, records=4096, epochs=1000)
        local = self.start_local(job)
        local.wait_for_line("checkpoint .*epoch-0000[2-9]")
        # The command asks the chief twice a second.
        local.wait_for_line("epoch 3[0-9] of")
        local.signal(signal.SIGINT)
        self.assertEqual(local.wait(), 130, local.output())
        checkpoint = local.wait_for_line("go on from its last checkpoint with --restore=(.*)").group(1)
        shutil.copytree(checkpoint, self.path("kept"))
        epochs = int(re.search(r"epoch-(\d+)", checkpoint).group(1)) + 1
        status, output, report = self.run_local(job, "--restore=" + self.path("kept"), "--epochs=%d" % epochs,
                                                state="gone-on")
        self.assertEqual(status, 0, output)
        self.assertEqual(len(report["epochs"]), epochs)

    def test_ctrl_c_leaves_no_process(self):
        local = self.start_local(harness.make_job(self.directory, records=4096, epochs=1000))
        local.signal(signal.SIGINT)
        self.assertEqual(local.wait(), 130, local.output())
        self.assert_none_left()

    def test_sigkill_leaves_no_process(self):
        local = self.start_local(harness.make_job(self.directory, records=4096, epochs=1000))
        local.signal(signal.SIGKILL)
        local.wait()
        self.assert_none_left()

    def test_success_leaves_no_process(self):
        local = self.start_local(harness.make_job(self.directory, records=4096, epochs=2))
        self.assertEqual(local.wait(), 0, local.output())
        self.assert_none_left()

    def start_local(self, job):
        """Starts it and remembers its children once all four daemons run."""
        local = self.start("lagrange local", [harness.program("lagrange"), "local", "--job=" + job, "--ps=1",
                                              "--workers=2", "--state_dir=" + self.path("local-state")])
        self.children = []

        def all_started():
            self.children = harness.living_children(local.pid)
            return len(self.children) == 4 or local.child.poll() is not None

        harness.wait_until(all_started, "four daemons")
        self.assertEqual(len(self.children), 4, local.output())
        return local

    def child_of(self, local, name):
        for child in harness.living_children(local.pid):
            with open("/proc/%d/cmdline" % child, "rb") as source:
                if name.encode() in source.read().split(b"\0")[0]:
                    return child
        raise AssertionError("no child " + name)

    def assert_none_left(self):
        harness.wait_until(lambda: not any(harness.alive(child) for child in self.children),
                           "the children %s to be gone" % self.children, 30)


class Refused(harness.ProcessTest):
    """Each is refused with status 2 by validate and by local, naming the place, and nothing is started or written."""

    def refused(self, job, *fragments):
        validate = subprocess.run([harness.program("lagrange"), "validate", "--job=" + job], capture_output=True,
                                  text=True, check=False, timeout=60)
        local = subprocess.run([harness.program("lagrange"), "local", "--job=" + job,
                                "--state_dir=" + self.path("untouched")], capture_output=True, text=True, check=False,
                               timeout=60)
        for run in (validate, local):
            self.assertEqual(run.returncode, 2, run.stderr)
            self.assertEqual(run.stdout, "")
            for fragment in fragments:
                self.assertIn(fragment, run.stderr)
        self.assertFalse(os.path.exists(self.path("untouched")))


class BadJobs(Refused):

    def changed(self, old, new):
        path = harness.make_job(self.directory, test_records=16)
        with open(path, encoding="utf-8") as source:
            text = source.read()
        self.assertIn(old, text)
        with open(path, "w", encoding="utf-8") as out:
            out.write(text.replace(old, new, 1))
        return path

    def test_a_good_job_is_valid(self):
        run = subprocess.run([harness.program("lagrange"), "validate", "--job=" + harness.make_job(self.directory)],
                             capture_output=True, text=True, check=False, timeout=60)
        self.assertEqual(run.returncode, 0, run.stderr)
        self.assertIn("is valid", run.stdout)

    def test_unknown_field_names_the_nearest(self):
        job = self.changed("batch_size:", "batch_sise:")
        self.refused(job, job + ":2:", "batch_sise", "batch_size")

    def test_wrong_type(self):
        job = self.changed("batch_size: 8", 'batch_size: "eight"')
        self.refused(job, job + ":2:")

    def test_missing_job_file(self):
        self.refused(self.path("nowhere.textproto"), self.path("nowhere.textproto"))

    def test_missing_data_file(self):
        job = self.changed("train-images", "train-imagez")
        self.refused(job, "train-imagez", "data.train")

    def test_layer_sizes_that_do_not_fit(self):
        job = self.changed("dense { units: 8 }", "dense { units: 8 input_units: 5 }")
        self.refused(job, "model.layers[1]", "5", "4")

    def test_last_layer_must_give_the_classes(self):
        job = self.changed("dense { units: 4 }", "dense { units: 6 }")
        self.refused(job, "model", "6", "4")

    def test_unknown_optimizer(self):
        job = self.changed("sgd {", "adamm {")
        self.refused(job, "adamm", "adam")

    def test_batch_size_zero(self):
        self.refused(self.changed("batch_size: 8", "batch_size: 0"), "batch_size", "1")

    def test_more_epochs_than_int32(self):
        self.refused(self.changed("epochs: 2", "epochs: 2147483648"), ":2:", "2147483648")

    def test_bad_flags_exit_two(self):
        for arguments in (["local"], ["local", "--job=x", "--ps=0"], ["nonsense"], ["status"], []):
            run = subprocess.run([harness.program("lagrange")] + arguments, capture_output=True, text=True, check=False,
                                 timeout=60)
            self.assertEqual(run.returncode, 2, arguments)
        job = harness.make_job(self.directory)
        run = subprocess.run([harness.program("lagrange"), "validate", "--job=" + job, "--consistency=sspp"],
                             capture_output=True, text=True, check=False, timeout=60)
        self.assertEqual(run.returncode, 2)
        self.assertIn("sspp", run.stderr)


class BadIdx(Refused):
    """The IDX files of a job, damaged one way each."""

    def setUp(self):
        super().setUp()
        self.job = harness.make_job(self.directory, records=6)
        self.images = self.path("train-images")
        self.labels = self.path("train-labels")

    def rewrite(self, path, change):
        with open(path, "rb") as source:
            data = source.read()
        with open(path, "wb") as out:
            out.write(change(data))

    def test_wrong_magic(self):
        self.rewrite(self.images, lambda data: b"\x12\x34\x08\x03" + data[4:])
        self.refused(self.job, self.images)

    def test_wrong_count(self):
        self.rewrite(self.images, lambda data: data[:4] + struct.pack(">I", 7) + data[8:])
        self.refused(self.job, self.images, "44", "40")

    def test_cut_short(self):
        self.rewrite(self.images, lambda data: data[:-1])
        self.refused(self.job, self.images, "40", "39")

    def test_gzip_is_read(self):
        self.rewrite(self.images, gzip.compress)
        run = subprocess.run([harness.program("lagrange"), "validate", "--job=" + self.job], capture_output=True,
                             text=True, check=False, timeout=60)
        self.assertEqual(run.returncode, 0, run.stderr)

    def test_gzip_cut_short(self):
        self.rewrite(self.images, lambda data: gzip.compress(data)[:-9])
        self.refused(self.job, self.images, "gzip")

    def test_gzip_with_bytes_after_its_end(self):
        self.rewrite(self.images, lambda data: gzip.compress(data) + b"more")
        self.refused(self.job, self.images, "gzip ends at byte", "4 more")

    def test_labels_and_images_of_unequal_number(self):
        harness.write_idx_labels(self.labels, [0] * 5)
        self.refused(self.job, "5", "6")

    def test_a_label_beyond_the_classes(self):
        harness.write_idx_labels(self.labels, [0, 1, 2, 3, 4, 0])
        self.refused(self.job, self.labels, "4")


class Status(harness.ProcessTest):

    def test_shows_phase_epoch_members_rate_and_staleness(self):
        job = harness.make_job(self.directory, records=4096, epochs=1000)
        chief = self.start_chief(job)
        self.assertIn("waiting for ps: 0 of 1 registered", self.job_status())
        self.start_ps()
        self.start_worker()
        harness.wait_until(lambda: re.search(r"training.*\nepoch \d+ of 1000", self.job_status()), "training")
        text = self.job_status()
        for part in ("examples/s", "staleness mean", "members:", "worker   0  live", "ps       0  live"):
            self.assertIn(part, text)
        chief.signal(signal.SIGTERM)
        chief.wait()

    def test_a_chief_that_is_not_there_is_named(self):
        run = subprocess.run([harness.program("lagrange"), "status", "--chief=127.0.0.1:1", "--timeout=1s"],
                             capture_output=True, text=True, check=False, timeout=60)
        self.assertEqual(run.returncode, 1)
        self.assertIn("127.0.0.1:1", run.stderr)


if __name__ == "__main__":
    harness.main()
