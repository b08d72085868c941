package work

import (
	"context"
	"net/http"
	"net/url"
	"sync/atomic"
	"time"

	"github.com/google/uuid"

	"github.com/flowapi/flowapi/internal/client"
)

// claimAll claims as much as there are hands for, and starts a job for each claim, until claiming ends. It returns at once when the
// server refuses to let this worker claim.
func (w *worker) claimAll(ctx, claiming context.Context) error {
	hands := make(chan struct{}, w.Concurrency)
	var last atomic.Int64 // when a job has ended last
	last.Store(time.Now().UnixNano())
	for claiming.Err() == nil {
		select {
		case hands <- struct{}{}:
		case <-claiming.Done():
			return nil
		}
		free := 1
		for free < w.Concurrency && take(hands) {
			free++
		}
		if w.draining.over() { // both were ready
			break
		}
		claims, wait, err := w.claim(ctx, claiming, free)
		if err != nil && !w.draining.over() {
			return err
		}
		for _, c := range claims {
			w.held.Store(c.Execution.ID, nil)
			w.jobs.Go(func() {
				defer func() {
					w.held.Delete(c.Execution.ID)
					last.Store(time.Now().UnixNano())
					<-hands
				}()
				newJob(w, c).run(ctx)
			})
		}
		for range free - len(claims) {
			<-hands
		}
		idle := len(claims) == 0 && free == w.Concurrency && time.Since(time.Unix(0, last.Load())) >= w.IdleLimit
		if w.IdleLimit > 0 && idle && w.draining.begin() {
			w.tell(Report{What: "draining", Detail: "there is nothing to do"})
		}
		client.Sleep(claiming, wait)
	}
	return nil
}

// take takes one place more, if there is one.
func take(hands chan<- struct{}) bool {
	select {
	case hands <- struct{}{}:
		return true
	default:
		return false
	}
}

type claimBody struct {
	Lanes        []string `json:"lanes"`
	WorkerID     string   `json:"worker_id"`
	Instance     string   `json:"worker_instance_id"`
	Capabilities []string `json:"capabilities"`
	LeaseMS      int64    `json:"lease_ttl_ms"`
	Max          int      `json:"max"`
}

// claim waits for up to n claims, and returns how long to wait before the next call. Its key makes a repetition give what an answer
// that was lost has given.
func (w *worker) claim(ctx, claiming context.Context, n int) ([]client.Claim, time.Duration, error) {
	wait := claimWait
	if w.IdleLimit > 0 {
		wait = min(wait, w.IdleLimit)
	}
	r := client.Request{
		Method: http.MethodPost, Path: "/v1/claims", Key: uuid.NewString(), Wait: wait, Timeout: wait + 10*time.Second,
		Body: claimBody{w.Lanes, w.WorkerID, w.Instance, append([]string{}, w.Capabilities...), w.LeaseTTL.Milliseconds(), n},
	}
	var out client.Claims
	a, err := w.Client.Insist(claiming, r, &out, w.troubled)
	if claiming.Err() != nil {
		w.settle(ctx, r, out.Claims, err)
		out.Claims = nil
	}
	if err != nil {
		return nil, 0, err
	}
	w.fine()
	w.heed(out.Directives)
	return out.Claims, a.RetryAfter, nil
}

// settle gives back what a claim got that was under way when the worker was told to stop. If its answer did not come, the register of
// leases says whether it got something: repeated without need, it would claim anew.
func (w *worker) settle(ctx context.Context, r client.Request, got []client.Claim, lost error) {
	ctx, cancel := context.WithTimeout(ctx, leaveLimit)
	defer cancel()
	if lost != nil && w.holdsMore(ctx) {
		var out client.Claims
		r.Wait, r.Timeout = 0, leaveLimit
		if _, err := w.Client.Insist(ctx, r, &out, nil); err != nil {
			w.troubled(err)
		}
		got = out.Claims
	}
	for i := range got {
		release := client.Request{Method: http.MethodPost, Path: "/v1/executions/" + got[i].Execution.ID + "/release", Body: handle{got[i].Handle}}
		if _, err := w.Client.Insist(ctx, release, nil, nil); err != nil {
			w.troubled(err)
		}
	}
}

// holdsMore says whether the server knows of leases of this worker that no job has.
func (w *worker) holdsMore(ctx context.Context) bool {
	var list struct {
		Items []struct {
			ID string `json:"execution_id"`
		} `json:"items"`
	}
	path := "/v1/leases?limit=500&worker_instance_id=" + url.QueryEscape(w.Instance)
	if _, err := w.Client.Do(ctx, client.Request{Method: http.MethodGet, Path: path, Timeout: leaveLimit}, &list); err != nil {
		w.troubled(err)
		return false
	}
	for _, lease := range list.Items {
		if _, known := w.held.Load(lease.ID); !known {
			return true
		}
	}
	return false
}

type handle struct {
	Handle string `json:"handle"`
}
