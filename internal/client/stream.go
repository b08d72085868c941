package client

import (
	"bufio"
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"time"
)

// silence is how long a stream may say nothing before it counts as broken: three of the server's pings.
const silence = 45 * time.Second

const maxMessage = 16 << 20

// ErrEnded says that a stream has told everything that it ever will.
var ErrEnded = errors.New("the stream has ended")

// Message is one server-sent event.
type Message struct {
	ID    string
	Event string
	Data  []byte
}

// Stream follows a stream of server-sent events over as many connections as it takes.
type Stream struct {
	Path  string
	After string // begin after this id; "" is where the path begins
	// Opened is called for each connection that is made, before its first message.
	Opened func()
	// Message is called for each message. An error ends the stream, ErrEnded without one.
	Message func(Message) error
	// Lost is called when a connection breaks, or cannot be made for now; nil is a stream that the server has ended in order.
	// An error ends the stream, else it is tried again.
	Lost func(error) error
}

// Follow follows s until ctx ends, one of its functions returns an error, the server refuses it, or it is over (nil).
func (c *Client) Follow(ctx context.Context, s Stream) error {
	var backoff Backoff
	for {
		opened, asked := false, time.Duration(0)
		err := c.connection(ctx, &s, &asked, func() {
			opened = true
			backoff.Reset()
			if s.Opened != nil {
				s.Opened()
			}
		})
		stop, stopped := errors.AsType[stopError](err)
		switch {
		case errors.Is(err, ErrEnded):
			return nil
		case stopped:
			return stop.error
		case ctx.Err() != nil:
			return context.Cause(ctx)
		case err != nil && !opened && !Temporary(err):
			return err
		}
		if s.Lost != nil {
			if err := s.Lost(err); err != nil {
				return err
			}
		}
		if !Sleep(ctx, backoff.Next(asked)) {
			return context.Cause(ctx)
		}
	}
}

// stopError is an error of who reads the stream.
type stopError struct{ error }

func (e stopError) Unwrap() error { return e.error }

func (c *Client) connection(ctx context.Context, s *Stream, asked *time.Duration, opened func()) error {
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	req, err := c.request(ctx, Request{Method: http.MethodGet, Path: s.Path})
	if err != nil {
		return err
	}
	req.Header.Set("Accept", "text/event-stream")
	if s.After != "" {
		req.Header.Set("Last-Event-ID", s.After)
	}
	watchdog := time.AfterFunc(silence, func() { cancel(fmt.Errorf("the server has said nothing for %s", silence)) })
	defer watchdog.Stop()
	resp, err := c.http().Do(req)
	if err != nil {
		return err
	}
	defer resp.Body.Close()
	switch {
	case resp.StatusCode == http.StatusNoContent:
		return ErrEnded
	case resp.StatusCode >= http.StatusBadRequest:
		*asked = retryAfter(resp.Header)
		body, err := io.ReadAll(io.LimitReader(resp.Body, 1<<20))
		if err != nil {
			return err
		}
		return problem(Answer{Status: resp.StatusCode, Body: body})
	}
	opened()
	return readMessages(resp.Body, func() { watchdog.Reset(silence) }, func(m Message) error {
		if err := s.Message(m); err != nil {
			return stopError{err}
		}
		if m.ID != "" {
			s.After = m.ID
		}
		return nil
	})
}

// readMessages reads messages until the end, calling heard for every line.
func readMessages(r io.Reader, heard func(), yield func(Message) error) error {
	lines := bufio.NewScanner(r)
	lines.Buffer(make([]byte, 0, 64<<10), maxMessage)
	var m Message
	for lines.Scan() {
		heard()
		line := lines.Bytes()
		if len(line) == 0 {
			if m.Event != "" || m.Data != nil {
				if err := yield(m); err != nil {
					return err
				}
			}
			m = Message{}
			continue
		}
		name, value, _ := bytes.Cut(line, []byte(":"))
		value = bytes.TrimPrefix(value, []byte(" "))
		switch string(name) {
		case "id":
			m.ID = string(value)
		case "event":
			m.Event = string(value)
		case "data":
			if m.Data == nil {
				m.Data = make([]byte, 0, len(value))
			} else {
				m.Data = append(m.Data, '\n')
			}
			m.Data = append(m.Data, value...)
		}
	}
	return lines.Err()
}
