package modeltest

// fence is the proof of ownership in a worker's call: that of an earlier acquisition, or none at all for an operator who
// overrides it.
type fence struct {
	owner    *owner
	forged   bool // it is nobody's
	override bool
}

func (f fence) is(o *owner) bool { return !f.override && !f.forged && f.owner == o }

// check is FENCE. executions.md 1.8; http.md "Codes".
func (m *model) check(e *execution, f fence) string {
	switch {
	case e.phase != "active":
		return "execution_not_active"
	case e.vector.owner == "lease_revoked":
		return "lease_revoked"
	case e.vector.owner == "lease_expired_reclaimable", e.expires <= m.now:
		return "lease_expired"
	case !f.override && !f.is(e.owner):
		return "stale_lease"
	}
	return ""
}

// directives are what every answer to a worker asks.
func (m *model) directives(e *execution) string {
	cancel, drain := e.cancelling(), e.owner != nil && m.draining(e.owner.instance)
	switch {
	case cancel && drain:
		m.reach("directives: cancel, drain")
		return "cancel,drain"
	case cancel:
		m.reach("directives: cancel")
		return "cancel"
	case drain:
		m.reach("directives: drain")
		return "drain"
	}
	return ""
}

// renew is POST …/renew.
func (m *model) renew(e *execution, f fence, ttl int64) answer {
	if code := m.check(e, f); code != "" {
		return refused(code)
	}
	e.expires = m.now + ttl
	e.change("lease.renewed @" + number(e.epoch))
	return ok("lease_expires_at", m.at(e.expires), "lease_epoch", number(e.epoch), "directives", m.directives(e))
}

// advance is POST …/progress.
func (m *model) advance(e *execution, f fence, pct *int, message *string) answer {
	if code := m.check(e, f); code != "" {
		return refused(code)
	}
	if message != nil && *message == "" {
		message = nil
	}
	if pct != nil || message != nil {
		p := progress{at: m.now}
		if e.progress != nil {
			p.pct, p.message = e.progress.pct, e.progress.message
		}
		if pct != nil {
			p.pct = pct
		}
		if message != nil {
			p.message = message
		}
		e.progress = &p
		e.change("execution.progressed")
	}
	return ok("directives", m.directives(e))
}

// report is a call that ends an ownership. The same one by the same owner is answered again. executions.md 2.12.
func (m *model) report(op string, e *execution, f fence, do func(end *ending)) answer {
	if e.ending != nil && e.ending.op == op && f.is(e.ending.owner) {
		m.reach("replayed: " + op)
		return m.reported(e, e.ending, "true")
	}
	if code := m.check(e, f); code != "" {
		m.reach("refused: " + code)
		return refused(code)
	}
	if f.override {
		e.events = append(e.events, "operator.reported "+op)
	}
	if e.cancelling() {
		m.reach("cancelling, and then " + op)
	}
	end := &ending{op: op, owner: e.owner}
	do(end)
	if e.ending = end; f.override { // it was not the owner's
		e.ending = nil
	}
	return m.reported(e, end, "false")
}

func (m *model) reported(e *execution, end *ending, replayed string) answer {
	return ok("replayed", replayed, "directives", m.directives(e), "outcome", end.outcome, "delay_until", m.at(end.retry)).showing(m.view(e))
}

// complete is POST …/complete.
func (m *model) complete(e *execution, f fence, result string) answer {
	return m.report("complete", e, f, func(*ending) {
		m.shut(e, "ended_success", nil)
		e.result = result
		m.finish(e, "success", nil, "completed")
	})
}

// fail is POST …/fail. executions.md 2.9.
func (m *model) fail(e *execution, f fence, why failure, after *int64) answer {
	return m.report("fail", e, f, func(end *ending) {
		m.failed(e, why, after, "failed")
		switch publicOf(e.vector) {
		case "delayed":
			end.outcome, end.retry = "retry_scheduled", e.delay
		case "cancelled":
			end.outcome = "cancelled"
		default:
			end.outcome = "terminal_failed"
		}
	})
}

// failed ends an attempt that did not succeed; outcome is that of the execution if there is no other attempt.
func (m *model) failed(e *execution, why failure, after *int64, outcome string) {
	m.shut(e, "ended_failure", &why)
	switch {
	case e.cancelling():
		m.finish(e, "cancelled", &why, "cancelled")
	case !e.policy.retries(why.category, e.retries):
		reason := "failed"
		if outcome == "expired" {
			reason = "timeout"
		}
		m.finish(e, outcome, &why, reason)
	default:
		e.delay = m.now + or(after, e.policy.wait(e.retries))
		e.retries++
		e.failure = &why
		e.vector, e.timeout, e.expires, e.left = delayed("waiting_for_retry_backoff", "pending_retry_attempt"), 0, 0, 0
		e.grant = nil
		e.change("lease.revoked retry_scheduled @"+number(e.epoch), "execution.delayed")
	}
}

// giveBack ends an ownership and not the attempt.
func (m *model) giveBack(op, reason string, e *execution, f fence, to vector, until instant) answer {
	return m.report(op, e, f, func(*ending) {
		if e.cancelling() {
			m.cancelled(e, "")
			return
		}
		e.attempts[e.current].state = "suspended"
		if e.timeout != 0 {
			e.left = max(1, e.timeout-m.now)
		}
		e.vector, e.delay, e.timeout, e.expires = to, until, 0, 0
		told := map[string]string{"waiting": "execution.eligible", "delayed": "execution.delayed", "waiting_children": "execution.blocked"}[publicOf(to)]
		e.change("lease.revoked "+reason+" @"+number(e.epoch), told)
	})
}

// release is POST …/release.
func (m *model) release(e *execution, f fence) answer {
	return m.giveBack("release", "released", e, f, waiting("attempt_interrupted"), 0)
}

// putOff is POST …/delay. A time that is not in the future lets e go on at once.
func (m *model) putOff(e *execution, f fence, until instant) answer {
	if until > m.now {
		return m.giveBack("delay", "delayed", e, f, delayed("waiting_for_delay", "attempt_interrupted"), until)
	}
	return m.giveBack("delay", "delayed", e, f, waiting("attempt_interrupted"), 0)
}

// waitChildren is POST …/wait-children.
func (m *model) waitChildren(e *execution, f fence) answer {
	return m.giveBack("wait_children", "waiting_children", e, f, forChildren(), 0)
}

// abandon is POST …/cancel, by the holder.
func (m *model) abandon(e *execution, f fence, reason string) answer {
	return m.report("cancel", e, f, func(*ending) { m.cancelled(e, reason) })
}
