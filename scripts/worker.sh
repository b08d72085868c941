#!/bin/sh
# A worker: claims work of a lane and runs `COMMAND… KIND` for each piece of it, the payload on standard input.
#   usage: scripts/worker.sh LANE COMMAND [ARG…]    env: FLOWAPI_URL, FLOWAPI_TOKEN, WORKER_ID, LEASE_SECONDS (3 or more)
set -eu
lane=$1 url=${FLOWAPI_URL:-http://127.0.0.1:8080}/v1 me=${WORKER_ID:-worker-$$} lease=${LEASE_SECONDS:-30} work=
shift
post() { # PATH BODY [CURL-OPTION…]
	path=$1 body=$2; shift 2
	curl -fsS --retry 5 ${FLOWAPI_TOKEN:+-H "Authorization: Bearer $FLOWAPI_TOKEN"} "$@" -d "$body" "$url/$path"
}
trap '[ -z "$work" ] || { kill $work; post "$at/release" "{$mine}" >/dev/null; }; exit 143' INT TERM
while :; do
	claim=$(post claims "{\"lane\":\"$lane\",\"worker_id\":\"$me\",\"lease_ttl_ms\":${lease}000}" \
		-H 'Accept: text/plain' -H 'Prefer: wait=30') || { sleep 1; continue; }
	[ -n "$claim" ] || continue # nothing to do so far
	eval "$claim" # EXECUTION_ID, KIND, HANDLE, ATTEMPT_INDEX, PAYLOAD, … in the server's quotes
	at=executions/$EXECUTION_ID mine="\"handle\":\"$HANDLE\""
	echo "$me: $KIND, attempt $ATTEMPT_INDEX"
	printf '%s\n' "$PAYLOAD" | "$@" "$KIND" & work=$!
	# The lease is renewed while worker and work live. If it cannot be, another has it, and this work is in vain.
	{ while sleep $((lease / 3)) && kill -0 $$ && kill -0 $work &&
		post "$at/renew" "{$mine,\"lease_ttl_ms\":${lease}000}"; do :; done; kill $work; } >/dev/null 2>&1 &
	if wait $work; then end=complete body="{$mine}"; else end=fail body="{$mine,\"reason\":\"exit $?\"}"; fi
	work=
	post "$at/$end" "$body" >/dev/null || echo "$me: $KIND, too late to $end"
done
