#!/bin/sh
# Does one execution of examples/pipeline.yaml: what FLOWAPI_KEY says. It is what `flowapi work` runs, in the repository's root.
# The checks are the quick ones; with PIPELINE=full they are those of CI.
set -eu
bin=${PIPELINE_BIN:-bin}/flowapi
full() { [ "${PIPELINE:-}" = full ]; }

# api METHOD PATH [BODY] calls the server about this execution.
api() {
	curl -fsS -X "$1" ${FLOWAPI_TOKEN:+-H "Authorization: Bearer $FLOWAPI_TOKEN"} ${FLOWAPI_NAMESPACE:+-H "Flowapi-Namespace: $FLOWAPI_NAMESPACE"} \
		${3:+-d "$3"} "$FLOWAPI_URL/v1/executions/$FLOWAPI_EXECUTION_ID/$2"
}

case $FLOWAPI_KEY in
verify)
	if full; then exec make verify; fi
	unformatted=$(gofmt -l api cmd db internal)
	if [ -n "$unformatted" ]; then echo "not gofmt-ed: $unformatted" >&2 && exit 1; fi
	;;
lint) if full; then exec make lint; else exec go vet ./internal/domain/...; fi ;;
test) if full; then exec make test; else exec go test -count=1 ./internal/domain/...; fi ;;
build)
	go build -o "$bin" ./cmd/flowapi
	printf '{"binary":"%s"}\n' "$bin" >"$FLOWAPI_RESULT"
	;;
try-version) exec "$bin" --version ;;
try-help) exec "$bin" --help ;;
try-slowly) exec sleep 60 ;;
tried) echo "two trials of three" ;;
approve)
	# A decision is a signal. Without one, ask, and leave: whoever claims this execution when it was decided comes here again.
	case $(api GET signals) in
	*'"signal_name":"approved"'*) echo "approved" ;;
	*'"signal_name":"rejected"'*) echo "rejected" >&2 && exit 1 ;;
	*) api POST suspend "{\"handle\":\"$FLOWAPI_HANDLE\",\"reason_code\":\"waiting_for_approval\",
		\"waitpoints\":[{\"waitpoint_key\":\"deploy\",\"approval\":{\"title\":\"Deploy flowapi?\",\"requested_by\":\"the pipeline\"}}]}" >/dev/null ;;
	esac
	;;
deploy) echo "deploying $FLOWAPI_INPUTS" ;;
*) echo "there is no $FLOWAPI_KEY in this pipeline" >&2 && exit 78 ;;
esac
