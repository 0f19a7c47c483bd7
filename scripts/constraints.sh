#!/usr/bin/env bash
# Resolve pyproject.toml with every extra, free of the present pins, and write what came out to constraints.txt.
#
# The result is of one interpreter and one platform: run it with Python 3.11, the oldest that is supported, so that
# every pin exists for it. Look at the difference and run `make test-all` before it is committed.
set -euo pipefail
cd "$(dirname "$0")/.."

scratch=$(mktemp -d)
trap 'rm -rf "$scratch"' EXIT
"${PYTHON:-python3.11}" -m venv "$scratch/venv"
"$scratch/venv/bin/python" -m pip install --quiet --disable-pip-version-check -e '.[dev,docs]'
{
    echo "# The versions that this project is tested with: every extra's, resolved on Python 3.11 and Linux."
    echo "# Made by \`make constraints\`; not edited by hand."
    "$scratch/venv/bin/python" -m pip freeze --exclude-editable --exclude setuptools --exclude wheel | LC_ALL=C sort -f
} >"$scratch/constraints.txt"
cp "$scratch/constraints.txt" constraints.txt
