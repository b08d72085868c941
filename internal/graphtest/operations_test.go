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
