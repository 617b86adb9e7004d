"""Slow by nature, so nightly: long silences on the wire, and fifty ends of a job."""

import random
import signal
import time

import harness


class LongSilence(harness.ProcessTest):

    def test_a_pull_that_waits_two_minutes_is_answered(self):
        # ssp{0} and one worker that takes 125 s for a batch: the others' pulls wait inside one request all the while.
        # Keepalive pings that the server held against them would end the streams meanwhile. So many leases that the
        # slow one has one for certain; it is killed after its first batch.
        job = harness.make_job(self.directory, records=240, batch_size=2, lease=2, epochs=1, workers=3,
                               consistency="ssp { staleness: 0 }", cluster="worker_lease { seconds: 10 }")
        chief = self.start_chief(job)
        ps = self.start_ps()
        quick = [self.start_worker(), self.start_worker()]
        slow = self.start_worker("--step_delay=125s")
        chief.wait_for_line("training begins")
        began = time.monotonic()
        # One batch of each, and the first that waited for the slow one.
        harness.wait_until(lambda: self.query("SELECT COUNT(*) FROM batches")[0][0] >= 4, "the slow worker's batch")
        self.assertGreater(time.monotonic() - began, 120)
        slow.signal(signal.SIGKILL)
        self.assert_all_exit([chief, ps] + quick)
        self.assert_each_example_counted_once(240, 1)
        for process in quick + [slow, ps]:
            self.assertNotIn("GOAWAY", process.output())
            self.assertNotIn("ENHANCE_YOUR_CALM", process.output())


class FiftyEnds(harness.ProcessTest):

    def test_fifty_short_jobs_end_with_status_zero_and_leave_no_process(self):
        chance = random.Random(3)
        job = harness.make_job(self.directory, records=160, batch_size=8, lease=16, epochs=1, ps=2, workers=2)
        for run in range(50):
            chief = self.start_chief(job, state="state-%d" % run)
            members = [self.start_ps(), self.start_ps(), self.start_worker(),
                       self.start_worker("--step_delay=%dms" % chance.randrange(20))]
            self.assert_all_exit([chief] + members)
            self.assert_each_example_counted_once(160, 1, state="state-%d" % run)

    def test_a_worker_killed_while_the_job_ends_does_not_hold_it_up(self):
        for run in range(10):
            job = harness.make_job(self.directory, records=160, batch_size=8, lease=16, epochs=1, workers=2,
                                   cluster="worker_lease { seconds: 1 }")
            chief = self.start_chief(job, state="end-%d" % run)
            ps = self.start_ps()
            workers = [self.start_worker(), self.start_worker()]
            chief.wait_for_line("epoch 1 of 1: training")
            workers[0].signal(signal.SIGKILL)
            self.assert_all_exit([chief, ps, workers[1]])


if __name__ == "__main__":
    harness.main()
