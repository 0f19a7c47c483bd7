#!/usr/bin/env bash
# Print the home of a Java 17 or later, for Spark and for the test's Kafka broker; fail with one line to type if none.
#
# Looks at JAVA_HOME, then PATH, then where Linux distributions put theirs. With --install, a machine without one gets
# the distribution's headless runtime, where this user may do that (root, and apt-get is there). JVM_DIR is where
# distributions put theirs.
set -euo pipefail

major_version() { # of the java program $1; "17.0.15" and "21" give 17 and 21, "1.8.0" gives 1
    "$1" -version 2>&1 | sed -n 's/.* version "\([0-9]*\).*/\1/p' | head -n 1
}

find_java() {
    local java
    for java in ${JAVA_HOME:+"$JAVA_HOME/bin/java"} "$(command -v java || true)" "${JVM_DIR:-/usr/lib/jvm}"/*/bin/java; do
        if [ -x "$java" ] && [ "$(major_version "$java" || true)" -ge 17 ] 2>/dev/null; then
            dirname "$(dirname "$(readlink -f "$java")")"
            return
        fi
    done
    return 1
}

install_java() { # what apt-get says goes to the file $1
    export DEBIAN_FRONTEND=noninteractive
    echo "  looking for packages" >&2
    apt-get update -q >>"$1" 2>&1 || return 1
    for package in openjdk-17-jre-headless default-jre-headless; do
        echo "  installing $package (some 200 MB)" >&2
        if apt-get install -y -q --no-install-recommends "$package" >>"$1" 2>&1; then
            return
        fi
    done
    return 1
}

find_java && exit
if [ "${1:-}" = --install ] && [ "$(id -u)" = 0 ] && command -v apt-get >/dev/null; then
    echo "No Java 17 or later here: installing the distribution's" >&2
    log=$(mktemp)
    if install_java "$log"; then
        rm -f "$log"
        find_java && exit
    else
        echo "It cannot be installed: $(grep -E '^(E|Err)' "$log" | tail -n 1 || true) ($log has all of it)" >&2
    fi
fi
echo "No Java 17 or later here: Spark cannot start. On Debian or Ubuntu, type:" >&2
echo "    sudo apt-get install openjdk-17-jre-headless" >&2
exit 1
