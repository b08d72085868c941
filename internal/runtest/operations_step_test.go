package runtest

import (
	"fmt"
	"net/http"
	"slices"

	"github.com/flowapi/flowapi/internal/apitest"
	"github.com/flowapi/flowapi/internal/proptest"
)

func stepKinds() []kind {
	return []kind{
		{"insert step", 14, insertStep}, {"insert step again", 1, insertAgain}, {"report step", 16, reportStep}, {"open gate", 10, openGate}, {"retry", 4, retryStep},
		{"recover", 2, recoverSteps}, {"add items", 8, addItems}, {"report items", 8, reportItems},
		{"approve", 14, approve}, {"reject", 3, reject}, {"note", 3, noteGate},
	}
}

// theStep draws a step that there is, mostly one that suits.
func (w *world) theStep(suits func(s *step) bool) *step {
	var there []*step
	for _, r := range w.runs {
		if !r.deleted {
			there = append(there, r.steps...)
		}
	}
	found := slices.DeleteFunc(slices.Clone(there), func(s *step) bool { return !suits(s) })
	if w.chance("any step", 15) {
		found = there
	}
	if len(found) == 0 {
		return nil
	}
	return draw(w, "step", found...)
}

func openStep(s *step) bool { return !s.over() }

func (s *step) url(more string) string { return s.run.path("/steps/" + s.id.String() + more) }

// draftChild draws who is to do the work of a step or an item, and its part of a body; nobody at times.
func (w *world) draftChild(r *run, odds int) (*draftChild, map[string]any) {
	if !w.chance("a child", odds) {
		return nil, nil
	}
	c := &draftChild{fresh: true}
	switch draw(w, "kind of child", "execution", "execution", "execution", "run", "run", "execution_id", "run_id") {
	case "execution":
		if len(w.works) < mostWorks {
			var body map[string]any
			c.work, body = w.draftWork()
			return c, map[string]any{"execution": body}
		}
	case "run":
		if len(w.runs) < mostRuns {
			c.run = w.newRun()
			return c, map[string]any{"run": map[string]any{"id": c.run.id, "workflow_name": c.run.name}}
		}
	case "execution_id":
		c.fresh = false
		if found := slices.DeleteFunc(slices.Clone(w.works), (*work).gone); len(found) > 0 {
			c.work = draw(w, "execution", found...)
			return c, map[string]any{"execution_id": c.work.id}
		}
	case "run_id":
		c.fresh = false
		if c.run = w.theRun(func(c *run) bool { return c != r && c.at.run == nil }); c.run != nil {
			return c, map[string]any{"run_id": c.run.id}
		}
	}
	return nil, nil
}

func insertStep(w *world) bool {
	r := w.theRun(func(r *run) bool { return r.begins() == nil && len(r.steps) < mostSteps })
	if r == nil || len(r.steps) >= mostSteps {
		return false
	}
	role := draw(w, "role", "agent", "script", "gate", "gate", "gate", "foreach", "foreach", "foreach", "workflow", "wait")
	path := draw(w, "path", "a", "b", "c", "d")
	s := &step{run: r, path: path, role: role, position: draw(w, "position", 0, 1, 2, 3), iteration: draw(w, "iteration", 0, 0, 1, 2)}
	s.name = fmt.Sprintf("%s.%s%d/%d", r.name, path, s.iteration, w.ids)
	s.id = w.id(s.name)
	body := map[string]any{"generation": 0, "id": s.id, "step_name": path, "role": role, "position": s.position, "iteration": s.iteration}
	running := w.chance("born running", 3)
	if running {
		body["retry_count"] = 0
	}
	var c *draftChild
	if role == "gate" {
		s.gate, body["gate"] = w.draftGate()
	} else if c, body["child"] = w.draftChild(r, 2); c == nil {
		delete(body, "child")
	}
	g := w.generation(r)
	body["generation"] = g
	there, refused := w.insert(s, g, running, c)
	w.ask(request{method: http.MethodPost, path: r.path("/steps"), body: constant(body)}, refused, func(s2 *side, a *apitest.Response) {
		if there != nil {
			s2.sameStep(there, a.Body)
			if a.Status != http.StatusOK || a.Header.Get("Idempotent-Replay") != "true" {
				s2.Failf("a step that is there is answered with %d\n%s", a.Status, a.Body)
			}
			return
		}
		s2.sameStep(s, a.Body)
	})
	return true
}

func (w *world) draftGate() (*gate, map[string]any) {
	g := &gate{outcome: "pending", kind: draw(w, "gate_type", "human_approval", "human_review", "custom", "pr_checks"), need: draw(w, "min_approvals", 1, 1, 2),
		timeout: draw[int64](w, "timeout_ms", 60_000, 4000, 900), onTimeout: draw(w, "on_timeout", "fail", "continue"), self: !w.chance("not by who asks", 3)}
	body := map[string]any{"gate_type": g.kind, "min_approvals": g.need, "timeout_ms": g.timeout, "on_timeout": g.onTimeout, "allow_self_approval": g.self, "requested_by": asker}
	if w.chance("options", 2) {
		g.options = []string{"x", "y", "z"}
		body["options"] = []any{map[string]any{"value": "x"}, map[string]any{"value": "y", "label": "the second"}, map[string]any{"value": "z"}}
	}
	return g, body
}

// insertAgain: a step is known by its path and iteration.
func insertAgain(w *world) bool {
	s := w.theStep(func(s *step) bool { return s.gate == nil })
	if s == nil || s.gate != nil {
		return false
	}
	body := map[string]any{"generation": s.run.generation, "id": w.id("nothing"), "step_name": s.path, "role": "script", "position": 9, "iteration": s.iteration, "retry_count": 0}
	w.ask(request{method: http.MethodPost, path: s.run.path("/steps"), body: constant(body)}, nil, func(s2 *side, a *apitest.Response) { s2.sameStep(s, a.Body) })
	return true
}

// patch sends what an engine says of a step.
func (w *world) patch(s *step, g int64, u update, body map[string]any) {
	body["generation"], body["status"] = g, u.status
	applied, refused := w.report(s, g, u)
	w.ask(request{method: http.MethodPatch, path: s.url(""), body: constant(body)}, refused, func(s2 *side, a *apitest.Response) {
		got := decode[struct {
			Step    raw
			Applied bool
		}](a.Body)
		if got.Applied != applied {
			s2.Failf("applied is %t, want %t\n%s", got.Applied, applied, s2.w.named(string(a.Body)))
		}
		s2.sameStep(s, got.Step)
	})
}

// opens says whether a report opens the gate of a step at a moment that is so chosen that it is due with nothing else. It notes the time.
func (w *world) opens(s *step, to string) bool {
	if s.gate == nil || s.gate.open || s.gate.outcome != "pending" || to != "waiting" {
		return true
	}
	at := w.now + s.gate.timeout
	if w.times[at] {
		return false
	}
	w.times[at] = true
	return true
}

func reportStep(w *world) bool {
	s := w.theStep(openStep)
	if s == nil {
		return false
	}
	to := draw(w, "status", "running", "running", "waiting", "completed", "completed", "failed", "skipped", "timed_out", "cancelled", "pending")
	if !w.opens(s, to) {
		return false
	}
	u, body := w.said(s)
	u.status = to
	if w.chance("its retry_count", 6) {
		u.retry = s.retries
		body["retry_count"] = u.retry
	}
	if s.gate == nil && !slices.Contains(stepEnds, to) || w.chance("a child for what takes none", 20) {
		if u.child, body["child"] = w.draftChild(s.run, 4); u.child == nil {
			delete(body, "child")
		}
	}
	w.patch(s, w.generation(s.run), u, body)
	return true
}

// said draws outputs: what is left out keeps its value, null clears it.
func (w *world) said(s *step) (update, map[string]any) {
	u, body := update{retry: -1}, map[string]any{}
	var does []func(s *step)
	text := func(name string, into func(s *step) *string) {
		if !w.chance(name, 4) {
			return
		}
		value := draw(w, "text", "", "one", "two")
		if body[name] = value; value == "" {
			body[name] = nil
		}
		does = append(does, func(s *step) { *into(s) = value })
	}
	text("result_text", func(s *step) *string { return &s.out.text })
	text("context_out", func(s *step) *string { return &s.out.context })
	text("step_error", func(s *step) *string { return &s.out.err })
	if value, ok := body["step_error"]; ok {
		u.err = new(string)
		if value != nil {
			*u.err = value.(string)
		}
	}
	if s.child.run == nil {
		text("child_run_id", func(s *step) *string { return &s.label })
	}
	if w.chance("markers_out", 4) {
		value := draw(w, "markers", nil, &[]string{}, &[]string{"m"})
		body["markers_out"] = value
		does = append(does, func(s *step) { s.out.markers = value })
	}
	if w.chance("structured_output", 4) {
		value := draw(w, "structured", "", `{"k":1}`)
		if body["structured_output"] = nil; value != "" {
			body["structured_output"] = map[string]any{"k": 1}
		}
		does = append(does, func(s *step) { s.out.structured = value })
	}
	u.say = func(s *step) {
		for _, do := range does {
			do(s)
		}
	}
	return u, body
}

func openGate(w *world) bool {
	s := w.theStep(func(s *step) bool { return s.gate != nil && !s.over() && !s.gate.open })
	if s == nil || s.gate == nil || !w.opens(s, "waiting") {
		return false
	}
	w.patch(s, w.generation(s.run), update{status: "waiting", retry: -1, say: func(*step) {}}, map[string]any{})
	return true
}

func retryStep(w *world) bool {
	s := w.theStep(func(s *step) bool { return s.status == "running" || s.status == "waiting" })
	if s == nil {
		return false
	}
	u, body := w.said(s)
	u.status, u.retry = "running", s.retries+draw(w, "further", 1, 1, 1, 2)
	body["retry_count"] = u.retry
	w.patch(s, w.generation(s.run), u, body)
	return true
}

func recoverSteps(w *world) bool {
	r := w.theRun(func(r *run) bool { return slices.ContainsFunc(r.steps, openStep) })
	if r == nil || len(r.steps) == 0 {
		return false
	}
	var list []recovery
	bodies, missing := []any{}, []string{}
	for range draw(w, "steps", 1, 2, 3) {
		it := recovery{status: draw(w, "end", stepEnds...)}
		id := w.id("no step").String()
		if !w.chance("missing", 6) {
			it.step = draw(w, "step", r.steps...)
			id = it.step.id.String()
		} else {
			missing = append(missing, id)
		}
		body := map[string]any{"step_id": id, "status": it.status}
		if w.chance("result_text", 2) {
			it.text = new("recovered")
			body["result_text"] = "recovered"
		}
		list, bodies = append(list, it), append(bodies, body)
	}
	recovered, skipped := w.model.recoverSteps(list)
	ids := func(steps []*step) []string {
		all := []string{}
		for _, s := range steps {
			all = append(all, s.id.String())
		}
		return all
	}
	want := map[string][]string{"recovered": ids(recovered), "skipped_terminal": ids(skipped), "missing": missing}
	w.ask(request{method: http.MethodPost, path: r.path("/steps/recover"), body: constant(map[string]any{"steps": bodies})}, nil, func(s *side, a *apitest.Response) {
		if got := decode[map[string][]string](a.Body); fmt.Sprint(got) != fmt.Sprint(want) {
			s.Failf("it answers %s, want %s", w.named(fmt.Sprint(got)), w.named(fmt.Sprint(want)))
		}
	})
	return true
}

func addItems(w *world) bool {
	s := w.theStep(func(s *step) bool { return s.role == "foreach" && !s.over() && len(s.items) < mostItems })
	if s == nil || len(s.items) >= mostItems {
		return false
	}
	var drafts []*item
	var children []*draftChild
	bodies := []any{}
	for range draw(w, "items", 1, 2, 4) {
		it := &item{step: s, kind: draw(w, "item_type", "repo", "ticket"), key: fmt.Sprint(draw(w, "item_id", 1, 2, 3, 4, 5, 6))}
		body := map[string]any{"item_type": it.kind, "item_id": it.key}
		c, doc := w.draftChild(s.run, 2)
		if c != nil && !c.fresh && slices.ContainsFunc(children, func(o *draftChild) bool { return o != nil && o.child == c.child }) {
			c = nil
		}
		if c != nil {
			body["child"] = doc
		}
		drafts, children, bodies = append(drafts, it), append(children, c), append(bodies, body)
	}
	g := w.generation(s.run)
	all, created, refused := w.add(s, g, drafts, children)
	w.ask(request{method: http.MethodPost, path: s.url("/items"), body: constant(map[string]any{"generation": g, "items": bodies})}, refused, func(s2 *side, a *apitest.Response) {
		got := decode[struct {
			Items []struct {
				Item    raw
				Created bool
			}
		}](a.Body).Items
		for i, it := range all {
			if got[i].Created != created[i] {
				s2.Failf("item %d was created: %t, want %t\n%s", i, got[i].Created, created[i], a.Body)
			}
			s2.sameItem(it, got[i].Item)
		}
	})
	return true
}

func reportItems(w *world) bool {
	s := w.theStep(func(s *step) bool { return slices.ContainsFunc(s.items, func(it *item) bool { return !it.over() }) })
	if s == nil || len(s.items) == 0 {
		return false
	}
	var list []itemUpdate
	used := map[*item]bool{}
	for range draw(w, "updates", 1, 2, 3) {
		it := draw(w, "item", s.items...)
		if used[it] {
			continue
		}
		used[it] = true
		to := draw(w, "status", "running", "running", "completed", "failed", "skipped", "cancelled", "pending")
		if it.over() && !w.chance("what has ended", 5) {
			continue
		}
		if it.status == "running" && it.child.none() && w.chance("it goes on", 3) {
			to = "running"
		}
		list = append(list, itemUpdate{item: it, status: to})
	}
	var child map[string]any
	if at := slices.IndexFunc(list, func(u itemUpdate) bool { return u.status == "running" }); at >= 0 {
		list[at].child, child = w.draftChild(s.run, 3)
	}
	if w.chance("one that is not there", 15) {
		list = append(list, itemUpdate{status: "completed"})
	}
	missing := w.id("no item")
	body := func(s2 *side) map[string]any {
		updates := []any{}
		for _, u := range list {
			doc := map[string]any{"id": missing, "status": u.status}
			if u.item != nil {
				doc["id"] = s2.items[u.item]
			}
			if u.child != nil {
				doc["child"] = child
			}
			updates = append(updates, doc)
		}
		return map[string]any{"generation": s.run.generation, "updates": updates}
	}
	g := w.generation(s.run)
	refused := w.model.reportItems(s, g, list)
	w.ask(request{method: http.MethodPatch, path: s.url("/items"), body: func(s2 *side) map[string]any {
		doc := body(s2)
		doc["generation"] = g
		return doc
	}}, refused, func(s2 *side, a *apitest.Response) {
		for i, doc := range decode[struct{ Items []raw }](a.Body).Items {
			s2.sameItem(list[i].item, doc)
		}
	})
	return true
}

func openedGate(s *step) bool { return s.gate != nil && s.gate.open }

// decide says something to a gate, as one of some people or, seldom, as the engine itself.
func (w *world) decide(decision, verb string, more func(g *gate, v *vote, body map[string]any)) bool {
	s := w.theStep(openedGate)
	if s == nil {
		return false
	}
	v, body := vote{by: draw(w, "who", asker, "p1", "p2", "p3"), decision: decision}, map[string]any{}
	body["by"] = v.by
	if s.gate != nil {
		more(s.gate, &v, body)
	}
	if decision == "feedback" || w.chance("feedback", 3) {
		v.feedback = draw(w, "words", "yes", "no")
		body["feedback"] = v.feedback
	}
	if s.gate != nil && w.chance("once more", 3) {
		if at := slices.IndexFunc(s.gate.votes, func(old vote) bool { return old.decision == decision }); at >= 0 {
			v, body = s.gate.votes[at], map[string]any{}
			body["by"] = v.by
			if v.feedback != "" {
				body["feedback"] = v.feedback
			}
			if v.selections != nil {
				body["selections"] = v.selections
			}
		}
	}
	sender := "people"
	if w.chance("the engine", 12) {
		sender = "engine"
	}
	replayed, refused := w.say(s, v, sender)
	w.ask(request{method: http.MethodPost, path: s.url("/gate/" + verb), body: constant(body), people: sender == "people"}, refused, func(s2 *side, a *apitest.Response) {
		got := decode[struct {
			Gate, Step raw
			Replayed   bool
		}](a.Body)
		if got.Replayed != replayed {
			s2.Failf("replayed is %t, want %t\n%s", got.Replayed, replayed, a.Body)
		}
		s2.sameGate(s, got.Gate)
		s2.sameStep(s, got.Step)
	})
	return true
}

func approve(w *world) bool {
	return w.decide("approved", "approve", func(g *gate, v *vote, body map[string]any) {
		if w.chance("selections", 2) {
			return
		}
		of := []string{}
		if len(g.options) > 0 {
			of = proptest.Must(slices.Clone(draw(w, "selected", []string{}, []string{"x"}, []string{"y", "x"}, []string{"z", "z"})), nil)
		}
		if w.chance("what is not among them", 10) {
			of = append(of, "w")
		}
		v.selections, body["selections"] = &of, of
	})
}

func reject(w *world) bool {
	return w.decide("rejected", "reject", func(*gate, *vote, map[string]any) {})
}

func noteGate(w *world) bool {
	return w.decide("feedback", "feedback", func(*gate, *vote, map[string]any) {})
}
