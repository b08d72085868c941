package runtest

import (
	"fmt"
	"slices"
	"strconv"
	"strings"
)

// hold holds a snapshot, and what has become of the one before, to the invariants. It asks the model nothing but what was resumed, and
// what was replayed.
func (s *side) hold(before, now snapshot) {
	for name, r := range now.Runs {
		s.holdRun(before.Runs[name], r)
	}
	for name, x := range now.Steps {
		s.holdStep(before.Steps[name], x, now)
	}
	for name, it := range now.Items {
		was := before.Items[name]
		if slices.Contains(itemEnds, was.Status) && was != it && !s.again(now.Steps[it.Step].Run) {
			s.Failf("D2 9: item %s had ended\n%+v\n%+v", name, was, it)
		}
		if ended(itemEnds, it.Status) != (it.Completed != "") {
			s.Failf("D2 10: item %+v", it)
		}
		s.mirrored(name, it.Child, it.Status, itemEnds, now, itemOf)
	}
	var waits []string
	for name, r := range now.Runs {
		if r.Status == "waiting" {
			waits = append(waits, name)
		}
		if (r.Status == "waiting") != (r.Wait != "") {
			s.Failf("D2 11: %+v", r)
		}
	}
	for name, g := range now.Gates {
		s.holdGate(before.Gates[name], g, now.Steps[name])
		if g.State == "pending" && g.Opened != "" {
			waits = append(waits, name)
		}
	}
	if slices.Sort(waits); !slices.Equal(waits, now.Waits) {
		s.Failf("D2 11: open waits are of %v, and those that wait are %v", now.Waits, waits)
	}
	for name, status := range now.Flows {
		_, of, _ := strings.Cut(name, " ")
		if r, ok := now.Runs[of]; ok && inFlow(r.Status) != status {
			s.Failf("D6 51: step %s is %s, and its run %s", name, status, r.Status)
		}
	}
	for name, w := range now.Works {
		of := now.Runs[w.Run]
		if ended(runEnds, of.Status) && !s.w.replayed(name) && !slices.Contains([]string{"completed", "failed", "expired", "cancelled", "skipped"}, w.State) {
			s.Failf("D2 12: run %s is %s, and %s is %s", w.Run, of.Status, name, w.State)
		}
	}
}

func ended(ends []string, status string) bool { return slices.Contains(ends, status) }

// again says whether this step of the test does something again in a run.
func (s *side) again(run string) bool { return s.w.resumed != nil && s.w.resumed.name == run }

// replayed says whether an execution was: then it may outlive its run.
func (w *world) replayed(name string) bool {
	return slices.ContainsFunc(w.works, func(x *work) bool { return x.name == name && x.replays > 0 })
}

func (s *side) holdRun(was, is runView) {
	switch {
	case is.Generation < was.Generation || is.Generation > was.Generation+1:
		s.Failf("D1 1: the generation of %s was %d and is %d", is.Name, was.Generation, is.Generation)
	case ended(runEnds, is.Status) && is.Lease != "":
		s.Failf("D1 8: %+v", is)
	case ended(runEnds, is.Status) != (is.Ended != ""):
		s.Failf("D2 10: %+v", is)
	case was.Started != "" && was.Started != is.Started, ms(is.Started) > ms(is.Ended) && is.Ended != "":
		s.Failf("D2 10: %+v", is)
	case is.Revision < was.Revision:
		s.Failf("D6 47: the revision of %s was %d and is %d", is.Name, was.Revision, is.Revision)
	}
	if !ended(runEnds, was.Status) || s.again(is.Name) {
		return
	}
	was.Dismissed, was.In, was.Revision = is.Dismissed, is.In, is.Revision // which is no move
	if was != is {
		s.Failf("D2 9: %s had ended\n%+v\n%+v", is.Name, was, is)
	}
}

func ms(text string) int {
	n, _ := strconv.Atoi(text)
	return n
}

func (s *side) holdStep(was, is stepView, now snapshot) {
	run := now.Runs[is.Run]
	over := ended(stepEnds, is.Status)
	switch {
	case over != (is.Ended != ""):
		s.Failf("D2 10: %+v", is)
	case was.Started != "" && was.Started != is.Started:
		s.Failf("D2 10: %+v", is)
	case ended(runEnds, run.Status) && !over:
		s.Failf("D2 12: %s is %s, and its run %s", is.Name, is.Status, run.Status)
	case run.Status == "completed" && is.Status == "waiting":
		s.Failf("D2 12: %+v", is)
	case len(is.Attempts) != is.Retries+1:
		s.Failf("D2 15: %+v", is)
	}
	for i, a := range is.Attempts {
		if !strings.HasPrefix(a, fmt.Sprintf("%d ", i)) || i < is.Retries && strings.Contains(a, `to ""`) {
			s.Failf("D2 15: %+v", is)
		}
	}
	for name, other := range now.Steps {
		if name != is.Name && other.Run == is.Run && other.Path == is.Path && other.Iteration == is.Iteration {
			s.Failf("D2 15: %s and %s are the same", name, is.Name)
		}
	}
	if ended(stepEnds, was.Status) && !s.again(is.Run) && fmt.Sprint(was) != fmt.Sprint(is) {
		s.Failf("D2 9: %s had ended\n%+v\n%+v", is.Name, was, is)
	}
	total, counts := 0, map[string]int{}
	for _, it := range now.Items {
		if it.Step == is.Name {
			total++
			counts[it.Status]++
		}
	}
	if want := countsText(total, counts); is.Counts != want {
		s.Failf("D4 29: the items of %s are %s, and it counts %s", is.Name, want, is.Counts)
	}
	if over && counts["pending"]+counts["running"] > 0 {
		s.Failf("D2 12: %s is %s with %s", is.Name, is.Status, is.Counts)
	}
	s.mirrored(is.Name, strings.Split(is.Child, " ")[0], is.Status, stepEnds, now, func(status string) string { return status })
}

// mirrored is D6 51: what has not ended is what its child is.
func (s *side) mirrored(name, child, status string, ends []string, now snapshot, view func(string) string) {
	if child == "" || ended(ends, status) {
		return
	}
	is := ""
	if w, ok := now.Works[child]; ok {
		is = map[string]string{"waiting": "pending", "active": "running", "suspended": "waiting", "expired": "timed_out"}[w.State]
		if is == "" {
			is = w.State
		}
	} else if r, ok := now.Runs[child]; ok {
		is = map[string]string{"cancelling": "running", "needs_resume": "running"}[r.Status]
		if is == "" {
			is = r.Status
		}
	} else {
		return // what its engine calls it, or it was deleted
	}
	if is = view(is); is != status && (is != "pending" || status == "waiting") {
		s.Failf("D6 51: %s is %s, and its child %s is %s", name, status, child, is)
	}
}

func (s *side) holdGate(was, is gateView, step stepView) {
	over := is.State != "pending"
	switch {
	case is.State != step.Gate:
		s.Failf("the gate of %s is %s, and %s in its step", is.Step, is.State, step.Gate)
	case over != ended(stepEnds, step.Status) || over != (is.Resolved != ""):
		s.Failf("D3 23: %+v\n%+v", is, step)
	case (step.Status == "waiting") != (!over && is.Opened != ""):
		s.Failf("D2 11: %+v\n%+v", is, step)
	case was.State != "" && was.State != "pending" && fmt.Sprint(was) != fmt.Sprint(is) && !s.again(step.Run):
		s.Failf("D3 23: %+v\n%+v", was, is)
	case is.State == "approved" && is.Type != "pr_checks" && is.Approvals < is.Need:
		s.Failf("D3 26: %+v", is)
	}
	outcomes := 0
	for _, what := range s.trails["gate "+is.Step] {
		if what = strings.TrimSuffix(what, caused); what != "gate.opened" && what != "gate.voted" {
			outcomes++
		}
	}
	if outcomes > step.Retries+1 {
		s.Failf("D3 23: %d outcomes of %d attempts at %s", outcomes, step.Retries+1, is.Step)
	}
}
