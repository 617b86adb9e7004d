"""Debian's libraries as targets @system//:NAME, found through pkg-config."""

def _impl(ctx):
    lines = ["package(default_visibility = [\"//visibility:public\"])"]
    for name, modules in sorted(ctx.attr.modules.items()):
        found = ctx.execute(["pkg-config", "--libs"] + modules.split(" "))
        if found.return_code != 0:
            fail("pkg-config cannot find '%s'; tools/install_packages.sh installs what is missing:\n%s" %
                 (modules, found.stderr))
        flags = [flag for flag in found.stdout.strip().split(" ") if flag]
        lines.append("cc_library(name = %s, linkopts = %s)" % (repr(name), repr(flags)))
    for name, flag in sorted(ctx.attr.libraries.items()):
        lines.append("cc_library(name = %s, linkopts = %s)" % (repr(name), repr([flag] if flag else [])))
    ctx.file("WORKSPACE", "")
    ctx.file("BUILD", "\n".join(lines) + "\n")

pkg_config_repository = repository_rule(
    implementation = _impl,
    attrs = {
        "libraries": attr.string_dict(doc = "target name -> linker flag, for packages without a .pc file"),
        "modules": attr.string_dict(doc = "target name -> pkg-config modules, separated by spaces"),
    },
    local = True,
)
