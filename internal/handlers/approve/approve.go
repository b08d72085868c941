// Package approve is the page behind the link of a question that people are asked, at a waitpoint or at a gate: what is asked, what was
// decided, and a form to decide with. The link is what entitles to it, not an API token; whoever looks at it, a scanner of links too,
// decides nothing.
//
// The page is HTML without any script. All that comes from people is text on it.
package approve

import (
	"encoding/json"
	"net/http"

	"github.com/go-chi/chi/v5"

	"github.com/flowapi/flowapi/internal/call"
	"github.com/flowapi/flowapi/internal/domain/waitpoint"
	"github.com/flowapi/flowapi/internal/handlers/answer"
)

// Page is the page of approvals.
type Page struct {
	Executions Executions
	Gates      Gates
}

// identify returns whose API token bearer is: with "", who may call without one. It returns CodeUnauthenticated.
type identify = func(bearer string) (call.Call, error)

// visit is one request to the page.
type visit struct {
	*question
	link     string // the last part of the path
	identify identify
}

// come returns what the link of r opens. It returns CodeInvalidToken, the same whatever is wrong.
func (p *Page) come(r *http.Request, who identify) (*visit, error) {
	link := chi.URLParam(r, "token")
	id, token, err := waitpoint.ParseLink(link)
	if err != nil {
		return nil, err
	}
	q, err := p.ask(r.Context(), id, token)
	if err != nil {
		return nil, err
	}
	return &visit{q, link, who}, nil
}

// Show answers GET /approve/{token}: what is asked, and what was decided. It changes nothing.
func (p *Page) Show(w http.ResponseWriter, r *http.Request, who identify) error {
	head(w.Header())
	v, err := p.come(r, who)
	if err != nil {
		return err
	}
	return v.render(w, http.StatusOK, &input{}, nil)
}

// Decide answers POST /approve/{token}, a form of this page or its members as JSON: the decision of whoever has the link.
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
	var done any
	if bad.none() {
		done, err = v.decide(call.With(r.Context(), c), v.decision(&in, &c))
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
		return send(w, done)
	case err != nil && bad == nil:
		return err
	case !bad.none():
		if again, err := p.come(r, who); err == nil { // somebody else may have been faster
			v = again
		}
		return v.render(w, bad.status(), &in, bad)
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
