#!/usr/bin/env bash
# Build the image of the Dockerfile with buildah: no daemon, and nothing is left but the result.
#
#   scripts/image/build.sh [--pure] [--base FILE.tar] [--build-base FILE.tar] [--storage FOLDER] [ARCHIVE.tar]
#
# The result is ARCHIVE.tar, by default .cache/image/rallypoint.tar, for `docker load -i` or `podman load -i`.
# BASE_DIGEST=sha256:... in the environment pins the version of the base. If the base cannot be pulled and no version is
# pinned, scripts/image/base.sh makes one to try the image on.
#
#   --pure                  compile nothing, which takes no C compiler and minutes less
#   --base FILE.tar         pull nothing: this root file system is the base
#   --build-base FILE.tar   the package is built on this one, which has the same Python, and a compiler
#   --storage FOLDER        leave the image there, in a store of the driver vfs, and write no archive
#
# Takes root and buildah. Where Docker is at hand, `docker build .` does the same.
set -euo pipefail
cd "$(dirname "$0")/../.."

usage() {
    sed -n '4s/^# *//p' "$0" >&2
    exit 2
}

show_help() {
    sed -n '/^#!/d; /^#/!q; s/^# \{0,1\}//p' "$0"
    exit 0
}

compiled=1
base_tar=
build_base_tar=
storage=
archive=.cache/image/rallypoint.tar
while [ $# -gt 0 ]; do
    case $1 in
        -h | --help) show_help ;;
        --pure) compiled=0; shift ;;
        --base) base_tar=${2:-} && [ -n "$base_tar" ] || usage; shift 2 ;;
        --build-base) build_base_tar=${2:-} && [ -n "$build_base_tar" ] || usage; shift 2 ;;
        --storage) storage=${2:-} && [ -n "$storage" ] || usage; shift 2 ;;
        -*) usage ;;
        *) archive=$1; shift; [ $# = 0 ] || usage ;;
    esac
done
command -v buildah >/dev/null || { echo "buildah is missing: apt-get install buildah" >&2; exit 1; }
[ "$(id -u)" = 0 ] || { echo "Building without a daemon takes root: sudo $0" >&2; exit 1; }

to_be_removed=
clean_up() { [ -z "$to_be_removed" ] || rm -rf "$to_be_removed"; }
trap clean_up EXIT
kept=$storage
if [ -z "$storage" ]; then
    storage=$(mktemp -d /var/tmp/rallypoint-image.XXXXXX)
    to_be_removed=$storage
fi

# vfs asks nothing of the kernel, and a chroot no namespace: so it also works inside a container.
with_buildah() { buildah --storage-driver vfs --root "$storage/root" --runroot "$storage/run" "$@"; }

import_tar() { # FILE.tar NAME: that image
    local container
    container=$(with_buildah from scratch)
    with_buildah add --quiet "$container" "$1" / >/dev/null
    with_buildah commit --quiet --rm "$container" "$2" >/dev/null
}

base=$(sed -n 's/^ARG BASE=//p' Dockerfile)
version=$(sed -n 's/^version = "\(.*\)"/\1/p' pyproject.toml)
revision=$(git rev-parse HEAD 2>/dev/null || true)
digest=${BASE_DIGEST:-}
options=(--isolation chroot --format docker --pull-never --tag "rallypoint:$version"
    --build-arg "VERSION=$version" --build-arg "REVISION=$revision" --build-arg "BASE_DIGEST=$digest"
    --build-arg "COMPILED=$compiled")

if [ -z "$base_tar" ] && ! with_buildah pull --quiet "$base${digest:+@$digest}"; then
    [ -z "$digest" ] || { echo "$base@$digest cannot be pulled, and nothing else has that digest" >&2; exit 1; }
    base_tar=.cache/image/base.tar
    echo "$base cannot be pulled: Debian's packages make a base to try the image on, none to publish it on" >&2
    [ -e "$base_tar" ] || scripts/image/base.sh "$base_tar"
    if [ $compiled = 1 ] && [ -z "$build_base_tar" ]; then
        build_base_tar=.cache/image/build-base.tar
        [ -e "$build_base_tar" ] || scripts/image/base.sh --compiler "$build_base_tar"
    fi
fi
[ -z "$base_tar" ] || import_tar "$base_tar" "$base"
if [ -n "$build_base_tar" ]; then
    build_base=localhost/rallypoint-build-base
    import_tar "$build_base_tar" "$build_base"
    options+=(--build-arg "BUILD_BASE=$build_base")
fi

# Whoever reaches the package index by an authority or an index of their own does so in the build, too.
for path in /etc/ssl/certs /etc/pip.conf; do
    [ ! -e "$path" ] || options+=(--volume "$path:$path:ro")
done
with_buildah build "${options[@]}" .
if [ -z "$kept" ]; then
    mkdir -p "$(dirname "$archive")"
    rm -f "$archive"
    with_buildah push --quiet "rallypoint:$version" "docker-archive:$archive:rallypoint:$version"
    echo "rallypoint:$version is in $archive"
fi
