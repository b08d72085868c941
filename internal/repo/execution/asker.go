package execution

import (
	"time"

	"github.com/flowapi/flowapi/internal/domain/execution"
	"github.com/flowapi/flowapi/internal/repo/store"
)

func drainKey(namespace, instance string) string { return "drain/" + namespace + "/" + instance }

func asker(q *store.Queries, namespace, instance string, now time.Time) (execution.Asker, error) {
	return execution.Asker{Named: true, InstanceID: instance}, nil
}

func capableWorkers(q *store.Queries, e *execution.Execution, now time.Time) (int, error) {
	return 0, nil
}
