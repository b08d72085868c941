package e2e

import (
	"context"
	"encoding/json"
	"fmt"
	"maps"
	"math/rand/v2"
	"net/http"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/google/uuid"
)

// ledger is what clients were told. Whatever stands in it was answered, and must be true for ever.
type ledger struct {
	mu        sync.Mutex
	created   map[string]string     // id -> payload
	completed map[string]string     // id -> result
	failed    map[string]bool       // ended so
	claimed   map[string]claimEntry // id/epoch -> whose
	frames    map[string]string     // frame_key -> id of the frame
	signalled map[string]string     // signal_id -> execution
	hungUp    int
	replayed  int
}

type claimEntry struct{ worker, leaseID string }

func newLedger() *ledger {
	return &ledger{created: map[string]string{}, completed: map[string]string{}, failed: map[string]bool{}, claimed: map[string]claimEntry{},
		frames: map[string]string{}, signalled: map[string]string{}}
}

// snapshot returns what is in the ledger now.
func (l *ledger) snapshot() *ledger {
	l.mu.Lock()
	defer l.mu.Unlock()
	return &ledger{created: maps.Clone(l.created), completed: maps.Clone(l.completed), failed: maps.Clone(l.failed), claimed: maps.Clone(l.claimed),
		frames: maps.Clone(l.frames), signalled: maps.Clone(l.signalled),
		hungUp: l.hungUp, replayed: l.replayed}
}

// ends returns how many completions were answered.
func (l *ledger) ends() int {
	l.mu.Lock()
	defer l.mu.Unlock()
	return len(l.completed)
}

// note changes the ledger.
func (l *ledger) note(change func()) {
	l.mu.Lock()
	defer l.mu.Unlock()
	change()
}

// claim enters an answered claim: nobody else may have been told that it has the same execution in the same epoch.
func (l *ledger) claim(id string, epoch int64, by claimEntry) error {
	l.mu.Lock()
	defer l.mu.Unlock()
	key := id + "/" + strconv.FormatInt(epoch, 10)
	if other, ok := l.claimed[key]; ok && other != by {
		return fmt.Errorf("execution %s belongs to %v and to %v in epoch %d", id, other, by, epoch)
	}
	l.claimed[key] = by
	return nil
}

const lane = "load"

// load is a number of clients that create, claim and end executions, one after the other, as long as they may. They repeat
// what was not answered, and some of them hang up in the middle of a request.
type load struct {
	*ledger
	url    atomic.Pointer[string] // of the server; it moves
	client *http.Client
	cancel context.CancelFunc
	wg     sync.WaitGroup
	hangUp bool
	lease  time.Duration
	pause  time.Duration // at most, between two rounds of a client

	mu   sync.Mutex
	errs []error
}

func newLoad(tb testing.TB) *load {
	tb.Helper()
	l := &load{ledger: newLedger(), client: newClient(tb), lease: 1500 * time.Millisecond, pause: 20 * time.Millisecond}
	tb.Cleanup(func() { l.stop() })
	return l
}

func (l *load) aim(url string) { l.url.Store(&url) }

func (l *load) start(clients int) {
	ctx, cancel := context.WithCancel(context.Background())
	l.cancel = cancel
	for i := range clients {
		c := &loadClient{load: l, name: "w" + strconv.Itoa(i), random: rand.New(rand.NewPCG(uint64(i), 7))}
		l.wg.Go(func() {
			for ctx.Err() == nil {
				_ = c.rest(ctx, time.Duration(c.random.Int64N(int64(l.pause)+1)))
				if err := c.round(ctx); err != nil && ctx.Err() == nil {
					l.mu.Lock()
					l.errs = append(l.errs, fmt.Errorf("%s: %w", c.name, err))
					l.mu.Unlock()
					return
				}
			}
		})
	}
}

// stop ends the clients and returns the first of the answers that should not have been.
func (l *load) stop() error {
	if l.cancel != nil {
		l.cancel()
	}
	l.wg.Wait()
	l.mu.Lock()
	defer l.mu.Unlock()
	if len(l.errs) == 0 {
		return nil
	}
	return l.errs[0]
}

// loadClient is one of the clients. It is a worker, too.
type loadClient struct {
	*load
	name   string
	random *rand.Rand
	n      int
}

// round makes an execution, claims some, and does something with each.
func (c *loadClient) round(ctx context.Context) error {
	if err := c.create(ctx); err != nil {
		return err
	}
	claims, err := c.claims(ctx)
	if err != nil {
		return err
	}
	for _, claim := range claims {
		if err := c.work(ctx, claim); err != nil {
			return err
		}
	}
	return nil
}

// post sends the same request until it is answered with something else than "try again". Now and then it hangs up before
// the answer.
func (c *loadClient) post(ctx context.Context, path, body string, headers ...string) (response, error) {
	for {
		attempt, cancel := ctx, context.CancelFunc(func() {})
		hungUp := c.hangUp && c.random.IntN(8) == 0
		if hungUp {
			attempt, cancel = context.WithTimeout(ctx, time.Duration(c.random.IntN(4000))*time.Microsecond)
		}
		r, err := send(attempt, c.client, http.MethodPost, *c.url.Load()+path, body, headers...)
		cancel()
		again := 20 * time.Millisecond // at most
		switch {
		case err == nil && r.status == http.StatusServiceUnavailable, err == nil && r.code() == "idempotency_in_flight":
		case err == nil:
			return r, nil
		case ctx.Err() != nil:
			return r, ctx.Err()
		case hungUp:
			c.note(func() { c.hungUp++ })
			again = 2 * time.Millisecond
		}
		if err := c.rest(ctx, time.Duration(c.random.Int64N(int64(again)))); err != nil {
			return r, err
		}
	}
}

// rest lets a little time pass between two attempts.
func (c *loadClient) rest(ctx context.Context, d time.Duration) error {
	select {
	case <-time.After(d):
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}

// create makes an execution in one of the ways that may be repeated: under an id of the client's own, or with a key.
func (c *loadClient) create(ctx context.Context) error {
	c.n++
	payload := fmt.Sprintf(`{"by":"%s-%d"}`, c.name, c.n)
	rest := fmt.Sprintf(`"lane":%q,"payload":%s,"policy":{"retry_policy":{"max_retries":2,"backoff":{"type":"fixed","delay_ms":20}}}}`, lane, payload)
	var r response
	var err error
	if c.random.IntN(2) == 0 {
		r, err = c.post(ctx, "/v1/executions", fmt.Sprintf(`{"id":%q,`, uuid.NewString())+rest)
	} else {
		r, err = c.post(ctx, "/v1/executions", `{`+rest, "Idempotency-Key: "+uuid.NewString())
	}
	if err != nil {
		return err
	}
	var made struct{ ID string }
	if err := json.Unmarshal(r.body, &made); err != nil || made.ID == "" || r.status != http.StatusCreated && r.status != http.StatusOK {
		return fmt.Errorf("create = %d %s", r.status, r.body)
	}
	c.note(func() { c.created[made.ID] = payload })
	return nil
}

// held is an execution in the hands of a client.
type held struct {
	id, handle string
	epoch      int64
}

func (c *loadClient) claims(ctx context.Context) ([]held, error) {
	body := fmt.Sprintf(`{"lane":%q,"worker_id":%q,"lease_ttl_ms":%d,"max":%d}`, lane, c.name, c.lease.Milliseconds(), 1+c.random.IntN(3))
	headers := []string{}
	if c.random.IntN(2) == 0 {
		headers = append(headers, "Idempotency-Key: "+uuid.NewString())
	}
	r, err := c.post(ctx, "/v1/claims", body, headers...)
	if err != nil || r.status == http.StatusNoContent {
		return nil, err
	}
	var got struct {
		Claims []struct {
			Execution struct{ ID string }
			Handle    string
			Fence     struct {
				LeaseID    string `json:"lease_id"`
				LeaseEpoch int64  `json:"lease_epoch"`
			}
		}
	}
	if err := json.Unmarshal(r.body, &got); err != nil || r.status != http.StatusOK {
		return nil, fmt.Errorf("claim = %d %s", r.status, r.body)
	}
	claims := make([]held, len(got.Claims))
	for i, g := range got.Claims {
		claims[i] = held{g.Execution.ID, g.Handle, g.Fence.LeaseEpoch}
		if err := c.claim(g.Execution.ID, g.Fence.LeaseEpoch, claimEntry{c.name, g.Fence.LeaseID}); err != nil {
			return nil, err
		}
	}
	return claims, nil
}

// tooLate are the refusals that a worker meets whose lease ran out while the server was away.
var tooLate = map[string]bool{"lease_expired": true, "stale_lease": true, "execution_not_active": true, "stream_closed": true}

// work does with a claim what workers do.
func (c *loadClient) work(ctx context.Context, h held) error {
	path := "/v1/executions/" + h.id + "/"
	verb := func(name, more string) (ok bool, err error) {
		r, err := c.post(ctx, path+name, `{"handle":"`+h.handle+`"`+more+`}`)
		switch {
		case err != nil:
			return false, err
		case r.status == http.StatusConflict && tooLate[r.code()]:
			return false, nil
		case r.status != http.StatusOK:
			return false, fmt.Errorf("%s = %d %s", name, r.status, r.body)
		}
		var answer struct{ Replayed bool }
		_ = json.Unmarshal(r.body, &answer)
		if answer.Replayed {
			c.note(func() { c.replayed++ })
		}
		return true, nil
	}
	result := fmt.Sprintf(`{"by":%q,"epoch":%d}`, c.name, h.epoch)
	switch c.random.IntN(14) {
	case 0:
		_, err := verb("release", "")
		return err
	case 1:
		_, err := verb("fail", `,"reason":"no"`)
		return err
	case 2:
		ok, err := verb("fail", `,"reason":"never","category":"permanent"`)
		if ok {
			c.note(func() { c.failed[h.id] = true })
		}
		return err
	case 3:
		return nil // the worker forgets it: the lease runs out
	case 4:
		if _, err := verb("progress", `,"pct":50`); err != nil {
			return err
		}
	case 5:
		if _, err := verb("renew", fmt.Sprintf(`,"lease_ttl_ms":%d`, c.lease.Milliseconds())); err != nil {
			return err
		}
	case 6:
		return c.completeInBatch(ctx, h, result)
	case 7:
		return c.suspend(ctx, h)
	case 8:
		if err := c.append(ctx, h); err != nil {
			return err
		}
	}
	ok, err := verb("complete", `,"result":`+result)
	if ok {
		c.note(func() { c.completed[h.id] = result })
	}
	return err
}

// append puts out a few frames, under keys by which they are known when the same is sent again.
func (c *loadClient) append(ctx context.Context, h held) error {
	var frames, keys []string
	for range 1 + c.random.IntN(3) {
		key := uuid.NewString()
		keys, frames = append(keys, key), append(frames, fmt.Sprintf(`{"payload":"by %s","frame_key":%q}`, c.name, key))
	}
	r, err := c.post(ctx, "/v1/executions/"+h.id+"/frames", fmt.Sprintf(`{"handle":%q,"frames":[%s]}`, h.handle, strings.Join(frames, ",")))
	if err != nil || r.status == http.StatusConflict && tooLate[r.code()] {
		return err
	}
	var got struct{ Frames []struct{ ID string } }
	if err := json.Unmarshal(r.body, &got); err != nil || r.status != http.StatusOK || len(got.Frames) != len(keys) {
		return fmt.Errorf("frames = %d %s", r.status, r.body)
	}
	c.note(func() {
		for i, key := range keys {
			c.frames[key] = got.Frames[i].ID
		}
	})
	return nil
}

// suspend waits for a signal and sends it. Whoever claims the execution then goes on.
func (c *loadClient) suspend(ctx context.Context, h held) error {
	path := "/v1/executions/" + h.id + "/"
	r, err := c.post(ctx, path+"suspend", fmt.Sprintf(`{"handle":%q,"reason_code":"waiting_for_callback","idempotency_key":%q,"waitpoints":[{"waitpoint_key":"go"}],`+
		`"resume_condition":{"Single":{"waitpoint_key":"go","matcher":"Wildcard"}}}`, h.handle, uuid.NewString()))
	if err != nil || r.status == http.StatusConflict && tooLate[r.code()] {
		return err
	}
	var waits struct {
		Waitpoints []struct {
			ID    string `json:"waitpoint_id"`
			Token string
		}
	}
	if err := json.Unmarshal(r.body, &waits); err != nil || r.status != http.StatusOK || len(waits.Waitpoints) != 1 {
		return fmt.Errorf("suspend = %d %s", r.status, r.body)
	}
	signal := uuid.NewString()
	r, err = c.post(ctx, path+"signals", fmt.Sprintf(`{"waitpoint_id":%q,"token":%q,"signal_name":"go","signal_id":%q}`, waits.Waitpoints[0].ID, waits.Waitpoints[0].Token, signal))
	if err != nil {
		return err
	}
	var taken struct{ Effect string }
	if err := json.Unmarshal(r.body, &taken); err != nil || r.status != http.StatusOK || taken.Effect != "resume_condition_satisfied" {
		return fmt.Errorf("signal = %d %s", r.status, r.body)
	}
	c.note(func() { c.signalled[signal] = h.id })
	return nil
}

func (c *loadClient) completeInBatch(ctx context.Context, h held, result string) error {
	r, err := c.post(ctx, "/v1/completions", fmt.Sprintf(`{"items":[{"execution_id":%q,"handle":%q,"result":%s}]}`, h.id, h.handle, result))
	if err != nil {
		return err
	}
	var got struct {
		Items []struct {
			Problem *struct{ Code string }
		}
	}
	if err := json.Unmarshal(r.body, &got); err != nil || r.status != http.StatusOK || len(got.Items) != 1 {
		return fmt.Errorf("completions = %d %s", r.status, r.body)
	}
	switch problem := got.Items[0].Problem; {
	case problem == nil:
		c.note(func() { c.completed[h.id] = result })
	case !tooLate[problem.Code]:
		return fmt.Errorf("completions: %s", r.body)
	}
	return nil
}

// splitKey takes a key of ledger.claimed apart. The id is in the spelling of hex().
func splitKey(key string) (id string, epoch int64) {
	text, number, _ := strings.Cut(key, "/")
	epoch, _ = strconv.ParseInt(number, 10, 64)
	return strings.ToUpper(strings.ReplaceAll(text, "-", "")), epoch
}
