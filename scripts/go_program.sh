# shellcheck shell=bash
# To be sourced by what builds a Go program that no registry has: how it is found or built, once.

# find_or_build TITLE PATH MISSING OPTION [FLAG...]
#
#   TITLE     what it is, for people
#   PATH      where it is kept; printed once it is there
#   MISSING   the sentence for whoever may not build it
#   OPTION    --build: build the module of the present folder where there is nothing at PATH
#   FLAG...   for `go build`
#
# Ends with 1 where there is none, after a sentence.
find_or_build() {
    local title=$1 path=$2 missing=$3 option=$4
    shift 4
    if [ -x "$path" ]; then
        echo "$path"
        return
    elif [ "$option" != --build ]; then
        echo "$missing" >&2
        return 1
    elif ! command -v go >/dev/null; then
        echo "$title is built with Go, which is not on PATH" >&2
        return 1
    fi
    mkdir -p "$(dirname "$path")"
    # Under another name first, so that nobody finds half of it.
    part=$(mktemp "$path.XXXXXX") # not local: the trap needs it when the script ends
    trap 'rm -f "$part"' EXIT
    echo "Building $title with $(go version | cut -d' ' -f3)" >&2
    CGO_ENABLED=0 go build "$@" -o "$part" . >&2
    chmod 755 "$part"
    mv "$part" "$path"
    trap - EXIT
    echo "$path"
}
