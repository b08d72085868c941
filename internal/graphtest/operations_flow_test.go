package graphtest

import (
	"fmt"
	"net/http"
	"slices"

	"github.com/google/uuid"
	"pgregory.net/rapid"

	"github.com/flowapi/flowapi/internal/apitest"
)

func createFlow(w *world) bool {
	if len(w.flows) > 5 {
		return false
	}
	f := w.newFlow()
	start, auto := w.chance("start", 2), w.chance("auto_finish", 2)
	w.ask(http.MethodPost, "/v1/flows", "", constant(map[string]any{"id": f.id, "goal": f.name, "start": start, "auto_finish": auto}))
	f.begin(start, auto)
	w.flows = append(w.flows, f)
	return true
}

func createGraph(w *world) bool {
	n := w.size()
	if len(w.flows) > 5 || !w.room(n) {
		return false
	}
	f := w.newFlow()
	p := w.plan(f, n, true)
	body := map[string]any{"id": f.id, "goal": f.name, "graph": map[string]any{"executions": p.bodies}}
	start, auto := !w.chance("do not start", 4), !w.chance("no auto_finish", 4)
	if !start {
		body["start"] = false
	}
	if !auto {
		body["auto_finish"] = false
	}
	code := ""
	if p.flaw {
		code = "graph_invalid"
	}
	w.ask(http.MethodPost, "/v1/flows", code, constant(body))
	if p.flaw {
		return true
	}
	f.begin(start, auto)
	w.flows = append(w.flows, f)
	w.built(f, p)
	return true
}

// createAgain is invariant 4: a create of what there is changes nothing.
func createAgain(w *world) bool {
	f := w.theFlow(anyFlow)
	if f == nil {
		return false
	}
	body := map[string]any{"id": f.id, "goal": "another", "start": true}
	if w.chance("with a graph", 2) {
		body["graph"] = map[string]any{"executions": []any{map[string]any{"key": "a", "lane": lane}}}
	}
	w.ask(http.MethodPost, "/v1/flows", "", constant(body), func(s *side, r *apitest.Response) {
		if r.Status != http.StatusOK || r.Header.Get("Idempotent-Replay") != "true" {
			s.Failf("a create of what there is answers %d\n%s", r.Status, r.Body)
		}
	})
	return true
}

func buildGraph(w *world) bool {
	f := w.theFlow(anyFlow)
	n := w.size()
	if f == nil || !w.room(n) {
		return false
	}
	p := w.plan(f, n, true)
	code := ""
	switch {
	case f.terminal():
		code = "already_terminal"
	case p.flaw:
		code = "graph_invalid"
	}
	body := constant(map[string]any{"executions": p.bodies})
	if w.chance("dry run", 4) {
		w.ask(http.MethodPost, f.path("/graph?dry_run=true"), code, body)
		return true
	}
	w.ask(http.MethodPost, f.path("/graph"), code, body)
	if code == "" {
		w.built(f, p)
	}
	return true
}

func addMember(w *world) bool {
	f := w.theFlow(anyFlow)
	if f == nil || !w.room(1) {
		return false
	}
	p := w.plan(f, 1, w.chance("keyed", 2))
	code := ""
	switch {
	case f.terminal():
		code = "already_terminal"
	case p.flaw:
		code = "graph_invalid"
	}
	w.ask(http.MethodPost, f.path("/members"), code, constant(map[string]any{"execution": p.bodies[0]}))
	if code == "" {
		w.built(f, p)
	}
	return true
}

func stage(w *world) bool {
	f := w.theFlow(func(f *flow) bool { return len(f.members) > 1 })
	if f == nil {
		return false
	}
	up, down := draw(w, "upstream", f.members...), draw(w, "downstream", f.members...)
	if fresh := slices.DeleteFunc(slices.Clone(f.members), (*member).started); len(fresh) > 0 && !w.chance("onto any", 4) {
		down = draw(w, "downstream that has not started", fresh...)
	}
	if w.chance("onto a stranger", 20) {
		if x := w.theMember(func(x *member) bool { return x.flow != f }); x != nil {
			down = x
		}
	}
	pass := w.chance("pass_result", 3)
	body := map[string]any{"upstream_execution_id": up.id, "downstream_execution_id": down.id, "pass_result": pass}
	revision := len(f.members) + len(f.edges)
	expected := rapid.IntRange(-1, 4).Draw(w.T, "expected")
	if expected >= 0 && expected < 2 {
		body["expected_graph_revision"] = revision - expected
	}
	at := slices.IndexFunc(f.edges, func(e *edge) bool { return e.up == up && e.down == down })
	code := ""
	switch {
	case up == down:
		code = "self_referencing_edge"
	case at >= 0 && f.edges[at].pass != pass:
		code = "already_exists"
	case at >= 0:
	case f.terminal():
		code = "already_terminal"
	case expected == 1:
		code = "stale_graph_revision"
	case down.flow != f:
		code = "execution_not_in_flow"
	case down.started():
		code = "child_already_started"
	case down.reaches(up):
		code = "cycle_detected"
	}
	w.reopens = true
	w.ask(http.MethodPost, f.path("/edges"), code, constant(body))
	if code != "" || at >= 0 {
		return true
	}
	e, before := &edge{up: up, down: down, pass: pass}, down.group().State
	f.edges = append(f.edges, e)
	if up.over() {
		w.reach("stage: the upstream has ended: " + up.outcome)
		e.how = bucket(up.outcome)
	}
	if state := down.group().State; state != "pending" && state != before { // what was let go before stays so
		w.fire(down)
	}
	return true
}

func setPolicy(w *world) bool {
	f := w.theFlow(func(f *flow) bool { return len(f.members) > 0 })
	if f == nil {
		return false
	}
	x := draw(w, "member", f.members...)
	if fresh := slices.DeleteFunc(slices.Clone(f.members), func(x *member) bool { return x.started() || len(x.into()) > 0 }); len(fresh) > 0 && !w.chance("any", 4) {
		x = draw(w, "member without dependencies", fresh...)
	}
	p, body := policy{kind: draw(w, "kind", "all_of", "any_of", "quorum")}, map[string]any{}
	body["kind"] = p.kind
	if p.kind == "quorum" {
		p.k = rapid.IntRange(1, 3).Draw(w.T, "k")
		body["k"] = p.k
	}
	if p.kind != "all_of" && w.chance("cancel_remaining", 2) {
		p.rest = true
		body["on_satisfied"] = "cancel_remaining"
	}
	_, set := f.policies[x]
	code := ""
	switch {
	case (set || len(x.into()) > 0) && x.policy() == p:
	case f.terminal():
		code = "already_terminal"
	case len(x.into()) > 0:
		code = "policy_fixed"
	default:
		f.policies[x] = p
	}
	w.ask(http.MethodPut, f.path("/edge-groups/"+x.id.String()), code, constant(body))
	return true
}

// apply is idempotent, and tells how many dependencies are open.
func apply(w *world) bool {
	f := w.theFlow(func(f *flow) bool { return len(f.edges) > 0 })
	if f == nil {
		return false
	}
	e := draw(w, "edge", f.edges...)
	var open int64
	for _, other := range e.down.into() {
		if other.how == "" {
			open++
		}
	}
	ids := map[string]string{}
	for _, s := range w.sides {
		ids[s.Name] = decode[struct {
			Items []struct {
				ID string `json:"edge_id"`
			}
		}](s.Fetch(f.path("/edges?from=" + e.up.id.String() + "&to=" + e.down.id.String()))).Items[0].ID
	}
	w.tell("apply %s -> %s", e.up.name, e.down.name)
	w.did[w.kind]++
	w.each(func(s *side) {
		if got := s.Post(f.path("/edges/"+ids[s.Name]+"/apply"), nil).Want(http.StatusOK).Int("unsatisfied_count"); got != open {
			s.Failf("%d dependencies are open, want %d", got, open)
		}
	})
	return true
}

// verb is a verb of a flow without more.
func verb(name string, body map[string]any) func(w *world) bool {
	return func(w *world) bool {
		f := w.theFlow(func(f *flow) bool {
			return slices.Contains(map[string][]string{"start": {"created"}, "wait": {"running"}, "resume": {"waiting"}, "finish": {"running"}, "fail": {"running", "waiting"}, "request-cancel": {"created", "running", "waiting"}}[name], f.status)
		})
		if f == nil {
			return false
		}
		code := ""
		switch {
		case f.intent && name != "fail" && name != "request-cancel":
			code = "cancel_pending"
		case name == "finish" && f.open() > 0:
			code = "open_members"
		}
		if body == nil {
			body = map[string]any{}
		}
		w.ask(http.MethodPost, f.path("/"+name), code, constant(body))
		if code != "" || name == "request-cancel" && f.intent {
			return true
		}
		f.revision++
		switch name {
		case "start", "resume":
			f.status, f.started = "running", true
		case "wait":
			f.status = "waiting"
		case "finish":
			f.status = "finished"
		case "fail":
			f.status = "failed"
			f.until = 0
			w.endMembers(f)
		case "request-cancel":
			f.intent, f.asked = true, "enough"
			if f.status == "waiting" { // the next sweep does it
				w.reach("a waiting flow is cancelled as it was asked")
				f.revision++
				f.status, f.policy, f.reason = "cancelled", "cancel_all", f.asked
				w.endMembers(f)
			}
		}
		return true
	}
}

func cancelFlow(w *world) bool {
	f := w.theFlow(anyFlow)
	if f == nil {
		return false
	}
	held := func(x *member) bool { return x.lease > 0 }
	if busy := w.theFlow(func(f *flow) bool { return !f.terminal() && slices.ContainsFunc(f.members, held) }); busy != nil && w.chance("one that is worked on", 2) {
		f = busy
	}
	p := draw(w, "policy", "cancel_all", "cancel_all", "cancel_pending", "flow_only")
	reason := fmt.Sprintf("reason %d", w.ids)
	body := map[string]any{"policy": p, "reason": reason}
	var until int64
	if w.chance("grace", 2) {
		until = w.due(w.now + 1500)
		body["grace_ms"] = until - w.now
	}
	code, repeated := "", f.status == "cancelled"
	if f.terminal() && !repeated {
		code = "already_terminal"
	}
	if code == "" && !repeated {
		w.reach("cancel flow: " + p)
		f.status, f.policy, f.until = "cancelled", p, until
		f.revision++
		if f.reason = reason; f.asked != "" {
			f.reason = f.asked
		}
		for _, x := range f.members {
			if x.phase == "active" && x.lease > w.now && until > 0 {
				w.spares = append(w.spares, x)
			}
		}
		if p != "flow_only" {
			w.endMembers(f)
		}
	}
	before := map[string]map[uuid.UUID]memberView{}
	for _, s := range w.sides {
		before[s.Name] = s.seen.members
	}
	w.ask(http.MethodPost, f.path("/cancel"), code, constant(body), func(s *side, r *apitest.Response) {
		if code != "" {
			return
		}
		if r.Str("cancellation.policy") != f.policy || r.Str("cancellation.reason") != f.reason {
			s.Failf("invariant 14: policy and reason are not %s and %q\n%s", f.policy, f.reason, r.Body)
		}
	})
	if code != "" {
		return true
	}
	w.follow()
	w.each(func(s *side) {
		s.settle(false)
		s.look()
		for id, was := range before[s.Name] {
			is := s.seen.members[id]
			working := was.Public == "active" || was.Public == "suspended"
			if was.Flow == f.name && was != is && (f.policy == "flow_only" || f.policy == "cancel_pending" && working) {
				s.Failf("invariant 15: %s was %+v, and is %+v", was.Name, was, is)
			}
		}
		progress := s.Get(f.path("/cancellation")).Want(http.StatusOK)
		open := int64(0)
		if f.policy == "cancel_all" {
			open = int64(f.open())
		}
		if progress.Str("policy") != f.policy || progress.Int("outstanding") != open {
			s.Failf("invariant 14: %d members are to end, want %d\n%s", progress.Int("outstanding"), open, progress.Body)
		}
	})
	return true
}

func replayFlow(w *world) bool {
	f := w.theFlow(func(f *flow) bool { return slices.ContainsFunc(f.members, (*member).over) })
	if f == nil {
		return false
	}
	var named []*member
	var from any = "failed"
	if w.chance("by name", 2) {
		over := slices.DeleteFunc(slices.Clone(f.members), func(x *member) bool { return !x.over() })
		named = rapid.SliceOfNDistinct(rapid.SampledFrom(over), 1, 4, rapid.ID).Draw(w.T, "from")
		var names []string
		for _, x := range named {
			if x.key != "" && w.chance("by key", 2) {
				names = append(names, x.key)
			} else {
				names = append(names, x.id.String())
			}
		}
		from = names
	}
	plan := f.planned(named)
	code := ""
	switch {
	case slices.ContainsFunc(plan, func(x *member) bool { return x.replays >= 10 }):
		code = "max_replays_exhausted"
		if f.status == "cancelled" {
			return false // which of the two is told first, is nobody's business
		}
	case f.status == "cancelled":
		code = "already_terminal"
	}
	note := func(s *side, r *apitest.Response) {
		if code != "" {
			return
		}
		var body struct {
			Replayed, Kept []struct {
				ID uuid.UUID `json:"execution_id"`
			}
		}
		r.Into(&body)
		ids := []string{}
		for _, n := range body.Replayed {
			ids = append(ids, n.ID.String())
		}
		slices.Sort(ids)
		want := []string{}
		for _, x := range plan {
			want = append(want, x.id.String())
		}
		slices.Sort(want)
		if !slices.Equal(ids, want) || len(body.Kept) != len(f.members)-len(want) {
			s.Failf("it replays %s, want %s; %d are kept", s.w.named(fmt.Sprint(ids)), s.w.named(fmt.Sprint(want)), len(body.Kept))
		}
	}
	w.reopens, w.replayed = true, true
	w.ask(http.MethodPost, f.path("/replay"), code, constant(map[string]any{"from": from, "dry_run": true}), note)
	w.ask(http.MethodPost, f.path("/replay"), code, constant(map[string]any{"from": from}), note)
	if code != "" || len(plan) == 0 {
		return true
	}
	f.again()
	for _, x := range plan {
		w.replay(x)
	}
	return true
}

func deleteFlow(w *world) bool {
	f := w.theFlow(func(f *flow) bool { return f.terminal() || w.chance("whatever it is doing", 10) })
	if f == nil {
		return false
	}
	code := ""
	if !f.terminal() {
		code = "not_terminal"
	}
	w.ask(http.MethodDelete, f.path(""), code, nil)
	if code == "" {
		f.deleted = true
	}
	return true
}
