#!/bin/sh
# A worker of flowapi with nothing but a POSIX shell and curl: worker.sh LANE. docs/worker-guide.md explains it.
set -u
url=${FLOWAPI_URL:-http://127.0.0.1:8080}/v1 lane=${1:?which lane} name=$(uname -n) dir=$(mktemp -d) job='' stopped='' claims=0
trap 'rm -rf "$dir"' EXIT
trap 'stopped=yes; end' TERM INT

# work does what $KIND and $PAYLOAD (JSON) say; put yours here. What it prints is the result, as JSON, and its exit status the outcome.
work() {
	case $KIND in
	sleep) echo "$PAYLOAD" && exec sleep "$PAYLOAD" ;; # by exec: what is killed when it ends early is the command itself
	*) echo "$KIND was not done" >&2 && return 1 ;;
	esac
}

# end ends the work early.
end() {
	: >"$dir/early"
	[ -z "$job" ] || kill "$job" 2>/dev/null
}

# post PATH JSON [OPTION…] repeats a request until it is answered, or a lease could be over. It sets $answer, and $status: 0 without one.
post() {
	path=$1 body=$2 begun=$(date +%s)
	shift 2
	while [ $(($(date +%s) - begun)) -lt 20 ]; do
		answer=$(printf %s "$body" | curl -s -m 10 -w '\n%{http_code}' ${FLOWAPI_TOKEN:+-H "Authorization: Bearer $FLOWAPI_TOKEN"} "$@" --data-binary @- "$url$path")
		status=${answer##*[!0-9]} answer=${answer%????}
		case $status$answer in 000* | 429* | 5* | *idempotency_in_flight* | '') sleep 1 ;; *) return ;; esac
	done
	status=0
}

report() { post "/executions/$EXECUTION_ID/$1" "{\"handle\":\"$HANDLE\"${2:-}}"; }

# keep renews the lease until it is killed, and ends the work early when the lease is lost, or the server wants that.
keep() { while sleep 5 && report renew; do case $status$answer in 200*'"cancel"'*) end ;; 200*) ;; *) end ;; esac; done; }

while [ -z "$stopped" ]; do
	claims=$((claims + 1))
	post /claims "{\"lane\":\"$lane\",\"worker_id\":\"$name\"}" -H 'Accept: text/plain' -H 'Prefer: wait=5' -H "Idempotency-Key: $dir-$claims"
	case $status in 200) eval "$answer" ;; 204 | 0) continue ;; *) echo "$answer" >&2 && exit 1 ;; esac
	[ -n "$stopped" ] || rm -f "$dir/early"
	{ [ ! -e "$dir/early" ] && work; } >"$dir/result" 2>"$dir/errors" & job=$!
	keep >/dev/null 2>&1 & keeper=$!
	[ -z "$stopped" ] || end
	while wait "$job"; code=$?; kill -0 "$job" 2>/dev/null; do :; done # a signal ends wait, and not the work
	job=''
	[ $code != 0 ] || report complete ",\"result\":$(grep . "$dir/result" || echo null)"
	case $code$status in 0400 | 0413 | 0422) echo "what was printed is no result" >"$dir/errors" && code=1 ;; esac
	if [ $code != 0 ] && [ -e "$dir/early" ]; then
		report release # what is to be cancelled is cancelled by that, and what is lost is refused
	elif [ $code != 0 ]; then
		report fail ",\"reason\":\"exit status $code: $(tail -c 1000 "$dir/errors" | tr -c '[:print:]' ' ' | tr -d '\\"')\""
	fi
	kill "$keeper" 2>/dev/null
done
