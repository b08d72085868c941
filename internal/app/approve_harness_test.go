package app_test

import (
	"fmt"
	"html"
	"io"
	"net/http"
	"net/url"
	"regexp"
	"strings"

	"github.com/google/uuid"

	"github.com/flowapi/flowapi/internal/handlers/oapi"
	"github.com/flowapi/flowapi/internal/repo/store"
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
