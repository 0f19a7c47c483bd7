#!/usr/bin/env bash
# Find or build the program that renders deploy/kustomize, and say where it is.
#
#   scripts/kustomize/build.sh           print its path; ends with 1 and a sentence where there is none
#   scripts/kustomize/build.sh --build   build it with Go where there is none (half a minute)
#
# It is kept in the user's cache, so a second checkout finds it.
set -euo pipefail
cd "$(dirname "$0")"

version=$(cat main.go go.mod go.sum | sha256sum | cut -c1-12)
built=${XDG_CACHE_HOME:-$HOME/.cache}/rallypoint/kustomize-$version

if [ -x "$built" ]; then
    echo "$built"
elif [ "${1:-}" != --build ]; then
    echo "Kustomize is not built: type scripts/kustomize/build.sh --build" >&2
    exit 1
elif ! command -v go >/dev/null; then
    echo "Kustomize is built with Go, which is not on PATH" >&2
    exit 1
else
    mkdir -p "$(dirname "$built")"
    # Under another name first, so that nobody finds half of it.
    part=$(mktemp "$built.XXXXXX")
    trap 'rm -f "$part"' EXIT
    echo "Building Kustomize with $(go version | cut -d' ' -f3)" >&2
    CGO_ENABLED=0 go build -ldflags='-s -w' -o "$part" . >&2
    chmod 755 "$part"
    mv "$part" "$built"
    trap - EXIT
    echo "$built"
fi
