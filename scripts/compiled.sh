#!/usr/bin/env bash
# Build the package with its hot modules compiled by mypyc (see setup.py), and print the Python that has it.
#
#   scripts/compiled.sh BIN       BIN: the folder of the Python of the checkout's environment
#
# The wheel is for this Python and this kind of machine; it lies in dist/, and is installed in an environment of its own,
# .cache/compiled, which takes all other packages from the checkout's. What is built is kept until a source changes.
set -euo pipefail
bin=$(realpath "$1")
cd "$(dirname "$0")/.."
place=$PWD/.cache/compiled
packages=(protocol assignors coordinator member cli spark_bridge)

# Of all that the build depends on, this Python included.
digest_of_sources() {
    find "${packages[@]}" setup.py pyproject.toml constraints.txt -type f -not -path '*/__pycache__/*' -print0 |
        "$bin/python" -c "
import hashlib, pathlib, sys
digest = hashlib.sha256(sys.version.encode())
for name in sorted(sys.stdin.read().split('\0')[:-1]):
    digest.update(name.encode() + pathlib.Path(name).read_bytes())
print(digest.hexdigest()[:16])"
}

fail() {
    echo "$1" >&2
    exit 1
}

digest=$(digest_of_sources)
if [ "$(cat "$place/digest" 2>/dev/null)" != "$digest" ]; then
    command -v "${CC:-cc}" >/dev/null || fail "there is no C compiler: on Debian, apt-get install gcc"
    headers=$("$bin/python" -c "import sysconfig; print(sysconfig.get_path('include'))")
    [ -f "$headers/Python.h" ] || fail "$headers has no Python.h: on Debian, apt-get install python3-dev"
    echo "compiling with mypyc: some minutes" >&2
    rm -rf "$place"
    mkdir -p "$place/wheel" dist
    "$bin/python" -m venv --without-pip "$place/venv"
    own=$("$place/venv/bin/python" -c "import sysconfig; print(sysconfig.get_path('purelib'))")
    "$bin/python" -c "import sysconfig; print(sysconfig.get_path('purelib'))" >"$own/of_the_checkout.pth"
    pip=("$bin/python" -m pip --python "$place/venv/bin/python" --disable-pip-version-check --quiet)
    build=$(mktemp -d)
    trap 'rm -rf "$build"' EXIT
    cp -r "${packages[@]}" src setup.py pyproject.toml README.md LICENSE "$build"
    # mypyc reads the types of the libraries, which an environment for the build alone would not have.
    {
        "${pip[@]}" install "setuptools>=77"
        (cd "$build" && RALLYPOINT_COMPILED=1 "${pip[@]}" wheel --no-deps --no-build-isolation --wheel-dir "$place/wheel" .)
        "${pip[@]}" install --no-deps --no-index "$place"/wheel/*.whl
    } >"$place/log" 2>&1 || {
        tail -n 20 "$place/log" >&2
        fail "it is not compiled; $place/log has more"
    }
    cp "$place"/wheel/*.whl dist/
    echo "$digest" >"$place/digest"
fi
echo "the wheel is $(cd "$place/wheel" && ls), in dist/" >&2
echo "$place/venv/bin/python"
