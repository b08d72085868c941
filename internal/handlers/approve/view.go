package approve

import (
	"bytes"
	"cmp"
	"crypto/sha256"
	_ "embed" // of the template and its style
	"encoding/base64"
	"encoding/json"
	"fmt"
	"html/template"
	"math"
	"net/http"
	"net/url"
	"strconv"
	"strings"
	"time"

	"github.com/go-json-experiment/json/jsontext"

	"github.com/flowapi/flowapi/internal/domain/execution"
	"github.com/flowapi/flowapi/internal/domain/fault"
	"github.com/flowapi/flowapi/internal/domain/wait"
	"github.com/flowapi/flowapi/internal/form"
	"github.com/flowapi/flowapi/internal/handlers/answer"
)

//go:embed page.html
var pageHTML string

//go:embed page.css
var pageCSS string

var pages = template.Must(template.New("pages").Parse(pageHTML))

// policy lets the page have its own style and send its own form, and nothing else.
var policy = func() string {
	sum := sha256.Sum256([]byte(pageCSS))
	return "default-src 'none'; style-src 'sha256-" + base64.StdEncoding.EncodeToString(sum[:]) + "'; form-action 'self'; base-uri 'none'; frame-ancestors 'none'"
}()

// head sets what every answer here has: the path is a secret, and nothing that is shown may run or be framed.
func head(h http.Header) {
	h.Set("Content-Security-Policy", policy)
	h.Set("Referrer-Policy", "no-referrer")
	h.Set("Cache-Control", "no-store")
	h.Set("X-Content-Type-Options", "nosniff")
	h.Set("X-Robots-Tag", "noindex, nofollow")
}

// moment is a time as people read it, in UTC: the page has no script that knows theirs.
type moment struct{ Text, Stamp string }

func momentOf(t time.Time) *moment {
	if t.IsZero() {
		return nil
	}
	t = t.UTC()
	return &moment{t.Format("Mon 2 Jan 2006, 15:04 UTC"), t.Format(time.RFC3339)}
}

// view is what the page shows.
type view struct {
	Style  template.CSS
	Title  string
	State  string // open, approved, rejected, expired, ended, closed
	Status string // in a sentence
	By     string
	ByHow  string // how we know By
	At     *moment
	Reason string // of the decision

	Asker    string
	Since    *moment
	Deadline *moment
	Left     string // until the deadline
	Then     string // what happens at the deadline
	Have     int    // approvals
	Need     int
	NotOwn   bool // whoever asks may not decide

	Prompt    string
	Payload   string
	Decisions []decided
	What      string // kind and lane
	Execution string

	Open   bool
	Kept   bool // nobody waits yet
	Form   *formView
	Errors []problemView
}

// decided is a decision that was made.
type decided struct {
	Decision, By, ByHow, Reason, Note string
	At                                *moment
	Approved                          bool
}

type formView struct {
	Title, Description string
	Fields             []fieldView
	Name, Reason       string
	Token              bool // an access token is asked for, instead of a name
	TokenOptional      bool
	NameError          string
	ReasonError        string
	TokenError         string
	Focus              string // the first field that is wrong
}

// fieldView is a field of the form as HTML has it.
type fieldView struct {
	form.Field
	ID, Input, Value, Error string
	Min, Max                string
	Checked                 bool
	Focus                   bool
}

// problemView is a line of the summary of what is wrong.
type problemView struct{ ID, Label, Detail string }

func (v *visit) empty() input { return input{} }

// render shows the page.
func (v *visit) render(w http.ResponseWriter, status int, in input, bad *wrong) error {
	a := &v.asked
	page := view{Style: template.CSS(pageCSS), Title: a.Title(), Asker: asker(a), Since: momentOf(a.Since()), What: what(&a.Execution),
		Execution: a.Execution.ID.String(), Open: a.Answerable()}
	page.Have, page.Need = a.Approvals()
	if of := a.Waitpoint.Approval; of != nil {
		page.Prompt, page.Payload, page.NotOwn = of.Prompt, pretty(of.Payload), !of.AllowRequester
	}
	for i := range a.Decisions {
		page.Decisions = append(page.Decisions, decidedOf(&a.Decisions[i]))
	}
	if page.Open {
		page.open(a)
		page.Form = v.formOf(&in, bad)
	} else {
		page.ended(a)
	}
	if bad != nil {
		for _, p := range bad.parts {
			page.Errors = append(page.Errors, v.problem(p))
		}
	}
	return write(w, status, "page", &page)
}

// write sends a page, once it is complete.
func write(w http.ResponseWriter, status int, name string, data any) error {
	var b bytes.Buffer
	if err := pages.ExecuteTemplate(&b, name, data); err != nil {
		return fmt.Errorf("render the page: %w", err)
	}
	w.Header().Set("Content-Type", "text/html; charset=utf-8")
	if status == http.StatusUnauthorized {
		w.Header().Set("WWW-Authenticate", "Bearer")
	}
	w.WriteHeader(status)
	_, _ = w.Write(b.Bytes()) // a client that is gone does not read it
	return nil
}

// Refuse shows what went wrong. A link that opens nothing gets the same page whatever is wrong with it.
func (p *Page) Refuse(w http.ResponseWriter, problem answer.Problem) {
	data := struct {
		Style             template.CSS
		Title, Detail, ID string
	}{template.CSS(pageCSS), problem.Title, problem.Detail, problem.RequestID}
	if problem.Code == fault.CodeInvalidToken {
		data.Title, data.ID = "This link is not valid", ""
		data.Detail = "It may be incomplete, or it was replaced or has expired. Open it exactly as you got it, or ask whoever sent it for another one."
	}
	if problem.Status == http.StatusServiceUnavailable {
		w.Header().Set("Retry-After", "1")
	}
	_ = write(w, problem.Status, "refused", data) // of texts: it cannot fail
}

func (p *view) open(a *execution.Asked) {
	p.State, p.Status = "open", "Waiting for a decision"
	if a.Waitpoint.State == execution.WaitpointPending {
		p.Kept = true
	}
	if p.Need > 1 {
		p.Status = fmt.Sprintf("%d of %d approvals", p.Have, p.Need)
	}
	if at := a.Waitpoint.ExpiresAt; !at.IsZero() {
		p.Deadline, p.Left, p.Then = momentOf(at), left(at.Sub(a.At)), thens[a.OnTimeout()]
	}
}

// thens says what becomes of an execution for which nobody decides in time.
var thens = map[execution.TimeoutBehavior]string{
	execution.OnTimeoutFail: "then it fails", execution.OnTimeoutCancel: "then it is cancelled", execution.OnTimeoutExpire: "then it expires",
	execution.OnTimeoutResume: "then it goes on without a decision", execution.OnTimeoutResumeTold: "then it goes on without a decision",
	execution.OnTimeoutEscalate: "then an operator is asked",
}

func (p *view) ended(a *execution.Asked) {
	p.At = momentOf(a.EndedAt())
	switch a.Ended() {
	case execution.AskedDecided:
		d := decidedOf(a.Deciding())
		p.State, p.Status, p.By, p.ByHow, p.At, p.Reason = string(execution.Rejected), "Rejected", d.By, d.ByHow, d.At, d.Reason
		if d.Approved {
			p.State, p.Status = string(execution.Approved), "Approved"
		}
	case execution.AskedExpired:
		p.State, p.Status, p.Reason = "expired", "This request expired", "Nobody decided in time."
	case execution.AskedOver:
		p.State, p.Status, p.Reason = "ended", "The execution ended ("+string(a.Execution.Public())+")", "No decision is needed any more."
	default:
		p.State, p.Status, p.Reason = "closed", "This request was closed", a.Waitpoint.CloseReason
		if ours, ok := closings[p.Reason]; ok {
			p.Reason = ours
		}
	}
}

// closings are the reasons that we give ourselves, in words for people.
var closings = map[string]string{
	"resumed": "The execution went on without a decision here.", "already_satisfied": "The execution went on without a decision here.",
	"cancelled": "The execution was cancelled.", "skipped": "The execution was skipped.", "closed": "No decision is needed any more.", "": "No decision is needed any more.",
}

func asker(a *execution.Asked) string {
	if a.Waitpoint.Approval == nil && a.By() == "worker" {
		return "the worker of the execution"
	}
	return a.By()
}

func what(e *execution.Execution) string {
	if e.Kind == "" {
		return "an execution in lane " + e.Lane
	}
	return e.Kind + " in lane " + e.Lane
}

func decidedOf(k *wait.Kept) decided {
	d := decided{Decision: "Approved", At: momentOf(k.At), Approved: k.Name == string(execution.Approved), Note: notes[k.Effect]}
	if !d.Approved {
		d.Decision = "Rejected"
	}
	var said struct {
		Reason string `json:"reason"`
	}
	if json.Unmarshal(k.Payload, &said) == nil {
		d.Reason = said.Reason
	}
	d.By, d.ByHow = who(k)
	return d
}

// who says who has decided, and how that is known.
func who(k *wait.Kept) (name, how string) {
	name = cmp.Or(k.SourceIdentity, "somebody")
	switch {
	case k.SourceType == execution.SourceLink:
		return name, "as they call themselves"
	case k.SourceType == execution.SourceOperator && name == "local":
		return "somebody on the server’s own machine", ""
	case k.SourceType == execution.SourceOperator:
		if token, ok := strings.CutPrefix(name, "token:"); ok {
			return token, "access token"
		}
	}
	return name, k.SourceType
}

// notes say what a decision did, where that is not what one expects.
var notes = map[wait.Effect]string{
	wait.Duplicate: "counted before", wait.NotInCondition: "does not count here", wait.MatcherFailed: "does not count here", wait.Ignored: "does not count here",
	wait.Buffered: "kept until it is waited for",
}

// left is a duration as people say it.
func left(d time.Duration) string {
	say := func(n int, unit string) string {
		if n != 1 {
			unit += "s"
		}
		return "in " + strconv.Itoa(n) + " " + unit
	}
	const day = 24 * time.Hour
	switch {
	case d <= 0:
		return "now"
	case d < time.Minute:
		return "in less than a minute"
	case d < 2*time.Hour-time.Minute:
		return say(int(d.Round(time.Minute)/time.Minute), "minute")
	case d < 2*day-time.Hour:
		return say(int(d.Round(time.Hour)/time.Hour), "hour")
	}
	return say(int(d.Round(day)/day), "day")
}

// unseen are characters that change the order in which others are shown, so that a document would read otherwise than it is.
var unseen = strings.NewReplacer("\u061c", `\u061c`, "\u200e", `\u200e`, "\u200f", `\u200f`, "\u202a", `\u202a`, "\u202b", `\u202b`, "\u202c", `\u202c`, "\u202d", `\u202d`,
	"\u202e", `\u202e`, "\u2066", `\u2066`, "\u2067", `\u2067`, "\u2068", `\u2068`, "\u2069", `\u2069`)

// pretty is a document as people read it.
func pretty(doc json.RawMessage) string {
	if len(doc) == 0 || string(doc) == "null" {
		return ""
	}
	b, err := jsontext.AppendFormat(nil, doc, jsontext.Multiline(true), jsontext.WithIndent("  "), jsontext.SpaceAfterColon(true), jsontext.AllowDuplicateNames(true),
		jsontext.AllowInvalidUTF8(true))
	if err != nil {
		b = doc
	}
	return unseen.Replace(string(b))
}

// inputs are the types of input elements by the kinds of fields.
var inputs = map[form.Kind]string{form.Text: "text", form.Email: "email", form.URI: "url", form.Date: "date", form.Integer: "number", form.Number: "number"}

// formOf returns the form with what was filled in before, except a token.
func (v *visit) formOf(in *input, bad *wrong) *formView {
	f := &formView{Title: v.form.Title, Description: v.form.Description, Name: in.Name, Reason: in.Reason, Token: v.identified(),
		NameError: bad.of("name"), ReasonError: bad.of("reason"), TokenError: bad.of("token")}
	if f.Token {
		_, err := v.identify("")
		f.TokenOptional = err == nil
	}
	if !bad.none() {
		f.Focus = bad.parts[0].field
	}
	for i := range v.form.Fields {
		f.Fields = append(f.Fields, fieldOf(i, v.form.Fields[i], in.values, bad))
	}
	return f
}

func fieldOf(i int, of form.Field, filled url.Values, bad *wrong) fieldView {
	name := fieldPrefix + of.Name
	f := fieldView{Field: of, ID: "field-" + strconv.Itoa(i), Input: inputs[of.Kind], Value: of.Default, Error: bad.of(name)}
	if filled != nil {
		f.Value = filled.Get(of.Name)
	}
	f.Checked = f.Value == "true"
	f.Focus = !bad.none() && bad.parts[0].field == name
	bound := func(n *float64, round func(float64) float64) string {
		if n == nil {
			return ""
		}
		to := *n
		if of.Kind == form.Integer {
			to = round(to)
		}
		return strconv.FormatFloat(to, 'f', -1, 64)
	}
	f.Min, f.Max = bound(of.Minimum, math.Ceil), bound(of.Maximum, math.Floor)
	return f
}

// problem returns a line of the summary, with where the field is.
func (v *visit) problem(p part) problemView {
	out := problemView{ID: p.field, Detail: p.detail}
	switch p.field {
	case "name":
		out.Label = "Your name"
	case "token":
		out.Label = "Access token"
	case "reason":
		out.Label = "Reason"
	case "decision":
		out.ID = "approve"
	}
	for i := range v.form.Fields {
		if f := &v.form.Fields[i]; fieldPrefix+f.Name == p.field {
			out.ID, out.Label = "field-"+strconv.Itoa(i), f.Label()
		}
	}
	return out
}
