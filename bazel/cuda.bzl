"""Finds the CUDA toolkit: @cuda//:found.bzl says whether nvcc is there, and where."""

def _impl(ctx):
    root = ctx.os.environ.get("CUDA_HOME", "/usr/local/cuda")
    present = ctx.path(root + "/bin/nvcc").exists
    ctx.file("WORKSPACE", "")
    ctx.file("BUILD", "exports_files([\"found.bzl\"])\n")
    ctx.file("found.bzl", "CUDA_FOUND = %s\nCUDA_ROOT = %s\n" % (present, repr(root)))

cuda_repository = repository_rule(
    implementation = _impl,
    environ = ["CUDA_HOME"],
    local = True,
)
