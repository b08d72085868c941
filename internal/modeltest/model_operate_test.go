package modeltest

// stop is POST …/operator-cancel.
func (m *model) stop(e *execution, reason string, grace int64) answer {
	shown := func() answer { return answer{Status: 200}.showing(m.view(e)) }
	switch {
	case e.outcome == "cancelled":
		m.reach("operator-cancel: it is cancelled")
		return shown()
	case e.phase == "terminal":
		return refused("already_terminal")
	case grace <= 0 || !m.held(e):
		if e.cancelling() {
			m.reach("operator-cancel: no more grace")
		}
		e.events = append(e.events, "operator.cancelled")
		m.cancelled(e, reason)
		m.fence(e)
		return shown()
	}
	until := m.now + grace
	if c := e.cancellation; c != nil {
		if until >= c.deadline {
			m.reach("operator-cancel: more grace")
			return shown()
		}
		m.reach("operator-cancel: less grace")
		e.cancellation = &cancellation{c.reason, c.requested, until}
	} else {
		m.reach("operator-cancel: grace")
		e.cancellation = &cancellation{reason, m.now, until}
	}
	e.change("operator.cancelled", "execution.cancelling")
	return shown()
}

// fence shuts the last owner out: what an operator ends has a new epoch, if it ever had one.
func (m *model) fence(e *execution) {
	if e.epoch > 0 {
		e.epoch++
	}
}

// revoke is POST …/revoke-lease. instance "" and lease 0 mean any.
func (m *model) revoke(e *execution, instance string, lease int) answer {
	satisfied := func(why string) answer {
		m.reach("revoke-lease: " + why)
		return ok("outcome", "already_satisfied", "reason", why, "lease_epoch", number(e.epoch))
	}
	switch {
	case e.phase != "active":
		return refused("execution_not_active")
	case e.vector.owner == "lease_revoked":
		return satisfied("already_revoked")
	case !m.held(e):
		return satisfied("already_expired")
	case instance != "" && instance != e.owner.instance:
		return satisfied("different_worker_instance_id")
	case lease != 0 && lease != e.owner.number:
		return refused("stale_lease")
	}
	e.events = append(e.events, "operator.lease_revoked")
	if e.cancelling() {
		m.reach("cancelling, and then revoke-lease")
		m.cancelled(e, "")
	} else {
		e.vector, e.expires = lost("lease_revoked"), 0
		e.change("lease.revoked operator @" + number(e.epoch))
	}
	m.fence(e)
	return ok("outcome", "revoked", "lease_epoch", number(e.epoch))
}

// prioritise is PUT …/priority.
func (m *model) prioritise(e *execution, priority int) answer {
	if e.phase != "runnable" {
		return refused("execution_not_eligible")
	}
	if priority = max(0, min(priority, 9000)); priority != e.priority {
		e.priority = priority
		e.change("operator.priority_changed")
	}
	return answer{Status: 200}.showing(m.view(e))
}

// replay is POST …/replay.
func (m *model) replay(e *execution) answer {
	switch {
	case e.phase != "terminal":
		return refused("execution_not_terminal")
	case e.replays >= e.policy.maxReplays():
		m.reach("refused: max_replays_exhausted")
		return refused("max_replays_exhausted")
	}
	m.reach("replay: " + e.outcome)
	e.vector = waiting("pending_replay_attempt")
	e.replays++
	e.retries, e.reclaims, e.completed = 0, 0, 0
	e.result, e.failure, e.cancellation, e.progress = "", nil, nil, nil
	switch {
	case e.policy.deadline() > 0:
		e.deadline = m.now + e.policy.deadline()
	case e.deadline <= m.now:
		if e.deadline == m.now {
			m.reach("replay: at the deadline")
		}
		e.deadline = 0
	}
	e.change("operator.replayed", "execution.eligible")
	return answer{Status: 200}.showing(m.view(e))
}

// resume is POST …/resume.
func (m *model) resume(e *execution, delay int64) answer {
	if e.phase == "suspended" {
		return m.resumeSuspended(e, delay)
	}
	if publicOf(e.vector) != "waiting_children" {
		return refused("not_suspended")
	}
	if delay > 0 {
		m.reach("resume: later")
		e.vector, e.delay = delayed("waiting_for_resume_delay", "attempt_interrupted"), m.now+delay
		e.change("operator.resumed", "execution.delayed")
	} else {
		e.vector = waiting("attempt_interrupted")
		e.change("operator.resumed", "execution.eligible")
	}
	return answer{Status: 200}.showing(m.view(e))
}

// claimByHand is POST …/operator-claim.
func (m *model) claimByHand(e *execution, ttl int64) answer {
	interrupted := e.vector.attempt == "attempt_interrupted"
	switch {
	case e.phase == "active" && e.vector.owner == "leased":
		return refused("lease_conflict")
	case e.phase != "runnable":
		return refused("execution_not_eligible")
	case m.granted(e):
		m.reach("operator-claim: grant_exists")
		return refused("grant_exists")
	case !interrupted && e.eligible != "eligible_now":
		return refused("execution_not_eligible")
	}
	if e.eligible != "eligible_now" {
		m.reach("operator-claim: before its time")
	}
	e.events = append(e.events, "operator.claimed")
	a := ok()
	a.Claims = []claimView{*m.take(e, claimant{worker: "operator", instance: "operator", ttl: ttl})}
	return a
}

// setTag is PUT …/tags/{key}.
func (m *model) setTag(e *execution, key, value string) answer {
	if e.tags[key] != value {
		e.tags[key] = value
		e.change("execution.tag_set")
	}
	return ok("key", key, "value", value)
}
