package apitest

import (
	"bufio"
	"io"
	"net/http"
	"strings"
	"testing"
	"time"
)

// Patience is how long a test waits for what takes no time at all on a quiet machine.
const Patience = time.Minute

// Event is one server-sent event.
type Event struct {
	ID   string
	Type string
	Data string
}

// Stream is an open stream of server-sent events. It is closed with its test.
type Stream struct {
	Header http.Header

	tb     testing.TB
	asked  string
	body   io.ReadCloser
	events chan Event
}

// Stream opens a stream of server-sent events. It ends the test when the answer is not one.
func (c *Client) Stream(path string, headers ...string) *Stream {
	c.tb.Helper()
	request := c.request(http.MethodGet, path, nil, append([]string{"Accept: text/event-stream"}, headers...))
	answer, err := c.client.Do(request) //nolint:bodyclose // it is closed with the test
	if err != nil {
		c.tb.Fatalf("GET %s: %v", path, err)
	}
	if answer.StatusCode != http.StatusOK || !strings.HasPrefix(answer.Header.Get("Content-Type"), "text/event-stream") {
		body, _ := io.ReadAll(answer.Body)
		answer.Body.Close()
		c.tb.Fatalf("GET %s = %d %s, want a stream\n%s", path, answer.StatusCode, answer.Header.Get("Content-Type"), body)
	}
	s := &Stream{Header: answer.Header, tb: c.tb, asked: "GET " + path, body: answer.Body, events: make(chan Event)}
	done, read := make(chan struct{}), make(chan struct{})
	go func() {
		defer close(read)
		s.read(bufio.NewReader(answer.Body), done)
	}()
	c.tb.Cleanup(func() {
		close(done)
		answer.Body.Close()
		<-read
	})
	return s
}

// Next returns the next event; comments are passed over. It ends the test when none comes in time, or the stream ends.
func (s *Stream) Next() Event {
	s.tb.Helper()
	event, ok := s.Try(Patience)
	if !ok {
		s.tb.Fatalf("%s: no event came within %s", s.asked, Patience)
	}
	return event
}

// Rest returns what comes until the stream ends, which it has to.
func (s *Stream) Rest() []Event {
	s.tb.Helper()
	var rest []Event
	for {
		timer := time.NewTimer(Patience)
		select {
		case event, open := <-s.events:
			timer.Stop()
			if !open {
				return rest
			}
			rest = append(rest, event)
		case <-timer.C:
			s.tb.Fatalf("%s: the stream does not end; it had %+v", s.asked, rest)
		}
	}
}

// Try returns the next event that comes within a time; false when none did, or the stream has ended.
func (s *Stream) Try(within time.Duration) (Event, bool) {
	timer := time.NewTimer(within)
	defer timer.Stop()
	select {
	case event, ok := <-s.events:
		return event, ok
	case <-timer.C:
		return Event{}, false
	}
}

// Close hangs up.
func (s *Stream) Close() { s.body.Close() }

// read passes events on until the stream ends or done is closed.
func (s *Stream) read(lines *bufio.Reader, done <-chan struct{}) {
	defer close(s.events)
	var event Event
	var data []string
	for {
		line, err := lines.ReadString('\n')
		if err != nil {
			return
		}
		name, value, _ := strings.Cut(strings.TrimRight(line, "\r\n"), ":")
		value = strings.TrimPrefix(value, " ")
		switch name {
		case "id":
			event.ID = value
		case "event":
			event.Type = value
		case "data":
			data = append(data, value)
		case "":
			if line = strings.TrimRight(line, "\r\n"); line != "" || (len(data) == 0 && event.Type == "") {
				continue // a comment, or the end of nothing
			}
			event.Data = strings.Join(data, "\n")
			select {
			case s.events <- event:
			case <-done:
				return
			}
			event, data = Event{}, nil
		}
	}
}
