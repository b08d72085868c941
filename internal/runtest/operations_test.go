package runtest

import (
	"fmt"
	"net/http"
	"slices"

	"github.com/google/go-cmp/cmp"

	"github.com/flowapi/flowapi/internal/apitest"
)

// kind is one kind of step. do says whether there was anything to do it with.
type kind struct {
	name   string
	weight int
	do     func(w *world) bool
}

func (k kind) GoString() string { return k.name }

// kinds are all kinds of steps.
func kinds() []kind {
	return slices.Concat(runKinds(), stepKinds(), workKinds())
}

func runKinds() []kind {
	return []kind{
		{"create run", 6, createRun}, {"create run again", 1, createAgain}, {"lease", 6, lease}, {"release", 4, release}, {"start", 12, start},
		{"wait", 5, wait}, {"go on", 4, goOn}, {"complete run", 4, completeRun}, {"fail run", 1, failRun}, {"cancel run", 2, cancelRun},
		{"end as its engine", 2, cancelAsEngine}, {"resume run", 8, resumeRun}, {"dismiss", 1, dismiss}, {"delete run", 1, deleteRun}, {"advance", 7, advance},
		{"create flow", 1, createFlow}, {"end flow", 1, endFlow},
	}
}

// theRun draws a run that there is, mostly one that suits.
func (w *world) theRun(suits func(r *run) bool) *run {
	there := slices.DeleteFunc(slices.Clone(w.runs), func(r *run) bool { return r.deleted })
	found := slices.DeleteFunc(slices.Clone(there), func(r *run) bool { return !suits(r) })
	if w.chance("any run", 15) {
		found = there
	}
	if len(found) == 0 {
		return nil
	}
	return draw(w, "run", found...)
}

func in(statuses ...string) func(r *run) bool {
	return func(r *run) bool { return slices.Contains(statuses, r.status) }
}

func open(r *run) bool { return !r.over() }

func anyRun(*run) bool { return true }

func (r *run) path(more string) string { return "/v1/runs/" + r.id.String() + more }

// generation draws what an engine believes its generation to be, mostly the present one.
func (w *world) generation(r *run) int64 {
	if !w.chance("another generation", 12) {
		return r.generation
	}
	return draw(w, "generation", max(0, r.generation-1), r.generation+1, 0)
}

// post asks for something to be done to a run, and expects the run as the model has it.
func (w *world) post(r *run, verb string, body map[string]any, refused *refusal) {
	w.ask(request{method: http.MethodPost, path: r.path(verb), body: constant(body)}, refused, func(s *side, a *apitest.Response) { s.sameRun(r, a.Body) })
}

// Runs and what is in them are few, so that they meet.
const (
	mostRuns  = 12
	mostWorks = 40
	mostSteps = 12
	mostItems = 12
)

func (w *world) newRun() *run {
	name := fmt.Sprintf("R%d", w.ids)
	return &run{id: w.id(name), name: name}
}

func createRun(w *world) bool {
	if len(w.runs) >= mostRuns || len(w.runs) > 2 && !w.chance("one more", 3) {
		return false
	}
	r, at := w.newRun(), place{}
	body := map[string]any{"id": r.id, "workflow_name": r.name}
	var refused *refusal
	if parent := w.theRun(open); parent != nil && w.chance("in another", 4) {
		at.run = parent
		body["parent_workflow_run_id"] = at.run.id
		refused = at.run.begins()
	}
	of := (*flow)(nil)
	if at.run != nil {
		of = at.run.flow
	}
	if len(w.flows) > 0 && w.chance("of a flow", 2) {
		of = draw(w, "flow", w.flows...)
		r.flow, body["flow_id"] = of, of.id
	}
	if refused == nil && of != nil && of.status != "running" {
		refused = no("already_terminal")
	}
	if refused == nil {
		w.create(r, at)
	}
	w.ask(request{method: http.MethodPost, path: "/v1/runs", body: constant(body)}, refused, func(s *side, a *apitest.Response) { s.sameRun(r, a.Body) })
	return true
}

func createFlow(w *world) bool {
	if len(w.flows) > 1 {
		return false
	}
	f := &flow{name: fmt.Sprintf("F%d", w.ids), status: "running"}
	f.id = w.id(f.name)
	w.flows = append(w.flows, f)
	w.ask(request{method: http.MethodPost, path: "/v1/flows", body: constant(map[string]any{"id": f.id, "goal": f.name, "start": true})}, nil)
	return true
}

func endFlow(w *world) bool {
	found := slices.DeleteFunc(slices.Clone(w.flows), func(f *flow) bool { return f.status != "running" })
	if len(found) == 0 || !w.chance("indeed", 3) {
		return false
	}
	f, verb, body := draw(w, "flow", found...), "/fail", map[string]any{"reason": "no"}
	if w.chance("cancel", 2) {
		policy := draw(w, "policy", "cancel_all", "flow_only")
		verb, body = "/cancel", map[string]any{"reason": "no", "policy": policy}
		w.model.endFlow(f, "cancelled", policy)
	} else {
		w.model.endFlow(f, "failed", "cancel_all")
	}
	w.ask(request{method: http.MethodPost, path: "/v1/flows/" + f.id.String() + verb, body: constant(body)}, nil)
	return true
}

// createAgain: the same id answers with what there is.
func createAgain(w *world) bool {
	r := w.theRun(anyRun)
	if r == nil {
		return false
	}
	w.ask(request{method: http.MethodPost, path: "/v1/runs", body: constant(map[string]any{"id": r.id, "workflow_name": "another"})}, nil, func(s *side, a *apitest.Response) {
		if s.sameRun(r, a.Body); a.Status != http.StatusOK || a.Header.Get("Idempotent-Replay") != "true" {
			s.Failf("a create of what there is answers %d\n%s", a.Status, a.Body)
		}
	})
	return true
}

var engines = []string{"engine-0", "engine-1", "engine-2"}

func lease(w *world) bool {
	r := w.theRun(open)
	if r == nil {
		return false
	}
	token := draw(w, "engine", engines...)
	if w.chance("a time that is none", 20) {
		w.post(r, "/lease", map[string]any{"token": token, "ttl_ms": draw(w, "ttl", 0, 999, 3_600_001)}, no("out_of_range"))
		return true
	}
	ttl := draw[int64](w, "ttl", 1000, 3000, 30_000, 3_600_000)
	outcome, refused := w.acquire(r, token, w.now+ttl)
	if refused == nil {
		w.reach("lease: " + outcome)
	}
	body := constant(map[string]any{"token": token, "ttl_ms": ttl})
	w.ask(request{method: http.MethodPost, path: r.path("/lease"), body: body}, refused, func(s *side, a *apitest.Response) {
		got := decode[map[string]any](a.Body)
		want := map[string]any{"generation": float64(r.generation), "lease_until": stamp(r.until), "outcome": outcome, "cancel_requested": r.status == "cancelling"}
		if diff := cmp.Diff(want, got); diff != "" {
			s.Failf("the lease is not the model's (-model +server):\n%s", diff)
		}
	})
	return true
}

func release(w *world) bool {
	r := w.theRun(func(r *run) bool { return r.token != "" })
	if r == nil {
		return false
	}
	token := r.token
	if token == "" || w.chance("another engine", 8) {
		token = draw(w, "engine", engines...)
	}
	generation, needsResume := w.generation(r), w.chance("needs_resume", 2)
	body := map[string]any{"token": token, "generation": generation, "needs_resume": needsResume}
	w.post(r, "/lease/release", body, w.model.release(r, token, generation, needsResume))
	return true
}

func start(w *world) bool {
	r := w.theRun(in("pending"))
	if r == nil {
		return false
	}
	g := w.generation(r)
	w.post(r, "/start", map[string]any{"generation": g}, w.model.start(r, g))
	return true
}

// wait parks a run, at times until something in it has ended that is open.
func wait(w *world) bool {
	r := w.theRun(in("running"))
	if r == nil {
		return false
	}
	g, on, blocked := w.generation(r), runWait{onTimeout: "fail"}, map[string]any{"type": "custom"}
	body := map[string]any{"generation": g, "blocked_on": blocked}
	if of := w.something(r); of != nil && w.chance("for a child", 2) {
		on = *of
		blocked["type"] = "child"
		switch {
		case on.run != nil:
			blocked["run_id"] = on.run.id
		case on.work != nil:
			blocked["execution_id"] = on.work.id
		default:
			blocked["step_id"] = on.step.id
		}
	}
	if on.onTimeout = draw(w, "on_timeout", "fail", "cancel", "resume"); on.onTimeout != "fail" || w.chance("on_timeout said", 2) {
		body["on_timeout"] = on.onTimeout
	}
	if w.chance("a deadline that was", 20) {
		body["deadline"] = stamp(w.now)
		refused := no("timer_out_of_range")
		if f := r.fence(g); f != nil {
			refused = f
		} else if !r.can("waiting") {
			refused = illegal(r.status, "waiting")
		}
		w.post(r, "/wait", body, refused)
		return true
	}
	if w.chance("deadline", 2) {
		on.deadline = w.due(w.now + draw[int64](w, "deadline", 700, 2500, 8000))
		body["deadline"] = stamp(on.deadline)
	}
	w.post(r, "/wait", body, w.park(r, g, on))
	return true
}

// something is what there is in a run that a wait can name, mostly what has not ended; seldom it is in no run.
func (w *world) something(r *run) *runWait {
	var of []*runWait
	over := w.chance("what may have ended", 5)
	for _, s := range r.steps {
		if over || !s.over() {
			of = append(of, &runWait{step: s})
		}
	}
	strange := w.chance("of another run", 12)
	for _, c := range w.runs {
		if !c.deleted && (c.at.run == r && (over || !c.over()) || strange) {
			of = append(of, &runWait{run: c})
		}
	}
	for _, x := range w.works {
		if !x.gone() && (x.run == r && (over || !x.over()) || strange) {
			of = append(of, &runWait{work: x})
		}
	}
	if len(of) == 0 {
		return nil
	}
	return draw(w, "child", of...)
}

func goOn(w *world) bool {
	r := w.theRun(in("waiting"))
	if r == nil || r.status == "needs_resume" || r.status == "failed" { // those, people resume
		return false
	}
	g := w.generation(r)
	w.post(r, "/resume", map[string]any{"generation": g}, w.model.goOn(r, g))
	return true
}

func completeRun(w *world) bool {
	finished := func(r *run) bool {
		return r.status == "running" && !slices.ContainsFunc(r.steps, func(s *step) bool { return !s.over() }) && !slices.ContainsFunc(w.children(r), open)
	}
	r := w.theRun(finished)
	if r == nil {
		return false
	}
	g, summary := w.generation(r), draw(w, "summary", "", "all is well")
	w.post(r, "/complete", map[string]any{"generation": g, "result_summary": summary}, w.complete(r, g, summary))
	return true
}

func failRun(w *world) bool {
	r := w.theRun(open)
	if left := w.theRun(in("needs_resume")); left != nil && w.chance("one that was given up", 3) {
		r = left
	}
	if r == nil {
		return false
	}
	g := w.generation(r)
	w.post(r, "/fail", map[string]any{"generation": g, "error": "it is broken"}, w.fail(r, g, "it is broken"))
	return true
}

func cancelRun(w *world) bool {
	r := w.theRun(open)
	if held := w.theRun(func(r *run) bool { return w.live(r) && r.can("cancelling") }); held != nil && w.chance("one that is held", 2) {
		r = held
	}
	if r == nil {
		return false
	}
	message := fmt.Sprintf("reason %d", w.ids)
	deadline := w.now
	if !w.chance("no time", 6) {
		deadline = w.due(w.now + draw[int64](w, "deadline_ms", 700, 3000))
	}
	w.post(r, "/cancel", map[string]any{"reason": message, "deadline_ms": deadline - w.now}, w.cancel(r, nil, message, deadline))
	return true
}

func cancelAsEngine(w *world) bool {
	r := w.theRun(in("cancelling"))
	if r == nil {
		return false
	}
	g := w.generation(r)
	w.post(r, "/cancel", map[string]any{"generation": g, "reason": "over"}, w.cancel(r, &g, "over", 0))
	return true
}

// resumeRun is by people.
func resumeRun(w *world) bool {
	resumable := in("needs_resume", "failed", "completed")
	r := w.theRun(resumable)
	asks := func(r *run) bool { return resumable(r) && slices.ContainsFunc(r.steps, openedGate) }
	if asking := w.theRun(asks); asking != nil && w.chance("one that asks", 2) {
		r = asking
	}
	if r == nil || r.status == "waiting" {
		return false
	}
	body, how := map[string]any{}, again{}
	switch draw(w, "how", "default", "default", "from_step", "restart") {
	case "restart":
		how.restart, body["restart"] = true, true
	case "from_step":
		if len(r.steps) > 0 {
			path := draw(w, "from", r.steps...).path
			body["from_step"] = path
			for _, s := range r.steps {
				if s.path == path && (how.from == nil || s.position < how.from.position) {
					how.from = s
				}
			}
		}
	}
	refused := w.resume(r, how)
	if refused == nil {
		w.resumed = r
	}
	w.post(r, "/resume", body, refused)
	return true
}

func dismiss(w *world) bool {
	r := w.theRun(anyRun)
	if r == nil {
		return false
	}
	is := w.chance("dismissed", 2)
	w.model.dismiss(r, is)
	w.post(r, "/dismiss", map[string]any{"dismissed": is}, nil)
	return true
}

func deleteRun(w *world) bool {
	r := w.theRun((*run).over)
	if w.chance("one that goes on", 5) {
		r = w.theRun(open)
	}
	if r == nil {
		return false
	}
	w.ask(request{method: http.MethodDelete, path: r.path(""), body: constant(nil)}, w.remove(r))
	return true
}

func advance(w *world) bool {
	next := w.next()
	to := w.now + draw[int64](w, "milliseconds", 100, 500, 1000)
	if next != 0 && (next < to || w.chance("to what is next", 2)) {
		to = next
	}
	for w.times[to+usual] { // nothing that is asked of children then may be due with something else
		if to++; w.times[to] {
			return false
		}
	}
	w.advance(to)
	w.did[w.kind]++
	return true
}
