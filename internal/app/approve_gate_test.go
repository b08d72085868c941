package app_test

import (
	"encoding/json"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/google/uuid"

	"github.com/flowapi/flowapi/internal/domain/fault"
)

// askedGate is a gate that waits for people, with its run and the link of its page.
type askedGate struct{ run, step, link string }

// path is a path of the gate's step.
func (g askedGate) path(part string) string { return "/v1/runs/" + g.run + "/steps/" + g.step + part }

// gateVote is what one person has said to a gate.
type gateVote struct {
	By, Decision string
	Feedback     *string
	Selections   []string
}

// gateStand is how a gate stands.
type gateStand struct {
	State      string
	ResolvedBy *string `json:"resolved_by"`
	Feedback   *string
	Selections []string
	Votes      []gateVote
}

// gate makes a run of the workflow w that waits at a gate of these members.
func (x *executionTest) gate(members string) askedGate {
	x.t.Helper()
	return x.gateOf(`"workflow_name":"w"`, "ok?", members)
}

func (x *executionTest) gateOf(run, step, members string) askedGate {
	x.t.Helper()
	g := askedGate{run: x.Post("/v1/runs", executionJSON(run)).Want(http.StatusCreated).Str("id")}
	x.Post("/v1/runs/"+g.run+"/start", `{"generation":0}`).Want(http.StatusOK)
	g.step = x.Post("/v1/runs/"+g.run+"/steps", `{"generation":0,"step_name":`+quoted(step)+`,"role":"gate","position":0,"gate":`+
		executionJSON(members, `"gate_type":"human_approval"`, `"prompt":"Ship it?"`)+`}`).Want(http.StatusCreated).Str("id")
	x.sets(g, "waiting")
	g.link = x.Get(g.path("/gate/token")).Want(http.StatusOK).Str("approve_url")
	return g
}

// sets gives a gate's step a status, as its engine.
func (x *executionTest) sets(g askedGate, status string) {
	x.t.Helper()
	x.Do(http.MethodPatch, g.path(""), `{"generation":0,"status":"`+status+`"}`).Want(http.StatusOK)
}

// gateStands reads how a gate stands.
func (x *executionTest) gateStands(g askedGate) (s gateStand) {
	x.t.Helper()
	x.Get(g.path("/gate")).Want(http.StatusOK).Into(&s)
	return s
}

// gateTraces is everything of a gate that a decision would change.
func (x *executionTest) gateTraces(g askedGate) string {
	x.t.Helper()
	return string(x.Get(g.path("")).Want(http.StatusOK).Body) + string(x.Get(g.path("/gate")).Want(http.StatusOK).Body)
}

const (
	offered  = `"options":[{"value":"a","label":"The first"},{"value":"b"},{"value":"c","label":"The last"}]`
	pageTime = "Mon 2 Jan 2006, 15:04 UTC"
)

// TestGatePage: what is behind the link of a gate. runs-and-taskflows.md A6; http.md "/approve".
func TestGatePage(t *testing.T) {
	t.Parallel()
	runExecutionCases(t, []executionCase{
		{"it shows what is asked", (*executionTest).gateIsShown},
		{"approved by the form, with a selection", (*executionTest).gateApproved},
		{"rejected with feedback, and without what was selected", (*executionTest).gateRejected},
		{"a scanner that follows the link decides nothing", (*executionTest).gateIsLookedAt},
		{"twice by the same person is one vote, and another one comes too late", (*executionTest).gateTwice},
		{"two people, who say by tokens who they are", (*executionTest).gateTwoPeople},
		{"not whoever asks", (*executionTest).gateNotOwn},
		{"a selection is among the options", (*executionTest).gateSelections},
		{"expired, cancelled, skipped, answered elsewhere and ended say so", (*executionTest).gateEnds},
		{"asked again", (*executionTest).gateAgain},
		{"JSON for programs", (*executionTest).gateForPrograms},
		{"a token opens its own gate only, and no waitpoint", (*executionTest).gateIsSecret},
		{"a gate with the ids of a waitpoint has another token", (*executionTest).gateIsNoWaitpoint},
		{"what people write is text", (*executionTest).gateIsText},
	})
}

func (x *executionTest) gateIsShown() {
	g := x.gateOf(`"workflow_name":"release","definition_snapshot":{"title":"Release 1.4"}`, "sign-off",
		offered+`,"prompt":"Line one\nline two","requested_by":"ci/release","timeout_ms":7200000`)
	p := x.opens(g.link, "You are asked to decide", "Release 1.4: sign-off", "Waiting for a decision", "ci/release", "(in 2 hours; then the step fails)", "a run of release",
		"Line one line two", "Your selection (optional)", "The first", "The last", "Your name (required)", "Run "+g.run)
	for _, want := range []string{"Line one\nline two", `<input type="checkbox" id="option-0" name="selection" value="a"><label for="option-0" dir="auto">The first</label>`,
		`id="option-1" name="selection" value="b"><label for="option-1" dir="auto">b</label>`, `name="decision" value="approved">Approve</button>`} {
		if !strings.Contains(p.Body, want) {
			x.t.Errorf("the page has no %s:\n%s", want, p.Body)
		}
	}
	if shown := textOf(p.Body); strings.Contains(shown, "Access token") || strings.Contains(shown, "Details") || strings.Contains(shown, "decided so far") {
		x.t.Errorf("%s", shown)
	}
	if policy := p.Header.Get("Content-Security-Policy"); !strings.Contains(policy, "default-src 'none'") || strings.Contains(p.Body, "<script") || p.Header.Get("Cache-Control") != "no-store" {
		x.t.Errorf("%s", p.Header)
	}
	bare := x.opens(x.gate(`"on_timeout":"continue"`).link, "w: ok?", "(in 24 hours; then the run goes on without an answer)", "Ship it?")
	if strings.Contains(bare.Body, "checkbox") {
		x.t.Errorf("%s", bare.Body)
	}
}

func (x *executionTest) gateApproved() {
	g := x.gate(offered)
	p := x.visit(http.MethodPost, g.link, formBody("decision", "approved", "name", "", "reason", "half", "selection", "c"))
	x.sees(p, http.StatusUnprocessableEntity, "Nothing was decided", "Your name: Say who you are.")
	if !strings.Contains(p.Body, `value="c" checked>`) || strings.Contains(p.Body, `value="a" checked>`) || !strings.Contains(p.Body, ">\nhalf</textarea>") {
		x.t.Errorf("what was filled in is gone:\n%s", p.Body)
	}
	after := x.decides(g.link, "decision", "approved", "name", "  Ada Lovelace ", "reason", "Looks\r\ngood.", "selection", "c", "selection", "b", "form.x", "y")
	at := x.server.Clock.Now().UTC().Format(pageTime)
	x.sees(after, http.StatusOK, "Approved by Ada Lovelace (as they call themselves) on "+at+". Looks good.", "Selected: The last, b")
	if strings.Contains(after.Body, "<form") || strings.Contains(after.Body, "<button") {
		x.t.Errorf("what is decided can be decided again:\n%s", after.Body)
	}
	said := gateVote{"Ada Lovelace", "approved", new("Looks\ngood."), []string{"c", "b"}}
	want := gateStand{"approved", new("Ada Lovelace"), said.Feedback, said.Selections, []gateVote{said}}
	if diff := cmp.Diff(want, x.gateStands(g)); diff != "" {
		x.t.Errorf("(-want +got):\n%s", diff)
	}
	step := x.Get(g.path("")).Want(http.StatusOK)
	if step.Str("status") != "completed" || step.Str("context_out") != "User selected the following items:\n- c\n- b\n" {
		x.t.Errorf("%s", step.Body)
	}
	events := x.Get("/v1/events?run_id=" + g.run).Want(http.StatusOK)
	if body := string(events.Body); !strings.Contains(body, `"gate.approved"`) || !strings.Contains(body, `"approval_link"`) || strings.Contains(body, link(g.link)) {
		x.t.Errorf("%s", body)
	}
}

func (x *executionTest) gateRejected() {
	g := x.gate(offered)
	x.sees(x.decides(g.link, "decision", "rejected", "name", "Bob", "reason", "Not on a Friday.", "selection", "a"), http.StatusOK, "Rejected by Bob (as they call themselves)", "Not on a Friday.",
		"What was decided so far")
	if got := x.gateStands(g); got.State != "rejected" || len(got.Votes) != 1 || got.Votes[0].Selections != nil || got.Selections != nil {
		x.t.Errorf("%+v", got)
	}
	if step := x.Get(g.path("")); step.Str("status") != "failed" || step.Str("step_error") != "Not on a Friday." {
		x.t.Errorf("%s", step.Body)
	}
}

func (x *executionTest) gateIsLookedAt() {
	g := x.gate(offered)
	before := x.gateTraces(g)
	for _, method := range []string{http.MethodGet, http.MethodHead} {
		for _, query := range []string{"", "?decision=approved&name=Scanner", "?utm_source=mail"} {
			x.sees(x.visit(method, g.link+query, ""), http.StatusOK)
		}
	}
	for _, method := range []string{http.MethodPut, http.MethodDelete, http.MethodPatch, http.MethodOptions} {
		x.sees(x.visit(method, g.link, byAda), http.StatusMethodNotAllowed)
	}
	for _, body := range []string{"name=Ada", "name=Ada&decision=maybe", "decision=approved", byAda + "&reason=" + strings.Repeat("x", 16385)} {
		x.sees(x.visit(http.MethodPost, g.link, body), http.StatusUnprocessableEntity)
	}
	x.sees(x.visit(http.MethodPost, g.link, byAda, "Sec-Fetch-Site: cross-site"), http.StatusForbidden)
	if diff := cmp.Diff(before, x.gateTraces(g)); diff != "" {
		x.t.Errorf("looking has changed something (-before +after):\n%s", diff)
	}
}

func (x *executionTest) gateTwice() {
	g := x.gate("")
	x.decides(g.link, "decision", "approved", "name", "Ada", "reason", "fine")
	told := x.gateTraces(g)
	x.sees(x.decides(g.link, "decision", "approved", "name", "Ada", "reason", "fine"), http.StatusOK, "Approved by Ada")
	for _, late := range []string{byAda + "&reason=other", "decision=approved&name=Bob", "decision=rejected&name=Ada"} {
		x.sees(x.visit(http.MethodPost, g.link, late), http.StatusConflict, "Too late", "Your decision came too late, and was not recorded.", "Approved by Ada")
	}
	if diff := cmp.Diff(told, x.gateTraces(g)); diff != "" {
		x.t.Errorf("(-before +after):\n%s", diff)
	}
}

func (x *executionTest) gateTwoPeople() {
	g := x.gate(twoPeople + "," + offered)
	ada, bob := x.token("gate-ada", "operator", "default"), x.token("gate-bob", "operator", "*")
	p := x.opens(g.link, "0 of 2 approvals", "2 different people; one rejection ends it", "Access token (optional)", "somebody on the server’s own machine")
	if strings.Contains(p.Body, `name="name"`) {
		x.t.Errorf("%s", p.Body)
	}
	before := x.gateTraces(g)
	for _, refused := range []struct {
		token, says string
		status      int
	}{
		{"no-such-token", "The token is not known", http.StatusUnauthorized},
		{x.token("gate-eve", "viewer", "default"), "this one has the role viewer", http.StatusForbidden},
		{x.token("gate-wes", "worker", "*"), "this one has the role worker", http.StatusForbidden},
		{x.token("gate-oz", "operator", "other"), "for another namespace", http.StatusForbidden},
	} {
		answer := x.visit(http.MethodPost, g.link, formBody("decision", "approved", "token", refused.token, "reason", "kept", "selection", "a"))
		if x.sees(answer, refused.status, refused.says, "kept"); strings.Contains(answer.Body, refused.token) || !strings.Contains(answer.Body, `value="a" checked>`) {
			x.t.Errorf("%s", answer.Body)
		}
	}
	if diff := cmp.Diff(before, x.gateTraces(g)); diff != "" {
		x.t.Fatalf("(-before +after):\n%s", diff)
	}
	x.sees(x.decides(g.link, "decision", "approved", "token", " "+ada+" ", "name", "Bob", "reason", "fine", "selection", "a"), http.StatusOK,
		"1 of 2 approvals", "Approved by gate-ada (access token)", "fine", "Selected: The first")
	x.sees(x.decides(g.link, "decision", "approved", "token", ada, "reason", "fine", "selection", "a"), http.StatusOK, "1 of 2 approvals")
	x.sees(x.decides(g.link, "decision", "approved", "token", ada, "reason", "again"), http.StatusOK, "1 of 2 approvals")
	x.Post(g.path("/gate/feedback"), `{"by":"Kim","feedback":"Which one?"}`, "Authorization: Bearer "+bob).Want(http.StatusOK)
	x.opens(g.link, "1 of 2 approvals", "Noted by Kim (according to gate-bob)", "Which one?")
	x.sees(x.visit(http.MethodPost, g.link, "decision=approved", "Authorization: Bearer "+bob), http.StatusSeeOther)
	x.opens(g.link, "Approved by gate-bob (access token) on", "Approved by gate-ada (access token)")
	got := x.gateStands(g)
	var by []string
	for _, v := range got.Votes {
		by = append(by, v.By+" "+v.Decision)
	}
	if diff := cmp.Diff([]string{"token:gate-ada approved", "token:gate-ada approved", "Kim feedback", "token:gate-bob approved"}, by); diff != "" || got.State != "approved" {
		x.t.Errorf("%+v (-want +got):\n%s", got, diff)
	}

	g = x.gate(twoPeople)
	x.sees(x.decides(g.link, "decision", "rejected", "reason", "No."), http.StatusOK, "Rejected by somebody on the server’s own machine on")
}

func (x *executionTest) gateNotOwn() {
	g := x.gate(`"allow_self_approval":false,"requested_by":"token:gate-mia"`)
	mia, joe := x.token("gate-mia", "operator", "default"), x.token("gate-joe", "operator", "default")
	x.opens(g.link, "somebody other than whoever asked", "Access token")
	before := x.gateTraces(g)
	x.sees(x.visit(http.MethodPost, g.link, formBody("decision", "approved", "token", mia)), http.StatusForbidden,
		"Access token: token:gate-mia asks for this decision: another person has to make it.")
	p := x.visit(http.MethodPost, g.link, `{"decision":"approved","name":"Joe"}`, "Content-Type: application/json", "Accept: */*", "Authorization: Bearer "+mia)
	if p.Status != http.StatusForbidden || !strings.Contains(p.Body, `"self_approval"`) {
		x.t.Errorf("%d %s", p.Status, p.Body)
	}
	if diff := cmp.Diff(before, x.gateTraces(g)); diff != "" {
		x.t.Errorf("(-before +after):\n%s", diff)
	}
	x.sees(x.decides(g.link, "decision", "approved", "token", joe), http.StatusOK, "Approved by gate-joe (access token)")
}

func (x *executionTest) gateSelections() {
	g := x.gate(offered)
	before := x.gateTraces(g)
	p := x.visit(http.MethodPost, g.link, byAda+"&selection=a&selection=z")
	x.sees(p, http.StatusUnprocessableEntity, "Nothing was decided", `Selection: "z" is not among the options of this gate.`)
	for _, want := range []string{`<a href="#option-0">`, `<p class="error" id="options-error">`, `value="a" checked aria-describedby="options-error" aria-invalid="true" autofocus>`, `value="b" aria-describedby="options-error" aria-invalid="true">`} {
		if !strings.Contains(p.Body, want) {
			x.t.Errorf("the page has no %s:\n%s", want, p.Body)
		}
	}
	x.sees(x.visit(http.MethodPost, g.link, byAda+"&selection=The+first"), http.StatusUnprocessableEntity)
	x.sees(x.visit(http.MethodPost, g.link, byAda+"&selection=%ff"), http.StatusUnprocessableEntity)
	x.sees(x.visit(http.MethodPost, g.link, byAda+strings.Repeat("&selection=a", 101)), http.StatusUnprocessableEntity, "A selection has at most 100 values.")
	if diff := cmp.Diff(before, x.gateTraces(g)); diff != "" {
		x.t.Fatalf("(-before +after):\n%s", diff)
	}
	x.decides(g.link, "decision", "approved", "name", "Ada")
	if got := x.gateStands(g); got.State != "approved" || got.Selections != nil {
		x.t.Errorf("%+v", got)
	}
	x.sees(x.visit(http.MethodPost, x.gate("").link, byAda+"&selection=a"), http.StatusUnprocessableEntity, `"a" is not among the options of this gate.`)
	_, w := x.asks("")
	x.decides(w.ApproveURL, "decision", "approved", "name", "Ada", "selection", "a") // is none of that page's fields
}

func (x *executionTest) gateEnds() {
	const brief = `"timeout_ms":60000`
	fails, goes := x.gate(brief), x.gate(brief+`,"on_timeout":"continue"`)
	x.advance(time.Minute)
	at := x.server.Clock.Now().UTC().Format(pageTime)
	for _, g := range []askedGate{fails, goes} {
		x.opens(g.link, "A decision was asked for", "This request expired on "+at+". Nobody decided in time.")
		x.sees(x.visit(http.MethodPost, g.link, byAda), http.StatusConflict, "Your decision came too late", "This request expired")
	}
	for _, status := range []string{"cancelled", "skipped"} {
		g := x.gate("")
		x.sets(g, status)
		x.opens(g.link, "This request was closed on "+at+". No decision is needed any more.")
		x.sees(x.visit(http.MethodPost, g.link, byAda), http.StatusConflict, "came too late")
		if got := x.gateStands(g); got.State != status {
			x.t.Errorf("%+v", got)
		}
	}
	g := x.gate(offered)
	x.Post(g.path("/gate/approve"), `{"by":"Kim","feedback":"By phone.","selections":["b"]}`).Want(http.StatusOK)
	x.opens(g.link, "Approved by Kim (according to somebody on the server’s own machine) on "+at+". By phone.", "Selected: b")
	g = x.gate("")
	x.Post(g.path("/gate/reject"), `{}`).Want(http.StatusOK)
	x.opens(g.link, "Rejected by somebody on the server’s own machine on "+at)
	g = x.gate(`"gate_type":"pr_checks"`)
	x.sets(g, "completed")
	x.opens(g.link, "Approved by somebody on the server’s own machine on "+at)

	g = x.gate("")
	x.Post("/v1/runs/"+g.run+"/fail", `{"generation":0,"error":"broken"}`).Want(http.StatusOK)
	x.opens(g.link, "The run ended (failed) on "+at+". No decision is needed any more.")
	x.sees(x.visit(http.MethodPost, g.link, byAda), http.StatusConflict, "came too late")
	p := x.visit(http.MethodPost, g.link, `{"decision":"approved","name":"Ada"}`, "Content-Type: application/json", "Accept: */*")
	if p.Status != http.StatusConflict || !strings.Contains(p.Body, `"gate_already_resolved"`) {
		x.t.Errorf("%d %s", p.Status, p.Body)
	}
}

func (x *executionTest) gateAgain() {
	g := x.gate("")
	x.decides(g.link, "decision", "rejected", "name", "Ada", "reason", "the first")
	x.Post("/v1/runs/"+g.run+"/fail", `{"generation":0,"error":"rejected"}`).Want(http.StatusOK)
	x.opens(g.link, "Rejected by Ada")
	x.Post("/v1/runs/"+g.run+"/resume", `{}`).Want(http.StatusOK)
	over := func() { // the link was for the first attempt
		x.sees(x.visit(http.MethodGet, g.link, ""), http.StatusForbidden, "This link is not valid")
		x.sees(x.visit(http.MethodPost, g.link, byAda), http.StatusForbidden, "This link is not valid")
	}
	over()
	x.sets(g, "waiting")
	over()
	again := x.Get(g.path("/gate/token")).Want(http.StatusOK).Str("approve_url")
	if p := x.opens(again, "Waiting for a decision"); strings.Contains(p.Body, "the first") {
		x.t.Errorf("%s", p.Body)
	}
	x.sees(x.decides(again, "decision", "approved", "name", "Ada", "reason", "the second"), http.StatusOK, "Approved by Ada", "the second")
}

func (x *executionTest) gateForPrograms() {
	g := x.gate(offered)
	at := g.link
	post := func(body string, headers ...string) approvalPage {
		x.t.Helper()
		return x.visit(http.MethodPost, at, body, append([]string{"Content-Type: application/json", "Accept: */*"}, headers...)...)
	}
	refused := func(body string, code fault.Code, pointer string) {
		x.t.Helper()
		p := post(body)
		var problem struct {
			Code   fault.Code
			Errors []fault.Field
		}
		if json.Unmarshal([]byte(p.Body), &problem) != nil || p.Status != http.StatusUnprocessableEntity || problem.Code != code || len(problem.Errors) == 0 || problem.Errors[0].Pointer != pointer {
			x.t.Errorf("%s = %d %s, want %s %s", body, p.Status, p.Body, code, pointer)
		}
	}
	before := x.gateTraces(g)
	refused(`{"decision":"maybe","name":"Ada"}`, fault.CodeValidationFailed, "/decision")
	refused(`{"decision":"approved"}`, fault.CodeValidationFailed, "/name")
	refused(`{"decision":"approved","name":"Ada","form":{"x":1}}`, fault.CodeValidationFailed, "/form")
	refused(`{"decision":"approved","name":"Ada","selections":"a"}`, fault.CodeValidationFailed, "")
	refused(`{"decision":"approved","name":"Ada","selections":[1]}`, fault.CodeValidationFailed, "")
	refused(`{"decision":"approved","name":"Ada","selection":["a"]}`, fault.CodeValidationFailed, "")
	refused(`{"decision":"rejected","name":"Ada","selections":["a"]}`, fault.CodeValidationFailed, "/selections")
	refused(`{"decision":"approved","name":"Ada","selections":[`+strings.Repeat(`"a",`, 100)+`"a"]}`, fault.CodeValidationFailed, "/selections")
	refused(`{"decision":"approved","name":"Ada","selections":["a","z"]}`, fault.CodeInvalidSelection, "/selections/1")
	if diff := cmp.Diff(before, x.gateTraces(g)); diff != "" {
		x.t.Fatalf("(-before +after):\n%s", diff)
	}
	const good = `{"decision":"approved","name":"Ada","reason":"r","form":null,"selections":["b"]}`
	for i, want := range []string{"accepted", "duplicate"} {
		if p := post(good, [...]string{"Accept: */*", "Accept: application/json"}[i]); p.Body != `{"outcome":"`+want+`","state":"approved"}`+"\n" || p.Status != http.StatusOK || p.Header.Get("Content-Type") != "application/json" {
			x.t.Errorf("%d %s", p.Status, p.Body)
		}
	}
	p := post(`{"decision":"rejected","name":"Ada","selections":null}`)
	var late struct{ Code, State, By string }
	if err := json.Unmarshal([]byte(p.Body), &late); err != nil || p.Status != http.StatusConflict || late.Code != "gate_already_resolved" || late.State != "approved" || late.By != "Ada" {
		x.t.Errorf("%d %s", p.Status, p.Body)
	}

	at = x.gate(twoPeople).link
	if p := post(`{"decision":"approved"}`, "Authorization: Bearer nobody"); p.Status != http.StatusUnauthorized || !strings.Contains(p.Body, "unauthenticated") {
		x.t.Errorf("%d %s", p.Status, p.Body)
	}
	for _, want := range []string{"accepted", "duplicate"} {
		if got := answerOf[struct{ Outcome, State string }](x, post(`{"decision":"approved","selections":[]}`)); got.Outcome != want || got.State != "pending" {
			x.t.Errorf("%+v", got)
		}
	}
	_, w := x.asks("")
	at = w.ApproveURL
	refused(`{"decision":"approved","name":"Ada","selections":["a"]}`, fault.CodeValidationFailed, "/selections")
	refused(`{"decision":"approved","name":"Ada","selections":[]}`, fault.CodeValidationFailed, "/selections")
	if p := post(`{"decision":"approved","name":"Ada","selections":null}`); p.Status != http.StatusOK || !strings.Contains(p.Body, `"signal_id"`) {
		x.t.Errorf("%d %s", p.Status, p.Body)
	}
}

// gateIsNoWaitpoint: whoever may make gates chooses their ids, and may not answer waitpoints with them, not even in another namespace.
func (x *executionTest) gateIsNoWaitpoint() {
	id, w := x.asks("")
	there := x.in("elsewhere")
	there.Post("/v1/runs", `{"workflow_name":"w","id":"`+id.String()+`"}`).Want(http.StatusCreated)
	run := "/v1/runs/" + id.String()
	step := there.Post(run+"/steps", `{"generation":0,"id":"`+w.WaitpointID.String()+`","step_name":"s","role":"gate","position":0,"gate":{"gate_type":"human_approval"}}`).Want(http.StatusCreated).Str("id")
	there.Do(http.MethodPatch, run+"/steps/"+step, `{"generation":0,"status":"waiting"}`).Want(http.StatusOK)
	forged := there.Get(run + "/steps/" + step + "/gate/token").Want(http.StatusOK).Str("approve_url")
	if link(forged) == link(w.ApproveURL) {
		x.t.Fatal("the token of the gate is that of the waitpoint")
	}
	before := x.traces(id)
	_, token, _ := strings.Cut(link(forged), ".")
	x.signal(id, w, `"signal_name":"approved","token":"`+strings.Replace(token, ".", ":", 1)+`"`).Problem(fault.CodeInvalidToken)
	if diff := cmp.Diff(before, x.traces(id)); diff != "" {
		x.t.Errorf("(-before +after):\n%s", diff)
	}
}

func (x *executionTest) gateIsSecret() {
	g, other := x.gate(""), x.gate("")
	id, w := x.asks("")
	beforeGate, before := x.gateTraces(g), x.traces(id)
	base := g.link[:strings.LastIndex(g.link, "/")+1]
	ours, others, points := strings.Split(link(g.link), "."), strings.Split(link(other.link), "."), strings.Split(link(w.ApproveURL), ".")
	if ours[0] != g.step || ours[1] != points[1] {
		x.t.Fatalf("%s, %s", g.link, w.ApproveURL)
	}
	flipped := strings.Map(func(r rune) rune { return map[bool]rune{true: 'a', false: '0'}[r == '0'] }, ours[2])
	var answers []approvalPage
	for _, bad := range []string{
		uuid.NewString() + "." + ours[1] + "." + ours[2], "nothing", link(g.link) + "x", ours[0] + "." + ours[1] + "." + flipped, ours[0] + ".k9." + ours[2],
		ours[0] + "." + ours[1] + "." + others[2], ours[0] + "." + ours[1] + "." + points[2], points[0] + "." + points[1] + "." + ours[2], g.run + "." + ours[1] + "." + ours[2],
	} {
		for _, method := range []string{http.MethodGet, http.MethodPost} {
			p := x.visit(method, base+bad, map[bool]string{true: byAda}[method == http.MethodPost])
			x.sees(p, http.StatusForbidden, "This link is not valid")
			for _, name := range []string{"X-Request-Id", "Date"} {
				p.Header.Del(name)
			}
			answers = append(answers, p)
			document := x.visit(method, base+bad, `{"decision":"approved","name":"Ada"}`, "Accept: application/json", "Content-Type: application/json")
			if !strings.Contains(document.Body, `"invalid_token"`) || strings.Contains(document.Body, g.step) {
				x.t.Errorf("%s %s = %s", method, bad, document.Body)
			}
		}
	}
	for _, p := range answers[1:] {
		if diff := cmp.Diff(answers[0], p); diff != "" {
			x.t.Fatalf("answers differ:\n%s", diff)
		}
	}
	// A gate's token is none for the signals of a waitpoint.
	x.signal(id, w, `"signal_name":"approved","token":"`+ours[1]+":"+ours[2]+`"`).Problem(fault.CodeInvalidToken)
	if diff := cmp.Diff(beforeGate, x.gateTraces(g)); diff != "" {
		x.t.Errorf("(-before +after):\n%s", diff)
	}
	if diff := cmp.Diff(before, x.traces(id)); diff != "" {
		x.t.Errorf("(-before +after):\n%s", diff)
	}
	// The link leads to its own namespace, wherever it is opened.
	there := x.in("elsewhere").gate("")
	x.decides(there.link, "decision", "approved", "name", "Ada")
	if got := x.in("elsewhere").gateStands(there); got.State != "approved" {
		x.t.Errorf("%+v", got)
	}
}

func (x *executionTest) gateIsText() {
	t := quoted(evil)
	g := x.gateOf(`"workflow_name":`+t, evil, `"prompt":`+t+`,"requested_by":`+t+`,"options":[{"value":`+t+`,"label":`+t+`},{"value":"b","label":`+t+`}]`)
	check := func(p approvalPage) {
		x.t.Helper()
		if strings.Contains(p.Body, "<script") || strings.Contains(p.Body, "<b>") || strings.Contains(p.Body, `alert("`) {
			x.t.Errorf("it is not text:\n%s", p.Body)
		}
	}
	check(x.opens(g.link, evil+": "+evil, "a run of "+evil))
	bad := x.visit(http.MethodPost, g.link, formBody("decision", "approved", "name", "", "reason", evil, "selection", evil))
	check(x.sees(bad, http.StatusUnprocessableEntity))
	if !strings.Contains(bad.Body, " checked>") {
		x.t.Errorf("%s", bad.Body)
	}
	check(x.sees(x.visit(http.MethodPost, g.link, formBody("decision", "approved", "name", evil, "selection", evil+"?")), http.StatusUnprocessableEntity))
	x.Post(g.path("/gate/feedback"), `{"by":`+t+`,"feedback":`+t+`}`).Want(http.StatusOK)
	done := x.decides(g.link, "decision", "approved", "name", evil, "reason", evil, "selection", evil)
	check(x.sees(done, http.StatusOK, "Approved by "+evil+" (as they call themselves)", "Noted by "+evil, "Selected: "+evil))
	want := gateVote{evil, "approved", new(evil), []string{evil}}
	if got := x.gateStands(g).Votes; len(got) != 2 || !cmp.Equal(got[1], want) {
		x.t.Errorf("%+v", got)
	}
}
