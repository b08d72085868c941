package graphtest

import (
	"fmt"
	"maps"
	"net/http"
	"testing"
	"time"

	"github.com/google/uuid"

	"github.com/flowapi/flowapi/internal/apptest"
	"github.com/flowapi/flowapi/internal/repo/store"
	"github.com/flowapi/flowapi/internal/storetest"
)

// busy is a server that changes three executions in one transaction, and a running flow of ten that depend on nothing.
type busy struct {
	*apptest.Server
	id  uuid.UUID
	ids []string
}

func busyFlows(t *testing.T, fn func(t *testing.T, b *busy)) {
	t.Helper()
	storetest.Databases(t, func(t *testing.T, url string) {
		b := &busy{Server: apptest.Still(t, url, store.StillClock(time.Date(2031, 5, 4, 12, 0, 0, 0, time.UTC)), configured(3)), id: uuid.New()}
		var nodes []any
		for i := range 10 {
			b.ids = append(b.ids, uuid.NewString())
			nodes = append(nodes, map[string]any{"key": fmt.Sprintf("k%d", i), "id": b.ids[i], "lane": lane})
		}
		b.Post("/v1/flows", map[string]any{"id": b.id, "goal": "ten", "graph": map[string]any{"executions": nodes}}).Want(http.StatusCreated)
		b.Settle()
		b.is(t, "running", map[string]int64{"waiting": 10})
		fn(t, b)
	})
}

func (b *busy) flow(path string) string { return "/v1/flows/" + b.id.String() + path }

// is checks status and counts.
func (b *busy) is(t *testing.T, status string, counts map[string]int64) {
	t.Helper()
	var f struct {
		Status string `json:"status"`
		Rollup struct {
			Counts map[string]int64 `json:"counts"`
		} `json:"rollup"`
	}
	b.Get(b.flow("")).Want(http.StatusOK).Into(&f)
	if f.Status != status || !maps.Equal(f.Rollup.Counts, counts) {
		t.Fatalf("it is %s with %v, want %s with %v", f.Status, f.Rollup.Counts, status, counts)
	}
}

// A flow that runs again does not go on ending members because it had failed.
func TestBacklog_FailAndReplay(t *testing.T) {
	t.Parallel()
	busyFlows(t, func(t *testing.T, b *busy) {
		b.Post(b.flow("/fail"), map[string]any{"reason": "no"}).Want(http.StatusOK)
		b.is(t, "failed", map[string]int64{"cancelled": 3, "waiting": 7})
		b.Post(b.flow("/replay"), map[string]any{"from": "failed"}).Want(http.StatusOK)
		b.Settle()
		b.is(t, "running", map[string]int64{"waiting": 10})
	})
}

// A flow that is cancelled, or fails, while members of it are replayed does not go on replaying them.
func TestBacklog_ReplayAndEnd(t *testing.T) {
	t.Parallel()
	for verb, status := range map[string]string{"cancel": "cancelled", "fail": "failed"} {
		t.Run(verb, func(t *testing.T) {
			t.Parallel()
			busyFlows(t, func(t *testing.T, b *busy) {
				b.Post(b.flow("/fail"), map[string]any{"reason": "no"}).Want(http.StatusOK)
				b.Settle()
				b.is(t, "failed", map[string]int64{"cancelled": 10})
				b.Post(b.flow("/replay"), map[string]any{"from": "failed"}).Want(http.StatusOK)
				b.is(t, "running", map[string]int64{"cancelled": 7, "waiting": 3})
				b.Post(b.flow("/"+verb), map[string]any{"reason": "enough"}).Want(http.StatusOK)
				b.Settle()
				b.is(t, status, map[string]int64{"cancelled": 10})
			})
		})
	}
}
