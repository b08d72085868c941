package runtest

import (
	"fmt"
	"net/http"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/google/uuid"

	"github.com/flowapi/flowapi/internal/app"
	"github.com/flowapi/flowapi/internal/apptest"
	"github.com/flowapi/flowapi/internal/domain/fault"
	"github.com/flowapi/flowapi/internal/repo/store"
	"github.com/flowapi/flowapi/internal/storetest"
)

// fanned is a server that cancels three children in one transaction, and a running run with a step of five items: four executions, of which
// a worker has begun all, and a run.
type fanned struct {
	*apptest.Server
	t     *testing.T
	path  string
	step  string
	works []uuid.UUID
	child uuid.UUID
}

func fanOut(t *testing.T, fn func(f *fanned)) {
	t.Helper()
	storetest.Databases(t, func(t *testing.T, url string) {
		clock := store.StillClock(time.Date(2031, 5, 4, 12, 0, 0, 0, time.UTC))
		f := &fanned{Server: apptest.Still(t, url, clock, func(cfg *app.Config) { cfg.Batch = 3 }), t: t, child: uuid.New()}
		f.path = "/v1/runs/" + f.Post("/v1/runs", `{"workflow_name":"w"}`).Want(http.StatusCreated).Str("id")
		f.Post(f.path+"/start", `{"generation":0}`).Want(http.StatusOK)
		f.step = f.path + "/steps/" + f.Post(f.path+"/steps", `{"generation":0,"step_name":"all","role":"foreach","position":0,"retry_count":0}`).Want(http.StatusCreated).Str("id")
		items := []any{map[string]any{"item_type": "run", "item_id": "0", "child": map[string]any{"run": map[string]any{"id": f.child, "workflow_name": "c"}}}}
		for i := range 4 {
			f.works = append(f.works, uuid.New())
			items = append(items, map[string]any{"item_type": "work", "item_id": fmt.Sprint(i), "child": map[string]any{"execution": map[string]any{"id": f.works[i], "lane": lane}}})
		}
		f.Post(f.step+"/items", map[string]any{"generation": 0, "items": items}).Want(http.StatusOK)
		f.Post("/v1/claims", map[string]any{"lane": lane, "worker_id": "w", "max": 10, "lease_ttl_ms": 60_000}).Want(http.StatusOK)
		fn(f)
	})
}

// is checks how a run stands.
func (f *fanned) is(path, status string) {
	f.t.Helper()
	if got := f.Get(path).Want(http.StatusOK).Str("status"); got != status {
		f.t.Errorf("%s is %s, want %s", path, got, status)
	}
}

// The children of a run that is cancelling are all asked to end, also those that are too many for one transaction.
func TestBacklog_Cancelling(t *testing.T) {
	t.Parallel()
	fanOut(t, func(f *fanned) {
		f.Post(f.path+"/lease", `{"token":"e","ttl_ms":60000}`).Want(http.StatusOK)
		f.Post(f.path+"/cancel", `{"deadline_ms":9000}`).Want(http.StatusOK)
		f.Settle()
		f.is(f.path, "cancelling")
		asked := map[string]any{}
		for i, id := range f.works {
			asked[fmt.Sprint(i)] = f.Get("/v1/executions/" + id.String()).Want(http.StatusOK).Get("cancellation.deadline_at")
		}
		at := "2031-05-04T12:00:09.000Z"
		if diff := cmp.Diff(map[string]any{"0": at, "1": at, "2": at, "3": at}, asked); diff != "" {
			f.t.Errorf("they were asked to end by (-want +got):\n%s", diff)
		}
		f.is("/v1/runs/"+f.child.String(), "cancelled")
		f.Advance(9 * time.Second)
		f.is(f.path, "cancelled")
	})
}

// A child of a run that is cancelling has the run's time, also when nobody waits for it any more before the sweep comes to it.
func TestBacklog_CancellingStep(t *testing.T) {
	t.Parallel()
	fanOut(t, func(f *fanned) {
		first := uuid.UUID{6: 0x70, 8: 0x80, 15: 1} // the first to be ended, by which its step ends with its item
		step := f.path + "/steps/" + f.Post(f.path+"/steps", map[string]any{"generation": 0, "step_name": "one", "role": "foreach", "position": 1, "retry_count": 0,
			"child": map[string]any{"execution": map[string]any{"id": first, "lane": lane}}}).Want(http.StatusCreated).Str("id")
		id := uuid.New()
		child := "/v1/runs/" + id.String()
		f.Post(step+"/items", map[string]any{"generation": 0, "items": []any{map[string]any{"item_type": "run", "item_id": "1", "child": map[string]any{"run": map[string]any{"id": id, "workflow_name": "c"}}}}}).Want(http.StatusOK)
		f.Post(child+"/lease", `{"token":"c","ttl_ms":60000}`).Want(http.StatusOK)
		f.Post(child+"/start", `{"generation":1}`).Want(http.StatusOK)
		f.Post(f.path+"/lease", `{"token":"e","ttl_ms":60000}`).Want(http.StatusOK)
		f.Post(f.path+"/cancel", `{"deadline_ms":9000}`).Want(http.StatusOK)
		f.is(step, "cancelled")
		f.is(child, "running")
		f.Settle()
		f.is(child, "cancelling")
		if got, want := f.Get(child).Get("cancellation.deadline_at"), "2031-05-04T12:00:09.000Z"; got != want {
			f.t.Errorf("the child has until %v, want %s", got, want)
		}
	})
}

// A run goes on that waits for a child which the sweep cancels.
func TestBacklog_Waiting(t *testing.T) {
	t.Parallel()
	fanOut(t, func(f *fanned) {
		f.Post(f.path+"/wait", map[string]any{"generation": 0, "blocked_on": map[string]any{"type": "child", "run_id": f.child}}).Want(http.StatusOK)
		f.Do(http.MethodPatch, f.step, `{"generation":0,"status":"failed"}`).Want(http.StatusOK)
		f.is(f.path, "waiting")
		f.Settle()
		f.is("/v1/runs/"+f.child.String(), "cancelled")
		f.is(f.path, "running")
		f.Post(f.path+"/complete", `{"generation":0}`).Want(http.StatusOK)
	})
}

// The runs of a flow end with it, also those that were left to the sweep when the flow is deleted.
func TestBacklog_FlowGone(t *testing.T) {
	t.Parallel()
	storetest.Databases(t, func(t *testing.T, url string) {
		clock := store.StillClock(time.Date(2031, 5, 4, 12, 0, 0, 0, time.UTC))
		f := &fanned{Server: apptest.Still(t, url, clock, func(cfg *app.Config) { cfg.Batch = 3 }), t: t}
		flow := f.Post("/v1/flows", `{"goal":"g","start":true}`).Want(http.StatusCreated).Str("id")
		runs := make([]string, 11)
		for i := range runs {
			runs[i] = "/v1/runs/" + f.Post("/v1/runs", fmt.Sprintf(`{"workflow_name":"w","flow_id":%q}`, flow)).Want(http.StatusCreated).Str("id")
		}
		last := runs[len(runs)-1]
		f.Post(last+"/lease", `{"token":"e","ttl_ms":60000}`).Want(http.StatusOK)
		f.Post(last+"/start", `{"generation":1}`).Want(http.StatusOK)
		f.Post("/v1/flows/"+flow+"/cancel", `{}`).Want(http.StatusOK)
		f.is(last, "running")
		f.Do(http.MethodDelete, "/v1/flows/"+flow, nil).Want(http.StatusNoContent)
		f.is(last, "cancelling")
		for _, path := range runs[:len(runs)-1] {
			f.Get(path).Problem(fault.CodeNotFound)
		}
		f.Advance(time.Minute)
		f.is(last, "cancelled")
	})
}
