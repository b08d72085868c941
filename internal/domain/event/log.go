package event

import "github.com/google/uuid"

// Filter selects events. Empty fields select everything.
type Filter struct {
	Namespace   string // "" = all namespaces
	Topics      []Topic
	Types       []Type
	FlowID      uuid.UUID
	RunID       uuid.UUID
	ExecutionID uuid.UUID
	InstanceTag string
}

// Page is a stretch of the log.
type Page struct {
	Events  []Event
	Through int64 // the last id that was looked at: where the next page begins
	More    bool  // the log goes on
	ResetTo int64 // the oldest id still held, when the cursor lay before it or ahead of the log; else 0
}

// Log describes the event log as a whole.
type Log struct {
	Generation string // changes when ids may have been lost, by a restore or a fail-over
	Oldest     int64  // the smallest id that a reader may still resume from is Oldest-1
	Newest     int64
}
