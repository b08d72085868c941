// Package watch follows a flow and shows it: as a tree that is drawn again and again, as one line for each change, and as reports when
// it is over. What is shown is always read from the server as a whole; the stream of events only says when to look again, so that
// nothing is missed when it breaks.
package watch

import (
	"context"
	"encoding/json"
	"net/http"
	"time"

	"github.com/flowapi/flowapi/internal/client"
)

const (
	pollPause = 3 * time.Second        // between two looks without an event
	lookPause = 100 * time.Millisecond // between two looks at the least, and four times what a look takes
)

// Snapshot is a flow at one time.
type Snapshot struct {
	Flow   client.Flow
	Graph  client.Graph
	Asks   []client.InboxItem // what people are asked, looked up when nothing else seems to move the flow
	Person bool               // nothing but a person can move it

	RawFlow  json.RawMessage
	RawGraph json.RawMessage
}

// Follow calls seen with the flow whenever it may have changed, from now on until ctx ends (nil), or the server does not let it look
// any more. trouble is told when the server does not answer; it is asked again.
func Follow(ctx context.Context, c *client.Client, id string, seen func(*Snapshot), trouble func(error)) error {
	ctx, cancel := context.WithCancel(ctx)
	changed, streaming := make(chan struct{}, 1), make(chan struct{})
	defer func() { <-streaming }()
	defer cancel()
	wake := func() {
		select {
		case changed <- struct{}{}:
		default:
		}
	}
	go func() {
		defer close(streaming)
		// Without a stream it is looked at now and then: no error of it matters.
		_ = c.Follow(ctx, client.Stream{
			Path:    "/v1/flows/" + id + "/events/stream",
			Opened:  wake, // what was missed until now
			Message: func(client.Message) error { wake(); return nil },
			Lost: func(err error) error {
				if err != nil && ctx.Err() == nil {
					trouble(err)
				}
				return nil
			},
		})
	}()
	poll := time.NewTicker(pollPause)
	defer poll.Stop()
	for ctx.Err() == nil {
		began := time.Now()
		s, err := look(ctx, c, id, trouble)
		if err != nil {
			if ctx.Err() != nil {
				break
			}
			return err
		}
		seen(s)
		client.Sleep(ctx, max(lookPause, 4*time.Since(began)))
		select {
		case <-changed:
		case <-poll.C:
		case <-ctx.Done():
		}
	}
	return nil
}

// look reads the flow, and after it its members, which are the last ones if the flow has ended.
func look(ctx context.Context, c *client.Client, id string, trouble func(error)) (*Snapshot, error) {
	var s Snapshot
	read := func(path string, out any) (json.RawMessage, error) {
		a, err := c.Insist(ctx, client.Request{Method: http.MethodGet, Path: "/v1/flows/" + id + path, Timeout: 20 * time.Second}, out, trouble)
		return a.Body, err
	}
	var err error
	if s.RawFlow, err = read("", &s.Flow); err != nil {
		return nil, err
	}
	if s.RawGraph, err = read("/graph", &s.Graph); err != nil {
		return nil, err
	}
	if still(&s) {
		if s.Asks, err = c.Inbox(ctx, id); err != nil {
			if client.Temporary(err) {
				return &s, nil // it will be asked at the next look
			}
			return nil, err
		}
		s.Person = asksOnly(&s)
	}
	return &s, nil
}
