package watch

import "github.com/flowapi/flowapi/internal/client"

// still says whether nothing moves by itself in a flow that has not ended: no member is at work, waits for a worker or for a time, and
// the flow waits for no clock and no other system.
func still(s *Snapshot) bool {
	if s.Flow.Ended() || s.Flow.Wait != nil && !manual(&s.Flow.Wait.Condition) {
		return false
	}
	asking := s.Flow.Wait != nil
	for i := range s.Graph.Nodes {
		switch n := &s.Graph.Nodes[i]; {
		case n.PublicState == "suspended":
			asking = true
		case n.PublicState != "waiting_children" && !n.Ended():
			return false
		}
	}
	return asking
}

// asksOnly says whether all that a still flow waits for are people: each suspended member asks one, or an operator.
func asksOnly(s *Snapshot) bool {
	asks := map[string]bool{}
	for i := range s.Asks {
		asks[s.Asks[i].ExecutionID] = true
	}
	for i := range s.Graph.Nodes {
		n := &s.Graph.Nodes[i]
		if n.PublicState == "suspended" && !asks[n.ID] && n.BlockingReason != "paused_by_operator" {
			return false
		}
	}
	return true
}

// manual says whether only a person can meet a condition.
func manual(c *client.Condition) bool {
	for i := range c.Of {
		if !manual(&c.Of[i]) {
			return false
		}
	}
	return c.Kind == "manual" || len(c.Of) > 0
}
