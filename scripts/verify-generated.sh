#!/bin/sh
# Fails when generating changes a file, whether that file is committed or not: what is generated must be what is there.
#   usage: scripts/verify-generated.sh
set -eu
cd "$(dirname "$0")/.."

git rev-parse --git-dir >/dev/null # the sums below come from git's list of files
before=$(mktemp) after=$(mktemp)
trap 'rm -f "$before" "$after"' EXIT

sums() {
	git ls-files -z --cached --others --exclude-standard | sort -zu | xargs -0 cksum 2>/dev/null || true # a deleted file has none
}

sums >"$before"
make -s generate
sums >"$after"
if ! diff "$before" "$after" >&2; then
	echo "generated files are not current: run \`make generate\` and commit what it changes" >&2
	exit 1
fi
