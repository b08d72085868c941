package app_test

import (
	"crypto/sha256"
	"encoding/base64"
	"encoding/json"
	"fmt"
	"html"
	"io"
	"net/http"
	"net/url"
	"regexp"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/google/uuid"
	"github.com/rs/zerolog"

	"github.com/flowapi/flowapi/internal/apitest"
	"github.com/flowapi/flowapi/internal/app"
	"github.com/flowapi/flowapi/internal/apptest"
	"github.com/flowapi/flowapi/internal/domain/fault"
	"github.com/flowapi/flowapi/internal/handlers/oapi"
	"github.com/flowapi/flowapi/internal/repo/store"
	"github.com/flowapi/flowapi/internal/storetest"
)

// approvalPage is an answer of the approval page.
type approvalPage struct {
	Status int
	Header http.Header
	Body   string
}

// visit sends a request to a link as a browser without cookies would, and follows nothing. Headers are "Name: value"; one named Host is
// the host that is asked for.
func (x *executionTest) visit(method, link, body string, headers ...string) approvalPage {
	x.t.Helper()
	r, err := http.NewRequestWithContext(x.t.Context(), method, link, strings.NewReader(body))
	if err != nil {
		x.t.Fatal(err)
	}
	r.Header.Set("Accept", "text/html,application/xhtml+xml,*/*;q=0.8")
	if body != "" {
		r.Header.Set("Content-Type", "application/x-www-form-urlencoded")
	}
	for _, h := range headers {
		name, value, _ := strings.Cut(h, ": ")
		r.Header.Set(name, value)
		if name == "Host" {
			r.Host = value
		}
	}
	client := http.Client{CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse }}
	defer client.CloseIdleConnections()
	answer, err := client.Do(r)
	if err != nil {
		x.t.Fatal(err)
	}
	defer answer.Body.Close()
	b, err := io.ReadAll(answer.Body)
	if err != nil {
		x.t.Fatal(err)
	}
	return approvalPage{answer.StatusCode, answer.Header, string(b)}
}

// sees checks that a page has a status and shows texts.
func (x *executionTest) sees(p approvalPage, status int, texts ...string) approvalPage {
	x.t.Helper()
	if p.Status != status {
		x.t.Fatalf("%d, want %d\n%s", p.Status, status, p.Body)
	}
	shown := textOf(p.Body)
	for _, text := range texts {
		if !strings.Contains(shown, text) {
			x.t.Fatalf("the page does not show %q:\n%s", text, shown)
		}
	}
	return p
}

var element = regexp.MustCompile(`(?s)<style>.*?</style>|<[^>]*>`)

// textOf is what a page shows, in a line.
func textOf(body string) string {
	return html.UnescapeString(strings.Join(strings.Fields(element.ReplaceAllString(body, "")), " "))
}

// opens gets a page and checks what it shows.
func (x *executionTest) opens(link string, texts ...string) approvalPage {
	x.t.Helper()
	return x.sees(x.visit(http.MethodGet, link, ""), http.StatusOK, texts...)
}

// decides sends the form of a page, checks that it is taken, and returns the page that it leads to.
func (x *executionTest) decides(link string, fields ...string) approvalPage {
	x.t.Helper()
	answer := x.visit(http.MethodPost, link, formBody(fields...))
	x.sees(answer, http.StatusSeeOther)
	to, err := url.Parse(link)
	if err == nil {
		to, err = to.Parse(answer.Header.Get("Location"))
	}
	if err != nil || to.String() != link || answer.Body != "" {
		x.t.Fatalf("it leads to %q (%v), not back to the page", answer.Header.Get("Location"), err)
	}
	return x.opens(link)
}

// formBody is a form of names and values.
func formBody(fields ...string) string {
	form := url.Values{}
	for i := 0; i < len(fields); i += 2 {
		form.Add(fields[i], fields[i+1])
	}
	return form.Encode()
}

const byAda = "decision=approved&name=Ada"

// link is the last part of the page's path.
func link(u string) string { return u[strings.LastIndex(u, "/")+1:] }

// approvalAt is the suspension that asks with an approval of these members.
func approvalAt(members string) string {
	return `"reason_code":"waiting_for_approval","waitpoints":[{"waitpoint_key":"ok","approval":` + executionJSON(members, `"title":"Deploy 1.4"`, `"requested_by":"ci/release"`) + `}]`
}

// asks suspends an execution on an approval, and returns it with its waitpoint.
func (x *executionTest) asks(members string, more ...string) (uuid.UUID, oapi.MintedWaitpoint) {
	x.t.Helper()
	x.create(`"kind":"deploy"`)
	c := x.claim(lasting) // one of an earlier approval, if that has gone on
	s := x.suspend(c, strings.Join(append([]string{approvalAt(members)}, more...), ","))
	return c.Execution.ID, s.Waitpoints[0]
}

// signals is every signal of an execution's suspension.
func (x *executionTest) signals(id uuid.UUID) []oapi.Signal {
	x.t.Helper()
	return answerAs[oapi.SignalList](x.Get("/v1/executions/" + id.String() + "/signals?all=true").Want(http.StatusOK)).Items
}

// said is a signal as those compare who care for what it says.
type said struct{ Name, Category, SourceType, Source, Payload, Effect string }

func (x *executionTest) said(id uuid.UUID) []said {
	x.t.Helper()
	out := []said{}
	for _, s := range x.signals(id) {
		out = append(out, said{s.SignalName, s.SignalCategory, s.SourceType, s.SourceIdentity, string(s.Payload), string(s.Effect)})
	}
	return out
}

// token makes an API token.
func (x *executionTest) token(name, role, namespace string) string {
	x.t.Helper()
	return x.Post("/v1/admin/tokens", fmt.Sprintf(`{"name":%q,"role":%q,"namespace":%q}`, name, role, namespace)).Want(http.StatusCreated).Str("token")
}

// approvalTraces is everything of an execution and its waitpoints that a decision would change.
type approvalTraces struct {
	Of         executionSnapshot
	Waitpoints string
	Signals    int
}

func (x *executionTest) traces(id uuid.UUID) approvalTraces {
	x.t.Helper()
	s := approvalTraces{Of: x.snapshot(id), Waitpoints: string(x.Get("/v1/executions/" + id.String() + "/waitpoints").Want(http.StatusOK).Body)}
	err := x.server.App.Store().Read(x.t.Context(), func(q *store.Queries) error { return q.Get(&s.Signals, "SELECT count(*) FROM signals") })
	if err != nil {
		x.t.Fatal(err)
	}
	return s
}

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

func (x *executionTest) pageIsSecret() {
	id, w := x.asks("")
	_, other := x.asks("")
	before := x.traces(id)
	base, good := w.ApproveURL[:strings.LastIndex(w.ApproveURL, "/")+1], link(w.ApproveURL)
	parts := strings.Split(good, ".")
	flipped := strings.Map(func(r rune) rune { return map[bool]rune{true: 'a', false: '0'}[r == '0'] }, parts[2])
	var answers []approvalPage
	for _, bad := range []string{
		"nothing", "x.y.z", good + "x", good[:len(good)-1], strings.ToUpper(good), parts[0] + "." + parts[1] + "." + flipped, parts[0] + ".k9." + parts[2], uuid.NewString() + "." + parts[1] + "." + parts[2],
		strings.Split(link(other.ApproveURL), ".")[0] + "." + parts[1] + "." + parts[2], good + ".", "%2e", "%00", strings.Repeat("x", 5000), parts[0] + "%2E" + parts[1] + "." + parts[2],
	} {
		for _, method := range []string{http.MethodGet, http.MethodPost} {
			p := x.visit(method, base+bad, map[bool]string{true: byAda}[method == http.MethodPost])
			x.sees(p, http.StatusForbidden, "This link is not valid")
			for _, name := range []string{"X-Request-Id", "Date"} {
				p.Header.Del(name)
			}
			answers = append(answers, p)
			document := x.visit(method, base+bad, `{"decision":"approved","name":"Ada"}`, "Accept: application/json", "Content-Type: application/json")
			var problem struct{ Code, Instance string }
			if json.Unmarshal([]byte(document.Body), &problem) != nil || problem.Code != "invalid_token" || problem.Instance != "/approve/…" || document.Header.Get("Content-Type") != "application/problem+json" {
				x.t.Errorf("%s %s = %s", method, bad, document.Body)
			}
		}
	}
	for _, p := range answers[1:] {
		if diff := cmp.Diff(answers[0], p); diff != "" {
			x.t.Fatalf("answers differ:\n%s", diff)
		}
	}
	if diff := cmp.Diff(before, x.traces(id)); diff != "" {
		x.t.Errorf("(-before +after):\n%s", diff)
	}
	for _, path := range []string{"approve", "approve/", "approve/" + good + "/", "approve/" + good + "/x"} {
		if p := x.visit(http.MethodGet, strings.TrimSuffix(base, "approve/")+path, ""); p.Status != http.StatusNotFound || strings.Contains(p.Body, parts[2]) {
			x.t.Errorf("%s = %d %s", path, p.Status, p.Body)
		}
	}
}

func (x *executionTest) pageIsText() {
	quoted, _ := json.Marshal(evil)
	t := string(quoted)
	form := `"form":{"type":"object","title":` + t + `,"description":` + t + `,"properties":{` + t + `:{"type":"string","title":` + t + `,"description":` + t + `,"default":` + t + `},"z":{"type":"string","enum":[` + t + `]},"m":{"type":"string","x-multiline":true,"default":` + t + `}}}`
	e := x.create(`"kind":` + t)
	w := x.suspend(x.claim(lasting), approvalAt(`"title":`+t+`,"prompt":`+t+`,"requested_by":`+t+`,"payload":{`+t+`:[`+t+`,"\u202e"]},`+form)).Waitpoints[0]
	check := func(p approvalPage) {
		x.t.Helper()
		if strings.Contains(p.Body, "<script") || strings.Contains(p.Body, "<b>") || strings.Contains(p.Body, "\u202e") {
			x.t.Errorf("it is not text:\n%s", p.Body)
		}
	}
	check(x.opens(w.ApproveURL, evil, `"\u202e"`))
	check(x.visit(http.MethodPost, w.ApproveURL, formBody("decision", "approved", "name", "", "reason", evil, "form."+evil, evil, "form.z", evil+"?")))
	done := x.decides(w.ApproveURL, "decision", "rejected", "name", evil, "reason", evil, "form.z", evil)
	check(done)
	x.sees(done, http.StatusOK, "Rejected by "+evil+" (as they call themselves)")
	if got := x.said(e.ID); len(got) != 1 || got[0].Source != evil {
		x.t.Errorf("%+v", got)
	}
	_, w = x.asks("")
	x.signal(answerAs[oapi.ExecutionList](x.Get("/v1/executions?lane=" + x.lane + "&public_state=suspended").Want(http.StatusOK)).Items[0].ID, w,
		`"signal_name":"approved","source_type":`+t+`,"source_identity":`+t+`,"payload":{"reason":`+t+`}`).Want(http.StatusOK)
	check(x.opens(w.ApproveURL, "Approved by "+evil+" ("+evil+")"))
}

func (x *executionTest) pageHeaders() {
	_, w := x.asks("")
	answers := map[string]approvalPage{
		"shown":    x.opens(w.ApproveURL),
		"wrong":    x.visit(http.MethodPost, w.ApproveURL, "decision=approved"),
		"not ours": x.visit(http.MethodGet, w.ApproveURL+"0", ""),
		"done":     x.visit(http.MethodPost, w.ApproveURL, byAda),
		"decided":  x.opens(w.ApproveURL),
		"document": x.visit(http.MethodPost, w.ApproveURL, `{}`, "Content-Type: application/json", "Accept: application/json"),
	}
	style := regexp.MustCompile(`(?s)<style>(.*?)</style>`)
	for name, p := range answers {
		for header, want := range map[string]string{"Referrer-Policy": "no-referrer", "Cache-Control": "no-store", "X-Content-Type-Options": "nosniff", "X-Robots-Tag": "noindex, nofollow"} {
			if got := p.Header.Get(header); got != want {
				x.t.Errorf("%s: %s = %q", name, header, got)
			}
		}
		policy := p.Header.Get("Content-Security-Policy")
		for _, want := range []string{"default-src 'none';", "form-action 'self';", "base-uri 'none';", "frame-ancestors 'none'"} {
			if !strings.Contains(policy, want) {
				x.t.Errorf("%s: %s", name, policy)
			}
		}
		if strings.Contains(policy, "unsafe") || strings.Contains(p.Body, "style=") || strings.Contains(p.Body, "<script") || strings.Contains(p.Body, "http") {
			x.t.Errorf("%s: %s\n%s", name, policy, p.Body)
		}
		if name == "done" || name == "document" {
			continue
		}
		found := style.FindAllStringSubmatch(p.Body, -1)
		if len(found) != 1 {
			x.t.Fatalf("%s has %d styles", name, len(found))
		}
		if sum := sha256.Sum256([]byte(found[0][1])); !strings.Contains(policy, "style-src 'sha256-"+base64.StdEncoding.EncodeToString(sum[:])+"'") {
			x.t.Errorf("%s: the policy %s does not allow its style", name, policy)
		}
		if !strings.HasPrefix(p.Body, "<!doctype html>\n<html lang=\"en\">") || p.Header.Get("Content-Type") != "text/html; charset=utf-8" {
			x.t.Errorf("%s: %s %.80s", name, p.Header.Get("Content-Type"), p.Body)
		}
	}
}

func (x *executionTest) pageForPrograms() {
	id, w := x.asks(someForm)
	post := func(body string, headers ...string) approvalPage {
		x.t.Helper()
		return x.visit(http.MethodPost, w.ApproveURL, body, append([]string{"Content-Type: application/json", "Accept: */*"}, headers...)...)
	}
	before := x.traces(id)
	for body, want := range map[string]string{
		`{"decision":"maybe","name":"Ada"}`: "/decision", `{"decision":"approved"}`: "/name", `null`: "/decision", `{"decision":"approved","name":"Ada"}`: "/form/zone", `{"decision":"approved","name":"Ada","form":{"zone":"a","sure":1}}`: "/form/sure",
		`{"decision":"approved","name":"Ada","form":{"zone":"a","sure":true,"x":1}}`: "/form/x", `{"decision":"approved","name":"Ada","form":[]}`: "/form", `{"decision":1}`: "", `[]`: "", `{"decision":"approved","name":"Ada","token":"x"}`: "",
	} {
		p := post(body)
		var problem struct {
			Code   string
			Errors []fault.Field
		}
		if json.Unmarshal([]byte(p.Body), &problem) != nil || p.Status != http.StatusUnprocessableEntity || problem.Code != "validation_failed" || len(problem.Errors) == 0 || problem.Errors[0].Pointer != want {
			x.t.Errorf("%s = %d %s, want %s", body, p.Status, p.Body, want)
		}
	}
	for _, body := range []string{`{`, `{"decision":"approved"} {}`, "decision=approved", ""} {
		if p := post(body); p.Status != http.StatusBadRequest || !strings.Contains(p.Body, "malformed_json") {
			x.t.Errorf("%q = %d %s", body, p.Status, p.Body)
		}
	}
	if diff := cmp.Diff(before, x.traces(id)); diff != "" {
		x.t.Fatalf("(-before +after):\n%s", diff)
	}
	_, bare := x.asks("")
	for body, pointer := range map[string]string{`{"decision":"approved","name":"Ada","form":{"x":1}}`: "/form", `{"decision":"approved","name":"\u200b "}`: "/name", `{"decision":"approved","name":"a\u0000"}`: "/name"} {
		if p := x.visit(http.MethodPost, bare.ApproveURL, body, "Content-Type: application/json", "Accept: */*"); p.Status != http.StatusUnprocessableEntity || !strings.Contains(p.Body, `"pointer":"`+pointer+`"`) {
			x.t.Errorf("%s = %d %s", body, p.Status, p.Body)
		}
	}
	const good = `{"decision":"approved","name":"Ada","reason":"r","form":{"zone":"b","sure":true}}`
	first, second := answerOf[oapi.SignalReceipt](x, post(good)), answerOf[oapi.SignalReceipt](x, post(good, "Accept: application/json"))
	if first.Outcome != "accepted" || first.Effect != "resume_condition_satisfied" || second.Outcome != "duplicate" || second.SignalID != first.SignalID {
		x.t.Errorf("%+v, %+v", first, second)
	}
	if got := x.said(id); len(got) != 1 || got[0].Payload != `{"decision":"approved","by":"Ada","reason":"r","form":{"zone":"b","sure":true}}` {
		x.t.Errorf("%+v", got)
	}
	if p := post(`{"decision":"rejected","name":"Ada"}`); p.Status != http.StatusConflict || !strings.Contains(p.Body, "waitpoint_closed") {
		x.t.Errorf("%d %s", p.Status, p.Body)
	}
	_, w = x.asks(twoPeople)
	if p := post(`{"decision":"approved"}`, "Authorization: Bearer nobody"); p.Status != http.StatusUnauthorized || !strings.Contains(p.Body, "unauthenticated") {
		x.t.Errorf("%d %s", p.Status, p.Body)
	}
	if got := answerOf[oapi.SignalReceipt](x, post(`{"decision":"approved"}`, "Authorization: Bearer "+x.token("kim", "operator", "default"))); got.Effect != "appended_to_waitpoint" {
		x.t.Errorf("%+v", got)
	}
}

// answerOf returns a JSON answer of the page.
func answerOf[T any](x *executionTest, p approvalPage) (v T) {
	x.t.Helper()
	if err := json.Unmarshal([]byte(p.Body), &v); err != nil || p.Status != http.StatusOK || p.Header.Get("Content-Type") != "application/json" {
		x.t.Fatalf("%d %s: %v", p.Status, p.Body, err)
	}
	return v
}

func (x *executionTest) pageRefuses() {
	id, w := x.asks("")
	before := x.traces(id)
	for _, tt := range []struct {
		body, kind string
		status     int
		code       string
	}{
		{byAda + "&reason=" + strings.Repeat("x", 256<<10), "application/x-www-form-urlencoded", http.StatusRequestEntityTooLarge, "payload_too_large"},
		{byAda + "&reason=" + strings.Repeat("x", 16385), "application/x-www-form-urlencoded", http.StatusUnprocessableEntity, "validation_failed"},
		{"%zz", "application/x-www-form-urlencoded", http.StatusBadRequest, "invalid_parameter"},
		{"x", "multipart/form-data; boundary=x", http.StatusUnsupportedMediaType, "unsupported_media_type"},
		{byAda, "text/plain", http.StatusUnsupportedMediaType, "unsupported_media_type"},
		{"", "application/x-www-form-urlencoded", http.StatusUnprocessableEntity, "validation_failed"},
	} {
		if p := x.visit(http.MethodPost, w.ApproveURL, tt.body, "Content-Type: "+tt.kind); p.Status != tt.status || !strings.HasPrefix(p.Header.Get("Content-Type"), "text/html") {
			x.t.Errorf("%.40s = %d %s %s", tt.body, p.Status, p.Header, p.Body)
		}
		if p := x.visit(http.MethodPost, w.ApproveURL, tt.body, "Content-Type: "+tt.kind, "Accept: application/json"); p.Status != tt.status || !strings.Contains(p.Body, `"code":"`+tt.code+`"`) {
			x.t.Errorf("%.40s = %d %s", tt.body, p.Status, p.Body)
		}
	}
	if diff := cmp.Diff(before, x.traces(id)); diff != "" {
		x.t.Errorf("(-before +after):\n%s", diff)
	}
}

func (x *executionTest) pageOrigins() {
	id, w := x.asks("")
	here, err := url.Parse(w.ApproveURL)
	if err != nil {
		x.t.Fatal(err)
	}
	before := x.traces(id)
	for _, headers := range [][]string{
		{"Sec-Fetch-Site: cross-site"}, {"Sec-Fetch-Site: same-site"}, {"Sec-Fetch-Site: cross-site", "Origin: null"}, {"Origin: https://evil.example"}, {"Origin: http://evil.example", "Sec-Fetch-Site: "},
		{"Host: evil.example"}, // a name that was rebound to an anonymous server
	} {
		if p := x.visit(http.MethodPost, w.ApproveURL, byAda, headers...); p.Status != http.StatusForbidden || !strings.Contains(p.Body, "cross_origin") {
			x.t.Errorf("%v = %d %s", headers, p.Status, p.Body)
		}
	}
	if diff := cmp.Diff(before, x.traces(id)); diff != "" {
		x.t.Fatalf("(-before +after):\n%s", diff)
	}
	if p := x.visit(http.MethodPost, strings.Replace(w.ApproveURL, "/approve/"+link(w.ApproveURL), "/v1/flows", 1), `{"goal":"x"}`, "Origin: null"); p.Status != http.StatusForbidden {
		x.t.Errorf("an unnamed origin may call the API: %d %s", p.Status, p.Body)
	}
	for _, headers := range [][]string{
		{"Sec-Fetch-Site: same-origin", "Origin: null"}, // of a page that sends no referrer, over TLS or on this machine
		{"Origin: null"},                // of the same, over plain HTTP
		{"Origin: http://" + here.Host}, // of a browser that says it all the same
		{"Sec-Fetch-Site: none"},        // typed by hand
		{},                              // curl
	} {
		_, w := x.asks("")
		x.sees(x.visit(http.MethodPost, w.ApproveURL, byAda, headers...), http.StatusSeeOther)
	}
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
