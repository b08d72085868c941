package modeltest

import (
	"net/http"
	"time"
)

// move moves the clock.
func (w *world) move(ms int64) {
	w.tellStory("the clock moves by %d ms", ms)
	w.clock.Advance(time.Duration(ms) * time.Millisecond)
	w.now += ms
}

// settle lets everything happen that is due.
func (w *world) settle() {
	w.tellStory("what is due happens")
	w.pass()
	w.each(func(s *side) {
		s.Settle()
		s.compare(false)
	})
}

func passing() []kind {
	return []kind{
		{"tick", 9, nil, func(w *world) {
			w.move(w.step())
			w.settle()
			w.did[w.kind]++
		}},
		{"tick without a sweep", 4, nil, func(w *world) {
			w.move(w.step())
			w.did[w.kind]++
		}},
		{"sweep", 2, nil, func(w *world) {
			w.settle()
			w.did[w.kind]++
		}},
		{"resume with little time left", 3, some(timed), resumeLate},
		{"replay at the deadline", 1, some(endedEarly), replayLate},
	}
}

// timed are those whose attempt has a time, that is not over.
func timed(w *world, e *execution) bool { return w.held(e) && e.timeout > w.now && !e.cancelling() }

// resumeLate gives an execution back, takes it again and goes to the end of what was left of its time. That is not come by
// often otherwise.
func resumeLate(w *world) {
	e := w.where(func(e *execution) bool { return timed(w, e) })
	if e == nil || !timed(w, e) {
		return
	}
	if left := e.timeout - w.now; left > 1 && w.expiresAfter(e, left) {
		w.move(1 + int64(w.below(int(left-1), "worked")))
	}
	p := proof{fence: fence{owner: e.owner}, form: "handle"}
	w.reports(w.model.release(e, p.fence), e, "release", p, nil)
	w.ask(w.claimByHand(e, 30000), false, func(*side) request {
		return request{method: http.MethodPost, path: path(e, "operator-claim"), body: map[string]any{"lease_ttl_ms": 30000}}
	})
	w.move(max(0, e.timeout-w.now+draw[int64](w, "beside", 0, -1, 1)))
	w.settle()
}

// expiresAfter says whether nothing of e's own is due within a time.
func (w *world) expiresAfter(e *execution, ms int64) bool {
	return e.expires > w.now+ms && (e.deadline == 0 || e.deadline > w.now+ms)
}

// endedEarly are those that have ended before their deadline.
func endedEarly(w *world, e *execution) bool {
	return e.phase == "terminal" && e.deadline > w.now && e.replays < e.policy.maxReplays()
}

// replayLate replays an execution at its very deadline, or beside it.
func replayLate(w *world) {
	e := w.where(func(e *execution) bool { return endedEarly(w, e) })
	if e == nil || !endedEarly(w, e) {
		return
	}
	w.move(max(0, e.deadline-w.now+draw[int64](w, "beside", 0, -1, 1)))
	w.ask(w.model.replay(e), false, func(*side) request {
		return request{method: http.MethodPost, path: path(e, "replay")}
	})
}
