"""Checkpoints of real runs: readable by others, restorable on other clusters, refused when damaged; and runs that must
be the same bit for bit."""

import os
import shutil

import harness


class Checkpoints(harness.ProcessTest):

    def train(self, job, *flags, state="local-state"):
        status, output, report = self.run_local(job, *flags, state=state)
        self.assertEqual(status, 0, output)
        return report

    def test_an_independent_reader_finds_variables_and_slots(self):
        report = self.train(harness.make_job(self.directory, ps=2, workers=2, optimizer="adam {}"))
        values = harness.read_checkpoint(report["checkpoint"])
        for name, count in (("dense_0/kernel", 32), ("dense_0/bias", 8), ("dense_1/kernel", 32), ("dense_1/bias", 4)):
            self.assertEqual(len(values[name]), count)
            slots = [slot for slot in values if slot.startswith(name + "/")]
            self.assertEqual(len(slots), 2, sorted(values))
            for slot in slots:
                self.assertEqual(len(values[slot]), count)

    def test_max_to_keep_deletes_the_oldest(self):
        report = self.train(harness.make_job(self.directory, epochs=5, extra="checkpoint { max_to_keep: 2 }"))
        parent = os.path.dirname(report["checkpoint"])
        kept = [d for d in os.listdir(parent) if os.path.exists(os.path.join(parent, d, "manifest.json"))]
        self.assertEqual(len(kept), 2, kept)
        self.assertIn(os.path.basename(report["checkpoint"]), kept)

    def test_two_runs_of_one_job_name_share_a_directory(self):
        shared = self.path("shared")

        def job(rate, epochs, keep):
            return harness.make_job(self.directory, epochs=epochs, optimizer="sgd { learning_rate: %g }" % rate,
                                    extra='checkpoint { directory: "%s" max_to_keep: %d }' % (shared, keep))

        first = self.train(job(0.01, 2, 5), state="first")
        before = harness.read_checkpoint(first["checkpoint"])
        second = self.train(job(0.02, 3, 1), state="second")
        self.assertEqual(harness.read_checkpoint(first["checkpoint"]), before)
        kept = [d for d in os.listdir(shared) if os.path.exists(os.path.join(shared, d, "manifest.json"))]
        # Both of the first run, the last of the second.
        self.assertEqual(len(kept), 3, kept)
        for rate, run, state in ((0.01, first, "first-again"), (0.02, second, "second-again")):
            again = self.train(job(rate, 4, 5), "--restore=" + run["checkpoint"], state=state)
            self.assertEqual(again["epochs"][:len(run["epochs"])], run["epochs"])

    def test_restores_onto_another_number_of_ps_and_workers(self):
        first = self.train(harness.make_job(self.directory, epochs=2, ps=3, workers=2, optimizer="adam {}"))
        before = harness.read_checkpoint(first["checkpoint"])
        alone = []
        # 5 ps for 4 variables: one has nothing.
        for ps, workers in ((1, 1), (2, 3), (5, 1)):
            again = self.train(harness.make_job(self.directory, epochs=3, ps=ps, workers=workers, optimizer="adam {}"),
                               "--restore=" + first["checkpoint"], state="restored-%d" % ps)
            self.assertEqual([row["epoch"] for row in again["epochs"]], [1, 2, 3])
            self.assertEqual(again["epochs"][:2], first["epochs"])
            after = harness.read_checkpoint(again["checkpoint"])
            self.assertEqual(sorted(before), sorted(after))
            alone += [after] if workers == 1 else []
        # One worker always computes the same from the same values: so they were the same on 1 ps and on 5.
        self.assertEqual(alone[0], alone[1])

    def test_resuming_by_restore_gives_the_same_bits_as_never_stopping(self):
        straight = self.train(harness.make_job(self.directory, epochs=4, optimizer="adam {}", name="same"))
        half = self.train(harness.make_job(self.directory, epochs=2, optimizer="adam {}", name="same"), state="half")
        rest = self.train(harness.make_job(self.directory, epochs=4, ps=2, optimizer="adam {}", name="same"),
                          "--restore=" + half["checkpoint"], state="rest")
        self.assertEqual(harness.read_checkpoint(straight["checkpoint"]), harness.read_checkpoint(rest["checkpoint"]))

    def test_damage_is_named_and_nothing_is_started(self):
        report = self.train(harness.make_job(self.directory, ps=2))
        good = report["checkpoint"]
        files = sorted(f for f in os.listdir(good) if f.endswith(".safetensors"))

        def damaged(change):
            copy = self.path("damaged")
            shutil.rmtree(copy, ignore_errors=True)
            shutil.copytree(good, copy)
            change(copy)
            status, output, _ = self.run_local(harness.make_job(self.directory, ps=2, epochs=3), "--restore=" + copy,
                                               state="never-%d" % len(self.processes))
            self.assertEqual(status, 2, output)
            return output

        def flip(copy):
            with open(os.path.join(copy, files[0]), "r+b") as file:
                file.seek(-5, 2)
                byte = file.read(1)
                file.seek(-5, 2)
                file.write(bytes([byte[0] ^ 1]))

        self.assertIn(files[0], damaged(flip))
        self.assertIn(files[1], damaged(lambda copy: os.remove(os.path.join(copy, files[1]))))
        self.assertIn(files[0], damaged(lambda copy: os.truncate(os.path.join(copy, files[0]), 100)))
        self.assertIn("manifest.json", damaged(lambda copy: os.remove(os.path.join(copy, "manifest.json"))))

    def test_a_checkpoint_of_another_model_is_refused(self):
        report = self.train(harness.make_job(self.directory))
        other = harness.make_job(self.directory, epochs=3, layers="layers { flatten {} } layers { dense { units: 4 } }")
        status, output, _ = self.run_local(other, "--restore=" + report["checkpoint"], state="never")
        self.assertEqual(status, 2, output)
        self.assertIn("model", output)


class SameBits(harness.ProcessTest):

    def parameters(self, ps, prefetch, state):
        job = harness.make_job(self.directory, records=512, epochs=1, ps=ps, optimizer="adam {}",
                               layers="layers { flatten {} } layers { dense { units: 300 } } layers { relu {} } "
                                      "layers { dense { units: 500 } } layers { dense { units: 4 } }",
                               extra="prefetch: " + prefetch, cluster="shard_bytes: 65536")
        status, output, report = self.run_local(job, state=state)
        self.assertEqual(status, 0, output)
        return harness.read_checkpoint(report["checkpoint"])

    def test_one_worker_gives_the_same_bits_on_one_two_and_three_ps(self):
        one = {}
        for prefetch in ("false", "true"):
            one[prefetch] = self.parameters(1, prefetch, "one-" + prefetch)
            self.assertEqual(one[prefetch], self.parameters(2, prefetch, "two-" + prefetch))
            self.assertEqual(one[prefetch], self.parameters(3, prefetch, "three-" + prefetch))
        # A prefetched pull lacks the push before it: equal bits would mean that nothing was prefetched.
        self.assertNotEqual(one["false"], one["true"])


class Bsp(harness.ProcessTest):

    def test_workers_of_batch_b_equal_one_worker_of_their_sum(self):
        def train(workers, batch, state):
            # One round an epoch: the same examples meet in it however they are dealt out, if membership doesn't change:
            # on a machine that stands still for a while nobody may be evicted.
            job = harness.make_job(self.directory, records=128, epochs=20, batch_size=batch, lease=batch,
                                   workers=workers, consistency="bsp {}",
                                   optimizer="momentum { learning_rate: 0.0005 }",
                                   cluster="worker_lease { seconds: 600 }")
            status, output, report = self.run_local(job, state=state)
            self.assertEqual(status, 0, output)
            return harness.read_checkpoint(report["checkpoint"])

        one = train(1, 128, "one")
        for workers in (2, 4):
            many = train(workers, 128 // workers, "many-%d" % workers)
            self.assertEqual(sorted(one), sorted(many))
            for name, values in one.items():
                scale = max(1e-3, max(abs(v) for v in values))
                for a, b in zip(values, many[name]):
                    self.assertLess(abs(a - b) / scale, 1e-4, "%s with %d workers" % (name, workers))


class Staleness(harness.ProcessTest):

    def test_ssp_never_exceeds_its_bound_with_one_worker_slowed_tenfold(self):
        for bound in (0, 1, 3):
            job = harness.make_job(self.directory, records=512, epochs=2, lease=16, ps=2, workers=3,
                                   consistency="ssp { staleness: %d }" % bound)
            chief = self.start_chief(job, state="state-%d" % bound)
            members = [self.start_ps(), self.start_ps(), self.start_worker("--step_delay=2ms"),
                       self.start_worker("--step_delay=2ms"), self.start_worker("--step_delay=20ms")]
            self.assert_all_exit([chief] + members)
            report = self.report()
            self.assertLessEqual(report["staleness_clocks_max"], bound)
            if bound == 3:
                # The bound was reached: the workers did run apart.
                self.assertGreater(report["staleness_clocks_max"], 0)


if __name__ == "__main__":
    harness.main()
