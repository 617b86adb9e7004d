"""Workers, ps and the chief die or are asked to go: every example still counts once, the sums are exact, and who can't go
on says why.

The counting worker's gradient is -1 at the elements of its batch's records, so that SGD with learning rate 1 adds exactly 1
to each: after E epochs each element must be exactly E, on either ps.
"""

import os
import random
import signal
import time

import harness

RECORDS = 1024
EPOCHS = 3


class Counting(harness.ProcessTest):
    consistency = "asp {}"

    def start_cluster(self, ps=2, workers=3, others=0, lease_seconds=2, epochs=EPOCHS, delay="2ms", cluster=""):
        """The job waits for workers + others; the others are the test's to start."""
        self.epochs = epochs
        self.job = harness.make_job(self.directory, records=RECORDS, epochs=epochs, batch_size=8, lease=64, ps=ps,
                                    workers=workers + others, optimizer="sgd { learning_rate: 1 }",
                                    consistency=self.consistency,
                                    cluster="worker_lease { seconds: %d } %s" % (lease_seconds, cluster))
        self.chief = self.start_chief(self.job)
        self.ps = [self.start_ps("--task_index=%d" % index) for index in range(ps)]
        self.delay = delay
        self.workers = [self.counting_worker("--task_index=%d" % index) for index in range(workers)]

    def counting_worker(self, *flags, delay=None, env=None):
        return self.start_worker("--step_delay=" + (delay or self.delay), *flags, role="counting-worker", env=env)

    def restart_chief(self):
        self.chief.wait()
        self.chief = self.start_chief(self.job, listen=self.chief_address)

    def kill(self, process):
        process.signal(signal.SIGKILL)
        process.wait()

    def assert_exact(self):
        self.assert_each_example_counted_once(RECORDS, self.epochs)
        counts = harness.read_checkpoint(self.report()["checkpoint"])
        self.assertEqual(sorted(counts), ["seen_0", "seen_1"])
        for values in counts.values():
            self.assertEqual(len(values), RECORDS)
            self.assertEqual(set(values), {float(self.epochs)})

    def wait_for_batches(self, at_least):
        def enough():
            try:
                return self.query("SELECT COUNT(*) FROM batches")[0][0] >= at_least
            except harness.sqlite3.OperationalError:
                return False
        harness.wait_until(enough, "%d batches" % at_least)


class WorkerLoss:
    """What holds under every policy: mixed into a Counting for each."""

    def test_without_faults_each_record_counts_once_an_epoch_and_nothing_is_sent_twice(self):
        self.start_cluster()
        self.assert_all_exit([self.chief] + self.ps + self.workers)
        self.assert_exact()
        for worker in self.workers:
            self.assertNotIn("sent again", worker.output())

    def test_sigkill_on_a_worker(self):
        # Slow enough to be still under way when the dead worker's lease has run out, even if it held no batches.
        self.start_cluster(delay="20ms")
        self.wait_for_batches(20)
        self.kill(self.workers[0])
        self.assert_all_exit([self.chief] + self.ps + self.workers[1:])
        self.assertIn("evicted", self.chief.output())
        self.assert_exact()

    def test_a_fault_inside_a_worker_ends_it_and_the_others_do_its_work(self):
        # Its lease lasts longer than any wait here: the rest can only end if the worker itself gave it back.
        self.start_cluster(workers=2, others=1, lease_seconds=600, delay="20ms")
        faulty = self.counting_worker("--task_index=2", env={"COUNTING_WORKER_THROWS_AT_BATCH": "5"})
        self.assertEqual(faulty.wait(), 1, faulty.output())
        self.assertIn("exception: vector::_M_range_check", faulty.output())
        self.assert_all_exit([self.chief] + self.ps + self.workers)
        self.assert_exact()

    def test_no_worker_that_ends_early_takes_others_work_with_it(self):
        self.start_cluster(workers=2, others=2)
        self.workers += [self.counting_worker("--task_index=2", delay="40ms"),
                         self.counting_worker("--task_index=3", delay="80ms")]
        self.assert_all_exit([self.chief] + self.ps + self.workers)
        self.assert_exact()

    def test_sigterm_on_a_worker_hands_its_lease_back(self):
        self.start_cluster(lease_seconds=600)
        self.wait_for_batches(20)
        self.workers[0].signal(signal.SIGTERM)
        self.assertEqual(self.workers[0].wait(), 0, self.workers[0].output())
        # Its lease lasts longer than any wait here: the rest can only end if it came back by itself.
        self.assert_all_exit([self.chief] + self.ps + self.workers[1:])
        self.assert_exact()

    def test_a_paused_worker_is_evicted_and_its_late_pushes_do_no_harm(self):
        # Slow enough that the others are still at it when the lease has run out.
        self.start_cluster(lease_seconds=1, delay="30ms")
        self.wait_for_batches(20)
        self.workers[0].signal(signal.SIGSTOP)
        self.chief.wait_for_line("evicted")
        self.workers[0].signal(signal.SIGCONT)
        self.assert_all_exit([self.chief] + self.ps + self.workers)
        self.assert_exact()


class WorkerLossUnderAsp(WorkerLoss, Counting):

    def test_sigkill_again_and_again_with_replacements(self):
        self.start_cluster()
        chance = random.Random(5)
        for kill in range(4):
            self.wait_for_batches(20 + 40 * kill)
            index = chance.randrange(len(self.workers))
            self.kill(self.workers[index])
            self.workers[index] = self.counting_worker()
        self.assert_all_exit([self.chief] + self.ps + self.workers)
        self.assert_exact()

    def test_a_worker_started_again_under_its_index_is_in_long_before_its_lease_ends(self):
        self.start_cluster(lease_seconds=600)
        self.wait_for_batches(20)
        self.kill(self.workers[1])
        self.workers[1] = self.counting_worker("--task_index=1")
        self.assert_all_exit([self.chief] + self.ps + self.workers)
        self.assertRegex(self.chief.output(), "worker 1 .*evicted: replaced by worker 1")
        self.assert_exact()

    def test_workers_killed_when_a_push_has_reached_one_ps_and_not_the_other(self):
        self.start_cluster(lease_seconds=1, cluster="ps_lease { seconds: 600 }")
        self.wait_for_batches(20)
        self.ps[1].signal(signal.SIGSTOP)
        # Nobody gets further than a push that ps 0 alone has: within one step, all wait for ps 1.
        looks = []

        def all_wait():
            looks.append(self.query("SELECT COUNT(*) FROM batches")[0][0])
            return len(looks) >= 50 and looks[-1] == looks[-50]
        harness.wait_until(all_wait, "all workers to wait for ps 1")
        for worker in self.workers:
            self.kill(worker)
        self.chief.wait_for_line("worker 0 .*evicted")
        self.workers = [self.counting_worker() for _ in self.workers]
        self.ps[1].signal(signal.SIGCONT)
        self.assert_all_exit([self.chief] + self.ps + self.workers)
        self.assert_exact()


class WorkerLossUnderSsp(WorkerLoss, Counting):
    consistency = "ssp { staleness: 1 }"


class WorkerLossUnderBsp(WorkerLoss, Counting):
    """Rounds average, so that the sums say nothing: the ledger alone shows that each example counted once."""
    consistency = "bsp {}"

    def assert_exact(self):
        self.assert_each_example_counted_once(RECORDS, self.epochs)


class ChiefLoss(Counting):

    def test_a_killed_chief_started_again_goes_on_with_the_job(self):
        self.start_cluster(lease_seconds=5)
        for kill in range(2):
            self.wait_for_batches(40 + 100 * kill)
            self.chief.signal(signal.SIGKILL)
            self.restart_chief()
        self.assert_all_exit([self.chief] + self.ps + self.workers)
        self.assert_exact()

    def test_sigterm_keeps_the_state_and_the_next_chief_goes_on(self):
        self.start_cluster(lease_seconds=5)
        self.wait_for_batches(40)
        self.chief.signal(signal.SIGTERM)
        self.assertEqual(self.chief.wait(), 128 + signal.SIGTERM, self.chief.output())
        self.assertIn("the state is kept", self.chief.output())
        self.restart_chief()
        self.assert_all_exit([self.chief] + self.ps + self.workers)
        self.assert_exact()

    def test_another_consistency_is_refused_once_the_job_runs(self):
        self.start_cluster(lease_seconds=10)
        self.wait_for_batches(40)
        self.kill(self.chief)
        other = self.start("chief", [harness.program("chief"), "--job=" + self.job, "--listen=127.0.0.1:0",
                                     "--state_dir=" + self.path("state"), "--consistency=ssp:2"])
        self.assertEqual(other.wait(), 2, other.output())
        self.assertRegex(other.output(), r"runs under asp, .*ssp\{2\}")
        self.restart_chief()
        self.assert_all_exit([self.chief] + self.ps + self.workers)
        self.assert_exact()

    def test_a_worker_dies_while_the_chief_is_away(self):
        self.start_cluster()
        self.wait_for_batches(40)
        self.kill(self.chief)
        self.kill(self.workers[0])
        self.restart_chief()
        self.assert_all_exit([self.chief] + self.ps + self.workers[1:])
        self.assert_exact()

    def test_after_a_startup_timeout_the_next_chief_waits_anew(self):
        self.job = harness.make_job(self.directory)
        first = self.start_chief(self.job, "--startup_timeout=1s")
        ps = self.start_ps()
        self.assertEqual(first.wait(), 1, first.output())
        self.assertRegex(first.output(), "gave up after 1s waiting for workers: 0 of 1 registered")
        self.assertEqual(ps.wait(), 1, ps.output())
        second = self.start_chief(self.job, listen=self.chief_address)
        self.assert_all_exit([second, self.start_ps(), self.start_worker()])
        self.assert_each_example_counted_once(512, 2)


    def test_a_chief_started_on_a_finished_job_reports_it_again(self):
        self.job = harness.make_job(self.directory, test_records=64)
        self.assert_all_exit([self.start_chief(self.job), self.start_ps(), self.start_worker()])
        first = self.report()
        again = self.start_chief(self.job)
        self.assertEqual(again.wait(), 0, again.output())
        second = self.report()
        for field in ("test_accuracy", "test_loss", "checkpoint", "epochs"):
            self.assertEqual(first[field], second[field], field)


class EverybodyLoss(Counting):

    def newest_checkpoint(self, state):
        """(directory, epochs in it) by the files alone, as a person would look for it; None when there is none yet."""
        parent = self.path(state + "/checkpoints")
        found = []
        for name in os.listdir(parent) if os.path.isdir(parent) else []:
            manifest = os.path.join(parent, name, "manifest.json")
            if os.path.exists(manifest):
                with open(manifest, encoding="utf-8") as source:
                    ledger = harness.json.load(source)["ledger"]
                found.append((int(ledger["epochs_complete"]), os.path.join(parent, name)))
        return max(found)[::-1] if found else None

    def test_all_killed_at_any_moment_restores_to_exact_sums(self):
        # Epochs of some tens of milliseconds, so that most moments lie in or near the writing of a checkpoint.
        chance = random.Random(11)
        for run in range(4):
            state = "state-%d" % run
            job = harness.make_job(self.directory, records=RECORDS, epochs=1000, batch_size=64, lease=256, ps=2,
                                   workers=2, optimizer="sgd { learning_rate: 1 }", name="counted")
            self.chief = self.start_chief(job, state=state)
            members = [self.start_ps(), self.start_ps(), self.start_worker(role="counting-worker"),
                       self.start_worker(role="counting-worker")]
            harness.wait_until(lambda: self.newest_checkpoint(state), "a checkpoint")
            time.sleep(chance.random() * 0.4)
            for process in [self.chief] + members:
                process.signal(signal.SIGKILL)
            for process in [self.chief] + members:
                process.wait()
            checkpoint, epochs = self.newest_checkpoint(state)
            self.epochs = epochs + 2
            job = harness.make_job(self.directory, records=RECORDS, epochs=self.epochs, batch_size=64, lease=256, ps=1,
                                   workers=1, optimizer="sgd { learning_rate: 1 }", name="counted")
            chief = self.start_chief(job, "--restore=" + checkpoint, state="restored-%d" % run)
            self.assert_all_exit([chief, self.start_ps(), self.start_worker(role="counting-worker")])
            self.assertEqual([row["epoch"] for row in self.report()["epochs"]], list(range(1, self.epochs + 1)))
            for values in harness.read_checkpoint(self.report()["checkpoint"]).values():
                self.assertEqual(set(values), {float(self.epochs)})


class PsPause(Counting):

    def test_a_ps_that_stands_still_is_waited_for_and_nothing_counts_twice(self):
        # Longer than a request's time-out (20 s), so that pulls and pushes are sent again to it meanwhile.
        self.start_cluster(lease_seconds=60, cluster="ps_lease { seconds: 120 }")
        self.wait_for_batches(20)
        self.ps[1].signal(signal.SIGSTOP)
        self.workers[0].wait_for_line("sent again")
        self.ps[1].signal(signal.SIGCONT)
        self.assert_all_exit([self.chief] + self.ps + self.workers)
        self.assert_exact()

    def test_sigterm_on_a_ps_ends_the_job_naming_it(self):
        self.start_cluster()
        self.wait_for_batches(20)
        self.ps[1].signal(signal.SIGTERM)
        self.assertEqual(self.ps[1].wait(), 0, self.ps[1].output())
        self.assertEqual(self.chief.wait(), 1, self.chief.output())
        self.assertRegex(self.chief.output(), "the job failed: ps 1 .*left with its shards")
        for member in [self.ps[0]] + self.workers:
            self.assertEqual(member.wait(), 1, member.output())


class Failing(harness.ProcessTest):
    """Jobs that can't be done: the chief says why, with 2 for bad input and 1 for the rest, and says the same again."""

    def assert_said_again(self, job, status, reason):
        again = self.start_chief(job)
        self.assertEqual(again.wait(), status, again.output())
        self.assertIn(reason, again.output())

    def test_data_damaged_after_the_start_end_the_job_as_bad_input(self):
        job = harness.make_job(self.directory, ps=1, workers=2)
        chief = self.start_chief(job)
        ps = self.start_ps()
        chief.wait_for_line("ps 0 .*registered")
        labels = self.path("train-labels")
        os.truncate(labels, 300)
        worker = self.start_worker()
        self.assertEqual(worker.wait(), 2, worker.output())
        self.assertIn(labels, worker.output())
        self.assertEqual(chief.wait(), 2, chief.output())
        self.assertIn(labels, chief.output())
        self.assertEqual(ps.wait(), 1, ps.output())
        self.assertIn(labels, ps.output())
        self.assert_said_again(job, 2, labels)

    def test_a_gradient_that_is_not_finite_ends_the_job_naming_variable_worker_and_step(self):
        job = harness.make_job(self.directory, optimizer="sgd { learning_rate: 1e30 }")
        chief = self.start_chief(job)
        members = [self.start_ps(), self.start_worker()]
        self.assertEqual(chief.wait(), 1, chief.output())
        reason = chief.wait_for_line(r"the job failed: (variable \w+/\w+, worker 0, step \d+)").group(1)
        for member in members:
            self.assertEqual(member.wait(), 1, member.output())
            self.assertIn(reason, member.output())
        self.assert_said_again(job, 1, reason)

    def test_max_bad_pushes_are_survived_and_counted(self):
        job = harness.make_job(self.directory, optimizer="sgd { learning_rate: 1e30 }", extra="max_bad_pushes: 100000")
        chief = self.start_chief(job)
        self.assert_all_exit([chief, self.start_ps(), self.start_worker()])
        report = self.report()
        skipped = sum(int(row["examples_skipped"]) for row in report["epochs"])
        done = sum(int(row["examples_done"]) for row in report["epochs"])
        self.assertGreater(skipped, 0)
        self.assertEqual(done + skipped, 1024)
        batches = self.query("SELECT COUNT(*) FROM batches WHERE state = 'skipped'")[0][0]
        self.assertEqual(int(report["bad_pushes"]), batches)

    def test_a_lost_ps_ends_the_job_and_the_last_checkpoint_can_be_restored(self):
        job = harness.make_job(self.directory, records=256, epochs=1000, ps=2,
                               cluster="ps_lease { seconds: 1 }")
        chief = self.start_chief(job)
        ps = [self.start_ps("--task_index=0"), self.start_ps("--task_index=1")]
        worker = self.start_worker()
        chief.wait_for_line("epoch 2 ")
        ps[1].signal(signal.SIGKILL)
        self.assertEqual(chief.wait(), 1, chief.output())
        self.assertRegex(chief.output(), "the job failed: ps 1 .*is lost with its shards")
        for member in (ps[0], worker):
            self.assertEqual(member.wait(), 1, member.output())
            self.assertIn("ps 1", member.output())
        self.assert_said_again(job, 1, "ps 1 ")
        checkpoint, epoch = self.query("SELECT directory, epoch FROM checkpoints WHERE state = 'listed' "
                                       "ORDER BY cut DESC")[0]
        job = harness.make_job(self.directory, records=256, epochs=epoch + 2, ps=1)
        chief = self.start_chief(job, "--restore=" + checkpoint, state="restored")
        self.assert_all_exit([chief, self.start_ps(), self.start_worker()])


if __name__ == "__main__":
    harness.main()
