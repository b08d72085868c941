package wait

import (
	"encoding/json"
	"strings"

	"github.com/google/uuid"

	"github.com/flowapi/flowapi/internal/domain/event"
	"github.com/flowapi/flowapi/internal/domain/wait"
	"github.com/flowapi/flowapi/internal/repo/store"
)

// The end of an execution or a run is an event that a flow can wait for: its topic is the type of our event, such as run.completed, and
// its correlation id that of the subject. It is not kept: whoever begins to wait is told of an end that has been.

// Subjects tell how what flows wait for has ended.
type Subjects interface {
	// Await locks a subject of the caller's namespace and returns the event that told of its end. While it has not ended that is "", and
	// the subject tells [Repo.Ended] of its end. It is "" also when there is none.
	Await(tx *store.Tx, id uuid.UUID) (event.Type, error)
}

// Ended lets flows go on that wait for the end of an execution or a run, in the transaction in which it ends. t is the event that tells
// of it. reference: runs-and-taskflows.md F5 8.
func (r *Repo) Ended(tx *store.Tx, namespace string, t event.Type, id uuid.UUID) error {
	defer tx.In(namespace)()
	_, err := r.reach(tx, endOf(t, id))
	return err
}

// endOf is the end of a subject as an event from outside.
func endOf(t event.Type, id uuid.UUID) wait.Signal {
	subject, status, _ := strings.Cut(string(t), ".")
	payload, err := json.Marshal(struct {
		Subject string    `json:"subject"`
		ID      uuid.UUID `json:"id"`
		Status  string    `json:"status"`
	}{subject, id, status})
	if err != nil {
		payload = nil // of texts: it cannot fail
	}
	return wait.Signal{ID: string(t) + "/" + id.String(), Topic: string(t), CorrelationID: id.String(), Payload: payload}
}

// idOf returns the id that a correlation id is, uuid.Nil for one that is something else.
func idOf(correlation string) uuid.UUID {
	if id, err := uuid.Parse(correlation); err == nil && id.String() == correlation {
		return id
	}
	return uuid.Nil
}

// over returns the end that a key of a wait stands for, if that has been.
func (r *Repo) over(tx *store.Tx, k wait.Key) (*wait.Signal, error) {
	id := idOf(k.CorrelationID)
	var of Subjects
	switch {
	case strings.HasPrefix(k.Topic, "execution."):
		of = r.subjects.Executions
	case strings.HasPrefix(k.Topic, "run."):
		of = r.subjects.Runs
	}
	if of == nil || id == uuid.Nil {
		return nil, nil
	}
	t, err := of.Await(tx, id)
	if err != nil || string(t) != k.Topic {
		return nil, err
	}
	end := endOf(t, id)
	return &end, nil
}
