"""The real data sets that tests read, where a machine has them.

A test runs in a folder of its own and can't open a path beside the workspace, so this rule resolves it once:
$LAGRANGE_TEST_DATA, else ../shared/data beside the workspace. Where neither exists the files are absent and the
tests that want them skip, visibly.
"""

def _impl(ctx):
    path = ctx.os.environ.get("LAGRANGE_TEST_DATA", "")
    if not path:
        path = str(ctx.path(Label("//:WORKSPACE")).dirname) + "/../shared/data"
    found = ctx.path(path).exists
    ctx.file("WORKSPACE", "")
    if found:
        ctx.symlink(path, "files")
    ctx.file("BUILD", """package(default_visibility = ["//visibility:public"])

filegroup(
    name = "files",
    srcs = glob(["files/**"], exclude = ["files/README.md"], allow_empty = True),
)
""")

test_data_repository = repository_rule(
    implementation = _impl,
    environ = ["LAGRANGE_TEST_DATA"],
    local = True,
)
