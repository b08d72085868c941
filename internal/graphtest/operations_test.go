package graphtest

import (
	"fmt"
	"maps"
	"net/http"
	"slices"

	"github.com/google/uuid"
	"pgregory.net/rapid"

	"github.com/flowapi/flowapi/internal/apitest"
)

// kind is one kind of step. do says whether there was anything to do it with.
type kind struct {
	name   string
	weight int
	do     func(w *world) bool
}

func (k kind) String() string { return k.name }

const lane = "work"

func draw[T any](w *world, label string, of ...T) T { return rapid.SampledFrom(of).Draw(w.T, label) }

// chance is true once in so many times.
func (w *world) chance(label string, of int) bool {
	return draw(w, label, chances[:of]...) == of-1
}

var chances = func() []int {
	list := make([]int, 100)
	for i := range list {
		list[i] = i
	}
	return list
}()

// kinds are all kinds of steps.
func kinds() []kind {
	return []kind{
		{"create flow", 2, createFlow}, {"create flow with graph", 4, createGraph}, {"build graph", 4, buildGraph}, {"create again", 1, createAgain},
		{"add member", 3, addMember}, {"enlist", 3, enlist}, {"stage edge", 8, stage}, {"set policy", 3, setPolicy}, {"apply edge", 1, apply}, {"create execution", 2, createLone},
		{"claim", 18, claim}, {"complete", 22, complete}, {"fail", 8, fail}, {"release", 3, release}, {"suspend", 2, suspend}, {"resume execution", 2, resumeExecution}, {"late worker", 6, late},
		{"cancel execution", 5, cancelExecution}, {"advance", 8, advance},
		{"start", 5, verb("start", nil)}, {"wait", 4, verb("wait", map[string]any{"condition": map[string]any{"kind": "manual"}})},
		{"resume", 3, verb("resume", nil)}, {"finish", 2, verb("finish", nil)}, {"fail flow", 2, verb("fail", map[string]any{"reason": "no"})},
		{"request cancel", 3, verb("request-cancel", map[string]any{"reason": "enough"})}, {"cancel flow", 4, cancelFlow}, {"acknowledge", 5, acknowledge},
		{"replay execution", 6, replayExecution}, {"replay flow", 6, replayFlow}, {"delete flow", 1, deleteFlow},
	}
}

// theFlow draws a flow that there is.
func (w *world) theFlow(suits func(f *flow) bool) *flow {
	found := slices.DeleteFunc(slices.Clone(w.flows), func(f *flow) bool { return f.deleted || !suits(f) })
	if len(found) == 0 {
		return nil
	}
	return draw(w, "flow", found...)
}

func anyFlow(*flow) bool { return true }

// theMember draws a member or a lone execution that there is.
func (w *world) theMember(suits func(x *member) bool) *member {
	found := slices.DeleteFunc(slices.Clone(w.all), func(x *member) bool { return x.gone() || !suits(x) })
	if len(found) == 0 {
		return nil
	}
	return draw(w, "execution", found...)
}

func (f *flow) path(more string) string { return "/v1/flows/" + f.id.String() + more }

func (x *member) path(more string) string { return "/v1/executions/" + x.id.String() + more }

func constant(body map[string]any) func(*side) map[string]any {
	return func(*side) map[string]any { return body }
}

// most bounds what there is in a run.
const most = 90

// draft draws a member to be, and its part of a body.
func (w *world) draft(f *flow, keyed bool) (*member, map[string]any) {
	x := &member{id: w.id(), flow: f, created: w.now, priority: rapid.IntRange(0, 2).Draw(w.T, "priority"), phase: "runnable"}
	body := map[string]any{"id": x.id, "lane": lane, "priority": x.priority}
	if keyed {
		x.key = fmt.Sprintf("k%d", w.ids)
		body["key"] = x.key
	}
	if w.chance("retries", 3) {
		x.tries = 2
		body["policy"] = map[string]any{"retry_policy": map[string]any{"max_retries": 2, "backoff": map[string]any{"type": "fixed", "delay_ms": 1000}}}
	}
	if w.chance("delay", 8) {
		x.until = w.due(w.now + 2000)
		body["delay_ms"] = x.until - w.now
	}
	if w.chance("deadline", 8) {
		x.deadline = w.due(w.now + 5000)
		body["deadline_at"] = stamp(x.deadline)
	}
	return x, body
}

// enter makes a draft true.
func (w *world) enter(x *member, prefix string) {
	x.name = fmt.Sprintf("%s%d", prefix, len(w.all))
	w.all = append(w.all, x)
	if x.flow != nil {
		x.flow.members = append(x.flow.members, x)
	}
}

// policyFor draws how so many needs are joined, and its part of a body.
func (w *world) policyFor(needs int, body map[string]any) policy {
	p := policy{kind: "all_of"}
	if needs == 0 {
		return p
	}
	switch draw(w, "join", "all", "", "any", "quorum", "any", "quorum") {
	case "all":
		body["join"] = "all"
	case "any":
		p.kind = "any_of"
		body["join"] = "any"
	case "quorum":
		p.kind, p.k = "quorum", rapid.IntRange(1, needs).Draw(w.T, "k")
		body["join"] = map[string]any{"quorum": p.k}
	}
	if p.kind != "all_of" && w.chance("cancel_remaining", 2) {
		p.rest = true
		body["on_satisfied"] = "cancel_remaining"
	}
	return p
}

// plan draws nodes with what they need, of each other and of what the flow has. flaw says that something is wrong with them.
type plan struct {
	nodes    []*member
	edges    []*edge
	policies []policy
	bodies   []map[string]any
	flaw     bool
}

func (w *world) plan(f *flow, n int, keyed bool) plan {
	var p plan
	olds := slices.Clone(f.members)
	for i := range n {
		x, body := w.draft(f, keyed)
		ups := slices.Concat(olds, p.nodes)
		var needs []any
		for _, up := range ups {
			odds := max(2, len(ups)/3)
			if i < 2 {
				odds = 3
			}
			if !w.chance("needs", odds) {
				continue
			}
			name := up.key
			if name == "" || w.chance("by id", 6) && slices.Contains(olds, up) {
				name = up.id.String()
			}
			e := &edge{up: up, down: x, pass: w.chance("pass_result", 3)}
			if e.pass {
				needs = append(needs, map[string]any{"key": name, "pass_result": true})
			} else {
				needs = append(needs, name)
			}
			p.edges = append(p.edges, e)
		}
		policy := w.policyFor(len(needs), body)
		if keyed && w.chance("a mistake", 60) {
			needs, p.flaw = append(needs, "nobody"), true
		}
		if len(needs) > 0 {
			body["needs"] = needs
		}
		p.nodes, p.policies, p.bodies = append(p.nodes, x), append(p.policies, policy), append(p.bodies, body)
	}
	return p
}

// built makes a plan true.
func (w *world) built(f *flow, p plan) {
	for i, x := range p.nodes {
		w.enter(x, "x")
		if slices.ContainsFunc(p.edges, func(e *edge) bool { return e.down == x }) {
			f.policies[x] = p.policies[i]
		}
	}
	f.edges = append(f.edges, p.edges...)
	for _, e := range p.edges {
		if e.up.over() {
			w.reach("build: onto one that has ended")
			w.resolve(e)
		}
	}
}

func (w *world) size() int {
	if w.chance("large", 6) {
		return rapid.IntRange(10, 60).Draw(w.T, "nodes")
	}
	return rapid.IntRange(1, 6).Draw(w.T, "nodes")
}

func (w *world) room(n int) bool { return len(w.all)+n <= most }

func (w *world) newFlow() *flow {
	return &flow{id: w.id(), name: fmt.Sprintf("F%d", len(w.flows)), status: "created", policies: map[*member]policy{}}
}

func (f *flow) begin(start, auto bool) {
	f.auto = auto
	if start {
		f.status, f.revision, f.started = "running", 1, true
	}
}

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

func createLone(w *world) bool {
	if !w.room(1) {
		return false
	}
	x, body := w.draft(nil, false)
	w.ask(http.MethodPost, "/v1/executions", "", constant(body))
	w.enter(x, "l")
	return true
}

func enlist(w *world) bool {
	f := w.theFlow(anyFlow)
	x := w.theMember(func(x *member) bool { return x.flow == nil || len(x.into()) > 0 })
	if begun := w.theMember(func(x *member) bool { return x.flow == nil && x.phase != "runnable" }); begun != nil && w.chance("one that has begun", 2) {
		x = begun
	}
	if f == nil || x == nil {
		return false
	}
	code := ""
	switch {
	case f.terminal():
		code = "already_terminal"
	case x.flow != nil && x.flow != f:
		code = "already_member"
	}
	w.ask(http.MethodPost, f.path("/members"), code, constant(map[string]any{"execution_id": x.id}))
	if code == "" && x.flow == nil {
		w.reach("enlist: " + x.phase)
		x.flow = f
		f.members = append(f.members, x)
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

func claim(w *world) bool {
	n := draw(w, "max", 1, 1, 2, 3, 5, 100)
	if n == 100 && !w.chance("all", 3) {
		n = 4
	}
	lease := draw(w, "lease", int64(3000), 30000)
	until := w.due(w.now + lease)
	got := w.candidates()
	got = got[:min(n, len(got))]
	owners := make([]*owner, len(got))
	inputs := make([]map[string]string, len(got))
	for i, x := range got {
		if x.lost() {
			w.reach("claim: reclaimed")
		}
		x.epoch++
		owners[i] = &owner{number: len(w.owners), of: x, epoch: x.epoch}
		w.owners = append(w.owners, owners[i])
		x.phase, x.begun, x.owner, x.lease, x.until = "active", false, owners[i], until, 0
		inputs[i] = map[string]string{}
		for _, e := range x.into() {
			if e.pass && e.how == "satisfied" && e.up.result != "" {
				name := e.up.key
				if name == "" {
					name = e.up.id.String()
				}
				inputs[i][name] = e.up.result
				w.reach("claim: with an input")
			}
		}
	}
	w.ask(http.MethodPost, "/v1/claims", "", constant(map[string]any{"lane": lane, "worker_id": "w", "max": n, "lease_ttl_ms": until - w.now}), func(s *side, r *apitest.Response) {
		var body struct {
			Claims []struct {
				Execution struct{ ID uuid.UUID }
				Handle    string
				Fence     struct {
					Epoch int64 `json:"lease_epoch"`
				}
				Inputs map[string]string
			}
		}
		if r.Status == http.StatusOK {
			r.Into(&body)
		}
		if len(body.Claims) != len(got) {
			s.Failf("it claims %d, want %d\n%s", len(body.Claims), len(got), r.Body)
		}
		for i, c := range body.Claims {
			if c.Execution.ID != got[i].id || c.Fence.Epoch != owners[i].epoch {
				s.Failf("claim %d is %s at epoch %d, want %s at %d", i, s.w.named(c.Execution.ID.String()), c.Fence.Epoch, got[i].name, owners[i].epoch)
			}
			s.handles[owners[i].number] = c.Handle
			if fmt.Sprint(c.Inputs) != fmt.Sprint(inputs[i]) {
				s.Failf("the inputs of %s are %v, want %v", got[i].name, c.Inputs, inputs[i])
			}
		}
	})
	return true
}

// held draws an owner that still holds what it has claimed.
func (w *world) held(suits func(x *member) bool) *owner {
	x := w.theMember(func(x *member) bool { return x.owner != nil && x.lease > 0 && suits(x) })
	if x == nil {
		return nil
	}
	return x.owner
}

func anyMember(*member) bool { return true }

func (w *world) worker(o *owner, verb, code string, more map[string]any, then ...func(s *side, r *apitest.Response)) {
	w.ask(http.MethodPost, o.of.path("/"+verb), code, func(s *side) map[string]any {
		body := map[string]any{"handle": s.handles[o.number]}
		maps.Copy(body, more)
		return body
	}, then...)
}

func complete(w *world) bool {
	o := w.held(anyMember)
	if o == nil {
		return false
	}
	result := ""
	more := map[string]any{}
	if w.chance("with a result", 2) {
		result = fmt.Sprintf("of %d", o.number)
		more["result"] = result
	}
	w.worker(o, "complete", "", more)
	o.done, o.of.result = true, result
	w.end(o.of, "success", false)
	return true
}

func fail(w *world) bool {
	o := w.held(anyMember)
	if o == nil {
		return false
	}
	category := draw(w, "category", "transient", "permanent")
	w.worker(o, "fail", "", map[string]any{"reason": "no", "category": category})
	o.done = true
	switch x := o.of; {
	case x.grace > 0:
		w.end(x, "cancelled", false)
	case category == "transient" && x.retries < x.tries:
		w.reach("fail: to be retried")
		x.phase, x.begun, x.owner, x.lease, x.retries, x.until = "runnable", true, nil, 0, x.retries+1, w.now+1000
	default:
		w.end(x, "failed", false)
	}
	return true
}

func release(w *world) bool {
	o := w.held(anyMember)
	if o == nil {
		return false
	}
	w.worker(o, "release", "", nil)
	o.done = true
	if x := o.of; x.grace > 0 {
		w.end(x, "cancelled", false)
	} else {
		x.phase, x.begun, x.owner, x.lease = "runnable", true, nil, 0
	}
	return true
}

func suspend(w *world) bool {
	o := w.held(func(x *member) bool { return x.grace == 0 })
	if o == nil {
		return false
	}
	w.worker(o, "suspend", "", map[string]any{"reason_code": "waiting_for_callback", "waitpoints": []any{map[string]any{"waitpoint_key": "go"}},
		"resume_condition": map[string]any{"Single": map[string]any{"waitpoint_key": "go", "matcher": "Wildcard"}}})
	o.done = true
	x := o.of
	x.phase, x.owner, x.lease = "suspended", nil, 0
	return true
}

func resumeExecution(w *world) bool {
	x := w.theMember(func(x *member) bool { return x.phase == "suspended" })
	if x == nil {
		return false
	}
	w.ask(http.MethodPost, x.path("/resume"), "", constant(map[string]any{}))
	x.phase, x.begun = "runnable", true
	return true
}

// late is invariant 16: who holds what was taken away is told so.
func late(w *world) bool {
	gone := slices.DeleteFunc(slices.Clone(w.owners), func(o *owner) bool { return o.done || o.of.gone() || o.of.owner == o && o.of.lease > 0 })
	if len(gone) == 0 {
		return false
	}
	o := draw(w, "owner", gone...)
	if lost := slices.DeleteFunc(slices.Clone(gone), func(o *owner) bool { return o.of.phase != "active" }); len(lost) > 0 && w.chance("who has lost it", 2) {
		o = draw(w, "owner who has lost it", lost...)
	}
	code := "stale_lease"
	switch x := o.of; {
	case x.phase != "active":
		code = "execution_not_active"
	case x.lost():
		code = "lease_expired"
	}
	verb := draw(w, "verb", "complete", "renew", "release")
	w.did[w.kind]++
	more := map[string]any{}
	if verb == "renew" {
		more["lease_ttl_ms"] = 1000
	}
	w.worker(o, verb, code, more, func(s *side, r *apitest.Response) {
		if epoch := r.Int("lease_epoch"); epoch != o.of.epoch {
			s.Failf("the epoch of %s is %d, want %d", o.of.name, epoch, o.of.epoch)
		}
	})
	return true
}

func cancelExecution(w *world) bool {
	x := w.theMember(anyMember)
	if active := w.theMember(func(x *member) bool { return x.phase == "active" }); active != nil && w.chance("an active one", 2) {
		x = active
	}
	if suspended := w.theMember(func(x *member) bool { return x.phase == "suspended" }); suspended != nil && w.chance("a suspended one", 4) {
		x = suspended
	}
	if x == nil {
		return false
	}
	body := map[string]any{"reason": "not needed"}
	var until int64
	if w.chance("grace", 2) {
		until = w.due(w.now + draw(w, "grace_ms", int64(500), 2500))
		body["grace_ms"] = until - w.now
	}
	code := ""
	if x.over() && x.outcome != "cancelled" {
		code = "already_terminal"
	}
	w.ask(http.MethodPost, x.path("/operator-cancel"), code, constant(body))
	if !x.over() {
		w.reach("cancel execution: " + x.phase)
		w.cancel(x, until)
	}
	return true
}

func advance(w *world) bool {
	at := w.next()
	step := w.now + draw(w, "milliseconds", int64(100), 500, 1000)
	if at == 0 || at > step && !w.chance("to what is next", 2) {
		at = step
	}
	w.advance(at)
	w.did[w.kind]++
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

func acknowledge(w *world) bool {
	graced := func(x *member) bool { return x.grace > 0 }
	f := w.theFlow(func(f *flow) bool { return f.status == "cancelled" && slices.ContainsFunc(f.members, graced) })
	if f == nil {
		f = w.theFlow(func(f *flow) bool { return f.status == "cancelled" && len(f.members) > 0 })
	}
	if f == nil {
		return false
	}
	x := draw(w, "member", f.members...)
	if held := slices.DeleteFunc(slices.Clone(f.members), func(x *member) bool { return x.grace == 0 }); len(held) > 0 && !w.chance("any", 4) {
		x = draw(w, "member that has a grace", held...)
	}
	w.ask(http.MethodPost, f.path("/cancellation/"+x.id.String()+"/ack"), "", constant(map[string]any{}))
	if x.phase == "active" && x.grace > 0 {
		w.reach("acknowledge: in its grace")
		w.end(x, "cancelled", true)
	}
	return true
}

func replayExecution(w *world) bool {
	x := w.theMember((*member).over)
	if x == nil {
		return false
	}
	code := ""
	switch {
	case x.replays >= 10:
		code = "max_replays_exhausted"
	case x.flow != nil && x.flow.status == "cancelled":
		code = "already_terminal"
	}
	w.reopens, w.replayed = true, true
	w.ask(http.MethodPost, x.path("/replay"), code, constant(map[string]any{}))
	if code == "" {
		if x.flow != nil {
			x.flow.again()
		}
		w.replay(x)
	}
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
