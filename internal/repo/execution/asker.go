package execution

import (
	"time"

	"github.com/flowapi/flowapi/internal/domain/execution"
	"github.com/flowapi/flowapi/internal/repo/store"
	"github.com/flowapi/flowapi/internal/repo/worker"
)

// asker describes a registered worker to whom something is explained. It returns CodeWorkerNotRegistered.
func asker(q *store.Queries, namespace, instance string, now time.Time) (execution.Asker, error) {
	w, err := worker.Live(q, namespace, instance, now)
	return execution.Asker{Named: true, Capabilities: w.Capabilities, InstanceID: instance, DrainingSince: w.DrainingSince}, err
}
