package answer_test

import (
	"context"
	"encoding/json"
	"errors"
	"net/http"
	"net/http/httptest"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/flowapi/flowapi/internal/call"
	"github.com/flowapi/flowapi/internal/domain/fault"
	"github.com/flowapi/flowapi/internal/handlers/answer"
	"github.com/flowapi/flowapi/internal/handlers/oapi"
)

// thing is a result, and made the generated kind of response object for it.
type thing struct{ Name string }

type response interface {
	visit(w http.ResponseWriter) error
}

type made struct {
	thing thing
	times *int
}

func (m made) visit(w http.ResponseWriter) error {
	*m.times++
	if m.thing.Name == "broken" {
		return errors.New("cannot be rendered")
	}
	w.Header().Set("Content-Type", "application/json")
	w.Header().Set("Location", "/things/1")
	w.Header().Set("Preference-Applied", "wait=1")
	w.WriteHeader(http.StatusCreated)
	return json.NewEncoder(w).Encode(m.thing)
}

// store keeps one answer, as the real one does: it renders inside do.
type store struct{ kept call.Answer }

func (s *store) create(ctx context.Context, result any) error {
	key := call.From(ctx).Key
	if key == nil {
		return nil
	}
	var err error
	s.kept, err = key.Render(result)
	return err
}

func write(ctx context.Context, s *store, name string, times *int) (response, error) {
	return answer.Write(ctx, func(ctx context.Context) (thing, error) {
		t := thing{name}
		return t, s.create(ctx, t)
	}, func(t thing) response { return made{t, times} }, response.visit)
}

func keyed(ctx context.Context) context.Context {
	return call.With(ctx, call.Call{Key: &call.Idempotency{Key: "k"}})
}

func TestWrite_WithoutKey(t *testing.T) {
	t.Parallel()
	var times int
	got, err := write(call.With(t.Context(), call.Call{}), &store{}, "x", &times)
	if err != nil || got.(made).thing.Name != "x" || times != 0 {
		t.Errorf("got %v, %v after %d renderings", got, err, times)
	}
}

func TestWrite_SendsWhatWasKept(t *testing.T) {
	t.Parallel()
	ctx, slot := answer.WithSlot(keyed(t.Context()))
	var s store
	var times int
	got, err := write(ctx, &s, "x", &times)
	if err != nil || got.(made).thing.Name != "x" {
		t.Fatalf("got %v, %v", got, err)
	}
	w := httptest.NewRecorder()
	if sent, err := slot.Send(w); !sent || err != nil {
		t.Fatalf("Send = %t, %v", sent, err)
	}
	if times != 1 {
		t.Errorf("rendered %d times", times)
	}
	want := call.Answer{Status: 201, Location: "/things/1", Body: []byte("{\"Name\":\"x\"}\n")}
	if diff := cmp.Diff(want, s.kept); diff != "" {
		t.Errorf("kept (-want +got):\n%s", diff)
	}
	if w.Code != 201 || w.Body.String() != string(s.kept.Body) || w.Header().Get("Location") != "/things/1" ||
		w.Header().Get("Content-Type") != "application/json" || w.Header().Get("Preference-Applied") != "wait=1" {
		t.Errorf("sent %d %v %s", w.Code, w.Header(), w.Body)
	}
}

func TestWrite_Errors(t *testing.T) {
	t.Parallel()
	refusal := fault.New(fault.CodeAlreadyExists, "Taken.")
	ctx, slot := answer.WithSlot(keyed(t.Context()))
	var times int
	_, err := answer.Write(ctx, func(ctx context.Context) (thing, error) {
		if err := new(store).create(ctx, thing{"x"}); err != nil {
			return thing{}, err
		}
		return thing{}, refusal // after rendering: the commit failed
	}, func(t thing) response { return made{t, &times} }, response.visit)
	if !errors.Is(err, refusal) {
		t.Errorf("got %v", err)
	}
	if sent, _ := slot.Send(httptest.NewRecorder()); sent {
		t.Error("what was rolled back was sent")
	}
	if _, err := write(keyed(t.Context()), &store{}, "broken", &times); err == nil {
		t.Error("an answer that cannot be rendered was kept")
	}
	_, err = answer.Write(keyed(t.Context()), func(ctx context.Context) (thing, error) {
		return thing{}, new(store).create(ctx, "no thing")
	}, func(t thing) response { return made{t, &times} }, response.visit)
	if err == nil {
		t.Error("a result of another type was rendered")
	}
}

func TestWrite_Replayed(t *testing.T) {
	t.Parallel()
	at := time.Unix(1, 0)
	whole := call.Answer{Status: 201, Body: []byte("{}")}
	tests := []struct {
		name string
		in   call.Replayed
		want call.Answer
	}{
		{"kept whole", call.Replayed{Answer: whole, At: at}, whole},
		{"no body ever", call.Replayed{Answer: call.Answer{Status: 204}, At: at}, call.Answer{Status: 204}},
		{"too large to be kept", call.Replayed{Answer: call.Answer{Status: 200}, Value: thing{"y"}, At: at},
			call.Answer{Status: 200, Location: "/things/1", Body: []byte("{\"Name\":\"y\"}\n")}},
	}
	for _, tt := range tests {
		var times int
		_, err := answer.Write(keyed(t.Context()), func(context.Context) (thing, error) { return thing{}, &tt.in },
			func(t thing) response { return made{t, &times} }, response.visit)
		replayed, ok := errors.AsType[*call.Replayed](err)
		if !ok {
			t.Errorf("%s: %v", tt.name, err)
			continue
		}
		if diff := cmp.Diff(tt.want, replayed.Answer); diff != "" || !replayed.At.Equal(at) {
			t.Errorf("%s (-want +got):\n%s", tt.name, diff)
		}
	}
}

func TestWriteOnce(t *testing.T) {
	t.Parallel()
	ctx, slot := answer.WithSlot(keyed(t.Context()))
	var s store
	var times int
	_, err := answer.WriteOnce(ctx, func(ctx context.Context) (thing, error) { return thing{"secret"}, s.create(ctx, thing{"secret"}) },
		func(t thing) response { return made{t, &times} }, func(thing) response { return made{thing{"***"}, &times} }, response.visit)
	if err != nil {
		t.Fatal(err)
	}
	w := httptest.NewRecorder()
	if _, err := slot.Send(w); err != nil || w.Body.String() != "{\"Name\":\"secret\"}\n" {
		t.Errorf("sent %s, %v", w.Body, err)
	}
	if string(s.kept.Body) != "{\"Name\":\"***\"}\n" {
		t.Errorf("kept %s", s.kept.Body)
	}
}

func TestItem(t *testing.T) {
	t.Parallel()
	ctx := call.With(t.Context(), call.Call{RequestID: "r1"})
	err := fault.Invalid(fault.CodeInvalidTagKey, "/tags/x", "The key has no dot.").With("key", "x")
	got := answer.Item(ctx, "/v1/executions/batch", err)
	want := oapi.ProblemDetails{
		Type: "/problems/invalid-tag-key", Title: fault.Lookup(fault.CodeInvalidTagKey).Title, Status: 422, Detail: "The key has no dot.",
		Instance: "/v1/executions/batch", RequestID: "r1", Code: "invalid_tag_key",
		Errors:               []oapi.ProblemError{{In: "body", Pointer: "/tags/x", Detail: "The key has no dot.", Code: new("invalid_tag_key")}},
		AdditionalProperties: map[string]any{"key": "x"},
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
	if got := answer.Item(ctx, "/", errors.New("secret")); got.Code != "internal" || got.Detail == "secret" {
		t.Errorf("an internal error became %+v", got)
	}
}
