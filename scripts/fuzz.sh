#!/bin/sh
# Fuzzes each decoder, one after the other, for FUZZTIME. What is found stays under testdata/fuzz, and is a test from then on.
set -eu
cd "$(dirname "$0")/.."
for file in $(grep -rl --include='*_test.go' '^func Fuzz' internal | sort); do
	for target in $(sed -n 's/^func \(Fuzz[A-Za-z]*\)(.*/\1/p' "$file"); do
		echo "$target in $(dirname "$file")"
		go test "./$(dirname "$file")" -run '^$' -fuzz "^$target\$" -fuzztime "${FUZZTIME:-2m}" ${FUZZFLAGS-}
	done
done
