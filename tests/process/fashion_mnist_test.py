"""The example job on the real data, as the quick start runs it: at least 0.88 within 10 epochs.

Arguments: consistency:ps:workers, one run each.
"""

import os
import sys
import unittest

import harness

# Ten epochs on two busy cores.
LIMIT_SECONDS = 900


def make_case(consistency, ps, workers):
    def run(self):
        if not os.path.isdir(harness.FASHION_MNIST):
            self.skipTest("the package dataset-fashion-mnist is not installed")
        status, output, report = self.run_local("examples/fashion_mnist_mlp.textproto", "--consistency=" + consistency,
                                                "--ps=%d" % ps, "--workers=%d" % workers, timeout=LIMIT_SECONDS)
        self.assertEqual(status, 0, output)
        print("%-6s ps %d workers %d: accuracy %.4f loss %.4f, %.0f examples/s, staleness mean %.2f p99 %.0f clocks %d" %
              (consistency, ps, workers, report["test_accuracy"], report["test_loss"], report["examples_per_second"],
               report["staleness_mean"], report["staleness_p99"], report["staleness_clocks_max"]))
        self.assertLessEqual(len(report["epochs"]), 10)
        self.assertGreaterEqual(report["test_accuracy"], 0.88)
        for row in report["epochs"]:
            self.assertEqual(int(row["examples_done"]) + int(row["examples_skipped"]), 60000)
        if consistency.startswith("ssp:"):
            self.assertLessEqual(report["staleness_clocks_max"], int(consistency[4:]))
        if consistency == "bsp":
            self.assertEqual(report["staleness_clocks_max"], 0)
    return run


class FashionMnist(harness.ProcessTest):
    pass


for spec in sys.argv[1:]:
    mode, ps_count, worker_count = spec.rsplit(":", 2)
    setattr(FashionMnist, "test_%s_%s_ps_%s_workers" % (mode.replace(":", ""), ps_count, worker_count),
            make_case(mode, int(ps_count), int(worker_count)))
sys.argv[1:] = []

if __name__ == "__main__":
    harness.main()
