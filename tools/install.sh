#!/bin/bash
# Installs Lagrange below a prefix: bazel run //:install -- --prefix=DIR
set -euo pipefail

prefix=
for argument in "$@"; do
  case $argument in
    --prefix=?*) prefix=${argument#--prefix=} ;;
    *) echo "usage: bazel run //:install -- --prefix=DIR (got $argument)" >&2; exit 2 ;;
  esac
done
[ -n "$prefix" ] || { echo "usage: bazel run //:install -- --prefix=DIR" >&2; exit 2; }
# bazel run changes the directory: a relative prefix is meant from where the user stood.
case $prefix in /*) ;; *) prefix=${BUILD_WORKING_DIRECTORY:-$PWD}/$prefix ;; esac

# By its path: this script is called install too, and lies in the working directory, which may be on the PATH.
/usr/bin/install -d "$prefix/bin" "$prefix/share/doc/lagrange/docs/decisions" "$prefix/share/doc/lagrange/proto" "$prefix/share/lagrange/examples" \
  "$prefix/share/bash-completion/completions"
/usr/bin/install -m 755 cli/lagrange chief/lagrange-chief ps/lagrange-ps worker/lagrange-worker "$prefix/bin"
# As in the source tree, so that the documents' links to one another hold.
/usr/bin/install -m 644 README.md ARCHITECTURE.md STYLE.md LICENSE NOTICE "$prefix/share/doc/lagrange"
/usr/bin/install -m 644 docs/*.md "$prefix/share/doc/lagrange/docs"
/usr/bin/install -m 644 docs/decisions/*.md "$prefix/share/doc/lagrange/docs/decisions"
/usr/bin/install -m 644 proto/job.proto "$prefix/share/doc/lagrange/proto"
/usr/bin/install -m 644 examples/*.textproto "$prefix/share/lagrange/examples"
/usr/bin/install -m 644 tools/lagrange.bash-completion "$prefix/share/bash-completion/completions/lagrange"
echo "installed into $prefix: bin/lagrange, bin/lagrange-chief, bin/lagrange-ps, bin/lagrange-worker, share/"
