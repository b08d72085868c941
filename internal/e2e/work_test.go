package e2e

import (
	"cmp"
	"fmt"
	"net/http"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"
)

// startWorker starts a worker of a lane that runs a script.
func startWorker(tb testing.TB, s *server, lane, script string, flags ...string) *tool {
	tb.Helper()
	args := append([]string{"work", "--lane", lane, "--worker-id", "w", "--lease-ttl", "900ms", "--grace", "300ms"}, flags...)
	return startTool(tb, s.url, append(args, "--", "sh", "-c", script)...)
}

// How a command ends is how its execution ends.
func TestWork_outcomes(t *testing.T) {
	t.Parallel()
	s := newServer(t)
	tests := []struct {
		kind, script, policy string
		state                string
		reason, category     string
		result               string
	}{
		{kind: "well", script: "true", state: "completed", result: "null"},
		{kind: "result", script: `echo '{"n": 1.50, "t": "<&>"}' >"$FLOWAPI_RESULT"`, state: "completed", result: `{"n":1.50,"t":"<&>"}`},
		{kind: "payload", script: `cat >"$FLOWAPI_RESULT"`, state: "completed", result: `{"a":[1,"x"]}`},
		{kind: "environment", script: `printf '"%s %s %s %s"' "$FLOWAPI_KIND" "$FLOWAPI_LANE" "$FLOWAPI_ATTEMPT_INDEX" "$FLOWAPI_CLAIM_KIND" >"$FLOWAPI_RESULT"`,
			state: "completed", result: `"environment ci 0 fresh"`},
		{kind: "variable", script: `printf %s "$FLOWAPI_PAYLOAD" >"$FLOWAPI_RESULT"; [ "$FLOWAPI_INPUTS" = '{}' ] && [ "$(cat "$FLOWAPI_INPUTS_FILE")" = '{}' ]`,
			state: "completed", result: `{"a":[1,"x"]}`},
		{kind: "status", script: "exit 3", state: "failed", reason: "exit status 3"},
		{kind: "later", script: "exit 75", state: "failed", reason: "exit status 75", category: "transient"},
		{kind: "again", script: `[ "$FLOWAPI_ATTEMPT_INDEX" = 1 ]`, policy: `{"retry_policy":{"max_retries":1,"backoff":{"type":"fixed","delay_ms":10}}}`, state: "completed", result: "null"},
		{kind: "killed", script: "kill -9 $$", state: "failed", reason: "killed by SIGKILL"},
		{kind: "leftover", script: "sleep 60 & true", state: "completed", result: "null"},
		{kind: "escaped", script: "setsid sleep 3 & true", state: "completed", result: "null"},
		{kind: "nonsense", script: `echo '{"n"' >"$FLOWAPI_RESULT"`, state: "failed", reason: "the result in FLOWAPI_RESULT is not JSON"},
		{kind: "too much", script: `{ printf '"'; head -c 1100000 /dev/zero | tr '\0' x; printf '"'; } >"$FLOWAPI_RESULT"`, state: "failed", reason: "the result is refused: "},
	}
	script, ids := "case $FLOWAPI_KIND in ", map[string]string{}
	for _, tt := range tests {
		policy := cmp.Or(tt.policy, "{}")
		ids[tt.kind] = s.create(fmt.Sprintf(`{"lane":"ci","kind":%q,"payload":{"a":[1,"x"]},"policy":%s}`, tt.kind, policy))
		script += strconv.Quote(tt.kind) + ") " + tt.script + ";; "
	}
	var octets execution
	s.post("/v1/executions/octets?lane=ci&kind=octets", "\xff\x00a", &octets)
	script += `octets) [ "$(od -An -tx1 | tr -d ' ')" = ff0061 ] && [ "$FLOWAPI_PAYLOAD_ENCODING" = base64 ];; `
	w := startWorker(t, s, "ci", script+"esac", "--concurrency", "3", "--exit-when-idle", "1s")
	if code := w.ended(); code != 0 {
		t.Fatalf("the worker ends with exit code %d", code)
	}
	if got := s.execution(octets.ID); got.PublicState != "completed" {
		t.Errorf("bytes: %+v", got)
	}
	client := newClient(t)
	for _, tt := range tests {
		got := s.execution(ids[tt.kind])
		reason, category := "", ""
		if got.Failure != nil && tt.state == "failed" {
			reason, category = got.Failure.Reason, got.Failure.Category
		}
		if got.PublicState != tt.state || !strings.HasPrefix(reason, tt.reason) || category != tt.category {
			t.Errorf("%s: %s, reason %q, category %q", tt.kind, got.PublicState, reason, category)
		}
		result := must(t, client, http.MethodGet, s.url+"/v1/executions/"+ids[tt.kind]+"/result", "")
		if want := tt.result; want != "" && want != "null" && strings.TrimSpace(string(result.body)) != want {
			t.Errorf("%s: the result is %s", tt.kind, result.body)
		}
	}
}

// The register knows a worker from its beginning to its end, and drains it.
func TestWork_register(t *testing.T) {
	t.Parallel()
	s := newServer(t)
	type list struct {
		Items []struct {
			ID string `json:"worker_instance_id"`
		}
	}
	workers := func() (l list) {
		s.get("/v1/workers?worker_id=w", &l)
		return l
	}
	id := s.create(`{"lane":"ci"}`)
	w := startWorker(t, s, "ci", `echo on >"$FOLDER/on"; until [ -e "$FOLDER/off" ]; do sleep 0.01; done`, "--capability", "go")
	w.wrote("on")
	l := workers()
	if len(l.Items) != 1 {
		t.Fatalf("the register has %+v", l)
	}
	s.post("/v1/workers/"+l.Items[0].ID+"/drain", "{}", nil)
	w.says("draining: the server asks for it")
	w.write("off", "\n")
	if code := w.ended(); code != 0 || s.execution(id).PublicState != "completed" {
		t.Errorf("exit code %d, %+v", code, s.execution(id))
	}
	if l := workers(); len(l.Items) != 0 {
		t.Errorf("the register still has %+v", l)
	}
}

// All that a command writes arrives, in order, although the server is killed in the middle.
func TestWork_restart(t *testing.T) {
	t.Parallel()
	s, database := fixedServer(t)
	id := s.create(`{"lane":"ci"}`)
	w := startWorker(t, s, "ci", `i=0; while [ $i -lt 20000 ]; do i=$((i+1)); echo "line $i"; [ $i != 5000 ] || { echo half >"$FOLDER/half"; until [ -e "$FOLDER/on" ]; do sleep 0.01; done; }; done
		printf '\377\000' >&2; printf 'the end'`, "--lease-ttl", "5s", "--exit-when-idle", "1s")
	w.wrote("half")
	s.kill()
	w.write("on", "\n")
	w.says("trouble")
	again := serveWith(t, nil, "--addr", s.addr(), "--db", database)
	if code := w.ended(); code != 0 {
		t.Errorf("exit code %d", code)
	}
	if got := again.execution(id); got.PublicState != "completed" || got.Attempts != 1 {
		t.Errorf("the execution is %+v", got)
	}
	var want strings.Builder
	for i := range 20000 {
		fmt.Fprintf(&want, "line %d\n", i+1)
	}
	want.WriteString("the end")
	if got := again.output(id, "stdout"); got != want.String() {
		t.Errorf("%d bytes of %d arrived, or not in order", len(got), want.Len())
	}
	if got := again.output(id, "stderr"); got != "/wA=" {
		t.Errorf("the bytes are %q", got)
	}
}

// While the server is away the command runs for as long as the lease lasts, and no longer, however much it has to say.
func TestWork_outage(t *testing.T) {
	t.Parallel()
	for name, script := range map[string]string{"silent": "while :; do sleep 0.01; done", "loud": "yes & wait"} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			s := newServer(t)
			s.create(`{"lane":"ci"}`)
			w := startWorker(t, s, "ci", `trap 'echo asked >"$FOLDER/asked"; exit 0' TERM; echo on >"$FOLDER/on"; `+script)
			w.wrote("on")
			s.kill()
			w.wrote("asked")
			w.says("lost")
			w.signal(syscall.SIGTERM)
			if code := w.ended(); code != 0 {
				t.Errorf("exit code %d", code)
			}
		})
	}
}

// A worker that is killed takes its command with it, and another one does the work.
func TestWork_killed(t *testing.T) {
	t.Parallel()
	s := newServer(t)
	id := s.create(`{"lane":"ci"}`)
	first := startWorker(t, s, "ci", `echo $$ >"$FOLDER/pid"; exec sleep 60`)
	pid, err := strconv.Atoi(first.wrote("pid"))
	if err != nil {
		t.Fatal(err)
	}
	first.signal(syscall.SIGKILL)
	eventually(t, "the command is gone", func() bool { return syscall.Kill(pid, 0) == syscall.ESRCH })
	startWorker(t, s, "ci", `printf '"%s"' "$FLOWAPI_CLAIM_KIND" >"$FLOWAPI_RESULT"`, "--exit-when-idle", "2s")
	if got := s.becomes(id, "completed"); got.Attempts != 2 {
		t.Errorf("it took %d attempts", got.Attempts)
	}
	if r := must(t, newClient(t), http.MethodGet, s.url+"/v1/executions/"+id+"/result", ""); string(r.body) != `"reclaimed"` {
		t.Errorf("the claim was %s", r.body)
	}
}

// What is to be cancelled is asked to end, with all that it has started, and is killed when it does not.
func TestWork_cancel(t *testing.T) {
	t.Parallel()
	s := newServer(t)
	for name, tt := range map[string]struct{ script, output string }{
		"polite":   {`trap 'echo bye; exit 0' TERM; echo $$ >"$FOLDER/pid"; while :; do sleep 0.01; done`, "bye\n"},
		"stubborn": {`trap '' TERM; echo $$ >"$FOLDER/pid"; while :; do sleep 0.01; done`, ""},
		"a family": {`sh -c 'trap "" TERM; echo $$ >"$FOLDER/pid"; while :; do sleep 0.01; done' & wait`, ""},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			id := s.create(fmt.Sprintf(`{"lane":%q}`, name))
			w := startWorker(t, s, name, tt.script)
			pid, err := strconv.Atoi(w.wrote("pid"))
			if err != nil {
				t.Fatal(err)
			}
			got := run(t, []string{"FLOWAPI_URL=" + s.url}, "cancel", "--execution", id, "--reason", "superseded", "--wait")
			if got.code != 0 || got.out != "cancelled "+id+"\n" {
				t.Errorf("flowapi cancel: %+v", got)
			}
			eventually(t, "the command is gone", func() bool { return syscall.Kill(pid, 0) == syscall.ESRCH })
			w.says("cancelled")
			if got := s.output(id, "stdout"); got != tt.output {
				t.Errorf("it has written %q", got)
			}
		})
	}
}

// The first signal lets what runs finish; the second gives it back, to go on elsewhere in the same attempt.
func TestWork_signals(t *testing.T) {
	t.Parallel()
	s := newServer(t)
	t.Run("drain", func(t *testing.T) {
		t.Parallel()
		id := s.create(`{"lane":"drain"}`)
		w := startWorker(t, s, "drain", `echo on >"$FOLDER/on"; until [ -e "$FOLDER/off" ]; do sleep 0.01; done`)
		w.wrote("on")
		w.signal(syscall.SIGTERM)
		w.says("draining")
		late := s.create(`{"lane":"drain"}`)
		w.write("off", "\n")
		if code := w.ended(); code != 0 {
			t.Errorf("exit code %d", code)
		}
		if got := s.execution(id).PublicState; got != "completed" {
			t.Errorf("what ran is %s", got)
		}
		if got := s.execution(late).PublicState; got != "waiting" {
			t.Errorf("what came later is %s", got)
		}
	})
	t.Run("release", func(t *testing.T) {
		t.Parallel()
		id := s.create(`{"lane":"release"}`)
		w := startWorker(t, s, "release", `[ $FLOWAPI_CLAIM_KIND != resumed ] || exit 0; echo on >"$FOLDER/on"; exec sleep 60`)
		w.wrote("on")
		w.signal(syscall.SIGINT)
		w.says("draining")
		w.signal(syscall.SIGINT)
		if code := w.ended(); code != 0 {
			t.Errorf("exit code %d", code)
		}
		if got := s.execution(id); got.PublicState != "waiting" || got.Attempts != 1 {
			t.Errorf("it is %+v", got)
		}
		startWorker(t, s, "release", `[ $FLOWAPI_CLAIM_KIND = resumed ]`)
		s.becomes(id, "completed")
	})
	t.Run("while it waits", func(t *testing.T) {
		t.Parallel()
		w := startWorker(t, s, "empty", "true")
		w.says("ready")
		began := time.Now() // its claim waits for 20 s
		w.signal(syscall.SIGTERM)
		if code := w.ended(); code != 0 || time.Since(began) > 15*time.Second {
			t.Errorf("exit code %d after %s", code, time.Since(began))
		}
		if id := s.create(`{"lane":"empty"}`); s.execution(id).PublicState != "waiting" {
			t.Error("somebody has it")
		}
	})
}

// Who has lost the lease stops and reports nothing.
func TestWork_revoked(t *testing.T) {
	t.Parallel()
	s := newServer(t)
	id := s.create(`{"lane":"ci"}`)
	w := startWorker(t, s, "ci", `echo on >"$FOLDER/on"; trap 'echo asked >"$FOLDER/asked"; exit 0' TERM; while :; do sleep 0.01; done`)
	w.wrote("on")
	w.signal(syscall.SIGTERM) // that it does not claim it again
	w.says("draining")
	s.post("/v1/executions/"+id+"/revoke-lease", `{"reason":"test"}`, nil)
	w.wrote("asked")
	w.says("lost")
	if code := w.ended(); code != 0 {
		t.Errorf("exit code %d", code)
	}
	if got := s.execution(id); got.PublicState == "completed" || got.PublicState == "failed" {
		t.Errorf("it is %s", got.PublicState)
	}
}

// A command may suspend its execution; who has approved lets it go on.
func TestWork_suspended(t *testing.T) {
	t.Parallel()
	s := newServer(t)
	var flow struct{ ID string }
	s.post("/v1/flows", `{"goal":"ask","start":true}`, &flow)
	id := s.create(`{"lane":"ci","flow_id":"` + flow.ID + `"}`)
	w := startWorker(t, s, "ci", `[ $FLOWAPI_CLAIM_KIND != resumed ] || exit 0; echo $FLOWAPI_HANDLE >"$FOLDER/handle"; until [ -e "$FOLDER/off" ]; do sleep 0.01; done`)
	handle := w.wrote("handle")
	s.post("/v1/executions/"+id+"/suspend", `{"handle":"`+handle+`","reason_code":"waiting_for_approval","waitpoints":[{"waitpoint_key":"go","approval":{"title":"Deploy?"}}]}`, nil)
	w.write("off", "\n")
	w.says("left")
	env := []string{"FLOWAPI_URL=" + s.url}
	if got := run(t, env, "why", id); got.code != 0 || !strings.Contains(got.out, "waiting_for_approval") {
		t.Errorf("flowapi why: %+v", got)
	}
	if got := run(t, env, "approve", id, "--waitpoint", "other"); got.code != 1 || !strings.Contains(got.errors, "(go)") || !strings.Contains(got.errors, "Deploy?") {
		t.Errorf("flowapi approve at another waitpoint: %+v", got)
	}
	if got := run(t, env, "approve", flow.ID, "--reason", "looks good"); got.code != 0 || got.out != "approved: Deploy?\n" {
		t.Errorf("flowapi approve: %+v", got)
	}
	s.becomes(id, "completed")
	if got := run(t, env, "approve", id); got.code != 1 || !strings.Contains(got.errors, "nobody is asked") {
		t.Errorf("flowapi approve once more: %+v", got)
	}
	if got := run(t, env, "replay", "--execution", id); got.code != 0 {
		t.Errorf("flowapi replay: %+v", got)
	}
}

// When several questions are open, they are named.
func TestDecide_several(t *testing.T) {
	t.Parallel()
	s := newServer(t)
	env := []string{"FLOWAPI_URL=" + s.url}
	id := s.create(`{"lane":"ci"}`)
	var c struct{ Claims []struct{ Handle string } }
	s.post("/v1/claims", `{"lane":"ci","worker_id":"w"}`, &c)
	s.post("/v1/executions/"+id+"/suspend", `{"handle":"`+c.Claims[0].Handle+`","reason_code":"waiting_for_approval","waitpoints":[
		{"waitpoint_key":"ops","approval":{"title":"Is there room?"}},{"waitpoint_key":"qa","approval":{"title":"Is it good?"}}],
		"resume_condition":{"Composite":{"kind":"AllOf","members":[{"Single":{"waitpoint_key":"ops","matcher":"Wildcard"}},{"Single":{"waitpoint_key":"qa","matcher":"Wildcard"}}]}}}`, nil)
	if got := run(t, env, "approve", id); got.code != 1 || !strings.Contains(got.errors, "(ops)") || !strings.Contains(got.errors, "Is it good?") {
		t.Errorf("flowapi approve: %+v", got)
	}
	for _, waitpoint := range []string{"ops", "qa"} {
		if got := run(t, env, "approve", id, "--waitpoint", waitpoint); got.code != 0 {
			t.Errorf("flowapi approve --waitpoint %s: %+v", waitpoint, got)
		}
	}
	s.becomes(id, "waiting")
	var flow struct{ ID string }
	s.post("/v1/flows", `{"goal":"ask","start":true}`, &flow)
	s.post("/v1/flows/"+flow.ID+"/wait", `{"condition":{"kind":"manual"}}`, nil)
	if got := run(t, env, "reject", flow.ID, "--reason", "too late"); got.code != 0 || s.status(flow.ID) != "failed" {
		t.Errorf("flowapi reject: %+v, %s", got, s.status(flow.ID))
	}
}
