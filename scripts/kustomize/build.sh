#!/usr/bin/env bash
# Find or build the program that renders deploy/kustomize, and say where it is.
#
#   scripts/kustomize/build.sh           print its path; ends with 1 and a sentence where there is none
#   scripts/kustomize/build.sh --build   build it with Go where there is none (half a minute)
#
# It is kept in the user's cache, so a second checkout finds it.
set -euo pipefail
cd "$(dirname "$0")"
. ../go_program.sh

version=$(cat main.go go.mod go.sum | sha256sum | cut -c1-12)
built=${XDG_CACHE_HOME:-$HOME/.cache}/rallypoint/kustomize-$version
missing="Kustomize is not built: type scripts/kustomize/build.sh --build"
find_or_build Kustomize "$built" "$missing" "${1:-}" -ldflags='-s -w'
