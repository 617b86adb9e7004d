"""Stand-ins for two repositories that Bazel itself asks the network for."""

_CC_RULES = [
    "cc_binary",
    "cc_import",
    "cc_library",
    "cc_proto_library",
    "cc_test",
    "cc_toolchain",
    "cc_toolchain_suite",
    "fdo_prefetch_hints",
    "fdo_profile",
    "objc_import",
    "objc_library",
]

def _rules_cc_impl(ctx):
    # Debian's bazel-rules-cc needs a newer Bazel than Debian's: the rules built into Bazel serve instead.
    ctx.file("WORKSPACE", "workspace(name = \"rules_cc\")\n")
    ctx.file("cc/BUILD", "exports_files([\"defs.bzl\"])\n")
    ctx.file("cc/defs.bzl", "".join(["%s = native.%s\n" % (rule, rule) for rule in _CC_RULES]))

rules_cc_from_bazel = repository_rule(implementation = _rules_cc_impl)

def _coverage_impl(ctx):
    ctx.file("WORKSPACE", "")
    ctx.file("BUILD", """package(default_visibility = ["//visibility:public"])

filegroup(name = "coverage_report_generator")

filegroup(name = "lcov_merger")
""")

no_coverage_tools = repository_rule(implementation = _coverage_impl)
