#!/bin/sh
# Before the package is compiled in the image's build: is there a C compiler, with the headers of this Python? If not,
# apt-get installs them.
#
#   scripts/image/compiler.sh COMPILED       COMPILED: 1; or 0, if nothing is compiled
set -eu

case ${1:-} in
    0) exit ;;
    1) ;;
    *) echo "COMPILED is 1 or 0, not \"${1:-}\"" >&2; exit 2 ;;
esac

# The compiler that this Python's extension modules are built with.
compiler=$(python3 -c "import sysconfig; print(sysconfig.get_config_var('CC').split()[0])")
headers=$(python3 -c "import sysconfig; print(sysconfig.get_path('include'))")

can_compile() { echo '#include <Python.h>' | "$compiler" -fsyntax-only -I "$headers" -x c - 2>/dev/null; }

install() {
    command -v apt-get >/dev/null || return
    set -- gcc libc6-dev
    [ -e "$headers/Python.h" ] || set -- "$@" python3-dev
    export DEBIAN_FRONTEND=noninteractive
    apt-get update -qq && apt-get install -y -qq --no-install-recommends "$@"
}

can_compile || { install && can_compile; } || {
    echo "There is no C compiler with the headers of this Python, and apt-get brings none:" \
        "--build-arg COMPILED=0 leaves the package pure Python" >&2
    exit 1
}
