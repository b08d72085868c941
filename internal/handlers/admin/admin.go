// Package admin holds the operations on the server itself: tokens, the secrets of waitpoint tokens, and what it is.
package admin

import (
	"context"

	"github.com/google/uuid"

	"github.com/flowapi/flowapi/internal/call"
	"github.com/flowapi/flowapi/internal/domain/access"
	"github.com/flowapi/flowapi/internal/domain/event"
	"github.com/flowapi/flowapi/internal/domain/fault"
	"github.com/flowapi/flowapi/internal/domain/page"
	"github.com/flowapi/flowapi/internal/handlers/answer"
	"github.com/flowapi/flowapi/internal/handlers/ask"
	"github.com/flowapi/flowapi/internal/handlers/oapi"
	"github.com/flowapi/flowapi/internal/handlers/wire"
)

// Tokens is the store of tokens.
type Tokens interface {
	Create(ctx context.Context, in access.Token) (access.Token, error)
	Tokens(ctx context.Context, after page.Cursor, limit int) (page.Page[access.Token], error)
	Revoke(ctx context.Context, id uuid.UUID) error
}

// Log describes the event log.
type Log interface {
	EventLog(ctx context.Context) (event.Log, error)
}

// Handlers are the operations on the server.
type Handlers struct {
	Tokens   Tokens
	Secrets  Secrets
	Log      Log
	Version  string
	Database string
	Limits   oapi.Limits
	Features []string
}

// CreateToken handles POST /v1/admin/tokens. The secret is shown once, and never kept: an answer that is repeated for the
// same Idempotency-Key has none.
func (h *Handlers) CreateToken(ctx context.Context, req oapi.CreateTokenRequestObject) (oapi.CreateTokenResponseObject, error) {
	who := call.From(ctx)
	in := access.Token{Name: req.Body.Name, Role: access.Role(req.Body.Role), Namespace: ask.Or(req.Body.Namespace, who.Namespace)}
	if req.Body.ExpiresAt != nil {
		in.ExpiresAt = req.Body.ExpiresAt.Time()
	}
	if !who.AllNamespaces && in.Namespace != who.Namespace {
		return nil, fault.New(fault.CodeForbidden, "A token of namespace %s makes tokens of that namespace only: leave namespace out, or ask with a token for all of them.", who.Namespace).With("required_role", access.RoleAdmin)
	}
	response := func(t access.Token) oapi.CreateTokenResponseObject { return createdToken(t) }
	kept := func(t access.Token) oapi.CreateTokenResponseObject {
		t.Secret = ""
		return createdToken(t)
	}
	return answer.WriteOnce(ctx, func(ctx context.Context) (access.Token, error) {
		return h.Tokens.Create(ctx, in)
	}, response, kept, oapi.CreateTokenResponseObject.VisitCreateTokenResponse)
}

func createdToken(t access.Token) oapi.CreateToken201JSONResponse {
	body := oapi.CreatedToken{TokenID: t.ID, Name: t.Name, Role: oapi.Role(t.Role), Namespace: t.Namespace, Prefix: t.Prefix,
		CreatedAt: wire.Time(t.CreatedAt), ExpiresAt: wire.TimeOrNull(t.ExpiresAt)}
	if t.Secret != "" {
		body.Token = &t.Secret
	}
	return oapi.CreateToken201JSONResponse{Body: body, Headers: oapi.CreateToken201ResponseHeaders{Location: "/v1/admin/tokens/" + t.ID.String()}}
}

// ListTokens handles GET /v1/admin/tokens.
func (h *Handlers) ListTokens(ctx context.Context, req oapi.ListTokensRequestObject) (oapi.ListTokensResponseObject, error) {
	list, err := answer.List(ctx, req.Params.Cursor, req.Params.Limit, func(after page.Cursor, limit int) (page.Page[access.Token], error) {
		return h.Tokens.Tokens(ctx, after, limit)
	}, func(t *access.Token) oapi.Token {
		return oapi.Token{TokenID: t.ID, Name: t.Name, Role: oapi.Role(t.Role), Namespace: t.Namespace, Prefix: t.Prefix, CreatedAt: wire.Time(t.CreatedAt),
			ExpiresAt: wire.TimeOrNull(t.ExpiresAt), LastUsedAt: wire.TimeOrNull(t.LastUsedAt), RevokedAt: wire.TimeOrNull(t.RevokedAt)}
	})
	if err != nil {
		return nil, err
	}
	return oapi.ListTokens200JSONResponse{Body: oapi.TokenList{Items: list.Items, NextCursor: list.Next}, Headers: oapi.ListTokens200ResponseHeaders{Link: list.Link}}, nil
}

// RevokeToken handles DELETE /v1/admin/tokens/{token_id}.
func (h *Handlers) RevokeToken(ctx context.Context, req oapi.RevokeTokenRequestObject) (oapi.RevokeTokenResponseObject, error) {
	if err := h.Tokens.Revoke(ctx, req.TokenID); err != nil {
		return nil, err
	}
	return oapi.RevokeToken204Response{}, nil
}

// GetMeta handles GET /v1/meta.
func (h *Handlers) GetMeta(ctx context.Context, _ oapi.GetMetaRequestObject) (oapi.GetMetaResponseObject, error) {
	log, err := h.Log.EventLog(ctx)
	if err != nil {
		return nil, err
	}
	return oapi.GetMeta200JSONResponse{
		Name: "flowapi", Version: h.Version, APIVersion: "v1", Database: oapi.Database(h.Database), Limits: h.Limits, Features: h.Features,
		EventLog: oapi.EventLog{Generation: log.Generation, Oldest: log.Oldest, Newest: log.Newest},
	}, nil
}
