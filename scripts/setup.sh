#!/usr/bin/env bash
# Make .venv from pyproject.toml and constraints.txt, with every extra. `make setup` calls it when one of them changed.
#
# Any Python from 3.11 on will do; PYTHON=/path/to/python chooses one. A virtual environment that works is kept and
# brought up to date; one that is broken (a moved checkout, a removed interpreter) is made anew.
set -euo pipefail
cd "$(dirname "$0")/.."

fits='import sys; sys.exit(sys.version_info < (3, 11))'

find_python() {
    local candidate
    # 3.11 first: constraints.txt is resolved on it. Each is run, because a shim on PATH may have nothing behind it.
    for candidate in ${PYTHON:-python3.11 python3.12 python3.13 python3.14 python3}; do
        if "$candidate" -c "$fits" >/dev/null 2>&1; then
            echo "$candidate"
            return
        fi
    done
    echo "Rallypoint needs Python 3.11 or later; found none${PYTHON:+ in PYTHON=$PYTHON}. On Debian 12 or Ubuntu, type:" >&2
    echo "    apt-get install python3 python3-venv" >&2
    return 1
}

if ! .venv/bin/python -c "$fits" >/dev/null 2>&1 || ! .venv/bin/python -m pip --version >/dev/null 2>&1; then
    python=$(find_python)
    if ! "$python" -c 'import ensurepip, venv' >/dev/null 2>&1; then
        version=$("$python" -c 'import sys; print("python%d.%d" % sys.version_info[:2])')
        echo "$python has no venv module. On Debian or Ubuntu, type:" >&2
        echo "    apt-get install $version-venv" >&2
        exit 1
    fi
    echo "Making .venv with $("$python" --version)"
    rm -rf .venv
    "$python" -m venv .venv
fi

# One line for what takes long; all that pip says is in the log.
show_progress() {
    sed -unE \
        -e 's/^ *Downloading ([^ ]*\/)?([^ ]+) (\([^)]*\)).*/  downloading \2 \3/p' \
        -e 's/^ *Building wheel for ([^ ]+).*started.*/  building \1/p' \
        -e 's/^Installing collected packages.*/  installing what was downloaded/p'
}

# Bytecode is made by the first program that imports a module: most of what is installed nobody imports.
log=.venv/setup.log
echo "Installing Rallypoint and what it needs into .venv (PySpark alone is 490 MB: the first time takes minutes)"
if ! .venv/bin/python -m pip install --progress-bar off --no-color --disable-pip-version-check --retries 2 \
    --use-pep517 --no-compile -c constraints.txt -e '.[dev]' 2>&1 | tee "$log" | show_progress; then
    if grep -qE 'NewConnectionError|NameResolutionError|ConnectTimeoutError|ReadTimeoutError|ProxyError|Connection broken' "$log"; then
        echo "The package index cannot be reached. Setting up needs the network once; then type the same again." >&2
    else
        grep -E '^ *(ERROR|error):' "$log" | tail -n 3 >&2 || true
        echo "Setting up has failed; $log has all that pip said." >&2
    fi
    exit 1
fi
