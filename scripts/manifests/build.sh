#!/usr/bin/env bash
# Find or build the program that renders what deploy/ has for Kubernetes, and say where it is.
#
#   scripts/manifests/build.sh           print its path; ends with 1 and a sentence where there is none
#   scripts/manifests/build.sh --build   build it with Go where there is none (a minute or two, and 350 MB for Go's modules)
#
# It is kept in the user's cache, so a second checkout finds it.
set -euo pipefail
cd "$(dirname "$0")"

version=$(cat main.go go.mod go.sum | sha256sum | cut -c1-12)
built=${XDG_CACHE_HOME:-$HOME/.cache}/rallypoint/manifests-$version

if [ -x "$built" ]; then
    echo "$built"
elif [ "${1:-}" != --build ]; then
    echo "what renders manifests is not built: type scripts/manifests/build.sh --build" >&2
    exit 1
elif ! command -v go >/dev/null; then
    echo "what renders manifests is built with Go, which is not on PATH" >&2
    exit 1
else
    mkdir -p "$(dirname "$built")"
    # Under another name first, so that nobody finds half of it.
    part=$(mktemp "$built.XXXXXX")
    trap 'rm -f "$part"' EXIT
    echo "Building what renders manifests with $(go version | cut -d' ' -f3)" >&2
    # It renders a few files: what counts is that it builds in half of the time.
    CGO_ENABLED=0 go build -gcflags='all=-N -l' -ldflags='-s -w' -o "$part" . >&2
    chmod 755 "$part"
    mv "$part" "$built"
    trap - EXIT
    echo "$built"
fi
