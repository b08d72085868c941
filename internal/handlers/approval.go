package handlers

import (
	"net/http"

	"github.com/go-chi/chi/v5"

	"github.com/flowapi/flowapi/internal/call"
	"github.com/flowapi/flowapi/internal/domain/waitpoint"
	"github.com/flowapi/flowapi/internal/handlers/answer"
)

// ApprovalPage is what is behind the link of an approval. It is beside the API: a page for people, which needs no API token.
type ApprovalPage interface {
	// Show answers a GET, and changes nothing. identify returns whose API token bearer is: with "", who may call without one.
	Show(w http.ResponseWriter, r *http.Request, identify func(bearer string) (call.Call, error)) error
	// Decide answers a POST of body.
	Decide(w http.ResponseWriter, r *http.Request, body []byte, identify func(bearer string) (call.Call, error)) error
	// Refuse answers with what went wrong, in the form of a page.
	Refuse(w http.ResponseWriter, p answer.Problem)
}

// approvals is the route of the approval page.
type approvals struct {
	problems
	page ApprovalPage
	auth Authenticator
}

func (a approvals) mount(r chi.Router, show, decide *operation) {
	r.Get(waitpoint.ApprovePath+"{token}", a.serve(show, a.page.Show))
	r.Post(waitpoint.ApprovePath+"{token}", a.serve(decide, func(w http.ResponseWriter, r *http.Request, identify func(string) (call.Call, error)) error {
		body, err := readBody(w, r, decide.limit)
		if err != nil {
			return err
		}
		return a.page.Decide(w, r, body, identify)
	}))
}

func (a approvals) serve(op *operation, serve func(http.ResponseWriter, *http.Request, func(string) (call.Call, error)) error) http.HandlerFunc {
	return func(w http.ResponseWriter, r *http.Request) {
		x := exchangeOf(r)
		x.operation = op
		identify := func(bearer string) (call.Call, error) {
			header := r.Header.Get("Authorization")
			if bearer != "" {
				header = "Bearer " + bearer
			}
			who, err := identifyBy(r, header, a.auth)
			return callOf(who), err
		}
		r = r.WithContext(call.With(r.Context(), call.Call{RequestID: x.id, TraceID: x.trace, Target: redact(r.URL.Path), Accept: r.Header.Get("Accept")}))
		if err := serve(w, r, identify); err != nil {
			a.refuse(w, r, err, func(problem answer.Problem) {
				if answer.ForProgram(r) {
					send(w, problem)
					return
				}
				a.page.Refuse(w, problem)
			})
		}
	}
}
