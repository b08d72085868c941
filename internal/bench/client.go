package bench

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"slices"
	"strconv"
	"strings"
	"time"
)

// client is a client of flowapi over a fixed number of connections.
type client struct {
	url    string
	http   *http.Client
	stored int    // executions created, counted by the measurements
	prefix string // of lanes, so that a second run on the same server claims nothing of the first
	lanes  int
}

func newClient(url string, connections int) *client {
	return &client{
		url:    url,
		http:   &http.Client{Transport: &http.Transport{MaxConnsPerHost: connections, MaxIdleConnsPerHost: connections, DisableCompression: true}},
		prefix: "bench-" + strconv.FormatInt(time.Now().UnixMilli(), 36) + "-",
	}
}

// lane returns the name of a lane that nothing was put into before.
func (c *client) lane() string {
	c.lanes++
	return c.prefix + strconv.Itoa(c.lanes)
}

// execution is what the measurements look at in an execution.
type execution struct {
	ID          string    `json:"id"`
	PublicState string    `json:"public_state"`
	DelayUntil  time.Time `json:"delay_until"`
}

// claim is an execution in the hands of its worker.
type claim struct {
	Kind           string    `json:"kind"`
	Execution      execution `json:"execution"`
	Handle         string    `json:"handle"`
	LeaseExpiresAt time.Time `json:"lease_expires_at"`
}

// problem is an error as the server describes it.
type problem struct {
	Status int    `json:"status"`
	Code   string `json:"code"`
	Detail string `json:"detail"`
}

func (p *problem) Error() string { return fmt.Sprintf("%d %s: %s", p.Status, p.Code, p.Detail) }

// lease is long enough for the slowest server: the measurement is of claims and completes, not of expiry.
const lease = 10 * time.Minute

// work is the rest of an execution's document after its lane, and load the rest after its priority.
const (
	work = `,"kind":"demo","priority":0` + load
	load = `,"payload":{"hello":"world","n":123456,"text":"lorem ipsum dolor sit amet"},"tags":{"a.b":"c"}}`
)

const result = `,"result":{"ok":true}}`

func (c *client) create(ctx context.Context, lane string) (id string, err error) {
	made, err := c.createOne(ctx, `{"lane":"`+lane+`"`+work)
	return made.ID, err
}

func (c *client) createOne(ctx context.Context, document string) (made execution, err error) {
	err = c.post(ctx, "/v1/executions", document, &made)
	if err == nil && made.ID == "" {
		err = errors.New("created an execution without an id")
	}
	return made, err
}

// createFlow creates a flow and does not start it.
func (c *client) createFlow(ctx context.Context) (id string, err error) {
	var made struct {
		ID string `json:"id"`
	}
	err = c.post(ctx, "/v1/flows", `{"goal":"bench"}`, &made)
	return made.ID, err
}

// claim claims up to limit executions of a lane that has them. A server with several writers may find those that it looks at
// taken meanwhile and answer that there is nothing: then it is asked again.
func (c *client) claim(ctx context.Context, lane string, limit int) ([]claim, error) {
	for range 1000 {
		claims, err := c.claimOnce(ctx, lane, limit, lease, 0)
		if err != nil || len(claims) > 0 {
			return claims, err
		}
	}
	return nil, fmt.Errorf("lane %s: nothing to claim, a thousand times, where there should be", lane)
}

// claimOnce claims up to limit executions, and waits for work so many seconds.
func (c *client) claimOnce(ctx context.Context, lane string, limit int, ttl time.Duration, wait int) ([]claim, error) {
	prefer := ""
	if wait > 0 {
		prefer = "wait=" + strconv.Itoa(wait)
	}
	var answer struct {
		Claims []claim `json:"claims"`
	}
	body := fmt.Sprintf(`{"lane":%q,"worker_id":"bench","lease_ttl_ms":%d,"max":%d}`, lane, ttl.Milliseconds(), limit)
	if err := c.send(ctx, http.MethodPost, "/v1/claims", prefer, body, &answer); err != nil {
		return nil, err
	}
	if len(answer.Claims) > limit {
		return nil, fmt.Errorf("%d claims, asked for %d", len(answer.Claims), limit)
	}
	return answer.Claims, nil
}

func (c *client) complete(ctx context.Context, held claim) error {
	var answer struct {
		Execution execution `json:"execution"`
	}
	err := c.post(ctx, "/v1/executions/"+held.Execution.ID+"/complete", `{"handle":"`+held.Handle+`"`+result, &answer)
	if err != nil {
		return err
	}
	return completed(held, answer.Execution)
}

func completed(held claim, now execution) error {
	if now.ID != held.Execution.ID || now.PublicState != "completed" {
		return fmt.Errorf("completed %s, got %s, which is %q", held.Execution.ID, now.ID, now.PublicState)
	}
	return nil
}

// item is one of the answers to a batch.
type item struct {
	Execution execution `json:"execution"`
	Problem   *problem  `json:"problem"`
}

func (c *client) createBatch(ctx context.Context, lane string, n int) (ids []string, err error) {
	return c.createAll(ctx, slices.Repeat([]string{`{"lane":"` + lane + `"` + work}, n))
}

func (c *client) createAll(ctx context.Context, documents []string) (ids []string, err error) {
	items, err := c.batch(ctx, "/v1/executions/batch", `{"executions":[`+strings.Join(documents, ",")+`]}`, len(documents))
	for _, item := range items {
		ids = append(ids, item.Execution.ID)
	}
	return ids, err
}

func (c *client) completeBatch(ctx context.Context, held []claim) error {
	var body strings.Builder
	for i, h := range held {
		body.WriteString([]string{`{"items":[`, `,`}[min(i, 1)])
		body.WriteString(`{"execution_id":"` + h.Execution.ID + `","handle":"` + h.Handle + `"` + result)
	}
	body.WriteString(`]}`)
	items, err := c.batch(ctx, "/v1/completions", body.String(), len(held))
	if err != nil {
		return err
	}
	for i, item := range items {
		if err := completed(held[i], item.Execution); err != nil {
			return err
		}
	}
	return nil
}

// lifecycleBatch creates n executions, claims as many, its own or another caller's, and completes them.
func (c *client) lifecycleBatch(ctx context.Context, lane string, n int) (ids []string, err error) {
	if _, err := c.createBatch(ctx, lane, n); err != nil {
		return nil, err
	}
	for len(ids) < n {
		held, err := c.claim(ctx, lane, n-len(ids))
		if err != nil {
			return nil, err
		}
		if err := c.completeBatch(ctx, held); err != nil {
			return nil, err
		}
		ids = append(ids, idsOf(held)...)
	}
	return ids, nil
}

// batch posts n things and returns the answer to each, or the first problem among them.
func (c *client) batch(ctx context.Context, path, body string, n int) ([]item, error) {
	var answer struct {
		Items []item `json:"items"`
	}
	if err := c.post(ctx, path, body, &answer); err != nil {
		return nil, err
	}
	if len(answer.Items) != n {
		return nil, fmt.Errorf("%s: %d items for %d", path, len(answer.Items), n)
	}
	for i, item := range answer.Items {
		if item.Problem != nil {
			return nil, fmt.Errorf("%s: item %d: %w", path, i, item.Problem)
		}
	}
	return answer.Items, nil
}

// createMany creates n executions, document(0) … document(n-1), in large batches.
func (c *client) createMany(ctx context.Context, n int, document func(i int) string) error {
	const size, callers = 1000, 4
	_, err := parallel(ctx, (n+size-1)/size, callers, func(ctx context.Context, b int) error {
		documents := make([]string, 0, size)
		for i := b * size; i < min(n, (b+1)*size); i++ {
			documents = append(documents, document(i))
		}
		_, err := c.createAll(ctx, documents)
		return err
	})
	c.stored += n
	return err
}

// warmUp opens the connections and has both sides prepare what they prepare once.
func (c *client) warmUp(ctx context.Context) error {
	lane := c.lane()
	n := c.http.Transport.(*http.Transport).MaxConnsPerHost
	_, err := parallel(ctx, 2*n, n, func(ctx context.Context, _ int) error {
		_, err := c.lifecycle(ctx, lane)
		return err
	})
	c.stored += 2 * n
	return err
}

// lifecycle creates an execution, claims one, its own or another caller's, and completes it.
func (c *client) lifecycle(ctx context.Context, lane string) (id string, err error) {
	if _, err := c.create(ctx, lane); err != nil {
		return "", err
	}
	held, err := c.claim(ctx, lane, 1)
	if err != nil {
		return "", err
	}
	return held[0].Execution.ID, c.complete(ctx, held[0])
}

// eventsAfter returns the ids of all events after one, in order.
func (c *client) eventsAfter(ctx context.Context, after int64) ([]int64, error) {
	var ids []int64
	for {
		var page struct {
			Items []struct {
				ID int64 `json:"id"`
			} `json:"items"`
			NextCursor int64 `json:"next_cursor"`
			More       bool  `json:"more"`
		}
		if err := c.do(ctx, http.MethodGet, fmt.Sprintf("/v1/events?after=%d&limit=500", after), "", &page); err != nil {
			return nil, err
		}
		for _, event := range page.Items {
			ids = append(ids, event.ID)
		}
		if !page.More {
			return ids, nil
		}
		after = page.NextCursor
	}
}

func (c *client) post(ctx context.Context, path, body string, into any) error {
	return c.do(ctx, http.MethodPost, path, body, into)
}

func (c *client) do(ctx context.Context, method, path, body string, into any) error {
	return c.send(ctx, method, path, "", body, into)
}

// send sends a request and decodes its answer. Whatever is not a success is an error with the problem's text.
func (c *client) send(ctx context.Context, method, path, prefer, body string, into any) error {
	req, err := http.NewRequestWithContext(ctx, method, c.url+path, strings.NewReader(body))
	if err != nil {
		return err
	}
	if body != "" {
		req.Header.Set("Content-Type", "application/json")
	}
	if prefer != "" {
		req.Header.Set("Prefer", prefer)
	}
	res, err := c.http.Do(req)
	if err != nil {
		return err
	}
	defer res.Body.Close()
	answer, err := io.ReadAll(res.Body)
	if err != nil {
		return fmt.Errorf("%s %s: %w", method, path, err)
	}
	if err := failure(res, answer); err != nil {
		return fmt.Errorf("%s %s: %w", method, path, err)
	}
	if len(answer) == 0 {
		return nil
	}
	if err := json.Unmarshal(answer, into); err != nil {
		return fmt.Errorf("%s %s: %w", method, path, err)
	}
	return nil
}

// failure returns the problem of an answer that is not a success.
func failure(res *http.Response, body []byte) error {
	if res.StatusCode < http.StatusMultipleChoices {
		return nil
	}
	p := new(problem)
	if json.Unmarshal(body, p) == nil && p.Code != "" {
		return p
	}
	return fmt.Errorf("%s: %s", res.Status, bytes.TrimSpace(body[:min(len(body), 500)]))
}

func idsOf(held []claim) []string {
	ids := make([]string, len(held))
	for i, h := range held {
		ids[i] = h.Execution.ID
	}
	return ids
}
