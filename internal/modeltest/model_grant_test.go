package modeltest

// grantClaim is POST /v1/workers/{worker_id}/claim-grants.
func (m *model) grantClaim(lane string, by claimant, ttl int64) answer {
	if m.draining(by.instance) {
		m.reach("refused: worker_draining")
		return refused("worker_draining")
	}
	all := m.candidates([]string{lane}, by.capabilities, false)
	if len(all) == 0 {
		return answer{Status: 204}
	}
	return m.reserve(all[0], "claim", by.worker, ttl)
}

// reserve gives a grant. It has no event.
func (m *model) reserve(e *execution, kind, worker string, ttl int64) answer {
	g := &grant{number: len(m.grants) + 1, e: e, kind: kind, worker: worker, expires: m.now + ttl}
	m.grants = append(m.grants, g)
	e.grant = g
	e.change()
	return ok("grant_id", number(g.number), "execution_id", e.name, "lane", e.lane, "kind", kind, "expires_at", m.at(g.expires))
}

// claimGranted is POST …/claim. g is nil for a grant that never was.
func (m *model) claimGranted(e *execution, g *grant, by claimant) answer {
	code := ""
	switch {
	case m.draining(by.instance):
		code = "worker_draining"
	case e.phase == "active":
		code = "lease_conflict"
	case e.phase != "runnable" || e.eligible != "eligible_now" || m.paused(e.lane):
		code = "execution_not_leaseable"
	case e.grant == nil || e.grant != g || g.kind != "claim" || g.worker != by.worker:
		code = "invalid_claim_grant"
	case g.expires <= m.now:
		code = "claim_grant_expired"
	}
	if code != "" {
		m.reach("claim with a grant: " + code)
		return refused(code)
	}
	a := ok()
	a.Claims = []claimView{*m.take(e, by)}
	return a
}

// grantReclaim is POST …/reclaim-grants. A lease that has elapsed counts as lost, whether that was noted or not.
func (m *model) grantReclaim(e *execution, by claimant, ttl int64) answer {
	elapsed := e.phase == "active" && e.vector.owner == "leased" && e.expires <= m.now && !e.cancelling()
	code := ""
	switch {
	case m.draining(by.instance):
		code = "worker_draining"
	case !elapsed && !e.isLost():
		code = "not_reclaimable"
	case m.paused(e.lane):
		code = "execution_not_leaseable"
	case !within(e.needs, by.capabilities):
		code = "capability_mismatch"
	case m.granted(e):
		code = "grant_exists"
	case e.reclaims >= e.policy.maxReclaims():
		code = "reclaim_cap_exceeded"
	}
	if code != "" {
		m.reach("reclaim-grants: " + code)
		return refused(code)
	}
	if elapsed {
		m.reach("reclaim-grants: elapsed")
		e.vector, e.expires = lost("lease_expired_reclaimable"), 0
		e.events = append(e.events, "lease.expired timeout @"+number(e.epoch))
	}
	return m.reserve(e, "reclaim", by.worker, ttl)
}

// reclaimGranted is POST …/reclaim.
func (m *model) reclaimGranted(e *execution, g *grant, by claimant) answer {
	code := ""
	switch {
	case m.draining(by.instance):
		code = "worker_draining"
	case !e.isLost():
		code = "not_reclaimable"
	case m.paused(e.lane):
		code = "execution_not_leaseable"
	case e.grant == nil || e.grant != g || g.kind != "reclaim" || g.expires <= m.now:
		code = "grant_not_found"
	case g.worker != by.worker:
		code = "invalid_claim_grant"
	}
	if code != "" {
		m.reach("reclaim with a grant: " + code)
		return refused(code)
	}
	a := ok()
	a.Claims = []claimView{*m.take(e, by)}
	return a
}

// claimable says whether a poll of e's lane that also takes over would get e now, if nothing stood before it.
func (m *model) claimable(e *execution, capable func(needs []string) bool) bool {
	switch {
	case e.grant != nil || m.paused(e.lane) || !capable(e.needs):
		return false
	case e.isLost():
		return e.reclaims < e.policy.maxReclaims()
	}
	return e.phase == "runnable" && e.eligible == "eligible_now"
}
