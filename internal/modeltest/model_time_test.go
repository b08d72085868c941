package modeltest

import "slices"

// pass makes everything happen that is due. executions.md 4.
func (m *model) pass() {
	for _, e := range m.executions {
		for m.passOne(e) {
		}
	}
	for _, e := range m.executions {
		m.expireWaitpoints(e)
	}
	for instance, w := range m.workers {
		if w.expires <= m.now {
			m.reach("due: heartbeat")
			delete(m.workers, instance)
			m.tell(instance, "worker.heartbeat_lost")
		}
	}
}

// passOne makes the first thing happen that is due for e.
func (m *model) passOne(e *execution) bool {
	due := func(t instant) bool { return t != 0 && t <= m.now }
	switch {
	case e.phase == "terminal":
		return false
	case e.cancelling() && (due(e.deadline) || due(e.cancellation.deadline)):
		m.reach("due: grace")
		m.cancelled(e, "")
		m.fence(e)
	case e.phase == "suspended" && due(e.suspension.timeout) && due(e.deadline) && e.suspension.timeout < e.deadline && e.suspension.behavior != "escalate":
		m.reach("due: suspension, and then deadline")
		m.suspensionTimesOut(e)
	case due(e.deadline):
		m.reach("due: deadline")
		why := &failure{"execution_deadline", "timeout"}
		m.shut(e, "ended_failure", why)
		m.finish(e, "expired", why, "timeout")
	case e.phase == "suspended" && due(e.suspension.timeout):
		m.suspensionTimesOut(e)
	case e.phase == "active" && due(e.timeout):
		m.reach("due: attempt timeout")
		if e.resumed && m.now < e.owner.acquired+e.policy.attemptTimeout() { // or nobody could tell
			m.reach("due: attempt timeout, of a resumed attempt")
		}
		m.failed(e, failure{"attempt_timeout", "timeout"}, nil, "expired")
	case e.cancelling() && due(e.expires):
		m.reach("due: lease, cancelling")
		m.cancelled(e, "")
		m.fence(e)
	case e.vector.owner == "leased" && due(e.expires):
		m.reach("due: lease")
		e.vector, e.expires = lost("lease_expired_reclaimable"), 0
		e.change("lease.expired timeout @" + number(e.epoch))
	case e.eligible == "not_eligible_until_time" && due(e.delay):
		m.reach("due: delay")
		e.vector, e.delay = waiting(e.vector.attempt), 0
		e.change("execution.eligible")
	case e.grant != nil && due(e.grant.expires):
		m.reach("due: grant")
		e.grant = nil
		e.change()
	default:
		return false
	}
	return true
}

// dues returns the times to come at which something happens.
func (m *model) dues() []instant {
	var all []instant
	add := func(times ...instant) {
		for _, t := range times {
			if t > m.now {
				all = append(all, t)
			}
		}
	}
	for _, e := range m.executions {
		add(e.deadline)
		if e.phase == "terminal" {
			continue
		}
		add(e.timeout, e.expires, e.delay)
		if e.phase == "suspended" {
			add(e.suspension.timeout)
		}
		for _, p := range e.waitpoints {
			if p.state == "pending" {
				add(p.expires)
			}
		}
		if e.grant != nil {
			add(e.grant.expires)
		}
		if e.cancelling() {
			add(e.cancellation.deadline)
		}
	}
	for _, w := range m.workers {
		add(w.expires)
	}
	slices.Sort(all)
	return slices.Compact(all)
}

// keyEnds returns the times to come at which an idempotency_key is free again.
func (m *model) keyEnds() []instant {
	var all []instant
	for _, k := range m.keys {
		if k.expires > m.now {
			all = append(all, k.expires)
		}
	}
	slices.Sort(all)
	return all
}
