"""`bazel run //:install -- --prefix=DIR`: what it lays down runs without Bazel."""

import os
import re
import shutil
import subprocess

import harness


class Install(harness.ProcessTest):

    def install(self):
        prefix = self.path("prefix")
        run = subprocess.run([os.path.join(harness.ROOT, "install"), "--prefix=" + prefix], capture_output=True,
                             text=True, check=False)
        self.assertEqual(run.returncode, 0, run.stderr)
        return prefix

    def test_the_installed_programs_run_a_job_by_themselves(self):
        prefix = self.install()
        moved = self.path("moved")
        shutil.move(prefix, moved)
        job = harness.make_job(self.directory)
        run = subprocess.run([os.path.join(moved, "bin/lagrange"), "local", "--job=" + job,
                              "--state_dir=" + self.path("state")], capture_output=True, text=True, check=False,
                             timeout=harness.PATIENCE_SECONDS, env={"PATH": "/usr/bin:/bin"}, cwd="/")
        self.assertEqual(run.returncode, 0, run.stderr)

    def test_docs_completion_and_licence_are_laid_down(self):
        prefix = self.install()
        for name in ("share/doc/lagrange/README.md", "share/doc/lagrange/docs/command_line.md",
                     "share/doc/lagrange/docs/decisions/buffers_by_copy_on_write.md", "share/doc/lagrange/LICENSE", "share/doc/lagrange/NOTICE",
                     "share/bash-completion/completions/lagrange", "share/lagrange/examples/fashion_mnist_mlp.textproto"):
            self.assertTrue(os.path.isfile(os.path.join(prefix, name)), name)

    def test_every_link_of_the_installed_readme_leads_to_a_file(self):
        directory = os.path.join(self.install(), "share/doc/lagrange")
        with open(os.path.join(directory, "README.md"), encoding="utf-8") as source:
            links = re.findall(r"\]\(([^)#]+)\)", source.read())
        self.assertGreater(len(links), 3)
        for link in links:
            self.assertTrue(os.path.isfile(os.path.join(directory, link)), link)

    def test_completion_offers_subcommands_and_flags(self):
        prefix = self.install()
        script = """
source %s/share/bash-completion/completions/lagrange
COMP_WORDS=(lagrange lo); COMP_CWORD=1; _lagrange; echo "${COMPREPLY[@]}"
COMP_WORDS=(lagrange local --cons); COMP_CWORD=2; _lagrange; echo "${COMPREPLY[@]}"
""" % prefix
        run = subprocess.run(["bash", "-c", script], capture_output=True, text=True, check=True)
        self.assertEqual(run.stdout.split("\n")[:2], ["local", "--consistency="])

    def test_an_unknown_flag_is_refused(self):
        run = subprocess.run([os.path.join(harness.ROOT, "install"), "--prefixx=/nowhere"], capture_output=True,
                             text=True, check=False)
        self.assertEqual(run.returncode, 2)
        self.assertIn("--prefix=DIR", run.stderr)


if __name__ == "__main__":
    harness.main()
