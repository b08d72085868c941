#!/bin/sh
# Usage: cover.sh <percent> <what is covered> <packages whose tests cover it…>
# Prints how much of it the tests reach, and fails below the mark.
set -eu
cd "$(dirname "$0")/.."
mark=$1 covered=$2
shift 2
go test -timeout 30m -coverpkg="$covered" -coverprofile=coverage.out "$@" >coverage.log || { cat coverage.log >&2; exit 1; }
go tool cover -func=coverage.out | awk -v what="$covered" -v mark="$mark" '/^total:/ { print what, $3; exit ($3 + 0 < mark) }'
