package execution

import (
	"context"
	"errors"

	"github.com/google/uuid"

	"github.com/flowapi/flowapi/internal/domain/execution"
	"github.com/flowapi/flowapi/internal/domain/fault"
)

// itemRef is what one item of the answer to a batch is rendered from again.
type itemRef struct {
	ID       uuid.UUID   `json:"id,omitzero"`
	Replayed bool        `json:"replayed,omitempty"`
	Refused  *refusalRef `json:"refused,omitempty"`
}

// refusalRef is a refusal as it is kept.
type refusalRef struct {
	Code    fault.Code     `json:"code"`
	Message string         `json:"message"`
	Facts   map[string]any `json:"facts,omitempty"`
	Fields  []fault.Field  `json:"fields,omitempty"`
}

func refOf(err error) *refusalRef {
	f, ok := errors.AsType[*fault.Error](err)
	if !ok {
		return nil
	}
	return &refusalRef{f.Code, f.Message, f.Facts, f.Fields}
}

// reloadItems returns the items of an earlier batch: what was refused then, and value of what there is now.
func reloadItems[T any](ctx context.Context, r *Repo, refs []itemRef, value func(execution.Execution, itemRef) T) ([]execution.Item[T], error) {
	items := make([]execution.Item[T], len(refs))
	for i, old := range refs {
		if f := old.Refused; f != nil {
			items[i].Err = &fault.Error{Code: f.Code, Message: f.Message, Facts: f.Facts, Fields: f.Fields}
			continue
		}
		e, err := r.Execution(ctx, old.ID)
		if err != nil && !refusal(err) {
			return nil, err
		}
		items[i] = execution.Item[T]{Value: value(e, old), Err: err}
	}
	return items, nil
}
