package app_test

import (
	"fmt"
	"net/http"
	"strings"
	"testing"

	"github.com/flowapi/flowapi/internal/handlers/oapi"
)

// TestStreams is flows-streams-budgets.md 10.5, as far as it is about reading and writing.
func TestStreams(t *testing.T) {
	t.Parallel()
	runExecutionCases(t, []executionCase{
		{"append, read, close: counts, ids, and what is closed stays readable", func(x *executionTest) {
			c := x.held("")
			id := c.Execution.ID
			if got := x.stream(id, 0, ""); len(got.Frames) != 0 || got.ClosedAt != nil || got.NextCursor != nil || *got.AttemptIndex != 0 {
				x.t.Fatalf("never written: %+v", got)
			}
			first := x.append(c, `"payload":"one"`)
			second := x.append(c, `"payload":"two","kind":"stderr","correlation_id":"c1"`)
			if first.FrameCount != 1 || second.FrameCount != 2 || first.Frames[0].ID >= second.Frames[0].ID {
				x.t.Errorf("%+v, %+v", first, second)
			}
			got := x.stream(id, "current", "")
			want := []oapi.Frame{
				{ID: first.Frames[0].ID, FrameType: "stdout", Kind: "stdout", Payload: "one", Encoding: "utf8", Mode: "durable", At: got.Frames[0].At},
				{ID: second.Frames[0].ID, FrameType: "stderr", Kind: "stderr", Payload: "two", Encoding: "utf8", Mode: "durable", At: got.Frames[1].At, CorrelationID: new("c1")},
			}
			if fmt.Sprint(got.Frames[0]) != fmt.Sprint(want[0]) || payloads(got.Frames) != "one two" || *got.Frames[1].CorrelationID != "c1" {
				x.t.Errorf("%+v", got.Frames)
			}
			x.report(c, "complete", "").Want(http.StatusOK)
			closed := x.stream(id, 0, "")
			if closed.ClosedAt == nil || *closed.ClosedReason != "attempt_success" || payloads(closed.Frames) != "one two" {
				x.t.Errorf("closed: %+v", closed)
			}
			if tail := x.stream(id, 0, "/tail?block_ms=30000&after="+second.Frames[0].ID); tail.ClosedAt == nil || len(tail.Frames) != 0 {
				x.t.Errorf("the tail of what is closed: %+v", tail)
			}
			follower := x.follow(id, 0, "")
			hears(x.t, follower, "one", "two")
			ends(x.t, follower, "attempt_success")
			if e, ok := follower.Try(livePrompt); ok {
				x.t.Errorf("after the end: %+v", e)
			}
		}},
	})
	_ = strings.Repeat
}
