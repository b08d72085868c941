package work

import (
	"context"
	"net/http"
	"time"

	"github.com/flowapi/flowapi/internal/client"
)

// answerLimit is how long a server may take to answer a worker before it is asked again.
const answerLimit = 10 * time.Second

// keep renews the lease until ctx ends, or the lease is lost. While the server does not answer it may still be ours: that is over when the
// time of the last answer is.
func (j *job) keep(ctx context.Context) {
	ttl := j.w.LeaseTTL
	pause := min(ttl/3, renewAtMost)
	until := time.Now().Add(ttl)
	var backoff client.Backoff
	next := pause
	for client.Sleep(ctx, min(next, time.Until(until))) {
		if !time.Now().Before(until) {
			j.lose(lostError{"the lease has run out, and the server could not be asked"})
			return
		}
		in := struct {
			Handle  string `json:"handle"`
			LeaseMS int64  `json:"lease_ttl_ms"`
		}{j.claim.Handle, ttl.Milliseconds()}
		var out client.Directives
		timeout := min(answerLimit, time.Until(until))
		a, err := j.w.Client.Do(ctx, client.Request{Method: http.MethodPost, Path: j.path("/renew"), Body: in, Timeout: timeout}, &out)
		switch {
		case err == nil:
			until, next = time.Now().Add(ttl), pause
			backoff.Reset()
			j.w.fine()
			j.heed(out.Directives)
		case ctx.Err() != nil:
			return
		case gone(err) != nil:
			if !j.ending.over() { // else that may be why, and the answer to the report will tell
				j.lose(gone(err))
			}
			return
		default:
			j.w.troubled(err)
			next = min(backoff.Next(a.RetryAfter), pause)
		}
	}
}
