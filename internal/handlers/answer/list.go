package answer

import (
	"context"

	"github.com/flowapi/flowapi/internal/domain/page"
	"github.com/flowapi/flowapi/internal/handlers/ask"
)

// Page is a stretch of a list, as it is answered. Next and Link are nil at the end of the list.
type Page[S any] struct {
	Items []S
	Next  *string
	Link  *string
}

// List reads the stretch of a list that the caller asks for, and shows each of its items. It returns CodeInvalidCursor.
func List[T, S any](ctx context.Context, cursor *string, limit *int, read func(after page.Cursor, limit int) (page.Page[T], error), show func(*T) S) (Page[S], error) {
	after, err := page.Parse(ask.Or(cursor, ""))
	if err != nil {
		return Page[S]{}, err
	}
	found, err := read(after, ask.Limit(limit))
	if err != nil {
		return Page[S]{}, err
	}
	next, link := ask.Next(ctx, found.Next)
	return Page[S]{Items: Each(found.Items, show), Next: next, Link: link}, nil
}

// Each returns what show makes of each of some values, an empty list of none.
func Each[T, S any](in []T, show func(*T) S) []S {
	out := make([]S, len(in))
	for i := range in {
		out[i] = show(&in[i])
	}
	return out
}
