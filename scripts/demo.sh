#!/bin/sh
# Runs this repository's own pipeline through flowapi: a flow with a step and an execution for every piece of it, two workers
# (scripts/worker.sh), one of which is killed in the middle. The exit code is the flow's outcome.
#   usage: scripts/demo.sh          needs sh, curl, go and git
#          scripts/demo.sh PIECE    runs one piece; this is what the workers do
set -eu
cd "$(dirname "$0")/.."

pieces='domain vet build format' # the longest first, so that it takes a while
case ${1:-} in
'') ;;
domain) exec go test -count=1 ./internal/domain/... ;;
vet) exec go vet ./... ;;
build) exec go build ./... ;;
format) unformatted=$(gofmt -l api cmd db internal); printf %s "$unformatted"; [ -z "$unformatted" ]; exit ;;
*) echo "there is no piece $1, only: $pieces" >&2 && exit 2 ;;
esac

unset FLOWAPI_TOKEN FLOWAPI_WAITPOINT_SECRET FLOWAPI_DATABASE_URL FLOWAPI_NAMESPACE FLOWAPI_PUBLIC_URL FLOWAPI_ADDR || :
addr=127.0.0.1:$((20000 + $$ % 20000))
export FLOWAPI_URL="http://$addr" LEASE_SECONDS=3
dir=$(mktemp -d) running= ann=

finish() {
	code=$?
	trap - EXIT INT TERM
	kill $running $ann 2>/dev/null || :
	wait
	rm -rf "$dir"
	exit "$code"
}
trap finish EXIT
trap 'exit 130' INT TERM

say() { printf '\n== %s\n' "$*"; }
die() { echo "demo: $*; the end of the server's log:" >&2; tail -n 5 "$dir/server.log" >&2; exit 1; }
get() { path=$1; shift; curl -fsS "$@" "$FLOWAPI_URL$path"; }
send() { curl -fsS -X "$1" -d "$3" "$FLOWAPI_URL$2" >/dev/null; }

# member NAME JSON sets `value` to the first string of that name in JSON, or to nothing.
member() {
	value=${2#*"\"$1\":\""}
	[ "$value" = "$2" ] && value= || value=${value%%\"*}
}

# await QUERY waits until the log has such an event. The server answers when it is written.
await() {
	until page=$(get "/v1/events?after=0&$1" -H 'Prefer: wait=20') && case $page in *'"items":[]'*) false ;; esac; do
		kill -0 $running 2>/dev/null || die "something ended early"
	done
}

# The ids are ours to choose, and the database is new.
flow=0f10a000-0000-4000-8000-000000000000
execution_of() { n=0; for p in $pieces; do n=$((n + 1)); [ "$p" = "$1" ] && echo "${flow%0}$n" && return; done; }
piece_of() { n=0; for p in $pieces; do n=$((n + 1)); [ "$1" = "${flow%0}$n" ] && echo "$p" && return; done || :; }

# The feed of everything that happens to the flow, its steps and its executions, one line each.
feed() {
	curl -sN "$FLOWAPI_URL/v1/flows/$flow/events/stream?after=0" | while IFS= read -r line; do
		case $line in
		event:*) type=${line#event: } ;;
		data:*)
			member execution_id "$line"; piece=$(piece_of "$value")
			member worker_id "$line"; echo "   event  $type${piece:+  $piece}${value:+  $value}"
			;;
		esac
	done
}

say "the server, on a database of its own: $FLOWAPI_URL"
go build -o "$dir/flowapi" ./cmd/flowapi
"$dir/flowapi" serve --addr "$addr" --db "$dir/flowapi.db" 2>"$dir/server.log" >&2 & running=$!
until curl -fs "$FLOWAPI_URL/readyz" >/dev/null; do
	kill -0 $running 2>/dev/null || die "the server did not start"
	sleep 1
done

say "the flow, and for every piece of the pipeline an execution, and a step that mirrors it"
commit=$(git rev-parse --short HEAD 2>/dev/null || echo 'a working tree')
send POST /v1/flows "{\"id\":\"$flow\",\"goal\":\"check $commit\",\"kind\":\"pipeline\",\"state\":{\"commit\":\"$commit\"},\"start\":true}"
feed &
for piece in $pieces; do
	id=$(execution_of "$piece")
	send POST /v1/executions "{\"id\":\"$id\",\"flow_id\":\"$flow\",\"lane\":\"ci\",\"kind\":\"$piece\",\"payload\":{\"commit\":\"$commit\"}}"
	send PUT "/v1/flows/$flow/steps/$piece" "{\"task\":\"scripts/demo.sh $piece\",\"status\":\"pending\",\"execution_id\":\"$id\"}"
done

say "two workers"
WORKER_ID=ann scripts/worker.sh ci scripts/demo.sh & ann=$!
await "type=lease.acquired&flow_id=$flow"
WORKER_ID=bob scripts/worker.sh ci scripts/demo.sh & running="$! $running"
sleep 1

say "ann is killed in the middle; her lease runs out, and bob takes over"
kill -9 $ann && ann=
for piece in $pieces; do
	await "topic=completion&execution_id=$(execution_of "$piece")"
done

say "the outcome"
failed= taken=
for piece in $pieces; do
	member status "$(get "/v1/flows/$flow/steps/$piece")"
	[ "$value" = succeeded ] || failed="$failed $piece"
	case $(get "/v1/executions/$(execution_of "$piece")/attempts") in
	*'"attempt_type":"reclaim"'*) how=', taken over from ann' taken=$piece ;;
	*) how= ;;
	esac
	printf '   %-8s %s%s\n' "$piece" "$value" "$how"
done
[ -n "$taken" ] || die "ann had nothing to do when she was killed"
if [ -z "$failed" ]; then
	send POST "/v1/flows/$flow/finish" '{"state":{"outcome":"passed"}}'
else
	send POST "/v1/flows/$flow/fail" "{\"reason\":\"failed:$failed\"}"
fi
member status "$(get "/v1/flows/$flow")"
echo "   the flow is $value"
[ "$value" = finished ]
