package client

import (
	"encoding/json"
	"time"
)

// Claims is the answer to a claim.
type Claims struct {
	Claims     []Claim  `json:"claims"`
	Directives []string `json:"directives"`
}

// Claim is one execution that was claimed.
type Claim struct {
	Execution Execution       `json:"execution"`
	Handle    string          `json:"handle"`
	Kind      string          `json:"kind"`
	Inputs    json.RawMessage `json:"inputs"`
	Fence     struct {
		LeaseEpoch   int64 `json:"lease_epoch"`
		AttemptIndex int   `json:"attempt_index"`
	} `json:"fence"`
}

// Execution is an execution, as far as the command line looks at it.
type Execution struct {
	ID              string          `json:"id"`
	Lane            string          `json:"lane"`
	Kind            string          `json:"kind"`
	FlowID          string          `json:"flow_id"`
	Key             string          `json:"key"`
	PublicState     string          `json:"public_state"`
	Payload         json.RawMessage `json:"payload"`
	PayloadEncoding string          `json:"payload_encoding"`
}

// Directives is what a server asks of a worker, a part of every answer that it gets.
type Directives struct {
	Directives []string `json:"directives"`
}

// NewFrame is a piece of output on its way to the server.
type NewFrame struct {
	Payload  string `json:"payload"`
	Kind     string `json:"kind"`
	Encoding string `json:"encoding,omitempty"`
	Key      string `json:"frame_key"`
}

// Frame is a piece of output.
type Frame struct {
	ID       string    `json:"id"`
	Kind     string    `json:"kind"`
	Payload  []byte    `json:"-"`
	Encoding string    `json:"encoding"`
	At       time.Time `json:"at"`
	Text     string    `json:"payload"`
}

// Event is an event of the log.
type Event struct {
	ID          int64           `json:"id"`
	At          time.Time       `json:"at"`
	Namespace   string          `json:"namespace"`
	Topic       string          `json:"topic"`
	Type        string          `json:"type"`
	FlowID      string          `json:"flow_id"`
	ExecutionID string          `json:"execution_id"`
	Actor       string          `json:"actor"`
	Data        json.RawMessage `json:"data"`
}

// Flow is a flow, as far as the command line looks at it.
type Flow struct {
	ID      string `json:"id"`
	Kind    string `json:"kind"`
	Goal    string `json:"goal"`
	Status  string `json:"status"`
	Failure *struct {
		Reason string `json:"reason"`
	} `json:"failure"`
	Cancellation *struct {
		Reason string `json:"reason"`
		Actor  string `json:"actor"`
	} `json:"cancellation"`
	Wait *struct {
		Condition Condition `json:"condition"`
	} `json:"wait"`
	CreatedAt time.Time  `json:"created_at"`
	EndedAt   *time.Time `json:"ended_at"`
}

// Ended says whether f has come to an end.
func (f *Flow) Ended() bool {
	return f.Status == "finished" || f.Status == "failed" || f.Status == "cancelled"
}

// Condition is what a flow waits for.
type Condition struct {
	Kind  string      `json:"kind"`
	Topic string      `json:"topic"`
	Of    []Condition `json:"of"`
}

// Graph is the members of a flow and what they depend on.
type Graph struct {
	Nodes  []Node  `json:"nodes"`
	Edges  []Edge  `json:"edges"`
	Groups []Group `json:"groups"`
}

// Node is a member of a flow.
type Node struct {
	ID             string     `json:"execution_id"`
	Key            string     `json:"key"`
	Lane           string     `json:"lane"`
	Kind           string     `json:"kind"`
	PublicState    string     `json:"public_state"`
	BlockingReason string     `json:"blocking_reason"`
	Attempts       int        `json:"total_attempt_count"`
	Failure        *Failure   `json:"failure"`
	CreatedAt      time.Time  `json:"created_at"`
	StartedAt      *time.Time `json:"started_at"`
	CompletedAt    *time.Time `json:"completed_at"`
}

// Failure is why an execution failed.
type Failure struct {
	Reason   string `json:"reason"`
	Category string `json:"category"`
}

// Name is the key of n, or its id when it has none.
func (n *Node) Name() string {
	if n.Key == "" {
		return n.ID
	}
	return n.Key
}

// Ended says whether n has come to an end.
func (n *Node) Ended() bool { return Ended(n.PublicState) }

// Ended says whether a public state is an end.
func Ended(publicState string) bool {
	switch publicState {
	case "completed", "failed", "cancelled", "expired", "skipped":
		return true
	default:
		return false
	}
}

// Edge is a dependency.
type Edge struct {
	Upstream   string `json:"upstream_execution_id"`
	Downstream string `json:"downstream_execution_id"`
	State      string `json:"state"`
}

// Group is what a member depends on, taken together.
type Group struct {
	Downstream string `json:"downstream_execution_id"`
	Kind       string `json:"kind"`
	K          int    `json:"k"`
	State      string `json:"state"`
	Satisfied  int    `json:"satisfied_count"`
}

// InboxItem is something that a person can answer.
type InboxItem struct {
	Kind        string      `json:"kind"`
	FlowID      string      `json:"flow_id"`
	ExecutionID string      `json:"execution_id"`
	Title       string      `json:"title"`
	WaitpointID string      `json:"waitpoint_id"`
	Waitpoints  []Waitpoint `json:"waitpoints"`
}

// Waitpoint is where an execution waits.
type Waitpoint struct {
	ID       string `json:"waitpoint_id"`
	Key      string `json:"waitpoint_key"`
	State    string `json:"state"`
	Approval *struct {
		Title string `json:"title"`
	} `json:"approval"`
}
