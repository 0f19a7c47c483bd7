#!/usr/bin/env bash
# Generate the Python modules of rallypoint_etcd.proto, in a virtual environment of their own. `make etcd-stubs` calls it.
#
# --check writes nothing, and ends with 1 where what is there was not generated from the proto as it is.
set -euo pipefail
cd "$(dirname "$0")/../../coordinator/storage/etcd"

scratch=$(mktemp -d)
trap 'rm -rf "$scratch"' EXIT
"${PYTHON:-python3.11}" -m venv "$scratch/venv"
"$scratch/venv/bin/python" -m pip install --quiet --disable-pip-version-check grpcio-tools==1.85.1
mkdir "$scratch/out"
"$scratch/venv/bin/python" -m grpc_tools.protoc -I. --python_out="$scratch/out" --pyi_out="$scratch/out" rallypoint_etcd.proto
for module in rallypoint_etcd_pb2.py rallypoint_etcd_pb2.pyi; do
    if [ "${1:-}" = --check ]; then
        cmp "$scratch/out/$module" "$module"
    else
        cp "$scratch/out/$module" "$module"
    fi
done
