// Package approve is the page behind the link of an approval: what is asked, what was decided, and a form to decide with. The link
// is what entitles to it, not an API token; whoever looks at it, a scanner of links too, decides nothing.
//
// The page is HTML without any script. All that comes from people is text on it.
package approve

import (
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"net/url"
	"strings"
	"unicode"
	"unicode/utf8"

	"github.com/go-chi/chi/v5"
	jsonv2 "github.com/go-json-experiment/json"
	"github.com/google/uuid"

	"github.com/flowapi/flowapi/internal/call"
	"github.com/flowapi/flowapi/internal/domain/access"
	"github.com/flowapi/flowapi/internal/domain/execution"
	"github.com/flowapi/flowapi/internal/domain/fault"
	"github.com/flowapi/flowapi/internal/domain/waitpoint"
	"github.com/flowapi/flowapi/internal/form"
	"github.com/flowapi/flowapi/internal/handlers/answer"
	"github.com/flowapi/flowapi/internal/handlers/suspensions"
)

// Executions is the store of executions and of their waitpoints.
type Executions interface {
	Asked(ctx context.Context, id uuid.UUID, token waitpoint.Token) (execution.Asked, error)
	Signal(ctx context.Context, in execution.SignalRequest) (execution.Signalled, error)
}

// Page is the page of approvals.
type Page struct{ Executions Executions }

// identify returns whose API token bearer is: with "", who may call without one. It returns CodeUnauthenticated.
type identify = func(bearer string) (call.Call, error)

// The limits of what is filled in, in characters. They are those of POST …/approvals and of signals.
const (
	maxName   = 256
	maxReason = 16384
)

// fieldPrefix is before the names of the form's own fields, so that they are none of the page's.
const fieldPrefix = "form."

// visit is one request to the page.
type visit struct {
	asked    execution.Asked
	form     form.Form
	token    waitpoint.Token
	link     string // the last part of the path
	identify identify
}

// come returns what the link of r opens. It returns CodeInvalidToken, the same whatever is wrong.
func (p *Page) come(r *http.Request, who identify) (*visit, error) {
	v := &visit{link: chi.URLParam(r, "token"), identify: who}
	id, token, err := waitpoint.ParseLink(v.link)
	if err != nil {
		return nil, err
	}
	v.token = token
	if v.asked, err = p.Executions.Asked(r.Context(), id, token); err != nil {
		return nil, err
	}
	if a := v.asked.Waitpoint.Approval; a != nil && len(a.Form) > 0 {
		if v.form, err = form.Parse(a.Form, "/form"); err != nil {
			return nil, fmt.Errorf("the form of waitpoint %s: %s", id, err) //nolint:errorlint // it was right when it was made: this is no refusal
		}
	}
	return v, nil
}

// identified says whether it matters who decides.
func (v *visit) identified() bool { return v.asked.Waitpoint.Approval.Identified() }

// Show answers GET /approve/{token}: what is asked, and what was decided. It changes nothing.
func (p *Page) Show(w http.ResponseWriter, r *http.Request, who identify) error {
	head(w.Header())
	v, err := p.come(r, who)
	if err != nil {
		return err
	}
	return v.render(w, http.StatusOK, v.empty(), nil)
}

// Decide answers POST /approve/{token}, a form of this page or its members as JSON: the signal that tells the decision, with the link
// as its token.
func (p *Page) Decide(w http.ResponseWriter, r *http.Request, body []byte, who identify) error {
	head(w.Header())
	v, err := p.come(r, who)
	if err != nil {
		return err
	}
	in, err := read(r, body)
	if err != nil {
		return err
	}
	c, bad, err := v.check(r.Context(), &in)
	if err != nil {
		return err
	}
	var done execution.Signalled
	if bad.none() {
		done, err = p.Executions.Signal(call.With(r.Context(), c), v.signal(&in, &c))
		if err != nil {
			bad = refusal(err)
		}
	}
	switch {
	case answer.ForProgram(r) && err != nil:
		return err
	case answer.ForProgram(r) && !bad.none():
		return bad.fault()
	case answer.ForProgram(r):
		return send(w, suspensions.Receipt(&done))
	case err != nil && bad == nil:
		return err
	case !bad.none():
		if again, err := p.come(r, who); err == nil { // somebody else may have been faster
			v = again
		}
		return v.render(w, bad.status(), in, bad)
	}
	// Relative: somebody before us may have put a path of theirs before ours.
	w.Header().Set("Location", v.link)
	w.WriteHeader(http.StatusSeeOther)
	return nil
}

func send(w http.ResponseWriter, value any) error {
	b, err := json.Marshal(value)
	if err != nil {
		return err
	}
	w.Header().Set("Content-Type", "application/json")
	_, _ = w.Write(append(b, '\n'))
	return nil
}

// input is what was sent: a form, or a document.
type input struct {
	Decision string          `json:"decision"`
	Name     string          `json:"name"`
	Reason   string          `json:"reason"`
	Form     json.RawMessage `json:"form"`

	document bool
	bearer   string
	values   url.Values // of the form's own fields, by their names; nil before anything was filled in
}

// read returns what a body holds. It returns CodeMalformedJSON, CodeInvalidParameter, CodeUnsupportedMediaType and CodeValidationFailed.
func read(r *http.Request, body []byte) (in input, err error) {
	kind, _, _ := strings.Cut(r.Header.Get("Content-Type"), ";")
	switch kind = strings.ToLower(strings.TrimSpace(kind)); {
	case kind == "application/json" || strings.HasSuffix(kind, "+json"):
		in.document = true
		err = jsonv2.Unmarshal(body, &in, jsonv2.RejectUnknownMembers(true))
		if err != nil && json.Valid(body) {
			return in, fault.Invalid(fault.CodeValidationFailed, "", "The body has the members decision, reason, name and form, each once; the first three are texts.")
		}
		if err != nil {
			return in, fault.Invalid(fault.CodeMalformedJSON, "", "The body is not one JSON value.")
		}
	case kind == "" || kind == "application/x-www-form-urlencoded":
		sent, err := url.ParseQuery(string(body))
		if err != nil {
			return in, fault.New(fault.CodeInvalidParameter, "The body is not a form. Send the form of the page, or JSON as application/json.")
		}
		in = input{Decision: sent.Get("decision"), Name: sent.Get("name"), Reason: sent.Get("reason"), bearer: strings.TrimSpace(sent.Get("token")), values: url.Values{}}
		for name, values := range sent {
			if field, ok := strings.CutPrefix(name, fieldPrefix); ok {
				in.values[field] = values
			}
		}
	default:
		return in, fault.New(fault.CodeUnsupportedMediaType, "Send the form of the page as application/x-www-form-urlencoded, or JSON as application/json.")
	}
	if string(in.Form) == "null" {
		in.Form = nil
	}
	in.Name = strings.TrimSpace(in.Name)
	in.Reason = strings.TrimSpace(strings.ReplaceAll(in.Reason, "\r\n", "\n"))
	return in, nil
}

// check returns the call by which a decision is made, and what is wrong with it.
func (v *visit) check(ctx context.Context, in *input) (call.Call, *wrong, error) {
	bad := &wrong{}
	if d := execution.Decision(in.Decision); d != execution.Approved && d != execution.Rejected {
		bad.add("decision", "Choose Approve or Reject.")
	}
	if !plain(in.Reason) || utf8.RuneCountInString(in.Reason) > maxReason {
		bad.add("reason", "This has at most 16384 characters, and none that cannot be stored.")
	}
	c := call.From(ctx)
	c.Namespace, c.Actor = v.asked.Execution.Namespace, execution.SourceLink
	switch {
	case v.identified():
		by, err := v.decider(in.bearer)
		switch fault.CodeOf(err) {
		case "":
			c.Actor, c.Token, c.Role = by.Actor, by.Token, by.Role
		case fault.CodeUnauthenticated, fault.CodeForbidden:
			bad.refuse("token", err)
		default:
			return c, nil, err
		}
	case !strings.ContainsFunc(in.Name, visible):
		bad.add("name", "Say who you are.")
	case strings.ContainsFunc(in.Name, control) || utf8.RuneCountInString(in.Name) > maxName:
		bad.add("name", "A name is one line of at most 256 characters.")
	}
	v.fill(in, bad)
	return c, bad, nil
}

// decider returns who decides, where that matters. It returns CodeUnauthenticated and CodeForbidden.
func (v *visit) decider(bearer string) (call.Call, error) {
	c, err := v.identify(bearer)
	switch {
	case err != nil:
		return c, err
	case c.Role != access.RoleOperator && c.Role != access.RoleAdmin:
		return c, fault.New(fault.CodeForbidden, "Deciding needs a token with the role %s; this one has the role %s.", access.RoleOperator, c.Role).
			With("required_role", access.RoleOperator)
	case !c.AllNamespaces && c.Namespace != v.asked.Execution.Namespace:
		return c, fault.New(fault.CodeForbidden, "This token is for another namespace.")
	}
	return c, nil
}

// fill makes a document of what was filled in. What was sent as a document is checked with the decision itself.
func (v *visit) fill(in *input, bad *wrong) {
	if in.document && in.Form != nil && len(v.form.Fields) == 0 {
		bad.add("form", "Nothing is asked to be filled in.")
	}
	if in.document || len(v.form.Fields) == 0 {
		return
	}
	asked := v.form
	if in.Decision == string(execution.Rejected) {
		asked = asked.Optional()
	}
	doc, problems := asked.Fill(in.values)
	in.Form = doc
	for i := range asked.Fields {
		if problem, ok := problems[asked.Fields[i].Name]; ok {
			bad.add(fieldPrefix+asked.Fields[i].Name, problem)
		}
	}
}

// signal returns the signal that tells the decision. One by the same person is the same one for as long as the execution waits for the
// same: pressing a button twice decides once.
func (v *visit) signal(in *input, c *call.Call) execution.SignalRequest {
	w := &v.asked.Waitpoint
	d := suspensions.Decision{Execution: w.ExecutionID, Waitpoint: w.ID, Decision: execution.Decision(in.Decision), By: in.Name, Source: execution.SourceLink, Reason: in.Reason,
		Form: in.Form}
	if v.identified() {
		d.By, d.Source = c.Actor, ""
	}
	d.Suffix = "page:" + d.By
	out := d.Signal()
	out.Token, out.Identified = v.token.Reveal(), v.identified()
	return out
}

// plain says whether a text can be stored.
func plain(text string) bool { return utf8.ValidString(text) && !strings.ContainsRune(text, 0) }

func visible(r rune) bool { return unicode.In(r, unicode.L, unicode.N, unicode.P, unicode.S) }

func control(r rune) bool { return r < ' ' || r == 0x7f || r == utf8.RuneError }
