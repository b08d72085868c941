#!/bin/sh
# A workflow engine in POSIX sh and curl: it drives one run of flowapi, step by step, under a lease.
#
#   examples/engine-sh/engine.sh [RUN_ID]      without one it makes a run and says its id
#
# It fetches, builds, asks a person (POST …/gate/approve, or the inbox), deploys to five places and reports. What it has done is in the run, not
# in the engine: kill it with -9, start it again with the same RUN_ID anywhere, and it goes on where the other one was, as soon as that
# one's lease has run out. An engine that was only asleep meanwhile learns from its next write that the run is somebody else's.
#
# FLOWAPI_URL (http://127.0.0.1:8080), FLOWAPI_TOKEN, ENGINE_TTL_MS (5000) and ENGINE_WORK, the command that does the work of a step or an
# item, which gets its name (default: echo).
# Exit codes: 0 completed, 1 failed, 2 trouble, 3 somebody else drives the run, 4 cancelled.
set -eu

url=${FLOWAPI_URL:-http://127.0.0.1:8080}/v1
ttl=${ENGINE_TTL_MS:-5000}
work=${ENGINE_WORK:-echo}
token=engine-$$-$(date +%s)
generation=0

say() { echo "engine $$: $*" >&2; }

# call METHOD PATH [JSON] prints the answer, and puts its status into $status. A server that is away is asked again.
call() {
	method=$1 path=$2
	shift 2
	for attempt in 1 2 3 4 5 6 7 8 9 10 11 12 13 14 15; do
		answer=$(curl -sS -X "$method" -w '\n%{http_code}' ${FLOWAPI_TOKEN:+-H "Authorization: Bearer $FLOWAPI_TOKEN"} \
			-H 'Prefer: wait=2' ${1:+-H 'Content-Type: application/json' --data "$1"} "$url$path" 2>&1) || { sleep 1; continue; }
		status=${answer##*
}
		answer=${answer%
*}
		case $status in
		503 | 429) sleep 1 ;;
		*) return 0 ;;
		esac
	done
	say "the server is away: $answer"
	exit 2
}

# write METHOD PATH JSON is call for what the engine changes. Its generation goes with it, and if that is not the run's any more the
# engine stops: nothing of what it says counts.
write() {
	call "$1" "$2" "{\"generation\":$generation$3}"
	case $status in
	2*) ;;
	*)
		case $answer in
		*'"lease_lost"'*) say "lost: somebody else drives the run" && exit 3 ;;
		*'"run_cancelled"'*) cancelled ;;
		*'"run_terminal"'*) say "the run has ended" && exit 4 ;;
		*'"step_terminal"'* | *'"illegal_transition"'* | *'"not_resumable"'*) return 1 ;;
		esac
		say "$1 $2 was refused: $answer"
		exit 2
		;;
	esac
}

# member NAME prints a member of the answer that is there once.
member() { printf '%s' "$answer" | grep -o "\"$1\":\"\{0,1\}[^\",}]*" | head -n 1 | sed 's/^[^:]*:"\{0,1\}//'; }

cancelled() {
	call POST "/runs/$run/cancel" "{\"generation\":$generation}"
	say "cancelled"
	exit 4
}

# lease takes the lease, or waits until it can be had.
lease() {
	until call POST "/runs/$run/lease" "{\"token\":\"$token\",\"ttl_ms\":$ttl}" && [ "$status" = 200 ]; do
		case $answer in
		*'"lease_held"'*) sleep 0.3 ;;
		*'"run_terminal"'*) say "the run has ended" && exit 0 ;;
		*) say "$answer" && exit 2 ;;
		esac
	done
	generation=$(member generation)
	say "drives run $run, generation $generation ($(member outcome))"
}

# renew renews the lease, unless somebody else has it.
renew() {
	call POST "/runs/$run/lease" "{\"token\":\"$token\",\"ttl_ms\":$ttl}"
	case $answer in
	*'"lease_held"'*) say "lost: somebody else drives the run" && exit 3 ;;
	*'"cancel_requested":true'*) cancelled ;;
	esac
}

# heartbeat renews the lease for as long as the engine lives.
heartbeat() {
	pause=$((ttl / 3))
	while sleep "$((pause / 1000)).$(printf %03d $((pause % 1000)))" && kill -0 $$ 2>/dev/null; do
		renew
	done
}

# step NAME POSITION ROLE [MEMBERS] finds or makes a step, and says whether there is something to do.
step() {
	write POST "/runs/$run/steps" ",\"step_name\":\"$1\",\"position\":$2,\"role\":\"$3\"${4:-}"
	id=$(member id) retry=$(member retry_count)
	call GET "/runs/$run/steps?step_name=$1&status=completed"
	case $answer in *'"items":[]'*) ;; *) return 1 ;; esac
	call GET "/runs/$run/steps?step_name=$1&status=running"
	case $answer in *'"items":[]'*) ;; *) retry=$((retry + 1)) && say "$1 was begun by somebody who is gone" ;; esac
}

script() {
	step "$1" "$2" script || return 0
	write PATCH "/runs/$run/steps/$id" ",\"status\":\"running\",\"retry_count\":$retry"
	result=$($work "$1")
	write PATCH "/runs/$run/steps/$id" ",\"status\":\"completed\",\"result_text\":\"$(printf '%s' "$result" | tr -d '"\\\n')\""
	say "$1 is done"
}

gate() {
	step "$1" "$2" gate ',"gate":{"gate_type":"human_approval","prompt":"Deploy to five places?","timeout_ms":3600000}' || return 0
	write PATCH "/runs/$run/steps/$id" ',"status":"waiting"' || : # it is open, or answered
	say "waits for an answer: curl -X POST $url/runs/$run/steps/$id/gate/approve"
	while call GET "/runs/$run/steps/$id/gate" && [ "$(member state)" = pending ]; do
		renew
		call GET "/events?run_id=$run&type=gate.approved,gate.rejected,gate.timed_out&after=0" # waits for one of them
	done
	say "the answer is $(member state)"
	[ "$(member state)" = approved ]
}

foreach() {
	step "$1" "$2" foreach || return 0
	write PATCH "/runs/$run/steps/$id" ",\"status\":\"running\",\"retry_count\":$retry"
	write POST "/runs/$run/steps/$id/items" ',"items":[{"item_type":"place","item_id":"1"},{"item_type":"place","item_id":"2"},{"item_type":"place","item_id":"3"},{"item_type":"place","item_id":"4"},{"item_type":"place","item_id":"5"}]'
	for state in running pending; do # what somebody else had begun comes first
		call GET "/runs/$run/steps/$id/items?status=$state"
		for item in $(printf '%s' "$answer" | grep -o '"id":"[^"]*"' | cut -d '"' -f 4); do
			write PATCH "/runs/$run/steps/$id/items" ",\"updates\":[{\"id\":\"$item\",\"status\":\"running\"}]"
			$work "$1" >/dev/null
			write PATCH "/runs/$run/steps/$id/items" ",\"updates\":[{\"id\":\"$item\",\"status\":\"completed\"}]"
		done
	done
	write PATCH "/runs/$run/steps/$id" ',"status":"completed"'
	say "$1 is done"
}

if [ $# -gt 0 ]; then
	run=$1
else
	call POST /runs '{"workflow_name":"engine-sh","definition_snapshot":{"title":"Deploy to five places"}}'
	run=$(member id)
	echo "$run"
fi
lease
heartbeat &
beat=$!
trap 'kill $beat 2>/dev/null || :' EXIT
write POST "/runs/$run/start" '' || write POST "/runs/$run/resume" '' || : # it runs already
script fetch 0
script build 1
if ! gate approval 2; then
	write POST "/runs/$run/fail" ',"error":"nobody let us deploy"'
	say failed
	exit 1
fi
foreach deploy 3
script report 4
write POST "/runs/$run/complete" ',"result_summary":"deployed to five places"'
say completed
