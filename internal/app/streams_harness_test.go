package app_test

import (
	"fmt"
	"net/http"
	"runtime"
	"strings"
	"testing"
	"time"

	"github.com/google/uuid"

	"github.com/flowapi/flowapi/internal/apitest"
	"github.com/flowapi/flowapi/internal/handlers/oapi"
	"github.com/flowapi/flowapi/internal/repo/store"
)

// held creates an execution and claims it.
func (x *executionTest) held(members string) oapi.Claim {
	x.t.Helper()
	x.create(members)
	return x.claim("")
}

// put sends frames, each the members of one.
func (x *executionTest) put(c oapi.Claim, frames ...string) *apitest.Response {
	x.t.Helper()
	return x.report(c, "frames", `"frames":[{`+strings.Join(frames, "},{")+`}]`)
}

// append appends frames and returns the answer.
func (x *executionTest) append(c oapi.Claim, frames ...string) oapi.AppendedFrames {
	x.t.Helper()
	return answerAs[oapi.AppendedFrames](x.put(c, frames...).Want(http.StatusOK))
}

// lines returns n frames with the numbers from first on as their payloads.
func lines(first, n int) []string {
	frames := make([]string, n)
	for i := range frames {
		frames[i] = fmt.Sprintf(`"payload":"%d"`, first+i)
	}
	return frames
}

func streamPath(id uuid.UUID, attempt any, more string) string {
	return fmt.Sprintf("/v1/executions/%s/attempts/%v/stream%s", id, attempt, more)
}

// stream reads a page of a stream, or waits at its end.
func (x *executionTest) stream(id uuid.UUID, attempt any, more string) oapi.Stream {
	x.t.Helper()
	return answerAs[oapi.Stream](x.Get(streamPath(id, attempt, more)).Want(http.StatusOK))
}

// payloads returns what frames carry, as they are written.
func payloads(frames []oapi.Frame) string {
	all := make([]string, len(frames))
	for i, f := range frames {
		all[i] = f.Payload
	}
	return strings.Join(all, " ")
}

func frameIDs(frames []oapi.Frame) []string {
	ids := make([]string, len(frames))
	for i, f := range frames {
		ids[i] = f.ID
	}
	return ids
}

// streamRows are the sizes of the tables of streams.
type streamRows struct {
	Frames, Summaries, Dropped int
	Stands                     string // of all attempts
}

func (x *executionTest) streamRows() streamRows {
	x.t.Helper()
	var n streamRows
	var stands []struct {
		Count  int64  `db:"frame_count"`
		Last   int64  `db:"last_frame_id"`
		Kept   int64  `db:"kept_frames"`
		Live   int64  `db:"live_frames"`
		Pace   int64  `db:"frame_pace_us"`
		TrimAt *int64 `db:"trim_at"`
		Closed *int64 `db:"closed_at"`
	}
	err := x.server.App.Store().Read(x.t.Context(), func(q *store.Queries) error {
		if err := q.Get(&n.Frames, "SELECT count(*) FROM frames"); err != nil {
			return err
		}
		if err := q.Get(&n.Summaries, "SELECT count(*) FROM summaries"); err != nil {
			return err
		}
		if err := q.Get(&n.Dropped, "SELECT count(*) FROM dropped_streams"); err != nil {
			return err
		}
		return q.Select(&stands, "SELECT frame_count, last_frame_id, kept_frames, live_frames, frame_pace_us, trim_at, closed_at FROM attempts ORDER BY execution_id, attempt_index")
	})
	if err != nil {
		x.t.Fatal(err)
	}
	for _, s := range stands {
		n.Stands += fmt.Sprintln(s.Count, s.Last, s.Kept, s.Live, s.Pace, s.TrimAt == nil, s.Closed == nil)
	}
	return n
}

// follow opens a stream of events on an attempt.
func (x *executionTest) follow(id uuid.UUID, attempt any, more string, headers ...string) *apitest.Stream {
	x.t.Helper()
	return x.Stream(streamPath(id, attempt, more), headers...)
}

// tailing returns when so many requests wait for frames.
func (x *executionTest) tailing(n int) {
	x.t.Helper()
	deadline := time.Now().Add(apitest.Patience)
	for x.server.App.Waiting() != n {
		if time.Now().After(deadline) {
			x.t.Fatalf("%d requests wait for frames, not %d", x.server.App.Waiting(), n)
		}
		runtime.Gosched()
	}
}

// hears reads frames with these payloads next, and returns the last one's id.
func hears(t *testing.T, s *apitest.Stream, payloads ...string) (last string) {
	t.Helper()
	for _, want := range payloads {
		got := s.Next()
		if got.Type != "frame" || !strings.Contains(got.Data, `"payload":"`+want+`"`) {
			t.Fatalf("%+v instead of the frame %q", got, want)
		}
		last = got.ID
	}
	return last
}

// ends reads the end of an attempt's stream next.
func ends(t *testing.T, s *apitest.Stream, reason string) apitest.Event {
	t.Helper()
	got := s.Next()
	if got.Type != "closed" || !strings.Contains(got.Data, `"closed_reason":"`+reason+`"`) {
		t.Fatalf("%+v instead of the end, %s", got, reason)
	}
	return got
}
