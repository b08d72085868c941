package wait

import (
	"time"

	"github.com/google/uuid"
)

// Kept is a signal on a waitpoint, as it is kept: for whoever observes what woke an execution, and for a wait to come.
type Kept struct {
	Signal
	ExecutionID     uuid.UUID
	WaitpointID     uuid.UUID
	SuspensionID    uuid.UUID // of the wait that it was given to, uuid.Nil while there is none
	Category        string
	IdempotencyKey  string // "" for none
	RecognisedUntil time.Time
	At              time.Time
	Effect          Effect
	Counts          bool
	Open            bool // no wait has had it
}
