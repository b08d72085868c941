package client

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/url"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"
)

func TestReadMessages(t *testing.T) {
	t.Parallel()
	text := ": welcome\n\nid: 1\nevent: flow.created\ndata: {\"a\":1}\n\n: ping\n\nevent:bye\ndata\n\ndata: one\ndata: two\nretry: 5\n\nid: 9\nevent: cut.off\ndata: {"
	var got []Message
	lines := 0
	err := readMessages(strings.NewReader(text), func() { lines++ }, func(m Message) error {
		got = append(got, m)
		return nil
	})
	want := []Message{{"1", "flow.created", []byte(`{"a":1}`)}, {"", "bye", []byte("")}, {"", "", []byte("one\ntwo")}}
	if diff := cmp.Diff(want, got); diff != "" || err != nil {
		t.Errorf("%v; (-want +got):\n%s", err, diff)
	}
	if lines != 18 {
		t.Errorf("it has heard %d lines", lines)
	}
}

func TestTemporary(t *testing.T) {
	t.Parallel()
	for _, tt := range []struct {
		err  error
		want bool
	}{
		{&Problem{Status: 503, Code: "busy"}, true},
		{&Problem{Status: 429, Code: "rate_limited"}, true},
		{&Problem{Status: 502}, true},
		{&Problem{Status: 409, Code: "idempotency_in_flight"}, true},
		{&Problem{Status: 409, Code: "stale_lease"}, false},
		{&Problem{Status: 404}, false},
		{&Problem{Status: 500, Code: "internal"}, true},
		{fmt.Errorf("x: %w", &Problem{Status: 503}), true},
		{&url.Error{Op: "Post", Err: errors.New("connection refused")}, true},
		{&url.Error{Op: "Post", Err: context.DeadlineExceeded}, true},
		{&url.Error{Op: "Post", Err: context.Canceled}, false},
		{io.ErrUnexpectedEOF, true},
	} {
		if got := Temporary(tt.err); got != tt.want {
			t.Errorf("Temporary(%v) = %v", tt.err, got)
		}
	}
	for _, address := range []string{"nonsense", "ftp://x", "http://[::1"} {
		_, err := (&Client{URL: address}).Do(t.Context(), Request{Method: "GET", Path: "/"}, nil)
		if err == nil || Temporary(err) {
			t.Errorf("the address %s: %v, which counts as temporary", address, err)
		}
	}
}

func TestBackoff(t *testing.T) {
	t.Parallel()
	var b Backoff
	for i, most := range []int64{100, 200, 400, 800, 1600, 3200, 5000, 5000} {
		longest := time.Duration(most) * time.Millisecond
		if got := b.Next(0); got < longest/2 || got > longest {
			t.Errorf("wait %d is %s", i, got)
		}
	}
	if got := b.Next(time.Minute); got < time.Minute {
		t.Errorf("the server asks for a minute, and it is %s", got)
	}
	b.Reset()
	if got := b.Next(0); got > 100*time.Millisecond {
		t.Errorf("after a success it is %s", got)
	}
	synctest.Test(t, func(t *testing.T) {
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		if Sleep(ctx, time.Minute) {
			t.Error("it slept on")
		}
	})
}

func TestProblem_Error(t *testing.T) {
	t.Parallel()
	err := problem(Answer{Status: 422, Body: []byte(`{"code":"validation_failed","detail":"No.","errors":[{"in":"body","pointer":"/goal","detail":"is required"}]}`)})
	if got := err.Error(); got != "No. (validation_failed)\n  body /goal: is required" || Code(err) != "validation_failed" {
		t.Errorf("%q", got)
	}
	if got := problem(Answer{Status: 502, Body: []byte("<html>")}).Error(); got != "the server answered 502 Bad Gateway" {
		t.Errorf("%q", got)
	}
}
