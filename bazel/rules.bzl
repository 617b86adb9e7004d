"""The house's rules: warnings are errors, cores stay pure, protos become C++ without a download."""

WARNINGS = [
    "-Wall",
    "-Wextra",
    "-Werror",
    "-Wno-sign-compare",
    "-Wno-unused-parameter",
]

def lagrange_cc_library(name, copts = [], **kwargs):
    native.cc_library(name = name, copts = WARNINGS + copts, **kwargs)

def lagrange_cc_binary(name, copts = [], **kwargs):
    native.cc_binary(name = name, copts = WARNINGS + copts, **kwargs)

def lagrange_cc_test(name, copts = [], deps = [], **kwargs):
    """A GoogleTest binary; size defaults to small, so a hang is cut off after a minute."""
    if "size" not in kwargs and "timeout" not in kwargs:
        kwargs["size"] = "small"
    native.cc_test(
        name = name,
        copts = WARNINGS + copts,
        deps = deps + ["@system//:gtest_main"] + select({
            "//bazel:tsan": ["//tests:tsan_mutex"],
            "//conditions:default": [],
        }),
        **kwargs
    )

def core_library(name, **kwargs):
    """A library of decisions: no gRPC, no thread, no disk below it, proved by the test NAME_layer_test.

    The genquery lists all that the library links; the test fails when that list names gRPC, a gRPC stub, SQLite,
    spdlog or a system part of common.
    """
    lagrange_cc_library(name = name, **kwargs)
    native.genquery(
        name = name + "_deps",
        expression = "deps(//%s:%s)" % (native.package_name(), name),
        scope = [":" + name],
        testonly = True,
    )
    native.sh_test(
        name = name + "_layer_test",
        size = "small",
        srcs = ["//bazel:layer_check.sh"],
        args = ["$(location :%s_deps)" % name],
        data = [":%s_deps" % name],
        tags = ["no_sanitizer"],
    )

def registered_library(name, deps = [], extra_exclude = [], **kwargs):
    """All units of a folder that register themselves: *.cc minus tests; alwayslink keeps their registrations."""
    lagrange_cc_library(
        name = name,
        srcs = native.glob(["*.cc"], exclude = ["*_test.cc", "*_main.cc"] + extra_exclude),
        alwayslink = True,
        deps = deps,
        **kwargs
    )

def lagrange_proto_library(name, srcs, deps = [], proto_deps = [], grpc = False, visibility = None):
    """C++ messages (NAME) of .proto files and, with grpc, also the service stubs (NAME_grpc).

    proto_deps: .proto files that srcs import. deps: the message libraries of those.
    """
    bases = [src[:-len(".proto")] for src in srcs]
    messages = [base + end for base in bases for end in [".pb.h", ".pb.cc"]]
    native.genrule(
        name = name + "_generate",
        srcs = srcs + proto_deps,
        outs = messages,
        cmd = "protoc -I. --cpp_out=$(GENDIR) " + " ".join(["$(location %s)" % src for src in srcs]),
    )
    native.cc_library(
        name = name,
        srcs = [m for m in messages if m.endswith(".cc")],
        hdrs = [m for m in messages if m.endswith(".h")],
        visibility = visibility,
        deps = deps + ["@system//:protobuf"],
    )
    if grpc:
        stubs = [base + end for base in bases for end in [".grpc.pb.h", ".grpc.pb.cc"]]
        native.genrule(
            name = name + "_grpc_generate",
            srcs = srcs + proto_deps,
            outs = stubs,
            cmd = "protoc -I. --grpc_out=$(GENDIR) --plugin=protoc-gen-grpc=/usr/bin/grpc_cpp_plugin " +
                  " ".join(["$(location %s)" % src for src in srcs]),
        )
        native.cc_library(
            name = name + "_grpc",
            srcs = [s for s in stubs if s.endswith(".cc")],
            hdrs = [s for s in stubs if s.endswith(".h")],
            visibility = visibility,
            deps = [":" + name, "@system//:grpc"],
        )
