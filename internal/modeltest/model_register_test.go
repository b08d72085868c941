package modeltest

import (
	"maps"
	"slices"
	"strings"
)

// tell adds an event of a lane or a worker.
func (m *model) tell(subject, event string) { m.events[subject] = append(m.events[subject], event) }

// turn is POST /v1/lanes/{lane}/pause or resume.
func (m *model) turn(lane string, pause bool, reason string) answer {
	l := m.lanes[lane]
	if l == nil {
		l = &laneState{}
		if pause {
			m.lanes[lane] = l
		}
	}
	if l.paused != pause {
		*l = laneState{paused: pause, changed: m.now, revision: l.revision + 1}
		if pause {
			l.reason = reason
			m.tell("lane "+lane, "lane.paused")
		} else {
			m.tell("lane "+lane, "lane.resumed")
		}
	}
	return m.laneView(lane)
}

// laneView is a lane as the API shows it by itself.
func (m *model) laneView(lane string) answer {
	l := m.lanes[lane]
	if l == nil {
		l = &laneState{}
	}
	state := "active"
	if l.paused {
		state = "paused"
	}
	return ok("lane", lane, "state", state, "reason", l.reason, "since", m.at(l.changed), "revision", number(l.revision))
}

// laneItem is a lane as lists show it, with what stands in it.
func (m *model) laneItem(lane string) answer {
	depth, oldest := 0, instant(0)
	for _, e := range m.executions {
		stands := e.phase == "runnable" && e.eligible == "eligible_now" || e.isLost()
		if e.lane == lane && stands && e.grant == nil {
			depth++
			if oldest == 0 || e.created < oldest {
				oldest = e.created
			}
		}
	}
	a := m.laneView(lane)
	a.Facts["depth"] = number(depth)
	if at := m.at(oldest); at != "" {
		a.Facts["oldest_at"] = at
	}
	return a
}

// listLanes is GET /v1/lanes.
func (m *model) listLanes() answer {
	names := map[string]bool{}
	for lane := range m.lanes {
		names[lane] = true
	}
	for _, e := range m.executions {
		names[e.lane] = true
	}
	a := ok()
	for _, lane := range slices.Sorted(maps.Keys(names)) {
		a.Items = append(a.Items, answer{Facts: m.laneItem(lane).Facts})
	}
	return a
}

// register is PUT /v1/workers/{instance}. executions.md 2.20.
func (m *model) register(instance, id string, lanes, capabilities []string, ttl int64) answer {
	old := m.live(instance)
	if old != nil && old.id != id {
		m.reach("refused: worker_reassigned")
		return refused("worker_reassigned")
	}
	if old == nil && m.workers[instance] != nil {
		m.reach("register: the sweep has not come by yet")
		m.tell(instance, "worker.heartbeat_lost")
	}
	w := &worker{id: id, lanes: lanes, capabilities: capabilities, ttl: ttl, registered: m.now, heartbeat: m.now, expires: m.now + ttl}
	status := 201
	if old != nil {
		status = 200
		w.registered, w.draining = old.registered, old.draining
	}
	if old == nil || old.ttl != ttl || !slices.Equal(old.lanes, lanes) || !slices.Equal(old.capabilities, capabilities) {
		m.tell(instance, "worker.registered")
	}
	m.workers[instance] = w
	a := m.workerView(instance)
	a.Status = status
	return a
}

func (m *model) workerView(instance string) answer {
	w := m.workers[instance]
	return ok("worker_instance_id", instance, "worker_id", w.id, "lanes", strings.Join(w.lanes, ","), "capabilities", strings.Join(w.capabilities, ","),
		"liveness_ttl_ms", number(w.ttl), "registered_at", m.at(w.registered), "last_heartbeat_at", m.at(w.heartbeat), "expires_at", m.at(w.expires),
		"draining_since", m.at(w.draining))
}

// listWorkers is GET /v1/workers.
func (m *model) listWorkers() answer {
	a := ok()
	for _, instance := range slices.Sorted(maps.Keys(m.workers)) {
		if m.live(instance) != nil {
			a.Items = append(a.Items, answer{Facts: m.workerView(instance).Facts})
		}
	}
	return a
}

// beat is POST /v1/workers/{instance}/heartbeat.
func (m *model) beat(instance string) answer {
	w := m.live(instance)
	if w == nil {
		return refused("worker_not_registered")
	}
	w.heartbeat, w.expires = m.now, m.now+w.ttl
	directives := ""
	if w.draining != 0 {
		directives = "drain"
	}
	return ok("expires_at", m.at(w.expires), "directives", directives)
}

// drain is POST /v1/workers/{instance}/drain.
func (m *model) drain(instance string) answer {
	w := m.live(instance)
	if w == nil {
		return refused("worker_not_registered")
	}
	if w.draining == 0 {
		w.draining = m.now
		m.tell(instance, "worker.drained")
	}
	return m.workerView(instance)
}

// remove is DELETE /v1/workers/{instance}.
func (m *model) remove(instance string) answer {
	if m.live(instance) == nil {
		return refused("worker_not_registered")
	}
	delete(m.workers, instance)
	m.tell(instance, "worker.removed")
	return answer{Status: 204}
}

// listLeases is GET /v1/leases.
func (m *model) listLeases() answer {
	a := ok()
	for _, e := range m.executions {
		if e.phase == "active" {
			a.Items = append(a.Items, ok("execution_id", e.name, "lane", e.lane, "ownership_state", e.vector.owner, "lease_id", "#"+number(e.owner.number),
				"lease_epoch", number(e.epoch), "worker_id", e.owner.worker, "worker_instance_id", e.owner.instance, "attempt_index", number(e.current),
				"acquired_at", m.at(e.owner.acquired), "expires_at", m.at(e.expires)))
		}
	}
	return a
}
