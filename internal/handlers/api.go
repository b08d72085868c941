package handlers

import (
	"context"
	"errors"
	"fmt"
	"net/http"

	"github.com/go-chi/chi/v5"

	"github.com/flowapi/flowapi/internal/domain/fault"
	"github.com/flowapi/flowapi/internal/handlers/answer"
	"github.com/flowapi/flowapi/internal/handlers/oapi"
)

// New returns the whole HTTP side of a server: the operations of cfg.API behind the contract cfg.Spec, and the pages
// beside them. It returns an error when a required part is missing or the contract is one that it cannot keep.
func New(cfg Config) (http.Handler, error) {
	if cfg.API == nil {
		return nil, errors.New("handlers: Config.API is missing")
	}
	return newHandler(cfg, func(r chi.Router, p problems) {
		strict := oapi.NewStrictHandlerWithOptions(cfg.API,
			[]oapi.StrictMiddlewareFunc{requireResponse, sendKept}, // the last is the outermost
			oapi.StrictHTTPServerOptions{RequestErrorHandlerFunc: p.unbound, ResponseErrorHandlerFunc: p.write},
		)
		oapi.HandlerWithOptions(strict, oapi.ChiServerOptions{BaseRouter: r, ErrorHandlerFunc: p.unbound})
	})
}

// requireResponse turns an operation that returned nothing into an error: the generated code would answer an empty 200.
func requireResponse(next oapi.StrictHandlerFunc, operation string) oapi.StrictHandlerFunc {
	return func(ctx context.Context, w http.ResponseWriter, r *http.Request, request any) (any, error) {
		response, err := next(ctx, w, r, request)
		if response == nil && err == nil {
			return nil, fmt.Errorf("%s returned no response", operation)
		}
		return response, err
	}
}

// sendKept sends the answer that was rendered in the transaction of a request with an Idempotency-Key, instead of
// rendering it again.
func sendKept(next oapi.StrictHandlerFunc, _ string) oapi.StrictHandlerFunc {
	return func(ctx context.Context, w http.ResponseWriter, r *http.Request, request any) (any, error) {
		if len(r.Header["Idempotency-Key"]) == 0 {
			return next(ctx, w, r, request)
		}
		ctx, slot := answer.WithSlot(ctx)
		response, err := next(ctx, w, r, request)
		if err != nil {
			return nil, err
		}
		if sent, err := slot.Send(w); sent || err != nil {
			return nil, err
		}
		return response, nil
	}
}

// unbound answers a request whose parameters or body the generated code could not bind. Validation comes first, so this
// is for what a schema cannot say, such as an integer written as 1e3.
func (p problems) unbound(w http.ResponseWriter, r *http.Request, err error) {
	if name, ok := unboundParameter(err); ok {
		field := fault.Field{In: exchangeOf(r).operation.placeOf(name), Pointer: name, Detail: "is malformed"}
		p.write(w, r, invalid(true, []fault.Field{field}).Because(err))
		return
	}
	p.write(w, r, undecoded(err))
}

// unboundParameter returns the name of the parameter that err is about, and false when it is about the body.
func unboundParameter(err error) (string, bool) {
	if e, ok := errors.AsType[*oapi.InvalidParamFormatError](err); ok {
		return e.ParamName, true
	}
	if e, ok := errors.AsType[*oapi.UnmarshalingParamError](err); ok {
		return e.ParamName, true
	}
	if e, ok := errors.AsType[*oapi.RequiredParamError](err); ok {
		return e.ParamName, true
	}
	if e, ok := errors.AsType[*oapi.RequiredHeaderError](err); ok {
		return e.ParamName, true
	}
	if e, ok := errors.AsType[*oapi.TooManyValuesForParamError](err); ok {
		return e.ParamName, true
	}
	if e, ok := errors.AsType[*oapi.UnescapedCookieParamError](err); ok {
		return e.ParamName, true
	}
	return "", false
}
