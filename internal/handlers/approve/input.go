package approve

import (
	"context"
	"encoding/json"
	"net/http"
	"net/url"
	"strings"
	"unicode"
	"unicode/utf8"

	jsonv2 "github.com/go-json-experiment/json"

	"github.com/flowapi/flowapi/internal/call"
	"github.com/flowapi/flowapi/internal/domain/access"
	"github.com/flowapi/flowapi/internal/domain/execution"
	"github.com/flowapi/flowapi/internal/domain/fault"
	"github.com/flowapi/flowapi/internal/domain/run"
)

// The limits of what is filled in, in characters. They are those of POST …/approvals, of signals and of POST …/gate/approve.
const (
	maxName   = 256
	maxReason = 16384
)

// fieldPrefix is before the names of the form's own fields, so that they are none of the page's.
const fieldPrefix = "form."

// input is what was sent: a form, or a document.
type input struct {
	Decision   string          `json:"decision"`
	Name       string          `json:"name"`
	Reason     string          `json:"reason"`
	Form       json.RawMessage `json:"form"`
	Selections []string        `json:"selections"`

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
			return in, fault.Invalid(fault.CodeValidationFailed, "",
				"The body has the members decision, reason and name, which are texts, form, and selections, a list of texts; each once.")
		}
		if err != nil {
			return in, fault.Invalid(fault.CodeMalformedJSON, "", "The body is not one JSON value.")
		}
	case kind == "" || kind == "application/x-www-form-urlencoded":
		sent, err := url.ParseQuery(string(body))
		if err != nil {
			return in, fault.New(fault.CodeInvalidParameter, "The body is not a form. Send the form of the page, or JSON as application/json.")
		}
		in = input{Decision: sent.Get("decision"), Name: sent.Get("name"), Reason: sent.Get("reason"), Selections: sent["selection"],
			bearer: strings.TrimSpace(sent.Get("token")), values: url.Values{}}
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
	if in.Decision != approved && in.Decision != rejected {
		bad.add("decision", "Choose Approve or Reject.")
	}
	if !plain(in.Reason) || utf8.RuneCountInString(in.Reason) > maxReason {
		bad.add("reason", "This has at most 16384 characters, and none that cannot be stored.")
	}
	c := call.From(ctx)
	c.Namespace, c.Actor = v.Namespace, execution.SourceLink
	switch {
	case v.Identified:
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
	v.selects(in, bad)
	return c, bad, nil
}

// decider returns who decides, where that matters. It returns CodeUnauthenticated and CodeForbidden.
func (v *visit) decider(bearer string) (call.Call, error) {
	c, err := v.identify(bearer)
	switch {
	case err != nil:
		return c, err
	case !c.Role.Operates():
		return c, fault.New(fault.CodeForbidden, "Deciding needs a token with the role %s; this one has the role %s.", access.RoleOperator, c.Role).
			With("required_role", access.RoleOperator)
	case !c.AllNamespaces && c.Namespace != v.Namespace:
		return c, fault.New(fault.CodeForbidden, "This token is for another namespace.")
	}
	return c, nil
}

// fill makes a document of what was filled in. What was sent as a document is checked with the decision itself.
func (v *visit) fill(in *input, bad *wrong) {
	if in.document && in.Form != nil && len(v.Asked.Fields) == 0 {
		bad.add("form", "Nothing is asked to be filled in.")
	}
	if in.document || len(v.Asked.Fields) == 0 {
		return
	}
	asked := v.Asked
	if in.Decision == rejected {
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

// selects checks what was selected, but not whether it is among the options. Of the page's form it does not count where nothing can be
// selected.
func (v *visit) selects(in *input, bad *wrong) {
	switch {
	case in.Selections == nil, !in.document && !v.Selects:
	case !v.Selects:
		bad.add("selections", "Nothing is asked to be selected.")
	case in.document && in.Decision == rejected:
		bad.add("selections", "A selection goes with an approval only.")
	case len(in.Selections) > run.MaxOptions:
		bad.add("selections", "A selection has at most 100 values.")
	}
}

// decision returns what was decided. What was selected on the page and then rejected does not count.
func (v *visit) decision(in *input, c *call.Call) decision {
	d := decision{Decision: in.Decision, By: in.Name, Reason: in.Reason, Form: in.Form}
	if v.Identified {
		d.By = c.Actor
	}
	if in.Decision == approved {
		d.Selections = in.Selections
	}
	return d
}

// plain says whether a text can be stored.
func plain(text string) bool { return utf8.ValidString(text) && !strings.ContainsRune(text, 0) }

func visible(r rune) bool { return unicode.In(r, unicode.L, unicode.N, unicode.P, unicode.S) }

func control(r rune) bool { return r < ' ' || r == 0x7f || r == utf8.RuneError }
