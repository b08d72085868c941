package flow

import (
	"fmt"

	"github.com/google/uuid"

	"github.com/flowapi/flowapi/internal/domain/fault"
	"github.com/flowapi/flowapi/internal/domain/wait"
	"github.com/flowapi/flowapi/internal/repo/store"
)

// Hold locks a flow that has a wait. See [waitrepo.Owner].
func (*Repo) Hold(tx *store.Tx, namespace string, id uuid.UUID, skip bool) (bool, error) {
	lock := tx.ForUpdate()
	if skip {
		lock = tx.SkipLocked()
	}
	found, err := findRow(&tx.Queries, namespace, id, lock)
	switch {
	case skip && fault.CodeOf(err) == fault.CodeNotFound: // locked, or gone with its waits
		return false, nil
	case err != nil:
		return false, err
	}
	return true, found.check()
}

// Decided makes a flow go on, whose wait was decided: it runs again, or it ends. The events carry the engine's name when time
// decided, and that of the caller who delivered the event. See [waitrepo.Owner].
func (r *Repo) Decided(tx *store.Tx, w wait.Wait, o wait.Outcome) error {
	found, err := findRow(&tx.Queries, w.Namespace, w.FlowID, tx.ForUpdate())
	if err != nil {
		return err
	}
	if uuid.UUID(found.WaitID) != w.ID {
		return fmt.Errorf("flow %s does not wait for %s any more", w.FlowID, w.ID)
	}
	f, err := found.flow(&w)
	if err != nil {
		return err
	}
	c, err := f.Decided(o, tx.By())
	if err != nil {
		return err
	}
	_, err = r.save(tx, &f, c)
	return err
}
