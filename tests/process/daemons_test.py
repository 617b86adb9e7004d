"""The daemons one by one: any order, who waits for whom, who is refused, how each ends."""

import os
import signal
import socket
import time

import harness


class AnyOrder(harness.ProcessTest):

    def free_port(self):
        """A port that was free a moment ago: for a chief whose address others must know before it runs."""
        with socket.socket() as probe:
            probe.bind(("127.0.0.1", 0))
            return probe.getsockname()[1]

    def test_members_started_before_the_chief_join_it(self):
        job = harness.make_job(self.directory, ps=2, workers=2)
        address = "127.0.0.1:%d" % self.free_port()
        self.chief_address = address
        members = [self.start_worker(), self.start_ps(), self.start_ps(), self.start_worker()]
        members[0].wait_for_line("waiting for the chief at " + address)
        chief = self.start_chief(job, listen=address)
        self.assert_all_exit([chief] + members)
        self.assert_each_example_counted_once(512, 2)

    def test_a_message_says_who_is_missing(self):
        job = harness.make_job(self.directory, ps=2, workers=1)
        chief = self.start_chief(job)
        first = self.start_ps()
        worker = self.start_worker()
        for process in (chief, first, worker):
            process.wait_for_line("waiting for ps: 1 of 2 registered")
        second = self.start_ps()
        self.assert_all_exit([chief, first, second, worker])

    def test_ipv6(self):
        if not socket.has_ipv6 or not os.path.exists("/proc/net/if_inet6"):
            self.skipTest("this machine has no IPv6")
        job = harness.make_job(self.directory)
        chief = self.start_chief(job, listen="[::1]:0")
        self.assertTrue(self.chief_address.startswith("[::1]:"), self.chief_address)
        ps = self.start("ps", [harness.program("ps"), "--chief=" + self.chief_address, "--listen=[::1]:0"])
        worker = self.start_worker()
        self.assert_all_exit([chief, ps, worker])

    def test_proxy_variables_do_not_reach_the_cluster(self):
        environment = {"http_proxy": "http://127.0.0.1:9", "https_proxy": "http://127.0.0.1:9",
                       "HTTP_PROXY": "http://127.0.0.1:9", "grpc_proxy": "http://127.0.0.1:9"}
        job = harness.make_job(self.directory)
        chief = self.start_chief(job, env=environment)
        self.assert_all_exit([chief, self.start_ps(env=environment), self.start_worker(env=environment)])


class GivingUp(harness.ProcessTest):

    def test_the_chief_names_who_is_missing_at_startup_timeout(self):
        chief = self.start_chief(harness.make_job(self.directory, ps=2), "--startup_timeout=3s")
        ps = self.start_ps()
        self.assertEqual(chief.wait(), 1, chief.output())
        self.assertRegex(chief.output(), "ps: 1 of 2 registered")
        self.assertNotEqual(ps.wait(), 0)

    def test_refused_and_not_resolved_are_told_apart(self):
        self.chief_address = "127.0.0.1:1"
        refused = [self.start_worker("--startup_timeout=3s"), self.start_ps("--startup_timeout=3s")]
        self.chief_address = "chief-0.nowhere.invalid:7000"
        unresolved = [self.start_worker("--startup_timeout=3s"), self.start_ps("--startup_timeout=3s")]
        for process in refused:
            self.assertEqual(process.wait(), 1, process.output())
            self.assertRegex(process.output(), "127.0.0.1:1.*refused")
        for process in unresolved:
            self.assertEqual(process.wait(), 1, process.output())
            self.assertRegex(process.output(), "chief-0.nowhere.invalid:7000.*not resolved")


class Refused(harness.ProcessTest):

    def test_unequal_counts_are_refused_with_both(self):
        chief = self.start_chief(harness.make_job(self.directory, ps=1, workers=3, cluster=""))
        wrong = self.start_worker("--worker_count=4")
        self.assertEqual(wrong.wait(), 2, wrong.output())
        self.assertRegex(wrong.output(), "4.*3|3.*4")
        outside = self.start_worker("--task_index=3")
        self.assertEqual(outside.wait(), 2, outside.output())
        self.assertIn("3", outside.output())
        good = [self.start_worker("--task_index=1")]
        chief.wait_for_line("workers: 1 of 3")
        twin = self.start_worker("--task_index=1")
        self.assertEqual(twin.wait(), 2, twin.output())
        good += [self.start_worker(), self.start_worker(), self.start_ps()]
        self.assert_all_exit([chief] + good)

    def test_a_port_in_use_is_named(self):
        job = harness.make_job(self.directory)
        with socket.socket() as holder:
            holder.bind(("127.0.0.1", 0))
            holder.listen()
            address = "127.0.0.1:%d" % holder.getsockname()[1]
            chief = self.start("chief", [harness.program("chief"), "--job=" + job, "--listen=" + address,
                                         "--state_dir=" + self.path("other")])
            self.assertEqual(chief.wait(), 2, chief.output())
            self.assertIn(address, chief.output())
            self.start_chief(job)
            ps = self.start("ps", [harness.program("ps"), "--chief=" + self.chief_address, "--listen=" + address])
            self.assertEqual(ps.wait(), 2, ps.output())
            self.assertIn(address, ps.output())

    def test_two_servers_never_share_a_port(self):
        self.start_chief(harness.make_job(self.directory))
        other = self.start("chief", [harness.program("chief"), "--job=" + harness.make_job(self.directory, name="b"),
                                     "--listen=" + self.chief_address, "--state_dir=" + self.path("b")])
        self.assertEqual(other.wait(), 2, other.output())
        self.assertIn(self.chief_address, other.output())

    def test_a_state_directory_of_another_job_is_refused(self):
        first = harness.make_job(self.directory)
        status, output, _ = self.run_local(first)
        self.assertEqual(status, 0, output)
        other = harness.make_job(self.directory, name="other", batch_size=4)
        chief = self.start("chief", [harness.program("chief"), "--job=" + other, "--listen=127.0.0.1:0",
                                     "--state_dir=" + self.path("local-state")])
        self.assertEqual(chief.wait(), 2, chief.output())
        self.assertIn(self.path("local-state"), chief.output())

    def test_versions_are_printed(self):
        for role in ("lagrange", "chief", "ps", "worker"):
            version = self.start(role, [harness.program(role), "--version"])
            self.assertEqual(version.wait(), 0)
            self.assertRegex(version.output(), r"0\.1\.0 \(protocol 1\)")


class EndOfJob(harness.ProcessTest):

    def test_workers_that_finish_early_do_not_end_the_others(self):
        # Leases of one batch and four workers: some find no work while the rest still compute.
        job = harness.make_job(self.directory, records=44, batch_size=4, lease=4, ps=2, workers=4, epochs=3)
        chief = self.start_chief(job)
        members = [self.start_ps(), self.start_ps()] + [self.start_worker("--step_delay=%dms" % (40 * i))
                                                        for i in range(4)]
        self.assert_all_exit([chief] + members)
        self.assert_each_example_counted_once(44, 3)

    def test_more_workers_than_leases_end_too(self):
        job = harness.make_job(self.directory, records=1, batch_size=4, lease=4, ps=1, workers=4, epochs=1)
        chief = self.start_chief(job)
        members = [self.start_ps()] + [self.start_worker() for _ in range(4)]
        self.assert_all_exit([chief] + members)

    def test_a_ps_without_shards_takes_part(self):
        job = harness.make_job(self.directory, ps=8, workers=1)
        chief = self.start_chief(job)
        members = [self.start_ps() for _ in range(8)] + [self.start_worker()]
        self.assert_all_exit([chief] + members)

    def test_no_live_worker_ends_the_job_with_a_reason(self):
        job = harness.make_job(self.directory, records=4096, epochs=1000, workers=2,
                               cluster="worker_lease { seconds: 1 }")
        chief = self.start_chief(job, "--startup_timeout=4s")
        ps = self.start_ps()
        workers = [self.start_worker(), self.start_worker()]
        chief.wait_for_line("epoch 1 ")
        for worker in workers:
            worker.signal(signal.SIGKILL)
        self.assertEqual(chief.wait(), 1, chief.output())
        self.assertIn("no live worker", chief.output())
        self.assertEqual(ps.wait(), 1, ps.output())


if __name__ == "__main__":
    harness.main()
