#!/usr/bin/env bash
# Find or build an etcd server of the version in go.mod, and say where it is.
#
#   scripts/etcd/build.sh        print the path of an etcd >= 3.6.5: that on PATH, or one that was built before;
#                                ends with 1 and a sentence where there is none
#   scripts/etcd/build.sh --build   build it with Go where there is none (minutes, and 250 MB for Go's modules)
#
# It is kept in the user's cache, so a second checkout finds it.
set -euo pipefail
cd "$(dirname "$0")"
. ../go_program.sh

least=3.6.5
version=$(sed -n 's/^require go\.etcd\.io\/etcd\/server\/v3 v//p' go.mod)
built=${XDG_CACHE_HOME:-$HOME/.cache}/rallypoint/etcd-$version/etcd

is_enough() {
    local found
    found=$("$1" --version 2>/dev/null | sed -n 's/^etcd Version: \([0-9.]*\).*/\1/p')
    [ -n "$found" ] && [ "$(printf '%s\n%s\n' "$least" "$found" | sort -V | head -n 1)" = "$least" ]
}

if on_path=$(command -v etcd) && is_enough "$on_path"; then
    echo "$on_path"
else
    missing="no etcd >= $least: type scripts/etcd/build.sh --build, or put one on PATH"
    find_or_build "etcd $version" "$built" "$missing" "${1:-}"
fi
