package app_test

import (
	"fmt"
	"math/rand/v2"
	"net/http"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/google/uuid"

	"github.com/flowapi/flowapi/internal/apitest"
	"github.com/flowapi/flowapi/internal/apptest"
	"github.com/flowapi/flowapi/internal/domain/fault"
	"github.com/flowapi/flowapi/internal/handlers/oapi"
	"github.com/flowapi/flowapi/internal/repo/store"
	"github.com/flowapi/flowapi/internal/storetest"
)

// How many engines race, and how many generations there have to be before they stop.
const (
	racers      = 100
	generations = 40
)

// race is many engines that want to drive one run, under a clock that moves while they do.
type race struct {
	*runTest
	run  oapi.Run
	step uuid.UUID

	mu      sync.Mutex
	changed *sync.Cond
	asked   int // requests since the clock was moved
	paused  int
	alive   int
	ticks   int

	grants map[int64]*grant
	kept   map[string]int64 // the texts that were accepted, with the generation that they came with
	lost   []string         // the texts that were refused
}

// grant is one generation, as whoever got it knows it.
type grant struct {
	engine string
	until  time.Time
	how    []string
}

// TestRuns_Race: a hundred engines race for the lease of one run, with random times to live, pauses and crashes.
// reference: runs-and-taskflows.md A7, A13 2 and 49, D1.
func TestRuns_Race(t *testing.T) {
	t.Parallel()
	storetest.Databases(t, func(t *testing.T, url string) {
		x := runsOn(t, apptest.Still(t, url, store.StillClock(time.Now())), "race")
		r := x.create("")
		x.do(r, "start", "")
		g := &race{runTest: x, run: r, step: x.step(r, "").ID, alive: racers, grants: map[int64]*grant{}, kept: map[string]int64{}}
		g.changed = sync.NewCond(&g.mu)
		before := len(x.events(r.ID))
		var all sync.WaitGroup
		for i := range racers {
			all.Go(func() { g.engine(fmt.Sprintf("engine-%d", i), rand.New(rand.NewPCG(uint64(i), 7))) })
		}
		all.Go(g.watch)
		g.drive()
		all.Wait()
		if t.Failed() {
			return
		}
		g.judge(x.events(r.ID)[before:])
		x.audit()
	})
}

// drive moves the clock while anybody is at work: after some requests, and when all wait for it.
func (g *race) drive() {
	g.mu.Lock()
	defer g.mu.Unlock()
	for g.alive > 0 {
		if g.asked < 10 && g.paused < g.alive {
			g.changed.Wait()
			continue
		}
		g.asked, g.paused = 0, 0
		g.ticks++
		g.server.Clock.Advance(time.Second)
		g.changed.Broadcast()
	}
}

// noted counts a request.
func (g *race) noted(note func()) {
	g.mu.Lock()
	defer g.mu.Unlock()
	note()
	g.asked++
	g.changed.Broadcast()
}

// pause waits until the clock has moved so many times.
func (g *race) pause(n int) {
	g.mu.Lock()
	defer g.mu.Unlock()
	for range n {
		tick := g.ticks
		g.paused++
		g.changed.Broadcast()
		for tick == g.ticks {
			g.changed.Wait()
		}
	}
}

// engine wants the lease, and writes while it thinks that it has it. It may pause for so long that somebody else takes over, give
// the lease back, or just stop.
func (g *race) engine(token string, random *rand.Rand) {
	defer func() {
		g.mu.Lock()
		defer g.mu.Unlock()
		g.alive--
		g.changed.Broadcast()
	}()
	for !g.over() {
		generation, ok := g.acquire(token, random)
		if !ok {
			g.pause(1 + random.IntN(30))
			continue
		}
		for n := range 1 + random.IntN(4) {
			if random.IntN(3) == 0 {
				g.pause(1 + random.IntN(4))
			}
			if random.IntN(4) == 0 {
				g.acquire(token, random) // a heartbeat, which may come too late: then it goes on with the old generation
			}
			if !g.write(generation, fmt.Sprintf("%s of generation %d, #%d of tick %d", token, generation, n, random.Uint32())) {
				break
			}
		}
		switch random.IntN(4) {
		case 0:
			return // it crashes
		case 1:
			g.giveBack(token, generation)
		default:
			g.pause(1 + random.IntN(4))
		}
	}
}

// over says whether there were enough generations.
func (g *race) over() bool {
	g.mu.Lock()
	defer g.mu.Unlock()
	return len(g.grants) >= generations
}

// acquire asks for the lease. It returns the generation, and whether it got one.
func (g *race) acquire(token string, random *rand.Rand) (int64, bool) {
	answer := g.lease(g.run.ID, token, time.Second+time.Duration(random.IntN(3000))*time.Millisecond)
	if answer.Status != http.StatusOK {
		g.noted(func() { answer.Problem(fault.CodeLeaseHeld) })
		return 0, false
	}
	lease := flowAs[oapi.RunLease](answer)
	g.noted(func() {
		known := g.grants[lease.Generation]
		if known == nil {
			known = &grant{engine: token}
			g.grants[lease.Generation] = known
		}
		if known.engine != token {
			g.t.Errorf("%s and %s have the generation %d", known.engine, token, lease.Generation)
		}
		known.how, known.until = append(known.how, string(lease.Outcome)), lease.LeaseUntil.Time()
	})
	return lease.Generation, true
}

// write says something of the step, and returns whether it was accepted.
func (g *race) write(generation int64, text string) bool {
	body := fmt.Sprintf(`{"generation":%d,"status":"running","result_text":%q,"step_error":%q}`, generation, text, text)
	answer := g.Do(http.MethodPatch, stepPath(g.run, g.step), body)
	if answer.Status == http.StatusOK {
		g.noted(func() { g.kept[text] = generation })
		return true
	}
	g.noted(func() {
		if current := answer.Problem(fault.CodeLeaseLost).Int("current_generation"); current <= generation {
			g.t.Errorf("generation %d is refused for %d", generation, current)
		}
		g.lost = append(g.lost, text)
	})
	return false
}

// giveBack releases the lease, unless somebody else has it.
func (g *race) giveBack(token string, generation int64) {
	answer := g.Post(runPath(g.run.ID, "lease", "release"), fmt.Sprintf(`{"token":%q,"generation":%d}`, token, generation))
	g.noted(func() {
		if answer.Status != http.StatusOK {
			answer.Problem(fault.CodeLeaseLost)
		}
	})
}

// watch reads step and run again and again: what was written in the name of a generation is never followed by what an earlier one has
// written, and never comes before its generation.
func (g *race) watch() {
	last := int64(0)
	for {
		g.mu.Lock()
		alive := g.alive
		g.mu.Unlock()
		if alive == 0 {
			return
		}
		seen := int64(0)
		if text := orNone(g.read(g.run, g.step).ResultText); text != "" {
			seen = writtenBy(g.t, text)
		}
		if seen < last {
			g.t.Errorf("generation %d is to be seen after %d", seen, last)
		}
		if current := g.get(g.run.ID).Generation; current < seen {
			g.t.Errorf("generation %d is to be seen when the run is at %d", seen, current)
		}
		last = seen
	}
}

// writtenBy reads the generation out of a text.
func writtenBy(t *testing.T, text string) int64 {
	t.Helper()
	var generation int64
	_, rest, _ := strings.Cut(text, " of generation ")
	if _, err := fmt.Sscanf(rest, "%d,", &generation); err != nil {
		t.Errorf("%q: %v", text, err)
	}
	return generation
}

// judge checks what has happened by the order in which it was committed.
func (g *race) judge(events []oapi.Event) {
	g.t.Helper()
	current, revision, released := int64(0), g.get(g.run.ID).Revision, false
	var last string
	told := map[string]bool{}
	first := int64(0)
	for _, e := range events {
		if e.Revision != nil && first == 0 {
			first = *e.Revision - 1
		}
		data := eventData(g.t, e)
		switch e.Type {
		case "run.leased":
			next := int64(data["generation"].(float64))
			if next != current+1 {
				g.t.Errorf("generation %d follows %d", next, current)
			}
			g.follows(e, current, next, data["outcome"], released)
			current, released = next, false
		case "run.lease_released":
			released = true
		case "run_step.started", "run_step.updated":
			last, _ = data["step_error"].(string)
			if told[last] || g.kept[last] != current || writtenBy(g.t, last) != current {
				g.t.Errorf("at generation %d: %q, told before: %v", current, last, told[last])
			}
			told[last] = true
		default:
			g.t.Errorf("nobody does what is told by %s", e.Type)
		}
		if e.Revision != nil {
			if first++; *e.Revision != first {
				g.t.Errorf("revision %d at %d", *e.Revision, first)
			}
		}
	}
	if current < generations || len(g.lost) == 0 || first != revision {
		g.t.Errorf("%d generations, %d writes were refused: this was no race, or not to its end; revision %d of %d", current, len(g.lost), first, revision)
	}
	if len(told) != len(g.kept) || int64(len(g.grants)) != current {
		g.t.Errorf("%d writes and %d generations are told, %d and %d were given", len(told), current, len(g.kept), len(g.grants))
	}
	for _, text := range g.lost {
		if told[text] {
			g.t.Errorf("%q was refused, and yet is told", text)
		}
	}
	s := g.read(g.run, g.step)
	if orNone(s.ResultText) != last || orNone(s.StepError) != last {
		g.t.Errorf("in the end there is %q, and the last that was accepted was %q", orNone(s.ResultText), last)
	}
	g.t.Logf("%d generations, %d writes accepted, %d refused", current, len(g.kept), len(g.lost))
}

// follows checks how a generation was got: from nobody, or from whoever had it, and then not before that lease was over.
func (g *race) follows(e oapi.Event, before, next int64, outcome any, released bool) {
	g.t.Helper()
	want := "taken_over"
	if before == 0 || released {
		want = "granted"
	}
	got := g.grants[next]
	if outcome != want || got == nil || got.how[0] != want || slices.ContainsFunc(got.how[1:], func(how string) bool { return how != "renewed" }) {
		g.t.Errorf("generation %d is told as %v and was got as %v, want %s", next, outcome, got, want)
	}
	if previous := g.grants[before]; want == "taken_over" && !e.At.Time().After(previous.until) {
		g.t.Errorf("generation %d begins at %s, when %s has the lease until %s", next, e.At, previous.engine, previous.until)
	}
}

// TestRuns_GateRaces: whoever comes first decides a gate, once, and all others are told what was decided.
// reference: runs-and-taskflows.md D3 23 and 26, A13 7.
func TestRuns_GateRaces(t *testing.T) {
	t.Parallel()
	storetest.Databases(t, func(t *testing.T, url string) {
		s := apptest.Still(t, url, store.StillClock(time.Now()))
		for i, c := range []runCase{
			{"approve against reject", (*runTest).approveAgainstReject},
			{"approvals and a rejection of a gate that asks for two", (*runTest).quorumAgainstReject},
			{"approval against the deadline", (*runTest).approveAgainstTime},
			{"approval against the end of the run", (*runTest).approveAgainstCancel},
		} {
			t.Run(c.name, func(t *testing.T) {
				x := runsOn(t, s, fmt.Sprint("race", i))
				c.run(x)
				x.audit()
			})
		}
	})
}

// settled checks that a gate has one outcome, which is told once, and that whoever was refused was told it.
func (x *runTest) settled(r oapi.Run, stepID uuid.UUID, since int, answers []*apitest.Response) oapi.RunGate {
	x.t.Helper()
	g := x.readGate(r, stepID)
	var told []string
	for _, e := range x.events(r.ID)[since:] {
		if e.Topic == "gate" && e.Type != "gate.voted" && e.Type != "gate.opened" {
			told = append(told, strings.TrimPrefix(e.Type, "gate."))
		}
	}
	if diff := cmp.Diff([]string{string(g.State)}, told); diff != "" || g.State == "pending" {
		x.t.Fatalf("outcomes (-want +told):\n%s", diff)
	}
	status := map[oapi.GateState]string{"approved": "completed", "rejected": "failed", "timed_out": "failed", "cancelled": "cancelled"}[g.State]
	x.stepped(r, stepID, status)
	for _, answer := range answers {
		if answer.Status != http.StatusOK {
			x.facts(answer.Problem(fault.CodeGateAlreadyResolved), map[string]any{"state": string(g.State), "by": orNone(g.ResolvedBy), "at": spelledPlain(g.ResolvedAt.Time())})
		}
	}
	return g
}

// accepted returns the answers that were not refused.
func accepted(answers []*apitest.Response) []oapi.DecidedGate {
	var decided []oapi.DecidedGate
	for _, answer := range answers {
		if answer.Status == http.StatusOK {
			decided = append(decided, flowAs[oapi.DecidedGate](answer))
		}
	}
	return decided
}

// gateRaces is how often each race is run.
const gateRaces = 24

func (x *runTest) approveAgainstReject() {
	r := x.running("")
	for i := range gateRaces {
		s := x.step(r, fmt.Sprintf(`"step_name":"g%d","role":"gate","gate":{"gate_type":"human_review",%s}`, i, threeOptions))
		x.moved(r, s.ID, `"status":"waiting"`)
		n := len(x.events(r.ID))
		voices := []string{"approve", "reject", "approve", "reject", "approve"}
		answers := flowsAtOnce(len(voices), func(j int) *apitest.Response {
			members := fmt.Sprintf(`"by":"p%d","feedback":"from %d"`, j, j)
			if voices[j] == "approve" {
				members += `,"selections":["beta"]`
			}
			return x.answer(r, s.ID, voices[j], members)
		})
		won := accepted(answers)
		g := x.settled(r, s.ID, n, answers)
		if len(won) != 1 || won[0].Replayed || won[0].Gate.State != g.State || len(g.Votes) != 1 || g.Votes[0].By != orNone(g.ResolvedBy) || string(g.Votes[0].Decision) != string(g.State) {
			x.t.Fatalf("%d have won, and the gate is %+v", len(won), g)
		}
		if context := orNone(x.read(r, s.ID).ContextOut); (context != "") != (g.State == "approved") {
			x.t.Errorf("%s with the context %q", g.State, context)
		}
	}
}

func (x *runTest) quorumAgainstReject() {
	r := x.running("")
	for i := range gateRaces {
		s := x.step(r, fmt.Sprintf(`"step_name":"g%d","role":"gate","gate":{"gate_type":"human_review","min_approvals":2}`, i))
		x.moved(r, s.ID, `"status":"waiting"`)
		n := len(x.events(r.ID))
		answers := flowsAtOnce(4, func(j int) *apitest.Response {
			if j == 3 {
				return x.answer(r, s.ID, "reject", `"by":"eve"`)
			}
			return x.answer(r, s.ID, "approve", fmt.Sprintf(`"by":"p%d"`, j%2)) // two of them are one person, who says the same
		})
		g := x.settled(r, s.ID, n, answers)
		approvals, replays := 0, 0
		for _, d := range accepted(answers) {
			if d.Replayed {
				replays++
			}
		}
		for _, v := range g.Votes {
			if v.Decision == "approved" {
				approvals++
			}
		}
		if want := map[oapi.GateState]bool{"approved": approvals == 2, "rejected": approvals < 2}[g.State]; !want || int(*g.Approvals) != approvals || len(g.Votes)+replays != len(accepted(answers)) {
			x.t.Fatalf("%s by %d approvals, %d replays of %d answers: %+v", g.State, approvals, replays, len(accepted(answers)), g.Votes)
		}
	}
}

func (x *runTest) approveAgainstTime() {
	r := x.running("")
	outcomes := map[oapi.GateState]int{}
	for i := range gateRaces {
		s := x.step(r, fmt.Sprintf(`"step_name":"g%d","role":"gate","gate":{"gate_type":"human_review","timeout_ms":1000}`, i))
		x.moved(r, s.ID, `"status":"waiting"`)
		n := len(x.events(r.ID))
		x.server.Clock.Advance(time.Second)
		if i == 0 { // at least once the deadline is first, and once the approval is
			x.server.Settle()
		}
		answers := flowsAtOnce(3, func(j int) *apitest.Response {
			if j == 1 && i != 1 {
				if err := x.server.App.Settle(x.t.Context()); err != nil {
					x.t.Error(err)
				}
			}
			return x.answer(r, s.ID, "approve", `"by":"ada"`)
		})
		x.server.Settle()
		g := x.settled(r, s.ID, n, answers)
		won := accepted(answers)
		if (g.State == "approved") != (len(won) == 3) || g.State == "timed_out" && (len(won) > 0 || orNone(g.ResolvedBy) != "engine") {
			x.t.Fatalf("%d have won, and the gate is %+v", len(won), g)
		}
		outcomes[g.State]++
	}
	if outcomes["approved"] == 0 || outcomes["timed_out"] == 0 {
		x.t.Errorf("%v", outcomes)
	}
	x.t.Log(outcomes)
}

func (x *runTest) approveAgainstCancel() {
	for range gateRaces / 2 {
		r := x.running("")
		s := x.gate(r, "")
		n := len(x.events(r.ID))
		answers := flowsAtOnce(3, func(j int) *apitest.Response {
			if j == 1 {
				return x.verb(r, "cancel", "")
			}
			return x.answer(r, s.ID, "approve", fmt.Sprintf(`"by":"p%d"`, j))
		})
		answers[1].Want(http.StatusOK)
		x.stands(r.ID, "cancelled")
		g := x.settled(r, s.ID, n, []*apitest.Response{answers[0], answers[2]})
		if won := accepted([]*apitest.Response{answers[0], answers[2]}); (g.State == "approved") != (len(won) == 1) || len(won) > 1 {
			x.t.Fatalf("%d have won, and the gate is %+v", len(won), g)
		}
	}
}

// TestRuns_FamilyRaces: children end while their run, its engine and other children do: nothing is refused but by rules, and nothing is
// left that does not fit. reference: runs-and-taskflows.md D2 12, D4 29 and 33, D6 51.
func TestRuns_FamilyRaces(t *testing.T) {
	t.Parallel()
	storetest.Databases(t, func(t *testing.T, url string) {
		s := apptest.Still(t, url, store.StillClock(time.Now()))
		for name, end := range map[string]func(x *runTest, r oapi.Run, each oapi.RunStep) *apitest.Response{
			"its engine cancels the run": func(x *runTest, r oapi.Run, _ oapi.RunStep) *apitest.Response { return x.verb(r, "cancel", "") },
			"somebody cancels the run":   func(x *runTest, r oapi.Run, _ oapi.RunStep) *apitest.Response { return x.people(r, "cancel", "") },
			"its engine fails the run": func(x *runTest, r oapi.Run, _ oapi.RunStep) *apitest.Response {
				return x.verb(r, "fail", `"error":"x"`)
			},
			"its engine ends the step": func(x *runTest, r oapi.Run, each oapi.RunStep) *apitest.Response {
				return x.patch(r, each.ID, `"status":"failed"`)
			},
			"it is given up and resumed": func(x *runTest, r oapi.Run, _ oapi.RunStep) *apitest.Response {
				x.Post(runPath(r.ID, "lease", "release"), engineBody(r, `"needs_resume":true`, `"token":"`+engineToken+`"`)).Want(http.StatusOK)
				return x.people(r, "resume", `"restart":true`)
			},
		} {
			t.Run(name, func(t *testing.T) {
				x := runsOn(t, s, strings.ReplaceAll(name, " ", "-"))
				for range 4 {
					x.familyRace(end)
				}
				x.kin()
				x.audit()
			})
		}
	})
}

// familyRace lets all children of a run end while something happens to it.
func (x *runTest) familyRace(end func(x *runTest, r oapi.Run, each oapi.RunStep) *apitest.Response) {
	x.t.Helper()
	r := x.running("")
	var calls []func() *apitest.Response
	var items []string
	for i := range 4 {
		items = append(items, ticket(fmt.Sprint(i), workChild("")))
	}
	each, _ := x.each(r, append(items, ticket("run", subRun("")))...)
	for i := range 3 {
		x.step(r, fmt.Sprintf(`"step_name":"work%d",%s`, i, workChild("")))
	}
	inner := x.driven(x.childRun(x.step(r, `"step_name":"inner",`+subRun(""))))
	deep := x.step(inner, workChild(""))
	x.do(r, "wait", `"blocked_on":{"type":"child","run_id":"`+inner.ID.String()+`"}`)
	w := x.workers(runLane)
	for _, c := range w.claims(`"max":20,` + lasting) {
		calls = append(calls, func() *apitest.Response {
			if c.Execution.ID == *deep.ChildExecutionID {
				return w.report(c, "suspend", waitForGo)
			}
			return w.report(c, "complete", `"result":"well"`)
		})
	}
	calls = append(calls, func() *apitest.Response { return end(x, r, each) }, func() *apitest.Response { return x.verb(inner, "cancel", "") },
		func() *apitest.Response { return x.add(r, each.ID, ticket("late", workChild(""))) },
		func() *apitest.Response { return x.insert(r, `"step_name":"late",`+subRun("")) })
	if len(calls) != 12 {
		x.t.Fatalf("%d calls", len(calls))
	}
	for i, answer := range flowsAtOnce(len(calls), func(i int) *apitest.Response { return calls[(i+5)%len(calls)]() }) {
		if answer.Status >= 300 && answer.Status != http.StatusConflict {
			x.t.Errorf("call %d: %d %s", i, answer.Status, answer.Body)
		}
	}
	x.advance(5 * time.Second)
	x.stands(inner.ID, "cancelled")
	now := x.get(r.ID)
	if now.Status == "cancelling" || now.Status == "waiting" {
		x.t.Errorf("it is %s", now.Status)
	}
	if now.EndedAt == nil {
		x.cancelled(x.unheldNow(now), "")
	}
	w.none("")
}

// unheldNow gives the lease of engineToken back, if that has it.
func (x *runTest) unheldNow(r oapi.Run) oapi.Run {
	x.t.Helper()
	if r.LeaseUntil == nil {
		return r
	}
	return x.release(r, "")
}
