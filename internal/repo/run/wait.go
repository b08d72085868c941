package run

import (
	"fmt"

	"github.com/google/uuid"

	"github.com/flowapi/flowapi/internal/domain/event"
	"github.com/flowapi/flowapi/internal/domain/fault"
	"github.com/flowapi/flowapi/internal/domain/run"
	"github.com/flowapi/flowapi/internal/domain/wait"
	"github.com/flowapi/flowapi/internal/repo/store"
)

// Hold locks a run that has a wait, its own or that of a gate. See [waitrepo.Owner].
func (*Repo) Hold(tx *store.Tx, namespace string, id uuid.UUID, skip bool) (bool, error) {
	lock := tx.ForUpdate()
	if skip {
		lock = tx.SkipLocked()
	}
	_, err := find(&tx.Queries, namespace, id, lock)
	if skip && fault.CodeOf(err) == fault.CodeNotFound { // locked, or gone with its waits
		return false, nil
	}
	return err == nil, err
}

// Await locks a run of the caller's namespace and returns the event that told of its end, "" while it has not ended or when there is none.
func (r *Repo) Await(tx *store.Tx, id uuid.UUID) (event.Type, error) {
	x, err := r.hold(tx, id)
	if fault.CodeOf(err) == fault.CodeNotFound {
		return "", nil
	}
	if err != nil || !x.Status.Terminal() {
		return "", err
	}
	return run.CompletionOf(x.Status), nil
}

// Decided makes a run go on, or a gate have its outcome, because time is over. See [waitrepo.Owner].
func (r *Repo) Decided(tx *store.Tx, w wait.Wait, _ wait.Outcome) error {
	x, err := find(&tx.Queries, w.Namespace, w.RunID, tx.ForUpdate())
	if err != nil {
		return err
	}
	if w.StepID != uuid.Nil {
		s, err := findStep(&tx.Queries, x.ID, w.StepID)
		if err != nil {
			return err
		}
		if !s.Gate.Open() || s.Gate.WaitID != w.ID {
			return fmt.Errorf("step %s does not wait for %s any more", s.ID, w.ID)
		}
		return r.saveStep(tx, &x, &s, s.Late(&x, tx.By()))
	}
	if x.Wait == nil || x.Wait.ID != w.ID {
		return fmt.Errorf("run %s does not wait for %s any more", x.ID, w.ID)
	}
	c, err := x.Late(tx.By())
	if err != nil {
		return err
	}
	return r.save(tx, &x, c)
}
