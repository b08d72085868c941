package app_test

import (
	"fmt"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/rs/zerolog"

	"github.com/flowapi/flowapi/internal/apitest"
	"github.com/flowapi/flowapi/internal/app"
	"github.com/flowapi/flowapi/internal/apptest"
	"github.com/flowapi/flowapi/internal/domain/fault"
	"github.com/flowapi/flowapi/internal/handlers/oapi"
	"github.com/flowapi/flowapi/internal/storetest"
)

const (
	atAsking  = "suspended unowned not_applicable waiting_for_approval none attempt_interrupted suspended"
	evil      = `<script>alert("x")</script><b>&`
	someForm  = `"title":"Deploy 1.4","form":{"type":"object","title":"Where","required":["zone","sure"],"properties":{"zone":{"type":"string","title":"Zone","enum":["b","a"]},"sure":{"type":"boolean"},"count":{"type":"integer","minimum":1,"default":3},"notes":{"type":"string","x-multiline":true}}}`
	twoPeople = `"min_approvals":2`
)

// TestApprovalPage: what is behind the link of an approval. engine.md "Security", http.md "/approve".
func TestApprovalPage(t *testing.T) {
	t.Parallel()
	runExecutionCases(t, []executionCase{
		{"approved by the form alone, the worker reads why, a second look says who and when", (*executionTest).pageApproves},
		{"rejected with feedback", (*executionTest).pageRejects},
		{"a scanner that follows the link decides nothing", (*executionTest).pageIsLookedAt},
		{"a waitpoint without an approval", (*executionTest).pageOfAnyWaitpoint},
		{"a form gives a document of its types, or says beside each field what is wrong", (*executionTest).pageHasForm},
		{"twice by the same person is once, and a third comes too late", (*executionTest).pageTwice},
		{"two people, who say by tokens who they are", (*executionTest).pageTwoPeople},
		{"not whoever asks", (*executionTest).pageNotOwn},
		{"expired, ended, closed and resumed say so", (*executionTest).pageEnds},
		{"before it is waited for", (*executionTest).pageOfPending},
		{"the same waitpoint asked again", (*executionTest).pageAgain},
		{"every wrong link has the same answer", (*executionTest).pageIsSecret},
		{"what people write is text", (*executionTest).pageIsText},
		{"headers", (*executionTest).pageHeaders},
		{"JSON for programs", (*executionTest).pageForPrograms},
		{"bodies that it does not take", (*executionTest).pageRefuses},
		{"other origins", (*executionTest).pageOrigins},
		{"POST …/approvals is held to the form, too", (*executionTest).approvalsHaveForms},
	})
}

func (x *executionTest) pageApproves() {
	id, w := x.asks(`"prompt":"Line one\nline two","payload":{"v":"1.4","n":1.50}`, `"timeout_ms":7200000`)
	shown := x.opens(w.ApproveURL, "You are asked to decide", "Deploy 1.4", "Waiting for a decision", "ci/release", "(in 2 hours; then it fails)", "deploy in lane "+x.lane, "Line one line two", `{ "v": "1.4", "n": 1.50 }`)
	if !strings.Contains(shown.Body, "Line one\nline two") || strings.Contains(textOf(shown.Body), "Access token") {
		x.t.Errorf("%s", shown.Body)
	}
	after := x.decides(w.ApproveURL, "decision", "approved", "name", "  Ada Lovelace ", "reason", "Looks\r\ngood.")
	at := x.server.Clock.Now().UTC().Format("Mon 2 Jan 2006, 15:04 UTC")
	x.sees(after, http.StatusOK, "Approved by Ada Lovelace (as they call themselves) on "+at+". Looks good.")
	if strings.Contains(after.Body, "<form") || strings.Contains(after.Body, "<button") {
		x.t.Errorf("what is decided can be decided again:\n%s", after.Body)
	}
	want := []said{{"approved", "approval", "approval_link", "Ada Lovelace", `{"decision":"approved","by":"Ada Lovelace","reason":"Looks\ngood."}`, "resume_condition_satisfied"}}
	if diff := cmp.Diff(want, x.said(id)); diff != "" {
		x.t.Errorf("(-want +got):\n%s", diff)
	}
	again := x.claim(lasting)
	if again.Kind != "resumed" || again.Execution.ID != id {
		x.t.Errorf("%+v", again)
	}
	for _, e := range x.events(id) {
		if e.Type == "signal.delivered" && (e.Actor != "approval_link" || strings.Contains(fmt.Sprint(e), link(w.ApproveURL))) {
			x.t.Errorf("%+v", e)
		}
	}
	x.report(again, "complete", "").Want(http.StatusOK)
	x.opens(w.ApproveURL, "Approved by Ada Lovelace")
}

func (x *executionTest) pageRejects() {
	id, w := x.asks(someForm)
	x.sees(x.decides(w.ApproveURL, "decision", "rejected", "name", "Bob", "reason", "Not on a Friday."), http.StatusOK, "Rejected by Bob (as they call themselves)", "Not on a Friday.", "What was decided so far")
	c := x.claim(lasting)
	got := answerAs[oapi.SignalList](x.Get("/v1/executions/" + c.Execution.ID.String() + "/signals").Want(http.StatusOK)).Items
	if c.Execution.ID != id || len(got) != 1 || got[0].SignalName != "rejected" || string(got[0].Payload) != `{"decision":"rejected","by":"Bob","reason":"Not on a Friday.","form":{"sure":false}}` {
		x.t.Errorf("%+v", got)
	}
}

func (x *executionTest) pageIsLookedAt() {
	id, w := x.asks(someForm)
	before := x.traces(id)
	for _, method := range []string{http.MethodGet, http.MethodHead} {
		for _, query := range []string{"", "?decision=approved&name=Scanner", "?utm_source=mail"} {
			p := x.sees(x.visit(method, w.ApproveURL+query, ""), http.StatusOK)
			if (p.Body == "") != (method == http.MethodHead) {
				x.t.Errorf("%s: %d bytes", method, len(p.Body))
			}
		}
	}
	for _, method := range []string{http.MethodPut, http.MethodDelete, http.MethodPatch, http.MethodOptions} {
		if p := x.visit(method, w.ApproveURL, byAda); p.Status != http.StatusMethodNotAllowed || strings.Contains(p.Body, link(w.ApproveURL)) {
			x.t.Errorf("%s = %d %s", method, p.Status, p.Body)
		}
	}
	if diff := cmp.Diff(before, x.traces(id)); diff != "" {
		x.t.Errorf("looking has changed something (-before +after):\n%s", diff)
	}
	x.stands(id, atAsking)
}

func (x *executionTest) pageOfAnyWaitpoint() {
	for _, decision := range []string{"approved", "rejected"} {
		e := x.create("")
		w := x.suspend(x.claim(lasting), waitForGo).Waitpoints[0]
		x.opens(w.ApproveURL, "an execution in lane "+x.lane+": waiting for signal", "the worker of the execution")
		x.sees(x.decides(w.ApproveURL, "decision", decision, "name", "Ada"), http.StatusOK, strings.ToUpper(decision[:1])+decision[1:]+" by Ada")
		x.stands(e.ID, atReleased)
		if got := x.said(e.ID); len(got) != 1 || got[0].Name != decision {
			x.t.Errorf("%+v", got)
		}
		x.report(x.claim(lasting), "complete", "").Want(http.StatusOK)
	}
}

func (x *executionTest) pageHasForm() {
	id, w := x.asks(someForm)
	first := x.opens(w.ApproveURL, "Where", "Zone (required)", "count (optional)").Body
	for _, want := range []string{`<label for="field-0">`, `<select id="field-0" name="form.zone" required>`, `<option value="a">a</option>`, `type="checkbox" id="field-1" name="form.sure" value="true">`,
		`<input type="number" id="field-2" name="form.count" value="3" step="1" min="1">`, `<textarea id="field-3" name="form.notes"`, `<input type="text" id="name" name="name" value="" maxlength="256" autocomplete="off" required`,
		`<button type="submit" disabled hidden></button>`, `name="decision" value="approved">Approve</button>`, `name="decision" value="rejected" formnovalidate>Reject</button>`} {
		if !strings.Contains(first, want) {
			x.t.Errorf("the form has no %s:\n%s", want, first)
		}
	}
	before := x.traces(id)
	p := x.visit(http.MethodPost, w.ApproveURL, formBody("decision", "approved", "name", "", "reason", "half", "form.zone", "", "form.count", "0", "form.notes", "\nkept", "form.sure", "true"))
	x.sees(p, http.StatusUnprocessableEntity, "Nothing was decided", "Your name: Say who you are.", "Zone: This is required.", "count: This must be at least 1.")
	for _, want := range []string{`aria-live="assertive"`, `<a href="#field-0">`, `<p class="error" id="field-0-error">This is required.</p>`, `name="form.zone" required aria-describedby=" field-0-error" aria-invalid="true">`,
		`value="0" step="1" min="1" aria-describedby=" field-2-error" aria-invalid="true">`, `name="form.sure" value="true" checked>`, ">\n\nkept</textarea>", ">\nhalf</textarea>",
		`aria-describedby="name-hint name-error" aria-invalid="true" autofocus>`, "<title>Error: "} {
		if !strings.Contains(p.Body, want) {
			x.t.Errorf("the form has no %s:\n%s", want, p.Body)
		}
	}
	for _, body := range []string{"name=Ada", "name=Ada&decision=maybe", "name=Ada&decision=approved&decision=", byAda, byAda + "&form.zone=c&form.sure=true", "decision=approved&form.zone=a&name=" + strings.Repeat("x", 257),
		"decision=approved&form.zone=a&name=a%0Ab", "decision=approved&form.zone=a&name=%00", "decision=approved&form.zone=a&name=%ff", byAda + "&form.zone=a&reason=a%00"} {
		if p := x.visit(http.MethodPost, w.ApproveURL, body); body != "name=Ada&decision=approved&decision=" && p.Status != http.StatusUnprocessableEntity {
			x.t.Errorf("%.80s = %d", body, p.Status)
		}
	}
	if diff := cmp.Diff(before, x.traces(id)); diff != "" {
		x.t.Fatalf("what is wrong has decided something (-before +after):\n%s", diff)
	}
	x.decides(w.ApproveURL, "decision", "approved", "name", "Ada", "form.zone", "a", "form.count", "12", "form.notes", "<i>\r\nß", "form.unasked", "x")
	if got := x.said(id); len(got) != 1 || got[0].Payload != `{"decision":"approved","by":"Ada","form":{"zone":"a","sure":false,"count":12,"notes":"\u003ci\u003e\nß"}}` {
		x.t.Errorf("%+v", got)
	}
}

func (x *executionTest) pageTwice() {
	id, w := x.asks("")
	x.decides(w.ApproveURL, "decision", "approved", "name", "Ada")
	told := x.traces(id)
	x.sees(x.decides(w.ApproveURL, "decision", "approved", "name", "Ada", "reason", "again"), http.StatusOK, "Approved by Ada")
	for _, late := range []string{"decision=approved&name=Bob", "decision=rejected&name=Ada"} {
		x.sees(x.visit(http.MethodPost, w.ApproveURL, late), http.StatusConflict, "Too late", "Your decision came too late, and was not recorded.", "Approved by Ada")
	}
	if diff := cmp.Diff(told, x.traces(id)); diff != "" {
		x.t.Errorf("(-before +after):\n%s", diff)
	}
}

func (x *executionTest) pageTwoPeople() {
	id, w := x.asks(twoPeople)
	ada, bob := x.token("ada", "operator", "default"), x.token("bob", "operator", "*")
	p := x.opens(w.ApproveURL, "0 of 2 approvals", "2 different people; one rejection ends it", "Access token (optional)", "somebody on the server’s own machine")
	if !strings.Contains(p.Body, `<input type="password" id="token" name="token" autocomplete="off"`) || strings.Contains(p.Body, `name="name"`) {
		x.t.Errorf("%s", p.Body)
	}
	refusals := map[string]struct {
		token, says string
		status      int
	}{
		"an unknown one":            {"no-such-token", "The token is not known", http.StatusUnauthorized},
		"a viewer's":                {x.token("eve", "viewer", "default"), "this one has the role viewer", http.StatusForbidden},
		"a worker's":                {x.token("wes", "worker", "*"), "this one has the role worker", http.StatusForbidden},
		"that of another namespace": {x.token("oz", "operator", "other"), "for another namespace", http.StatusForbidden},
	}
	before := x.traces(id)
	for name, refused := range refusals {
		answer := x.visit(http.MethodPost, w.ApproveURL, formBody("decision", "approved", "token", refused.token, "reason", "kept"))
		if x.sees(answer, refused.status, refused.says, "kept"); strings.Contains(answer.Body, refused.token) {
			x.t.Errorf("%s is shown: %s", name, answer.Body)
		}
		x.visit(http.MethodPost, w.ApproveURL, formBody("decision", "approved"), "Authorization: Bearer "+refused.token)
	}
	// Whoever has the link, or the waitpoint's token, cannot be two people.
	x.signal(id, w, `"signal_name":"approved","source_type":"person","source_identity":"token:ada"`).Problem(fault.CodeForbidden)
	x.signal(id, w, `"signal_name":"rejected"`).Problem(fault.CodeForbidden)
	if diff := cmp.Diff(before, x.traces(id)); diff != "" {
		x.t.Fatalf("(-before +after):\n%s", diff)
	}
	x.sees(x.decides(w.ApproveURL, "decision", "approved", "token", " "+ada+" ", "name", "Bob", "reason", "fine"), http.StatusOK, "1 of 2 approvals", "Approved by ada (access token)", "fine")
	x.sees(x.decides(w.ApproveURL, "decision", "approved", "token", ada), http.StatusOK, "1 of 2 approvals")
	x.Post("/v1/executions/"+id.String()+"/approvals", fmt.Sprintf(`{"waitpoint_id":%q,"decision":"approved"}`, w.WaitpointID), "Authorization: Bearer "+ada).Want(http.StatusOK)
	x.opens(w.ApproveURL, "1 of 2 approvals")
	x.stands(id, atAsking)
	answer := x.visit(http.MethodPost, w.ApproveURL, "decision=approved", "Authorization: Bearer "+bob)
	x.sees(answer, http.StatusSeeOther)
	x.opens(w.ApproveURL, "Approved by bob (access token)", "Approved by ada (access token)")
	x.stands(id, atReleased)
	var sources []string
	for _, s := range answerAs[oapi.SignalList](x.Get("/v1/executions/" + id.String() + "/signals").Want(http.StatusOK)).Items {
		sources = append(sources, s.SourceType+" "+s.SourceIdentity)
	}
	if diff := cmp.Diff([]string{"operator token:ada", "operator token:bob"}, sources); diff != "" {
		x.t.Errorf("(-want +got):\n%s", diff)
	}
}

func (x *executionTest) pageNotOwn() {
	id, w := x.asks(`"allow_requester":false,"requested_by":"token:mia"`)
	mia, joe := x.token("mia", "operator", "default"), x.token("joe", "operator", "default")
	x.opens(w.ApproveURL, "somebody other than whoever asked")
	before := x.traces(id)
	x.sees(x.visit(http.MethodPost, w.ApproveURL, formBody("decision", "approved", "token", mia)), http.StatusForbidden, "token:mia asks for this approval: another person has to decide.")
	x.signal(id, w, `"signal_name":"approved","source_identity":"token:joe"`).Problem(fault.CodeForbidden)
	if diff := cmp.Diff(before, x.traces(id)); diff != "" {
		x.t.Errorf("(-before +after):\n%s", diff)
	}
	x.sees(x.decides(w.ApproveURL, "decision", "approved", "token", joe), http.StatusOK, "Approved by joe (access token)")
}

func (x *executionTest) pageEnds() {
	const day = "Mon 2 Jan 2006, 15:04 UTC"
	id, w := x.asks("", `"timeout_ms":60000`)
	other, open := x.asks("")
	x.advance(time.Minute)
	x.opens(w.ApproveURL, "This request expired on "+x.get(id).CompletedAt.Time().UTC().Format(day)+". Nobody decided in time.")
	x.sees(x.visit(http.MethodPost, w.ApproveURL, byAda), http.StatusConflict, "Your decision came too late", "This request expired")
	_, went := x.asks("", `"timeout_ms":60000,"timeout_behavior":"auto_resume"`)
	_, escalated := x.asks("", `"timeout_ms":60000,"timeout_behavior":"escalate"`)
	x.advance(time.Minute)
	x.opens(went.ApproveURL, "This request expired on")
	x.sees(x.decides(escalated.ApproveURL, "decision", "rejected", "name", "Ada"), http.StatusOK, "Rejected by Ada")

	x.Post("/v1/executions/"+other.String()+"/operator-cancel", `{"reason":"x"}`).Want(http.StatusOK)
	x.opens(open.ApproveURL, "The execution ended (cancelled) on "+x.server.Clock.Now().UTC().Format(day)+". No decision is needed any more.")
	x.sees(x.visit(http.MethodPost, open.ApproveURL, byAda), http.StatusConflict, "came too late")

	id, w = x.asks("")
	x.Post("/v1/executions/"+id.String()+"/resume", `{}`).Want(http.StatusOK)
	x.opens(w.ApproveURL, "This request was closed on", "The execution went on without a decision here.")

	id, w = x.asks("")
	x.Post("/v1/executions/"+id.String()+"/waitpoints/"+w.WaitpointID.String()+"/close", `{"reason":"<b>wrong</b> address"}`).Want(http.StatusOK)
	x.opens(w.ApproveURL, "This request was closed on", "<b>wrong</b> address")
}

// makes makes a waitpoint beforehand.
func (x *executionTest) makes(c oapi.Claim, members string) oapi.MintedWaitpoint {
	x.t.Helper()
	return answerAs[oapi.MintedWaitpoint](x.report(c, "waitpoints", members).Want(http.StatusCreated))
}

func (x *executionTest) pageOfPending() {
	x.create(`"kind":"deploy"`)
	c := x.claim(lasting)
	w := x.makes(c, `"waitpoint_key":"later","approval":{"title":"Later"}`)
	bare := x.makes(c, `"waitpoint_key":"bare","expires_in_ms":1000`)
	x.opens(w.ApproveURL, "Later", "The execution does not wait for this yet.")
	x.opens(bare.ApproveURL, "deploy in lane "+x.lane+": waitpoint bare")
	x.sees(x.decides(w.ApproveURL, "decision", "approved", "name", "Ada"), http.StatusOK, "Waiting for a decision", "Approved by Ada", "kept until it is waited for")
	s := x.suspend(c, `"reason_code":"waiting_for_approval","waitpoints":[{"use_pending":"`+w.WaitpointID.String()+`"}]`)
	if s.Outcome != "already_satisfied" {
		x.t.Errorf("%+v", s)
	}
	x.opens(w.ApproveURL, "Approved by Ada (as they call themselves) on")
	x.advance(time.Second)
	x.opens(bare.ApproveURL, "This request expired on")
}

func (x *executionTest) pageAgain() {
	const keeping = `"resume_policy":{"close_waitpoint_on_resume":false}`
	x.create("")
	w := x.suspend(x.claim(lasting), approvalAt("")+","+keeping).Waitpoints[0]
	x.decides(w.ApproveURL, "decision", "approved", "name", "Ada", "reason", "the first")
	c := x.claim(lasting)
	x.suspend(c, `"reason_code":"waiting_for_approval","waitpoints":[{"use_pending":"`+w.WaitpointID.String()+`"}],`+keeping)
	x.stands(c.Execution.ID, atAsking)
	x.opens(w.ApproveURL, "Waiting for a decision", "the first")
	x.sees(x.decides(w.ApproveURL, "decision", "approved", "name", "Ada", "reason", "the second"), http.StatusOK, "Approved by Ada", "the second", "the first")
	x.stands(c.Execution.ID, atReleased)
	// The same once more is the same decision, and not one about what will be asked next.
	x.decides(w.ApproveURL, "decision", "approved", "name", "Ada", "reason", "the second")
	c = x.claim(lasting)
	x.suspend(c, `"reason_code":"waiting_for_approval","waitpoints":[{"use_pending":"`+w.WaitpointID.String()+`"}],`+keeping)
	x.stands(c.Execution.ID, atAsking)
}

func (x *executionTest) approvalsHaveForms() {
	id, w := x.asks(someForm)
	approve := func(members string) *apitest.Response {
		return x.Post("/v1/executions/"+id.String()+"/approvals", executionJSON(members, `"waitpoint_id":"`+w.WaitpointID.String()+`"`, `"decision":"approved"`))
	}
	for form, pointers := range map[string][]string{``: {"/form/zone", "/form/sure"}, `"form":{"zone":"c","sure":true}`: {"/form/zone"}, `"form":"x"`: {"/form"}, `"form":{"zone":"a","sure":true,"y":1}`: {"/form/y"}} {
		var got []string
		for _, f := range x.refused(fault.CodeValidationFailed, func() *apitest.Response { return approve(form) }, id).Fields() {
			got = append(got, f.Pointer)
		}
		if diff := cmp.Diff(pointers, got); diff != "" {
			x.t.Errorf("%s (-want +got):\n%s", form, diff)
		}
	}
	approve(`"form":{"zone":"a","sure":true}`).Want(http.StatusOK)
	approve(`"form":{"zone":"nothing"}`).Want(http.StatusOK) // the same decision again is answered as before
	id, w = x.asks(someForm)
	approve(`"decision":"rejected"`).Want(http.StatusOK)
	id, w = x.asks(`"form":null`)
	approve(`"form":[1]`).Want(http.StatusOK)

	x.create("")
	c := x.claim(lasting)
	for form, pointer := range map[string]string{`{}`: "/properties", `[]`: "", `{"properties":{"x":{"type":"array"}}}`: "/properties/x/type"} {
		for path, at := range map[string]string{"suspend": "/waitpoints/0/approval/form", "waitpoints": "/approval/form"} {
			members := approvalAt(`"form":` + form)
			if path == "waitpoints" {
				members = `"waitpoint_key":"x","approval":{"title":"x","form":` + form + `}`
			}
			if got := x.report(c, path, members).Problem(fault.CodeValidationFailed).Fields(); got[0].Pointer != at+pointer {
				x.t.Errorf("%s %s: %+v", path, form, got)
			}
		}
	}
}

// TestApprovalPage_Token: on a server that demands tokens the link alone is enough, unless it matters who decides; and nothing that the
// server writes down has the link in it.
func TestApprovalPage_Token(t *testing.T) {
	t.Parallel()
	storetest.Databases(t, func(t *testing.T, base string) {
		log := &lockedBuffer{}
		s := apptest.Start(t, base, func(c *app.Config) {
			c.Token, c.PublicURL, c.Log = rootToken, "https://flow.example/sub", zerolog.New(log).Level(zerolog.DebugLevel)
		})
		s.Client = s.As(rootToken)
		x := executionsOn(t, s, "lane")
		id, w := x.asks("")
		if !strings.HasPrefix(w.ApproveURL, "https://flow.example/sub/approve/") {
			t.Fatalf("%s", w.ApproveURL)
		}
		secret := link(w.ApproveURL)
		at := x.Base() + "/approve/" + secret
		x.opens(at, "Your name")
		x.visit(http.MethodHead, at, "")
		x.visit(http.MethodPut, at, "")
		x.visit(http.MethodGet, x.Base()+"//approve/"+secret, "")
		x.visit(http.MethodGet, x.Base()+"/v1/approve/"+secret, "")
		x.visit(http.MethodGet, x.Base()+"/Approve/"+secret, "")
		x.visit(http.MethodGet, at+"/more", "")
		x.visit(http.MethodGet, at+"0", "")
		x.visit(http.MethodPost, at, byAda, "Sec-Fetch-Site: cross-site")
		x.visit(http.MethodPost, at, "decision=approved", "Traceparent: 00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01")
		x.sees(x.visit(http.MethodPost, at, byAda, "Host: flow.example", "Origin: null"), http.StatusSeeOther)
		x.opens(at, "Approved by Ada")
		x.stands(id, atReleased)

		_, two := x.asks(twoPeople)
		at = x.Base() + "/approve/" + link(two.ApproveURL)
		x.opens(at, "Access token (required)")
		x.sees(x.visit(http.MethodPost, at, byAda), http.StatusUnauthorized, "Send a token")
		x.sees(x.decides(at, "decision", "approved", "token", rootToken), http.StatusOK, "1 of 2 approvals")

		metrics := x.Get("/metrics").Want(http.StatusOK)
		for _, want := range []string{`flowapi_http_requests_total{operation="showApproval",status="200"}`, `flowapi_http_requests_total{operation="decideByLink",status="303"}`} {
			if !strings.Contains(string(metrics.Body), want) {
				t.Errorf("the metrics lack %s", want)
			}
		}
		s.Stop()
		written := string(log.Bytes())
		if !strings.Contains(written, `"path":"/approve/…"`) || !strings.Contains(written, `"route":"/approve/{token}"`) {
			t.Errorf("the log does not tell of the page:\n%s", written)
		}
		for _, hidden := range []string{secret, secret[len(secret)-64:], secret[:36] + ".", rootToken} {
			if strings.Contains(written, hidden) || strings.Contains(string(metrics.Body), hidden) {
				t.Errorf("%s is written down:\n%s", hidden, written)
			}
		}
	})
}
