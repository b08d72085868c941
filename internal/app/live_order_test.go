package app_test

import (
	"context"
	"encoding/json"
	"fmt"
	"math/rand/v2"
	"net/http"
	"strconv"
	"sync"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/flowapi/flowapi/internal/apptest"
	"github.com/flowapi/flowapi/internal/storetest"
)

// The promise of the log, as clients see it: a subscriber that hangs up and comes back wherever it likes sees every event
// once, in one order, none missing, and each execution's revisions in theirs; whatever was answered is in it; and a
// transaction that somebody leaves open stops nobody.
func TestLive_order(t *testing.T) {
	t.Parallel()
	storetest.Databases(t, func(t *testing.T, url string) {
		s := live{apptest.Start(t, url)}
		delayCommits(t, url)
		release := storetest.ForeignTransaction(t, s.App.Store())
		defer release()
		watchWriters(t, []live{s})
	})
	t.Run("two replicas", func(t *testing.T) {
		t.Parallel()
		url := storetest.Postgres(t)
		replicas := []live{{apptest.Start(t, url)}, {apptest.Start(t, url)}}
		delayCommits(t, url)
		release := storetest.ForeignTransaction(t, replicas[0].App.Store())
		defer release()
		watchWriters(t, replicas)
	})
}

// delayCommits makes every transaction of a PostgreSQL database that writes events take up to 3 ms for its commit, after its
// events were numbered locally. On a database with one writer there is nothing between the two.
func delayCommits(t *testing.T, url string) {
	t.Helper()
	db := livePostgres(t, url)
	if db == nil {
		return
	}
	liveExec(t, db, `CREATE FUNCTION delay_commit() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN PERFORM pg_sleep(random() * 0.003); RETURN NULL; END $$`,
		`CREATE CONSTRAINT TRIGGER delay_commit AFTER INSERT ON events_inbox DEFERRABLE INITIALLY DEFERRED FOR EACH ROW EXECUTE FUNCTION delay_commit()`)
}

// liveWriter makes executions, claims whatever there is and ends it, all at random.
type liveWriter struct {
	live
	random *rand.Rand
	name   string

	created []string         // answered
	ended   map[string]bool  // by us: completed, or failed
	events  int              // that our answered calls have written
	epochs  map[string]int64 // claimed by us
}

const (
	orderWriters = 16
	orderRounds  = 12
	orderLane    = "order"
)

// watchWriters runs the writers, spread over the servers, and one subscriber that moves between the servers.
func watchWriters(t *testing.T, servers []live) {
	t.Helper()
	writers := make([]*liveWriter, orderWriters)
	errs := make(chan error, orderWriters)
	var wg sync.WaitGroup
	for i := range writers {
		w := &liveWriter{live: servers[i%len(servers)], random: rand.New(rand.NewPCG(uint64(i), 4)), name: fmt.Sprintf("w%d", i), ended: map[string]bool{}, epochs: map[string]int64{}}
		writers[i] = w
		wg.Go(func() { errs <- w.run(t.Context()) })
	}
	done := make(chan struct{})
	go func() {
		wg.Wait()
		close(done)
	}()
	seen := subscribe(t, servers, done, func() int {
		events := 0
		for _, w := range writers {
			events += w.events
		}
		return events
	})
	for range writers {
		if err := <-errs; err != nil {
			t.Error(err)
		}
	}
	checkOrder(t, seen)
	listed := texts(servers[0].log(t, ""))
	listed = listed[:min(len(listed), len(seen))] // a retry may have become due since: checkAnswered knows what must be there
	if diff := cmp.Diff(listed, texts(seen)); diff != "" {
		t.Errorf("the subscriber has not seen what the list shows (-list +stream)\n%s", diff)
	}
	checkAnswered(t, writers, seen)
}

// run does the writer's work. It returns the first thing that should not be.
func (w *liveWriter) run(ctx context.Context) error {
	for range orderRounds {
		if err := w.pause(ctx); err != nil {
			return err
		}
		var made struct{ ID string }
		if err := w.call(ctx, "/v1/executions", `{"lane":"`+orderLane+`","policy":{"retry_policy":{"max_retries":9,"backoff":{"type":"fixed","delay_ms":1}}}}`, http.StatusCreated, &made); err != nil {
			return err
		}
		w.created = append(w.created, made.ID)
		w.events++
		if err := w.pause(ctx); err != nil {
			return err
		}
		if err := w.work(ctx); err != nil {
			return err
		}
	}
	return nil
}

// work claims an execution, of whomever, and does something with it.
func (w *liveWriter) work(ctx context.Context) error {
	var got struct {
		Claims []struct {
			Execution struct{ ID string }
			Handle    string
			Fence     struct {
				LeaseEpoch int64 `json:"lease_epoch"`
			}
		}
	}
	if err := w.call(ctx, "/v1/claims", `{"lane":"`+orderLane+`","worker_id":"`+w.name+`"}`, http.StatusOK, &got); err != nil || len(got.Claims) == 0 {
		return err
	}
	w.events++
	claim := got.Claims[0]
	id := claim.Execution.ID
	if w.epochs[id] >= claim.Fence.LeaseEpoch {
		return fmt.Errorf("execution %s was claimed in epoch %d after epoch %d", id, claim.Fence.LeaseEpoch, w.epochs[id])
	}
	w.epochs[id] = claim.Fence.LeaseEpoch
	verb := func(name, more string, events int) error {
		if err := w.pause(ctx); err != nil {
			return err
		}
		w.events += events
		return w.call(ctx, "/v1/executions/"+id+"/"+name, `{"handle":"`+claim.Handle+`"`+more+`}`, http.StatusOK, nil)
	}
	for range w.random.IntN(3) {
		name, more := "renew", ""
		if w.random.IntN(2) == 0 {
			name, more = "progress", `,"pct":5`
		}
		if err := verb(name, more, 1); err != nil {
			return err
		}
	}
	switch w.random.IntN(4) {
	case 0:
		return verb("release", "", 2)
	case 1:
		return verb("fail", `,"reason":"no"`, 2)
	default:
		w.ended[id] = true
		return verb("complete", "", 2)
	}
}

// call posts, and asks for one status; 204 is taken for any.
func (w *liveWriter) call(ctx context.Context, path, body string, want int, into any) error {
	status, _, answer, err := w.send(ctx, http.MethodPost, path, body)
	switch {
	case err != nil:
		return err
	case status == http.StatusNoContent:
		return nil
	case status != want:
		return fmt.Errorf("%s: POST %s = %d, want %d: %s", w.name, path, status, want, answer)
	case into == nil:
		return nil
	}
	return json.Unmarshal(answer, into)
}

// pause is a random rest.
func (w *liveWriter) pause(ctx context.Context) error {
	select {
	case <-time.After(time.Duration(w.random.IntN(3000)) * time.Microsecond):
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}

// subscribe follows the log from the beginning, over connections that it drops at random, until it has seen the answered
// writes of all writers and what else is in the log then.
func subscribe(t *testing.T, servers []live, done <-chan struct{}, events func() int) []liveEvent {
	t.Helper()
	random := rand.New(rand.NewPCG(1, 2))
	var seen []liveEvent
	for cursor, last := int64(0), int64(-1); last < 0 || cursor < last; {
		s := servers[random.IntN(len(servers))]
		path, headers := "/v1/events/stream", []string{"Last-Event-ID: " + strconv.FormatInt(cursor, 10)}
		if random.IntN(3) == 0 {
			path, headers = path+"?after="+strconv.FormatInt(cursor, 10), nil
		}
		stream := s.Stream(path, headers...)
		for range 1 + random.IntN(60) {
			if cursor == last {
				break
			}
			e, ok := stream.Try(250 * time.Millisecond)
			if !ok { // the writers may be done
				break
			}
			got := liveEventOf(t, []byte(e.Data))
			if strconv.FormatInt(got.ID, 10) != e.ID || got.Type != e.Type {
				t.Fatalf("event %s %s has the data %s", e.ID, e.Type, e.Data)
			}
			seen, cursor = append(seen, got), got.ID
		}
		stream.Close()
		select {
		case <-done:
			if last < 0 {
				last = s.page(t, "?after="+strconv.FormatInt(cursor, 10)+"&limit=1").next
				for more := true; more; {
					p := s.page(t, "?limit=500&after="+strconv.FormatInt(last, 10))
					last, more = p.next, p.more
				}
				if int(last) < liveFirst+events() {
					t.Fatalf("the log ends with event %d although the writers' answers stand for %d", last, events())
				}
			}
		case <-t.Context().Done():
			t.Fatal("the test is over")
		default:
		}
	}
	return seen
}

// checkOrder holds what a subscriber has seen to the promise.
func checkOrder(t *testing.T, seen []liveEvent) {
	t.Helper()
	revisions, owners := map[string]int64{}, map[string]bool{}
	for i, e := range seen {
		if e.ID != int64(i)+1 {
			t.Fatalf("event %d is the %dth that was seen", e.ID, i+1)
		}
		if i < liveFirst {
			continue
		}
		revision, known := revisions[e.ExecutionID]
		switch {
		case !known && (e.Type != "execution.created" || e.Revision != 0):
			t.Fatalf("the first event of an execution is %s", e.text)
		case known && e.Revision != revision && e.Revision != revision+1:
			t.Fatalf("revision %d of execution %s follows revision %d: %s", e.Revision, e.ExecutionID, revision, e.text)
		case e.Cause != 0 && e.Cause >= e.ID:
			t.Fatalf("event %d is caused by a later one: %s", e.ID, e.text)
		}
		revisions[e.ExecutionID] = e.Revision
		switch e.Type {
		case "lease.acquired":
			if owners[e.ExecutionID] {
				t.Fatalf("two owners: %s", e.text)
			}
			owners[e.ExecutionID] = true
		case "lease.revoked", "lease.expired":
			owners[e.ExecutionID] = false
		}
	}
}

// checkAnswered looks for what the writers were told is done.
func checkAnswered(t *testing.T, writers []*liveWriter, seen []liveEvent) {
	t.Helper()
	created, completed := map[string]int{}, map[string]int{}
	claims := map[string]bool{}
	for _, e := range seen {
		switch e.Type {
		case "execution.created":
			created[e.ExecutionID]++
		case "execution.completed":
			completed[e.ExecutionID]++
		case "lease.acquired":
			var data struct {
				WorkerID string `json:"worker_id"`
				Epoch    int64  `json:"lease_epoch"`
			}
			if err := json.Unmarshal(e.Data, &data); err != nil {
				t.Fatal(err)
			}
			claims[fmt.Sprint(data.WorkerID, e.ExecutionID, data.Epoch)] = true
		}
	}
	total := 0
	for _, w := range writers {
		total += len(w.created)
		for _, id := range w.created {
			if created[id] != 1 {
				t.Errorf("the creation of %s was answered and is in the log %d times", id, created[id])
			}
		}
		for id := range w.ended {
			if completed[id] != 1 {
				t.Errorf("the completion of %s was answered and is in the log %d times", id, completed[id])
			}
		}
		for id, epoch := range w.epochs {
			if !claims[fmt.Sprint(w.name, id, epoch)] {
				t.Errorf("the claim of %s in epoch %d by %s was answered and is not in the log", id, epoch, w.name)
			}
		}
	}
	if total != orderWriters*orderRounds || len(created) != total {
		t.Errorf("%d creations were answered and %d are in the log, want %d", total, len(created), orderWriters*orderRounds)
	}
}

func texts(events []liveEvent) []string {
	texts := make([]string, len(events))
	for i, e := range events {
		texts[i] = e.text
	}
	return texts
}
