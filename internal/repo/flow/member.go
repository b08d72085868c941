package flow

import (
	"fmt"

	"github.com/google/uuid"

	"github.com/flowapi/flowapi/internal/domain/fault"
	"github.com/flowapi/flowapi/internal/domain/flow"
	"github.com/flowapi/flowapi/internal/repo/store"
)

// Join counts one more member of a flow of the caller's namespace, without a revision, and says whether the flow has been
// started. It returns CodeNotFound and CodeAlreadyTerminal.
func (r *Repo) Join(tx *store.Tx, id uuid.UUID) (started bool, err error) {
	var status string
	err = tx.Get(&status, `UPDATE flows SET node_count = node_count + 1, graph_revision = graph_revision + 1
		WHERE id = ? AND namespace = ? AND ended_at IS NULL RETURNING status`, store.ID(id), tx.Call.Namespace)
	switch {
	case store.NotFound(err):
		f, err := r.find(&tx.Queries, tx.Call.Namespace, id, "")
		if err != nil {
			return false, err
		}
		return false, fault.New(fault.CodeAlreadyTerminal, "Flow %s is %s and takes no more members.", id, f.Status).With("current_status", f.Status)
	case err != nil:
		return false, fmt.Errorf("join flow %s: %w", id, err)
	}
	return flow.Status(status) != flow.Created, nil
}
