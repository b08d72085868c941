package admin

import (
	"context"

	"github.com/flowapi/flowapi/internal/call"
	"github.com/flowapi/flowapi/internal/domain/access"
	"github.com/flowapi/flowapi/internal/domain/fault"
	"github.com/flowapi/flowapi/internal/domain/waitpoint"
	"github.com/flowapi/flowapi/internal/handlers/answer"
	"github.com/flowapi/flowapi/internal/handlers/ask"
	"github.com/flowapi/flowapi/internal/handlers/oapi"
	"github.com/flowapi/flowapi/internal/handlers/wire"
)

// Secrets is the store of what waitpoint tokens are made with.
type Secrets interface {
	Seed(ctx context.Context, kid string, secret waitpoint.Secret) (waitpoint.Seeded, error)
	Rotate(ctx context.Context, in waitpoint.Rotation) (waitpoint.Rotated, error)
	Kids(ctx context.Context) ([]waitpoint.Key, error)
}

// ofAll refuses an admin of one namespace: who chooses the secret can make tokens of every namespace.
func ofAll(ctx context.Context) error {
	if call.From(ctx).AllNamespaces {
		return nil
	}
	return fault.New(fault.CodeForbidden, "The secrets of waitpoint tokens are those of all namespaces: this needs an admin token for all of them.").
		With("required_role", access.RoleAdmin)
}

// SeedWaitpointSecret handles POST /v1/admin/waitpoint-secrets.
func (h *Handlers) SeedWaitpointSecret(ctx context.Context, req oapi.SeedWaitpointSecretRequestObject) (oapi.SeedWaitpointSecretResponseObject, error) {
	if err := ofAll(ctx); err != nil {
		return nil, err
	}
	secret, err := secretOf("/secret_hex", req.Body.SecretHex)
	if err != nil {
		return nil, err
	}
	return answer.Write(ctx, func(ctx context.Context) (waitpoint.Seeded, error) {
		return h.Secrets.Seed(ctx, req.Body.Kid, secret)
	}, func(s waitpoint.Seeded) oapi.SeedWaitpointSecretResponseObject {
		body := oapi.SeededWaitpointSecret{Kid: s.Kid, Outcome: oapi.SeededWaitpointSecretOutcomeAlreadySeeded, SameSecret: s.Same}
		if s.Already {
			return oapi.SeedWaitpointSecret200JSONResponse{Body: body}
		}
		body.Outcome = oapi.SeededWaitpointSecretOutcomeSeeded
		return oapi.SeedWaitpointSecret201JSONResponse{Body: body}
	}, oapi.SeedWaitpointSecretResponseObject.VisitSeedWaitpointSecretResponse)
}

// RotateWaitpointSecret handles POST /v1/admin/waitpoint-secrets/rotate.
func (h *Handlers) RotateWaitpointSecret(ctx context.Context, req oapi.RotateWaitpointSecretRequestObject) (oapi.RotateWaitpointSecretResponseObject, error) {
	if err := ofAll(ctx); err != nil {
		return nil, err
	}
	b := ask.Or(req.Body, oapi.RotateWaitpointSecret{})
	secret, err := secretOf("/new_secret_hex", b.NewSecretHex)
	if err != nil {
		return nil, err
	}
	in := waitpoint.Rotation{Kid: ask.Or(b.NewKid, ""), Secret: secret, Grace: ask.Millis(ask.Or(b.GraceMs, waitpoint.DefaultGrace.Milliseconds()))}
	return answer.Write(ctx, func(ctx context.Context) (waitpoint.Rotated, error) {
		return h.Secrets.Rotate(ctx, in)
	}, func(r waitpoint.Rotated) oapi.RotateWaitpointSecretResponseObject {
		body := oapi.RotatedWaitpointSecret{Kid: r.Kid, Outcome: oapi.RotatedWaitpointSecretOutcomeRotated, PreviousKid: wire.TextOrNull(r.Previous),
			PreviousExpiresAt: wire.TimeOrNull(r.ExpiresAt), Collected: int32(len(r.Collected))}
		if r.Noop {
			body.Outcome = oapi.RotatedWaitpointSecretOutcomeNoop
		}
		return oapi.RotateWaitpointSecret200JSONResponse{Body: body}
	}, oapi.RotateWaitpointSecretResponseObject.VisitRotateWaitpointSecretResponse)
}

// secretOf reads the secret of a request: none when the server chooses it.
func secretOf(pointer string, text *string) (waitpoint.Secret, error) {
	if text == nil {
		return waitpoint.Secret{}, nil
	}
	return waitpoint.ParseSecret(pointer, *text)
}

// ListWaitpointSecrets handles GET /v1/admin/waitpoint-secrets.
func (h *Handlers) ListWaitpointSecrets(ctx context.Context, _ oapi.ListWaitpointSecretsRequestObject) (oapi.ListWaitpointSecretsResponseObject, error) {
	if err := ofAll(ctx); err != nil {
		return nil, err
	}
	keys, err := h.Secrets.Kids(ctx)
	if err != nil {
		return nil, err
	}
	list := oapi.ListWaitpointSecrets200JSONResponse{Verifying: make([]oapi.VerifyingWaitpointSecret, len(keys))}
	for i, k := range keys {
		if k.Current {
			list.CurrentKid = &keys[i].Kid
		}
		list.Verifying[i] = oapi.VerifyingWaitpointSecret{Kid: k.Kid, Current: k.Current, CreatedAt: wire.Time(k.CreatedAt), ExpiresAt: wire.TimeOrNull(k.ExpiresAt)}
	}
	return list, nil
}
