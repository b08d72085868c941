package app_test

import (
	"fmt"
	"net/http"
	"os/exec"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/google/uuid"

	"github.com/flowapi/flowapi/internal/apitest"
	"github.com/flowapi/flowapi/internal/apptest"
	"github.com/flowapi/flowapi/internal/handlers/oapi"
)

// waitingClaim is a claim that waits.
type waitingClaim struct {
	t      *testing.T
	answer chan *apitest.Response
}

// wait starts a claim with Prefer: wait=20 of the given members.
func (x *executionTest) wait(members string) *waitingClaim {
	x.t.Helper()
	return x.waiting(func() *apitest.Response { return x.ask(members, "Prefer: wait=20") })
}

// waiting makes a call beside the test, which does not end before it.
func (x *executionTest) waiting(call func() *apitest.Response) *waitingClaim {
	x.t.Helper()
	w := &waitingClaim{x.t, make(chan *apitest.Response, 1)}
	done := make(chan struct{})
	go func() {
		defer close(done)
		w.answer <- call()
	}()
	x.t.Cleanup(func() { <-done })
	return w
}

// settled lets claims that were begun come to where they wait: those of many others, one after the other, pass by them. What is
// checked holds in any order; it only checks more when they wait.
func (x *executionTest) settled() {
	x.t.Helper()
	for range 8 {
		x.on("nothing").none("")
	}
}

// got returns what w got: it was woken, since it looks by itself too late.
func (w *waitingClaim) got() oapi.Claim {
	w.t.Helper()
	answer := w.answered()
	if applied := answer.Want(http.StatusOK).Header.Get("Preference-Applied"); applied != "wait=20" {
		w.t.Errorf("Preference-Applied %q", applied)
	}
	claims := answerAs[oapi.Claims](answer).Claims
	if len(claims) != 1 {
		w.t.Fatalf("%d claims", len(claims))
	}
	return claims[0]
}

func (w *waitingClaim) answered() *apitest.Response {
	w.t.Helper()
	timer := time.NewTimer(apitest.Patience)
	defer timer.Stop()
	select {
	case answer := <-w.answer:
		return answer
	case <-timer.C:
		w.t.Fatal("a waiting claim was not answered")
		return nil
	}
}

// TestExecutions_Wait: a claim that waits is answered by the commit that makes work. http.md, "Prefer: wait".
func TestExecutions_Wait(t *testing.T) {
	t.Parallel()
	runExecutionCases(t, executionsWaitCases)
}

var executionsWaitCases = []executionCase{
	{"woken by what makes work", func(x *executionTest) {
		e := x.create(retryPolicy(1))
		held := x.claim(`"lease_ttl_ms":60000`)
		for _, work := range []struct {
			by   string
			kind oapi.ClaimKind
			make func()
		}{
			{"release", "resumed", func() { x.report(held, "release", "").Want(http.StatusOK) }},
			{"a retry that is due", "retry", func() {
				x.report(held, "fail", `"reason":"boom"`).Want(http.StatusOK)
				x.advance(retryDelay)
			}},
			{"a lease that ran out", "reclaimed", func() { x.advance(time.Minute) }},
		} {
			w := x.wait(`"worker_id":"w2","lease_ttl_ms":60000`)
			x.settled()
			work.make()
			if held = w.got(); held.Kind != work.kind || held.Execution.ID != e.ID {
				x.t.Errorf("%s: a %s claim of %s", work.by, held.Kind, held.Execution.ID)
			}
		}
		x.report(held, "complete", "").Want(http.StatusOK)
		w := x.wait(lasting)
		x.settled()
		if next := x.create(""); w.got().Execution.ID != next.ID {
			x.t.Error("create: another execution")
		}
		w = x.wait(lasting)
		x.settled()
		next := x.create(`"delay_ms":600000`)
		x.settled()
		x.advance(10 * time.Minute)
		if got := w.got(); got.Execution.ID != next.ID || got.Kind != "fresh" {
			x.t.Errorf("a delay that is over: a %s claim", got.Kind)
		}
		w = x.wait(lasting)
		x.settled()
		batch := x.Post("/v1/executions/batch", `{"executions":[`+x.sent("")+`]}`).Want(http.StatusCreated)
		if got := w.got(); got.Execution.ID.String() != batch.Str("items.0.execution.id") {
			x.t.Error("a batch: another execution")
		}
	}},
	{"as many as there is work, each once", func(x *executionTest) {
		const n = 8
		var waiters []*waitingClaim
		for range n {
			waiters = append(waiters, x.wait(lasting))
		}
		x.settled()
		want, got := map[uuid.UUID]bool{}, map[uuid.UUID]bool{}
		for range n {
			want[x.create("").ID] = true
		}
		for _, w := range waiters {
			got[w.got().Execution.ID] = true
		}
		if diff := cmp.Diff(want, got); diff != "" {
			x.t.Errorf("(-made +got):\n%s", diff)
		}
	}},
	{"one batch wakes as many as it has work for", func(x *executionTest) {
		var waiters []*waitingClaim
		for range 4 {
			waiters = append(waiters, x.wait(lasting))
		}
		x.settled()
		x.Post("/v1/executions/batch", `{"executions":[`+strings.Repeat(x.sent("")+",", 3)+x.sent("")+`]}`).Want(http.StatusCreated)
		got := map[uuid.UUID]bool{}
		for _, w := range waiters {
			got[w.got().Execution.ID] = true
		}
		if len(got) != 4 {
			x.t.Errorf("%d executions", len(got))
		}
	}},
	{"a waiter that lacks something neither starves nor swallows", func(x *executionTest) {
		plain, other := x.wait(lasting), x.wait(`"worker_id":"w2","capabilities":["cpu"],`+lasting)
		gpu := x.wait(`"worker_id":"w3","capabilities":["gpu"],` + lasting)
		x.settled()
		needs := x.create(`"required_capabilities":["gpu"]`)
		if got := gpu.got(); got.Execution.ID != needs.ID || got.Execution.CurrentLease.WorkerID != "w3" {
			x.t.Errorf("%+v", got.Execution.CurrentLease)
		}
		want, got := map[uuid.UUID]bool{x.create("").ID: true, x.create("").ID: true}, map[uuid.UUID]bool{}
		got[plain.got().Execution.ID], got[other.got().Execution.ID] = true, true
		if diff := cmp.Diff(want, got); diff != "" {
			x.t.Errorf("(-made +got):\n%s", diff)
		}
	}},
	{"on any of its lanes, and of its namespace only", func(x *executionTest) {
		a, b := x.on("a"), x.on("b")
		w := x.wait(fmt.Sprintf(`"lanes":["%s","%s"],`, a.lane, b.lane) + lasting)
		x.settled()
		x.create("")
		b.in("other").create("")
		x.settled()
		e := b.create("")
		if got := w.got(); got.Execution.ID != e.ID {
			x.t.Errorf("got one of %s in %s", got.Execution.Lane, got.Execution.Namespace)
		}
	}},
	{"with a key: the same once more is the replay", func(x *executionTest) {
		key := "Idempotency-Key: wait " + x.lane
		w := x.waiting(func() *apitest.Response { return x.ask(lasting, "Prefer: wait=20", key) })
		x.settled()
		x.create("")
		first := w.answered().Want(http.StatusOK)
		again := x.ask(lasting, "Prefer: wait=20", key).Want(http.StatusOK)
		if string(first.Body) != string(again.Body) || again.Header.Get("Idempotent-Replay") != "true" {
			x.t.Errorf("%v\n%s\n%s", again.Header, first.Body, again.Body)
		}
	}},
	{"no time to wait, and what is no time", func(x *executionTest) {
		for prefer, applied := range map[string]string{"wait=0": "wait=0", "respond-async, wait=0": "wait=0", "wait=x": "", "wait=-1": "", "handling=strict": "", `wait="0"`: "wait=0"} {
			if got := x.ask("", "Prefer: "+prefer).Want(http.StatusNoContent).Header.Get("Preference-Applied"); got != applied {
				x.t.Errorf("Prefer: %s is applied as %q, want %q", prefer, got, applied)
			}
		}
		x.create("")
		if got := x.ask("", "Prefer: wait=99").Want(http.StatusOK).Header.Get("Preference-Applied"); got != "wait=55" {
			x.t.Errorf("applied as %q", got)
		}
		if answer := x.ask("", "Prefer: wait=1").Want(http.StatusNoContent); answer.Header.Get("Preference-Applied") != "wait=1" {
			x.t.Errorf("%v", answer.Header)
		}
	}},
	{"text that a shell reads gives the exact values", func(x *executionTest) {
		payloads := []string{
			`{"run":"echo \"it's\" $(touch /nonexistent/x) ` + "`id`" + ` ${HOME} \\ \\n \\\\ ; & | > < * ? ! # ~ \t"}`,
			"{\n\t\"spaced\" : [ 1.0,\r\n 1e3 , \"'''\" ]\n}", `"'"`, `"\\"`, `"'\\''"`, `null`, `""`, `"é日本\u2028"`, `[]`, `"$'\\x41'"`, `"-n"`, `" "`,
		}
		for i, payload := range payloads {
			e := x.create(fmt.Sprintf(`"kind":%q,"payload":%s`, kindFor(i), payload))
			answer := x.ask(`"worker_id":"w's"`, "Accept: text/plain").Want(http.StatusOK)
			if contentType := answer.Header.Get("Content-Type"); !strings.HasPrefix(contentType, "text/plain") {
				x.t.Errorf("Content-Type %s", contentType)
			}
			got := evaluated(x.t, answer.Body, "EXECUTION_ID", "KIND", "ATTEMPT_INDEX", "LEASE_EPOCH", "LEASE_EXPIRES_AT", "PAYLOAD", "INPUTS")
			now := x.get(e.ID)
			want := []string{e.ID.String(), kindFor(i), "0", "1", now.CurrentLease.ExpiresAt.String(), payload, "{}"}
			if diff := cmp.Diff(want, got); diff != "" {
				x.t.Errorf("%s (-want +got):\n%s", answer.Body, diff)
			}
			handle := evaluated(x.t, answer.Body, "HANDLE")[0]
			x.report(oapi.Claim{Execution: e, Handle: handle}, "complete", "").Want(http.StatusOK)
		}
		x.unchanged(http.StatusNoContent, func() *apitest.Response { return x.ask("", "Accept: text/plain") })
		x.create("")
		if got := evaluated(x.t, x.ask("", "Accept: text/plain").Body, "PAYLOAD", "KIND"); got[0] != "null" || got[1] != "" {
			x.t.Errorf("%q", got)
		}
		x.Post("/v1/executions/octets?lane="+x.lane, []byte{0, 39, 255}, "Content-Type: application/octet-stream").Want(http.StatusCreated)
		if got := evaluated(x.t, x.ask("", "Accept: text/plain").Body, "PAYLOAD"); got[0] != `"ACf/"` {
			x.t.Errorf("%q", got)
		}
		x.create("")
		if kind := mediaTypeOf(x.ask("", "Accept: text/plain;q=0.1, application/json").Want(http.StatusOK)); kind != "application/json" {
			x.t.Errorf("%s", kind)
		}
	}},
}

// kindFor returns a kind that a shell would make something else of.
func kindFor(i int) string {
	return []string{"it's", "$(id)", "`id`", `a\nb\`, "line\nbreak\n", "  ", "'", `"`, "*", "~", "$HOME", "'; exit 7; '"}[i%12]
}

// evaluated has a POSIX shell eval the text of a claim, and returns the values of some variables.
func evaluated(t *testing.T, text []byte, names ...string) []string {
	t.Helper()
	script := `eval "$1"; shift; for name; do eval "printf '%s.\0' \"\$$name\""; done`
	out, err := exec.CommandContext(t.Context(), "sh", append([]string{"-euc", script, "sh", string(text)}, names...)...).CombinedOutput()
	if err != nil {
		t.Fatalf("sh: %v: %s\n%s", err, out, text)
	}
	values := strings.Split(strings.TrimSuffix(string(out), ".\x00"), ".\x00")
	if len(values) != len(names) {
		t.Fatalf("%d values of %d: %q\n%s", len(values), len(names), values, text)
	}
	return values
}

// TestExecutions_Wait_Shutdown: whoever waits is told that there is nothing to do, soon, and when to ask again.
func TestExecutions_Wait_Shutdown(t *testing.T) {
	t.Parallel()
	apptest.Databases(t, func(t *testing.T, s *apptest.Server) {
		x := executionsOn(t, s, "ci")
		var waiters []*waitingClaim
		for i := range 3 {
			waiters = append(waiters, x.wait(fmt.Sprintf(`"capabilities":["c%d"]`, i)))
		}
		x.settled()
		s.App.Drain()
		waiters = append(waiters, x.wait("")) // who comes too late does not wait at all
		for _, w := range waiters {
			answer := w.answered().Want(http.StatusNoContent)
			if answer.Header.Get("Retry-After") != "1" || answer.Header.Get("Preference-Applied") != "wait=20" {
				t.Errorf("%v", answer.Header)
			}
		}
		s.Stop()
	})
}
