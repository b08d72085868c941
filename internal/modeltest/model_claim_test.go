package modeltest

import (
	"bytes"
	"cmp"
	"maps"
	"slices"

	"github.com/google/uuid"
)

// creation is a request to create.
type creation struct {
	id         uuid.UUID
	name       string
	lane       string
	priority   int
	needs      []string
	tags       map[string]string
	policy     policy
	delayMS    int64
	delayUntil instant
	deadline   instant
	key        string
	bad        string // the code of what is wrong with it
}

// create is POST /v1/executions. executions.md 2.1.
func (m *model) create(c creation) answer {
	if k, found := m.keys[c.key]; c.key != "" && found && k.expires > m.now {
		m.reach("create: the key is known")
		return answer{Status: 200, Replay: true}.showing(m.view(k.e))
	}
	if e := m.byID(c.id); e != nil {
		m.reach("create: the id is known")
		return answer{Status: 200, Replay: true}.showing(m.view(e))
	}
	if c.bad != "" {
		return refused(c.bad)
	}
	e := &execution{
		name: c.name, id: c.id, lane: c.lane, priority: max(0, min(c.priority, 9000)), needs: slices.Clone(c.needs), tags: map[string]string{}, policy: c.policy,
		vector: waiting("pending_first_attempt"), created: m.now, current: -1, deadline: c.deadline,
	}
	maps.Copy(e.tags, c.tags)
	if e.deadline == 0 && c.policy.deadline() > 0 {
		e.deadline = m.now + c.policy.deadline()
	}
	if e.deadline != 0 && e.deadline <= m.now {
		return refused("timer_out_of_range")
	}
	until := c.delayUntil
	if c.delayMS > 0 {
		until = m.now + c.delayMS
	}
	if until > m.now {
		m.reach("create: delayed")
		e.vector, e.delay = delayed("waiting_for_delay", "pending_first_attempt"), until
	}
	e.events = append(e.events, "execution.created")
	m.executions = append(m.executions, e)
	if c.key != "" && c.policy.dedup() > 0 {
		m.keys[c.key] = keyed{e, m.now + c.policy.dedup()}
	}
	return answer{Status: 201}.showing(m.view(e))
}

// createBatch is POST /v1/executions/batch.
func (m *model) createBatch(all []creation, atomic bool) answer {
	a := answer{Status: 201}
	if atomic {
		for _, c := range all { // only their own mistakes are drawn for one
			if c.bad != "" && m.byID(c.id) == nil {
				return refused(c.bad)
			}
		}
	}
	for _, c := range all {
		item := m.create(c)
		if item.Code == "" {
			item = answer{}.showing(item.Shown...)
		}
		a.Items = append(a.Items, item)
	}
	return a
}

// claimant is who claims.
type claimant struct {
	worker, instance string
	capabilities     []string
	ttl              int64
}

// candidates are what a poll would get, in its order. executions.md 2.2, 5/18.
func (m *model) candidates(lanes, capabilities []string, reclaim bool) []*execution {
	var all []*execution
	for _, e := range m.executions {
		stands := e.phase == "runnable" && e.eligible == "eligible_now" || reclaim && e.isLost()
		if stands && e.grant == nil && slices.Contains(lanes, e.lane) && !m.paused(e.lane) && within(e.needs, capabilities) {
			all = append(all, e)
		}
	}
	slices.SortFunc(all, func(a, b *execution) int {
		return cmp.Or(cmp.Compare(b.priority, a.priority), cmp.Compare(a.created, b.created), bytes.Compare(a.id[:], b.id[:]))
	})
	return all
}

// claim is POST /v1/claims.
func (m *model) claim(lanes []string, by claimant, limit int, reclaim bool) answer {
	if m.draining(by.instance) {
		m.reach("claim: draining")
		return ok("directives", "drain")
	}
	a := ok()
	for _, e := range m.candidates(lanes, by.capabilities, reclaim) {
		if len(a.Claims) == limit {
			break
		}
		if c := m.take(e, by); c != nil {
			a.Claims = append(a.Claims, *c)
		}
	}
	if len(a.Claims) == 0 {
		return answer{Status: 204}
	}
	return a
}

// take gives e to a worker, unless it was lost too often: then that ends it. executions.md 1.11.
func (m *model) take(e *execution, by claimant) *claimView {
	again := e.isLost()
	reason := "lease_" + e.vector.owner
	if again {
		m.shut(e, "interrupted_reclaimed", nil)
		if e.reclaims >= e.policy.maxReclaims() {
			m.reach("claim: lost too often")
			m.finish(e, "failed", &failure{"max_reclaims_exceeded", "infra_crash"}, "failed")
			return nil
		}
		e.reclaims++
	}
	e.epoch++
	o := &owner{number: len(m.owners) + 1, e: e, worker: by.worker, instance: by.instance, epoch: e.epoch, acquired: m.now}
	m.owners = append(m.owners, o)
	e.owner, e.expires = o, m.now+by.ttl
	kind, allowed := "", e.policy.attemptTimeout()
	e.resumed = false
	switch {
	case again:
		kind = "reclaimed"
		m.open(e, "reclaim", reason)
	case e.vector.attempt == "attempt_interrupted":
		kind = "resumed"
		if e.left > 0 {
			allowed, e.resumed = e.left, true
		}
		a := e.attempts[e.current]
		a.state, a.worker, a.instance, a.epoch = "started", o.worker, o.instance, o.epoch
	case e.vector.attempt == "pending_retry_attempt":
		kind = "retry"
		m.open(e, "retry", "")
	case e.vector.attempt == "pending_replay_attempt":
		kind = "replay"
		m.open(e, "replay", "")
	default:
		kind = "fresh"
		m.open(e, "initial", "")
	}
	m.reach("claim: " + kind)
	o.index = e.current
	e.vector, e.delay, e.grant, e.ending, e.left, e.timeout = leased(), 0, nil, nil, 0, 0
	if allowed > 0 {
		e.timeout = m.now + allowed
	}
	if e.started == 0 {
		e.started = m.now
	}
	if again {
		e.change("lease.reclaimed @" + number(e.epoch))
	} else {
		e.change("lease.acquired " + kind + " @" + number(e.epoch))
	}
	return &claimView{Execution: m.view(e), Kind: kind, Owner: o.number, Epoch: e.epoch, Index: e.current, Expires: m.at(e.expires)}
}

// open begins a new attempt of e's owner.
func (m *model) open(e *execution, kind, reclaim string) {
	e.attempts = append(e.attempts, &attempt{kind: kind, state: "started", worker: e.owner.worker, instance: e.owner.instance, epoch: e.epoch, started: m.now,
		reclaim: reclaim, previous: e.current})
	e.current = len(e.attempts) - 1
}

// shut ends the attempt that is under way or interrupted, if there is one.
func (m *model) shut(e *execution, state string, f *failure) {
	if e.vector.attempt == "running_attempt" || e.vector.attempt == "attempt_interrupted" {
		a := e.attempts[e.current]
		a.state, a.ended, a.failure = state, m.now, f
	}
}

// finish ends e; its attempt is shut already. executions.md 1.11.
func (m *model) finish(e *execution, outcome string, f *failure, reason string) {
	owned := e.vector.owner != "unowned"
	attempt := e.vector.attempt
	if e.current >= 0 {
		attempt = "attempt_terminal"
	}
	e.vector = terminal(outcome, attempt)
	m.closeSuspension(e, map[string]string{"cancelled": "cancelled", "expired": "expired:execution_deadline"}[outcome])
	e.completed, e.delay, e.timeout, e.expires, e.left, e.grant = m.now, 0, 0, 0, 0, nil
	if f != nil {
		e.failure = f
	}
	if outcome != "cancelled" {
		e.cancellation = nil
	}
	events := []string{"execution." + publicOf(e.vector)}
	if owned {
		events = append(events, "lease.revoked "+reason+" @"+number(e.epoch))
	}
	e.change(events...)
	m.reach("ended: " + outcome)
}

// cancelled ends e as cancelled; who asked first, and why, is kept.
func (m *model) cancelled(e *execution, reason string) {
	m.shut(e, "ended_cancelled", nil)
	if e.cancellation == nil {
		e.cancellation = &cancellation{reason: reason, requested: m.now}
	}
	m.finish(e, "cancelled", nil, "cancelled")
}
