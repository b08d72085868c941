package modeltest

import (
	"bytes"
	"cmp"
	"encoding/json"
	"net/http"
	"net/url"
	"slices"
	"time"

	"github.com/flowapi/flowapi/internal/handlers/oapi"
)

// rarely fits never: what it belongs to is drawn now and then.
func rarely(*world) bool { return false }

func reading() []kind {
	list := func(path string, model func(w *world) answer) func(w *world) {
		return func(w *world) {
			w.ask(model(w), false, func(*side) request { return request{method: http.MethodGet, path: path} })
		}
	}
	return []kind{
		{"explain", 3, nil, explain},
		{"list workers", 1, rarely, list("/v1/workers", func(w *world) answer { return w.listWorkers() })},
		{"list lanes", 1, rarely, list("/v1/lanes", func(w *world) answer { return w.listLanes() })},
		{"list leases", 1, rarely, leases},
		{"list executions", 1, rarely, func(w *world) {
			lane, state, holder := draw(w, "lane", "", laneNames[0]), draw(w, "state", "", "", "waiting", "delayed", "active", "completed", "cancelled"), draw(w, "worker", "", "", "w1")
			query := url.Values{"limit": {"500"}}
			for name, value := range map[string]string{"lane": lane, "public_state": state, "worker": holder} {
				if value != "" {
					query.Set(name, value)
				}
			}
			w.ask(w.list(lane, state, holder), false, func(*side) request {
				return request{method: http.MethodGet, path: "/v1/executions?" + query.Encode()}
			})
		}},
		{"count executions", 1, rarely, func(w *world) {
			by := draw(w, "group_by", "public_state", "lane")
			w.ask(w.count(by), false, func(*side) request {
				return request{method: http.MethodGet, path: "/v1/executions/counts?group_by=" + by}
			})
		}},
		{"missing", 1, rarely, missing},
	}
}

// explain compares every execution's explanation with what a claim would get: of a worker with every capability, with some,
// or of one that is registered.
func explain(w *world) {
	query, capable := "", func([]string) bool { return true }
	refusal := ""
	switch draw(w, "asker", "any", "capabilities", "worker") {
	case "capabilities":
		has := draw(w, "capabilities", []string{"x", "y"}, []string{"x"}, []string{"y"}, []string{"z"})
		capable = func(needs []string) bool { return within(needs, has) }
		query = "?" + url.Values{"capability": has}.Encode()
	case "worker":
		instance := draw(w, "instance", "i1", "i2", "i3")
		query = "?worker_instance_id=" + instance
		if live := w.live(instance); live != nil {
			capable = func(needs []string) bool { return live.draining == 0 && within(needs, live.capabilities) }
		} else {
			refusal = "worker_not_registered"
		}
	}
	for _, e := range w.executions {
		want := w.claimable(e, capable)
		w.tellStory("GET explain%s of %s -> %t %s", query, e.name, want, refusal)
		w.each(func(s *side) {
			got := s.Get(path(e, "explain") + query)
			if refusal != "" {
				if code := s.answer(got).Code; code != refusal {
					s.Failf("the answer is %d %s and not %s\n%s", got.Status, code, refusal, got.Body)
				}
				return
			}
			x := decode[oapi.Explanation](got.Want(http.StatusOK).Body)
			unmet := slices.ContainsFunc(x.Gates, func(g oapi.Gate) bool { return !g.Met })
			if x.Claimable != want || unmet == want || string(x.PublicState) != publicOf(e.vector) || x.Summary == "" {
				s.Failf("%s is explained as claimable %t, and it is %t\n%s", e.name, x.Claimable, want, got.Body)
			}
			for _, g := range x.Gates {
				if g.Met != (g.Hint == "") {
					s.Failf("gate %s is met %t and has the hint %q\n%s", g.Gate, g.Met, g.Hint, got.Body)
				}
			}
		})
		w.did[w.kind]++
		if want {
			w.reach("explain: claimable")
		}
	}
}

// list is GET /v1/executions, the newest first.
func (m *model) list(lane, state, holder string) answer {
	a := ok()
	for _, e := range m.executions {
		if (lane == "" || lane == e.lane) && (state == "" || state == publicOf(e.vector)) && (holder == "" || e.vector.owner == "leased" && e.owner.worker == holder) {
			a.Items = append(a.Items, answer{}.showing(m.view(e)))
		}
	}
	slices.SortFunc(a.Items, func(x, y answer) int {
		one, other := m.named(x.Shown[0].Name), m.named(y.Shown[0].Name)
		return cmp.Or(cmp.Compare(other.created, one.created), bytes.Compare(other.id[:], one.id[:]))
	})
	return a
}

func (m *model) named(name string) *execution {
	return m.executions[slices.IndexFunc(m.executions, func(e *execution) bool { return e.name == name })]
}

// count is GET /v1/executions/counts.
func (m *model) count(by string) answer {
	counts := map[string]int{}
	for _, e := range m.executions {
		if by == "lane" {
			counts[e.lane]++
		} else {
			counts[publicOf(e.vector)]++
		}
	}
	return ok("group_by", by, "counts", string(must(json.Marshal(counts))), "total", number(len(m.executions)))
}

// leases compares who holds what. The order is that of expiry, the lost ones first.
func leases(w *world) {
	all := w.listLeases()
	w.tellStory("GET /v1/leases -> %d", len(all.Items))
	w.each(func(s *side) {
		want := ok()
		want.Items = slices.Clone(all.Items)
		got := s.answer(s.Get("/v1/leases?limit=500").Want(http.StatusOK))
		for i := 1; i < len(got.Items); i++ {
			if was, is := got.Items[i-1].Facts["expires_at"], got.Items[i].Facts["expires_at"]; cmp.Compare(offset(was), offset(is)) > 0 {
				s.Failf("a lease to %q is listed after one to %q", is, was)
			}
		}
		for _, list := range [][]answer{want.Items, got.Items} {
			slices.SortFunc(list, func(a, b answer) int { return cmp.Compare(a.Facts["execution_id"], b.Facts["execution_id"]) })
			for i := range list {
				list[i].Status = 0
			}
		}
		s.same(want, got)
	})
	w.did[w.kind]++
}

// offset orders times as they are shown; none is before all.
func offset(shown string) time.Duration {
	if shown == "" {
		return -1 << 62
	}
	return must(time.ParseDuration(shown))
}

// missing asks something of an execution that is not there.
func missing(w *world) {
	by := map[string]any{"lease_id": unknown, "lease_epoch": 1, "attempt_id": unknown}
	use := map[string]any{"grant_id": unknown, "worker_id": "w1", "worker_instance_id": "i9"}
	r := draw(w, "request",
		request{method: http.MethodPost, path: "complete", body: map[string]any{"fence": by}},
		request{method: http.MethodPost, path: "fail", body: map[string]any{"fence": by, "reason": "boom"}},
		request{method: http.MethodPost, path: "renew", body: map[string]any{"fence": by}},
		request{method: http.MethodPost, path: "delay", body: map[string]any{"fence": by, "delay_ms": 1}},
		request{method: http.MethodPost, path: "wait-children", body: map[string]any{"override": true}},
		request{method: http.MethodPost, path: "cancel", body: map[string]any{"fence": by}},
		request{method: http.MethodPost, path: "operator-cancel", body: map[string]any{"reason": "enough"}, headers: []string{`If-Match: "1"`}},
		request{method: http.MethodPost, path: "revoke-lease"},
		request{method: http.MethodPut, path: "priority", body: map[string]any{"priority": 1}},
		request{method: http.MethodPost, path: "replay"},
		request{method: http.MethodPost, path: "resume"},
		request{method: http.MethodPost, path: "operator-claim"},
		request{method: http.MethodPost, path: "claim", body: use},
		request{method: http.MethodPost, path: "reclaim", body: use},
		request{method: http.MethodPost, path: "reclaim-grants", body: map[string]any{"worker_id": "w1", "worker_instance_id": "i9", "grant_ttl_ms": 1}},
		request{method: http.MethodGet, path: "explain"},
		request{method: http.MethodPut, path: "tags/team.name", body: map[string]any{"value": "red"}},
	)
	r.path = "/v1/executions/" + unknown.String() + "/" + r.path
	w.ask(refused("not_found"), false, func(*side) request { return r })
	w.did[w.kind]++
}
