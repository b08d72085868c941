#!/bin/sh
# Runs this repository's own pipeline (examples/pipeline.yaml) through flowapi: a server on a database of its own, two workers, one of
# which is killed half way, and a person, whom this script plays. The exit code is the flow's. PIPELINE=full runs all that CI runs.
#   needs sh, curl, go and git
set -eu
cd "$(dirname "$0")/.."

unset FLOWAPI_TOKEN FLOWAPI_WAITPOINT_SECRET FLOWAPI_DATABASE_URL FLOWAPI_NAMESPACE FLOWAPI_PUBLIC_URL FLOWAPI_ADDR || :
addr=127.0.0.1:$((20000 + $$ % 20000))
dir=$(mktemp -d) running=
export FLOWAPI_URL="http://$addr" PIPELINE_BIN="$dir/built"
flowapi=$dir/flowapi flow=0f10a000-0000-4000-8000-000000000000

finish() {
	code=$?
	trap - EXIT INT TERM
	kill $running 2>/dev/null || :
	kill $running 2>/dev/null || : # a worker that is told twice gives back what it has
	wait
	rm -rf "$dir"
	exit "$code"
}
trap finish EXIT
trap 'exit 130' INT TERM

say() { printf '\n== %s\n' "$*"; }
die() { echo "demo: $*; the end of the logs:" >&2; tail -n 5 "$dir"/*.log >&2; exit 1; }

# worker NAME starts a worker, whose log is NAME.log; its lease is short, so that what it has is soon missed.
worker() {
	"$flowapi" work --lane ci --worker-id "$1" --concurrency 2 --lease-ttl 3s --grace 1s -- examples/pipeline.sh 2>"$dir/$1.log" &
	running="$! $running"
}

# submit submits the pipeline under an id of our own: the second time, it is the same flow that is waited for.
submit() { { echo "id: $flow"; cat examples/pipeline.yaml; } | "$flowapi" submit - --wait --timeout 30m "$@"; }

say "the server, on a database of its own: $FLOWAPI_URL"
go build -o "$flowapi" ./cmd/flowapi
"$flowapi" serve --addr "$addr" --db "$dir/flowapi.db" 2>"$dir/server.log" & running=$!
until curl -fs "$FLOWAPI_URL/readyz" >/dev/null; do
	kill -0 $running 2>/dev/null || die "the server did not start"
	sleep 0.1
done

say "a worker, ann, and the pipeline, until somebody is asked; in the middle of it bob comes, ann is killed, and bob takes over"
worker ann
ann=$!
submit --exit-on-approval & submitted=$!
until grep -q 'started test' "$dir/ann.log"; do
	kill -0 $submitted 2>/dev/null || die "ann had nothing to do"
	sleep 0.1
done
worker bob
sleep 0.5
kill -9 $ann
code=0
wait $submitted || code=$?
[ $code = 5 ] || die "nobody was asked, and submit ended with $code"

say "somebody is asked, and approves"
"$flowapi" approve "$flow" --reason "all checks are green"

say "the rest"
submit
grep -q 'reclaimed' "$dir/bob.log" || die "bob had nothing to take over"
say "the log of ann, and that of bob"
cat "$dir/ann.log"
echo
cat "$dir/bob.log"
