// Package answer holds what the operations of all subjects need to answer: the document that describes a refusal, and
// the rendering of an answer that is kept under an Idempotency-Key.
//
// A request with a key is answered with the bytes that were stored in the transaction of its mutation. So the response
// object is rendered inside that transaction, by the store, through [call.Idempotency.Render], which [Write] sets; and
// what was rendered waits in a [Slot] until the commit, when the outermost strict middleware sends it.
package answer

import (
	"context"
	"errors"
	"fmt"
	"net/http"

	"github.com/flowapi/flowapi/internal/call"
)

// Write runs do, a mutation, and returns the response object for its result.
//
// visit is the method of the generated response interface, as an expression, for example
// oapi.CreateFlowResponseObject.VisitCreateFlowResponse. When the request carries an Idempotency-Key, do's result is
// rendered with response and visit inside the transaction, and exactly those bytes are stored and sent. T must
// therefore be the type that the store passes to Render; response must not have effects, as a transaction may run twice.
//
// Errors of do are returned as they are. A [call.Replayed] whose answer was too large to be kept is completed from its value.
func Write[T, R any](
	ctx context.Context,
	do func(context.Context) (T, error),
	response func(T) R,
	visit func(R, http.ResponseWriter) error,
) (R, error) {
	return WriteOnce(ctx, do, response, nil, visit)
}

// WriteOnce is [Write] for an answer with something that must not be kept: kept, when it is given, is what is stored in place
// of response, and what a repeated request gets.
func WriteOnce[T, R any](
	ctx context.Context,
	do func(context.Context) (T, error),
	response, kept func(T) R,
	visit func(R, http.ResponseWriter) error,
) (R, error) {
	var none R
	key := call.From(ctx).Key
	if key == nil {
		result, err := do(ctx)
		if err != nil {
			return none, err
		}
		return response(result), nil
	}

	var rendered *R // by the last run of the transaction
	slot := slotOf(ctx)
	key.Render = func(result any) (call.Answer, error) {
		value, ok := result.(T)
		if !ok {
			return call.Answer{}, fmt.Errorf("render the answer: the store returned a %T, want a %T", result, value)
		}
		r := response(value)
		rendered = &r
		rec, err := record(r, visit)
		if err != nil {
			return call.Answer{}, err
		}
		slot.recording = rec
		if kept != nil {
			if rec, err = record(kept(value), visit); err != nil {
				return call.Answer{}, err
			}
		}
		return rec.answer(), nil
	}
	result, err := do(ctx)
	if err != nil {
		slot.recording = nil
		if replayed, ok := errors.AsType[*call.Replayed](err); ok {
			return none, complete(replayed, response, visit)
		}
		return none, err
	}
	if rendered != nil {
		return *rendered, nil
	}
	return response(result), nil
}

// complete returns replayed with its answer rendered again from its value when only the value was kept. The stored
// status stays.
func complete[T, R any](replayed *call.Replayed, response func(T) R, visit func(R, http.ResponseWriter) error) error {
	if replayed.Value == nil || len(replayed.Answer.Body) > 0 {
		return replayed
	}
	value, ok := replayed.Value.(T)
	if !ok {
		return fmt.Errorf("render the replayed answer: the store returned a %T, want a %T", replayed.Value, value)
	}
	rec, err := record(response(value), visit)
	if err != nil {
		return err
	}
	again := rec.answer()
	if replayed.Answer.Status != 0 {
		again.Status = replayed.Answer.Status
	}
	return &call.Replayed{Answer: again, Value: replayed.Value, At: replayed.At}
}

func record[R any](response R, visit func(R, http.ResponseWriter) error) (*recording, error) {
	rec := &recording{header: http.Header{}}
	if err := visit(response, rec); err != nil {
		return nil, fmt.Errorf("render the answer: %w", err)
	}
	return rec, nil
}
