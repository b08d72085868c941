package answer

import (
	"context"
	"time"
)

// Await looks whenever watch says that something has happened, until what it looks for is there, the time is over, or the server ends.
// It returns what it found last.
func Await[T any](ctx context.Context, watch func() <-chan struct{}, ends <-chan struct{}, limit time.Duration, look func() (found T, done bool, err error)) (T, error) {
	deadline := time.NewTimer(limit)
	defer deadline.Stop()
	for {
		grown := watch() // before looking: whatever comes later closes it
		found, done, err := look()
		if err != nil || limit <= 0 || done {
			return found, err
		}
		select {
		case <-ends:
			return found, nil
		case <-grown:
		case <-deadline.C:
			return found, nil
		case <-ctx.Done():
			return found, ctx.Err()
		}
	}
}
