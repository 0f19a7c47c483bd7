#!/usr/bin/env bash
# Make a root file system that can stand for the image's base where no registry of images can be reached: Debian's own
# Python and pip, from the packages of Debian with its updates.
#
#   scripts/image/base.sh [--compiler] FILE.tar
#
# With --compiler it also has a C compiler and Python's headers, to build the package on.
#
# Takes root, or a user who may make namespaces; mmdebstrap, and half a minute. The packages are unpacked and not
# configured, so this is a base to build and try the image on, and none to publish it on.
set -euo pipefail

packages=base-files,base-passwd,ca-certificates,coreutils,dash,grep,libc-bin,libstdc++6,passwd,python3,python3-pip,sed
if [ "${1:-}" = --compiler ]; then
    packages+=,gcc,libc6-dev,python3-dev
    shift
fi
[ $# = 1 ] || { echo "usage: scripts/image/base.sh [--compiler] FILE.tar" >&2; exit 2; }
command -v mmdebstrap >/dev/null || { echo "mmdebstrap is missing: apt-get install mmdebstrap" >&2; exit 1; }
archive=/usr/share/keyrings/debian-archive-keyring.gpg
[ -e "$archive" ] || { echo "$archive is missing: apt-get install debian-archive-keyring" >&2; exit 1; }

mkdir -p "$(dirname "$1")"
# Under another name first, so that nobody finds half of it.
part=$(mktemp "$1.XXXXXX")
trap 'rm -f "$part"' EXIT

# libstdc++6, as any base with apt has it: the client of etcd needs it. Of what the packages would do when they are
# configured, the build needs the accounts and the authorities.
mmdebstrap --quiet --variant=extract --format=tar \
    --include="$packages" \
    --dpkgopt='path-exclude=/usr/share/doc/*' --dpkgopt='path-exclude=/usr/share/locale/*' \
    --dpkgopt='path-exclude=/usr/share/man/*' \
    --customize-hook='cp "$1/usr/share/base-passwd/passwd.master" "$1/etc/passwd"' \
    --customize-hook='cp "$1/usr/share/base-passwd/group.master" "$1/etc/group"' \
    --customize-hook='cat "$1"/usr/share/ca-certificates/mozilla/*.crt >"$1/etc/ssl/certs/ca-certificates.crt"' \
    bookworm "$part" >&2
chmod 644 "$part"
mv "$part" "$1"
trap - EXIT
