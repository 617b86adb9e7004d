"""Workers and the chief die or are asked to go: every example still counts once, and the sums are exact.

The counting worker's gradient is -1 at the elements of its batch's records, so that SGD with learning rate 1 adds exactly 1
to each: after E epochs each element must be exactly E.
"""

import random
import signal
import time

import harness

RECORDS = 1024
EPOCHS = 3


class Counting(harness.ProcessTest):
    consistency = "asp {}"

    def start_cluster(self, ps=2, workers=3, lease_seconds=2, epochs=EPOCHS, delay="2ms"):
        self.epochs = epochs
        self.job = harness.make_job(self.directory, records=RECORDS, epochs=epochs, batch_size=8, lease=64, ps=ps,
                                    workers=workers, optimizer="sgd { learning_rate: 1 }",
                                    consistency=self.consistency,
                                    cluster="worker_lease { seconds: %d }" % lease_seconds)
        self.chief = self.start_chief(self.job)
        self.ps = [self.start_ps() for _ in range(ps)]
        self.delay = delay
        self.workers = [self.counting_worker() for _ in range(workers)]

    def counting_worker(self, *flags):
        return self.start_worker("--step_delay=" + self.delay, *flags, role="counting-worker")

    def assert_exact(self):
        self.assert_each_example_counted_once(RECORDS, self.epochs)
        with open(self.path("report.json"), encoding="utf-8") as source:
            checkpoint = harness.json.load(source)["checkpoint"]
        counts = harness.read_checkpoint(checkpoint)["seen"]
        self.assertEqual(len(counts), RECORDS)
        self.assertEqual(set(counts), {float(self.epochs)})

    def wait_for_batches(self, at_least):
        def enough():
            try:
                return self.query("SELECT COUNT(*) FROM batches")[0][0] >= at_least
            except harness.sqlite3.OperationalError:
                return False
        harness.wait_until(enough, "%d batches" % at_least)


class WorkerLoss(Counting):

    def test_without_faults_each_record_counts_once_an_epoch(self):
        self.start_cluster()
        self.assert_all_exit([self.chief] + self.ps + self.workers)
        self.assert_exact()

    def test_sigkill_on_a_worker(self):
        self.start_cluster()
        self.wait_for_batches(20)
        self.workers[0].signal(signal.SIGKILL)
        self.assert_all_exit([self.chief] + self.ps + self.workers[1:])
        self.assert_exact()

    def test_sigkill_again_and_again_with_replacements(self):
        self.start_cluster()
        chance = random.Random(5)
        for kill in range(4):
            self.wait_for_batches(20 + 40 * kill)
            victim = self.workers.pop(chance.randrange(len(self.workers)))
            victim.signal(signal.SIGKILL)
            victim.wait()
            self.workers.append(self.counting_worker())
        self.assert_all_exit([self.chief] + self.ps + self.workers)
        self.assert_exact()

    def test_sigterm_on_a_worker_hands_its_lease_back(self):
        self.start_cluster(lease_seconds=60)
        self.wait_for_batches(20)
        self.workers[0].signal(signal.SIGTERM)
        self.assertEqual(self.workers[0].wait(), 0, self.workers[0].output())
        # With a lease of 60 s the rest can only end so soon if the lease came back by itself.
        self.assert_all_exit([self.chief] + self.ps + self.workers[1:])
        self.assert_exact()

    def test_a_paused_worker_is_evicted_and_its_late_pushes_do_no_harm(self):
        self.start_cluster(lease_seconds=1)
        self.wait_for_batches(20)
        self.workers[0].signal(signal.SIGSTOP)
        self.chief.wait_for_line("evict")
        self.workers[0].signal(signal.SIGCONT)
        self.assert_all_exit([self.chief] + self.ps + self.workers)
        self.assert_exact()


class WorkerLossUnderSsp(WorkerLoss):
    consistency = "ssp { staleness: 1 }"


class ChiefLoss(Counting):

    def test_a_killed_chief_started_again_goes_on_with_the_job(self):
        self.start_cluster(lease_seconds=5)
        for kill in range(2):
            self.wait_for_batches(40 + 100 * kill)
            self.chief.signal(signal.SIGKILL)
            self.chief.wait()
            self.chief = self.start_chief(self.job, listen=self.chief_address)
        self.assert_all_exit([self.chief] + self.ps + self.workers)
        self.assert_exact()

    def test_a_worker_dies_while_the_chief_is_away(self):
        self.start_cluster()
        self.wait_for_batches(40)
        self.chief.signal(signal.SIGKILL)
        self.chief.wait()
        self.workers[0].signal(signal.SIGKILL)
        self.chief = self.start_chief(self.job, listen=self.chief_address)
        self.assert_all_exit([self.chief] + self.ps + self.workers[1:])
        self.assert_exact()


class BadPushes(harness.ProcessTest):

    def test_a_gradient_that_is_not_finite_ends_the_job_naming_variable_worker_and_step(self):
        job = harness.make_job(self.directory, optimizer="sgd { learning_rate: 1e30 }")
        status, output, _ = self.run_local(job)
        self.assertEqual(status, 1, output)
        self.assertRegex(output, r"variable \w+/\w+, worker 0, step \d+")

    def test_max_bad_pushes_are_survived_and_counted(self):
        job = harness.make_job(self.directory, optimizer="sgd { learning_rate: 1e30 }", extra="max_bad_pushes: 100000")
        status, output, report = self.run_local(job)
        self.assertEqual(status, 0, output)
        skipped = sum(int(row["examples_skipped"]) for row in report["epochs"])
        done = sum(int(row["examples_done"]) for row in report["epochs"])
        self.assertGreater(skipped, 0)
        self.assertEqual(done + skipped, 1024)
        self.assertGreater(int(report["bad_pushes"]), 0)


if __name__ == "__main__":
    harness.main()
