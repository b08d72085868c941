package handlers

import (
	"context"
	"net/http"

	"github.com/flowapi/flowapi/internal/call"
)

// exchange is what the middlewares and the writer of problems know about one request. It lives in the request's context
// from the first middleware on, and only the goroutine that serves the request touches it.
type exchange struct {
	id        string     // of the request
	trace     string     // W3C trace id, "" when the caller sent none
	operation *operation // the matched one; nil before the match and outside the contract
	caller    call.Call  // zero before authentication
	gone      bool       // the client hung up before it was answered
	response  response
}

type exchangeKey struct{}

// exchangeOf returns the exchange of r, or an empty one for a request that did not pass the first middleware.
func exchangeOf(r *http.Request) *exchange {
	if x, ok := r.Context().Value(exchangeKey{}).(*exchange); ok {
		return x
	}
	return &exchange{}
}

func withExchange(r *http.Request, x *exchange) *http.Request {
	return r.WithContext(context.WithValue(r.Context(), exchangeKey{}, x))
}
