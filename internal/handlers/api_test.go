package handlers_test

import (
	"bytes"
	"context"
	"errors"
	"net/http"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/getkin/kin-openapi/openapi3"
	"github.com/google/uuid"
	"github.com/rs/zerolog"

	"github.com/flowapi/flowapi/internal/apitest"
	"github.com/flowapi/flowapi/internal/call"
	"github.com/flowapi/flowapi/internal/domain/access"
	"github.com/flowapi/flowapi/internal/domain/fault"
	"github.com/flowapi/flowapi/internal/handlers"
	"github.com/flowapi/flowapi/internal/handlers/answer"
	"github.com/flowapi/flowapi/internal/handlers/oapi"
	"github.com/flowapi/flowapi/internal/handlers/wire"
)

// api has the few operations that these tests need; the others panic.
type api struct {
	oapi.StrictServerInterface
	mu   sync.Mutex
	kept map[string]kept // by idempotency key
	made int
}

type kept struct {
	hash   [32]byte
	answer call.Answer
}

var at = wire.Time(time.Date(2026, 11, 21, 9, 30, 0, 0, time.UTC))

// CreateFlow creates a flow as a store does that knows idempotency keys.
func (a *api) CreateFlow(ctx context.Context, req oapi.CreateFlowRequestObject) (oapi.CreateFlowResponseObject, error) {
	return answer.Write(ctx, func(ctx context.Context) (oapi.Flow, error) {
		a.mu.Lock()
		defer a.mu.Unlock()
		key := call.From(ctx).Key
		if key != nil {
			if was, ok := a.kept[key.Key]; ok {
				if was.hash != key.Hash {
					return oapi.Flow{}, fault.New(fault.CodeIdempotencyMismatch, "Another request.")
				}
				return oapi.Flow{}, &call.Replayed{Answer: was.answer}
			}
		}
		a.made++
		c := call.From(ctx)
		flow := oapi.Flow{
			ID: uuid.New(), Goal: req.Body.Goal, Namespace: c.Namespace, ControllerID: c.Actor, State: req.Body.State, Tags: oapi.Tags{}, BudgetIds: oapi.BudgetIDs{}, QuotaPolicyIds: oapi.QuotaPolicyIDs{},
			Status: oapi.FlowStatusCreated, CurrentStep: "init", CreatedAt: at, UpdatedAt: at,
		}
		if len(flow.State) == 0 {
			flow.State = oapi.Document(`{}`)
		}
		if key == nil {
			return flow, nil
		}
		rendered, err := key.Render(flow)
		if err == nil {
			a.kept[key.Key] = kept{key.Hash, rendered}
		}
		return flow, err
	}, func(f oapi.Flow) oapi.CreateFlowResponseObject {
		return oapi.CreateFlow201JSONResponse{FlowCreatedJSONResponse: oapi.FlowCreatedJSONResponse{
			Body: f, Headers: oapi.FlowCreatedResponseHeaders{ETag: `"0"`, Location: "/v1/flows/" + f.ID.String()},
		}}
	}, oapi.CreateFlowResponseObject.VisitCreateFlowResponse)
}

// StartFlow forgets to answer.
func (*api) StartFlow(context.Context, oapi.StartFlowRequestObject) (oapi.StartFlowResponseObject, error) {
	return nil, nil
}

// DeleteFlow fails with an error that nobody knows.
func (*api) DeleteFlow(context.Context, oapi.DeleteFlowRequestObject) (oapi.DeleteFlowResponseObject, error) {
	return nil, errors.New("disk on fire")
}

// ClaimExecutions finds nothing.
func (*api) ClaimExecutions(context.Context, oapi.ClaimExecutionsRequestObject) (oapi.ClaimExecutionsResponseObject, error) {
	return oapi.ClaimExecutions204Response{}, nil
}

// StreamEvents sends one event.
func (*api) StreamEvents(context.Context, oapi.StreamEventsRequestObject) (oapi.StreamEventsResponseObject, error) {
	return oneEvent{}, nil
}

type oneEvent struct{}

func (oneEvent) VisitStreamEventsResponse(w http.ResponseWriter) error {
	out := http.NewResponseController(w)
	if err := out.SetWriteDeadline(time.Time{}); err != nil {
		return err
	}
	w.Header().Set("Content-Type", "text/event-stream")
	w.WriteHeader(http.StatusOK)
	if err := out.Flush(); err != nil {
		return err
	}
	_, err := w.Write([]byte(": hello\n\nid: 7\nevent: flow.created\ndata: {\"a\":1}\n\n"))
	return err
}

// local lets everybody in who is on this machine.
type local struct{}

func (local) Anonymous() bool { return true }

func (local) Authenticate(context.Context, string) (access.Identity, error) {
	return access.Identity{}, fault.New(fault.CodeUnauthenticated, "There are no tokens.")
}

func mustSpec(tb testing.TB) *openapi3.T {
	tb.Helper()
	spec, err := oapi.Spec()
	if err != nil {
		tb.Fatal(err)
	}
	return spec
}

func serve(t *testing.T) (*apitest.Client, *api) {
	t.Helper()
	spec, a := mustSpec(t), &api{kept: map[string]kept{}}
	h, err := handlers.New(handlers.Config{Spec: spec, API: a, Auth: local{}, Log: zerolog.Nop(), Now: time.Now})
	if err != nil {
		t.Fatal(err)
	}
	return apitest.Serve(t, h, spec), a
}

// Each operation of the contract is routed, and asks who is calling before anything else.
func TestContract_IsRouted(t *testing.T) {
	t.Parallel()
	c, _ := serve(t)
	for path, item := range mustSpec(t).Paths.Map() {
		for method := range item.Operations() {
			path := strings.NewReplacer("{", "", "}", "").Replace(path)
			c.As("nobody").Do(method, path, nil).Problem(fault.CodeUnauthenticated)
		}
	}
}

func TestServer_Create(t *testing.T) {
	t.Parallel()
	c, _ := serve(t)
	r := c.In("blue").Post("/v1/flows", `{"goal":"x","state":{"a":1.10}}`).Want(http.StatusCreated)
	if r.Str("namespace") != "blue" || r.Str("controller_id") != "local" || r.ETag() != `"0"` || r.Header.Get("Idempotent-Replay") != "" {
		t.Errorf("got %v %s", r.Header, r.Body)
	}
	if !strings.Contains(string(r.Body), `{"a":1.10}`) {
		t.Errorf("the state did not keep its digits: %s", r.Body)
	}
	c.Post("/v1/flows", `goal=x`, "Content-Type: application/x-www-form-urlencoded").Problem(fault.CodeMalformedJSON)
	c.Post("/v1/flows", `{"goal":"x"}`, "Content-Type:").Want(http.StatusCreated)
}

func TestServer_Idempotency(t *testing.T) {
	t.Parallel()
	c, a := serve(t)
	keyed := c.With("Idempotency-Key: k1")
	first := keyed.Post("/v1/flows", `{"goal":"x"}`).Want(http.StatusCreated)
	again := keyed.Post("/v1/flows", `{"goal":"x"}`).Want(http.StatusCreated)
	if !bytes.Equal(first.Body, again.Body) || first.ETag() != again.ETag() || first.Header.Get("Location") != again.Header.Get("Location") {
		t.Errorf("first  %v %s\nreplay %v %s", first.Header, first.Body, again.Header, again.Body)
	}
	if first.Header.Get("Idempotent-Replay") != "" || again.Header.Get("Idempotent-Replay") != "true" {
		t.Errorf("Idempotent-Replay: %q, then %q", first.Header.Get("Idempotent-Replay"), again.Header.Get("Idempotent-Replay"))
	}
	keyed.Post("/v1/flows", `{"goal":"y"}`).Problem(fault.CodeIdempotencyMismatch)
	if a.made != 1 {
		t.Errorf("%d flows were made", a.made)
	}
}

func TestServer_Refusals(t *testing.T) {
	t.Parallel()
	c, _ := serve(t)
	id := uuid.NewString()
	c.Post("/v1/flows/"+id+"/start", nil).Problem(fault.CodeInternal)
	r := c.Do(http.MethodDelete, "/v1/flows/"+id, nil).Problem(fault.CodeInternal)
	if strings.Contains(string(r.Body), "fire") {
		t.Errorf("the cause is shown: %s", r.Body)
	}
	c.Get("/v1/flows/" + id).Problem(fault.CodeInternal) // it panics
	c.Get("/v1/flows?limit=-1").Problem(fault.CodeValidationFailed)
	c.Get("/v1/flows/42").Problem(fault.CodeInvalidParameter)
	c.Do(http.MethodPatch, "/v1/claims", nil).Problem(fault.CodeMethodNotAllowed)
	c.Get("/v1/nothing").Problem(fault.CodeNotFound)
}

// What a schema lets pass and a Go type does not is the client's error, with its place.
func TestServer_Unbound(t *testing.T) {
	t.Parallel()
	c, _ := serve(t)
	r := c.Post("/v1/claims", `{"lane":"ci","worker_id":"w","max":1.0}`).Problem(fault.CodeValidationFailed)
	if got := r.Fields(); len(got) != 1 || got[0].Pointer != "/max" || strings.Contains(string(r.Body), "Go ") {
		t.Errorf("got %s", r.Body)
	}
	c.Post("/v1/claims", `{"lane":"ci","worker_id":"w","max":1}`).Want(http.StatusNoContent)
}

func TestServer_Stream(t *testing.T) {
	t.Parallel()
	c, _ := serve(t)
	if got, want := c.Stream("/v1/events/stream").Next(), (apitest.Event{ID: "7", Type: "flow.created", Data: `{"a":1}`}); got != want {
		t.Errorf("got %+v, want %+v", got, want)
	}
}

func TestServer_Pages(t *testing.T) {
	t.Parallel()
	c, _ := serve(t)
	for _, path := range []string{"/livez", "/readyz", "/metrics", "/problems", "/problems/stale-lease", "/openapi.json", "/openapi.yaml"} {
		c.Get(path).Want(http.StatusOK)
	}
}
