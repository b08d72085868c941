package app_test

import (
	"net/http"
	"net/url"
	"slices"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/google/uuid"

	"github.com/flowapi/flowapi/internal/domain/fault"
	"github.com/flowapi/flowapi/internal/handlers/oapi"
)

// leases lists the leases in the case's lane, walking through pages of two.
func (x *executionTest) leases(query string) []oapi.Lease {
	x.t.Helper()
	var all []oapi.Lease
	for path := "/v1/leases?limit=2&lane=" + x.lane + "&" + query; path != ""; {
		answer := x.Get(path).Want(http.StatusOK)
		p := answerAs[oapi.LeaseList](answer)
		all = append(all, p.Items...)
		path = nextPage(x.t, answer, p.NextCursor)
	}
	return all
}

// TestExecutions_Lists: executions.md 6.1/15, 16, 20, 21 and 2.20, list_expired_leases.
func TestExecutions_Lists(t *testing.T) {
	t.Parallel()
	runExecutionCases(t, executionsListsCases)
}

var executionsListsCases = []executionCase{
	{"by when they were created: from a time on, and before it", func(x *executionTest) {
		var made []oapi.Execution
		for range 4 {
			made = append(made, x.create(""))
			x.advance(time.Second)
		}
		at := func(i int, off time.Duration) string {
			return url.QueryEscape(made[i].CreatedAt.Time().Add(off).UTC().Format("2006-01-02T15:04:05.000Z07:00"))
		}
		for query, want := range map[string][]int{
			"created_after=" + at(1, 0):                                                       {3, 2, 1},
			"created_after=" + at(1, time.Millisecond):                                        {3, 2},
			"created_before=" + at(1, 0):                                                      {0},
			"created_before=" + at(1, time.Millisecond):                                       {1, 0},
			"created_after=" + at(1, 0) + "&created_before=" + at(3, 0):                       {2, 1},
			"created_after=" + at(3, time.Hour):                                               nil,
			"created_before=" + at(0, 0):                                                      nil,
			"created_after=" + at(0, 0) + "&created_before=" + at(0, 0):                       nil,
			"created_after=" + at(2, 0) + "&public_state=waiting":                             {3, 2},
			"created_after=2001-01-01T00%3A00%3A00%2B01%3A00":                                 {3, 2, 1, 0},
			"created_before=" + at(3, 0) + "&limit=2":                                         {2, 1, 0},
			"created_after=" + at(1, 0) + "&created_before=" + at(3, 0) + "&limit=1":          {2, 1},
			"created_after=" + at(0, -time.Hour) + "&created_before=" + at(3, 0) + "&limit=1": {2, 1, 0},
		} {
			got, _ := x.pages("/v1/executions?lane="+x.lane+"&"+query, nil)
			var ids []uuid.UUID
			for _, i := range want {
				ids = append(ids, made[i].ID)
			}
			if diff := cmp.Diff(ids, got); diff != "" {
				x.t.Errorf("%s (-want +got):\n%s", query, diff)
			}
		}
		for _, name := range []string{"created_after", "created_before"} {
			for _, value := range []string{"yesterday", "1700000000000", "2026-11-22T09:30:00"} {
				if answer := x.Get("/v1/executions?" + name + "=" + value); answer.Status != http.StatusBadRequest && answer.Status != http.StatusUnprocessableEntity {
					x.t.Errorf("%s=%s: %d", name, value, answer.Status)
				}
			}
		}
	}},
	{"the suspended ones are a list of their own (6.1/21)", func(x *executionTest) {
		y := x.in("suspended-" + x.lane)
		if got, pages := y.pages("/v1/executions?public_state=suspended", nil); got != nil || pages != 1 {
			x.t.Errorf("%v", got)
		}
		var want []uuid.UUID
		for range 5 {
			e, _ := y.suspended("")
			want = append(want, e.ID)
		}
		y.create("")
		slices.Reverse(want)
		got, pages := y.pages("/v1/executions?public_state=suspended&limit=2", nil)
		if diff := cmp.Diff(want, got); diff != "" || pages != 3 {
			x.t.Errorf("%d pages (-want +got):\n%s", pages, diff)
		}
	}},
	{"counted by state and by lane", func(x *executionTest) {
		y := x.in("counts-" + x.lane)
		count := func(query string) oapi.ExecutionCounts {
			x.t.Helper()
			return answerAs[oapi.ExecutionCounts](y.Get("/v1/executions/counts" + query).Want(http.StatusOK))
		}
		if diff := cmp.Diff(oapi.ExecutionCounts{GroupBy: "public_state", Counts: map[string]int64{}}, count("")); diff != "" {
			x.t.Errorf("of nothing (-want +got):\n%s", diff)
		}
		if diff := cmp.Diff(oapi.ExecutionCounts{GroupBy: "lane", Counts: map[string]int64{}}, count("?group_by=lane")); diff != "" {
			x.t.Errorf("of nothing (-want +got):\n%s", diff)
		}
		for _, outcome := range terminals {
			y.ended(outcome, "")
		}
		y.ended("completed", "")
		y.create("")
		y.claim(lasting)
		y.create("")
		y.claim(`"lease_ttl_ms":1000`)
		y.advance(time.Second) // lost, and still active
		y.create("")
		y.report(y.claim(`"reclaim":false,`+lasting), "wait-children", "").Want(http.StatusOK)
		y.create(`"delay_ms":3600000`)
		y.on("other").create("")
		states := map[string]int64{"completed": 2, "failed": 1, "cancelled": 1, "expired": 1, "active": 2, "waiting_children": 1, "delayed": 1, "waiting": 1}
		for _, query := range []string{"", "?group_by=public_state"} {
			if diff := cmp.Diff(oapi.ExecutionCounts{GroupBy: "public_state", Counts: states, Total: 10}, count(query)); diff != "" {
				x.t.Errorf("(-want +got):\n%s", diff)
			}
		}
		lanes := map[string]int64{x.lane: 9, x.lane + "-other": 1}
		if diff := cmp.Diff(oapi.ExecutionCounts{GroupBy: "lane", Counts: lanes, Total: 10}, count("?group_by=lane")); diff != "" {
			x.t.Errorf("(-want +got):\n%s", diff)
		}
		for state, n := range states { // as the lists have it
			if got := y.Get("/v1/executions?public_state=" + state).Want(http.StatusOK).Len("items"); int64(got) != n {
				x.t.Errorf("%d are listed as %s", got, state)
			}
		}
		y.Get("/v1/executions/counts?group_by=kind").Problem(fault.CodeValidationFailed)
	}},
	{"leases: who holds what, and what was lost", func(x *executionTest) {
		if got := x.leases(""); got != nil {
			x.t.Errorf("%+v", got)
		}
		f := x.Post("/v1/flows", `{"goal":"x","start":true}`).Want(http.StatusCreated).Str("id")
		var claims []oapi.Claim
		for i, ttl := range []string{"1000", "3600000", "1800000", "1000", "7200000"} {
			x.create([]string{`"kind":"shell","flow_id":"` + f + `"`, "", "", "", ""}[i])
			claims = append(claims, x.claim(`"reclaim":false,"worker_id":"`+[]string{"a", "a", "b", "b", "b"}[i]+`","worker_instance_id":"i`+string(rune('0'+i))+`","lease_ttl_ms":`+ttl))
		}
		x.create("")
		x.advance(time.Second) // 0 and 3 are lost
		x.operator(claims[4].Execution.ID, "revoke-lease", "").Want(http.StatusOK)
		lost := []oapi.Claim{claims[0], claims[3], claims[4]}
		slices.SortFunc(lost, func(a, b oapi.Claim) int { return slices.Compare(a.Execution.ID[:], b.Execution.ID[:]) })
		all := append(lost, claims[2], claims[1])
		lease := func(c oapi.Claim) oapi.Lease {
			e := x.get(c.Execution.ID)
			was := c.Execution.CurrentLease
			l := oapi.Lease{ExecutionID: e.ID, FlowID: e.FlowID, Lane: e.Lane, Kind: e.Kind, OwnershipState: e.StateVector.OwnershipState, LeaseID: was.LeaseID, LeaseEpoch: was.LeaseEpoch,
				WorkerID: was.WorkerID, WorkerInstanceID: was.WorkerInstanceID, AttemptIndex: 0, AcquiredAt: was.AcquiredAt}
			if l.OwnershipState == "leased" {
				l.ExpiresAt = &was.ExpiresAt
			}
			if l.OwnershipState == "lease_revoked" {
				l.LeaseEpoch++
			}
			return l
		}
		soon, later := spelled(claims[2].LeaseExpiresAt.Time()), spelled(claims[2].LeaseExpiresAt.Time().Add(-time.Millisecond))
		for query, want := range map[string][]oapi.Claim{
			"":                                                      all,
			"worker_id=a":                                           {claims[0], claims[1]},
			"worker_id=nobody":                                      nil,
			"worker_instance_id=i2":                                 {claims[2]},
			"worker_id=a&worker_instance_id=i2":                     nil,
			"expired_as_of=" + later[1:len(later)-1]:                lost,
			"expired_as_of=" + soon[1:len(soon)-1]:                  append(slices.Clone(lost), claims[2]),
			"expired_as_of=2101-01-01T00:00:00Z":                    all,
			"expired_as_of=2001-01-01T00:00:00Z":                    lost, // whenever it was that they were lost
			"expired_as_of=2101-01-01T00:00:00Z&worker_id=a":        {claims[0], claims[1]},
			"expired_as_of=" + soon[1:len(soon)-1] + "&worker_id=a": {claims[0]},
		} {
			var wanted []oapi.Lease
			for _, c := range want {
				wanted = append(wanted, lease(c))
			}
			if diff := cmp.Diff(wanted, x.leases(query)); diff != "" {
				x.t.Errorf("%s (-want +got):\n%s", query, diff)
			}
		}
		for _, l := range x.leases("") {
			if (l.ExpiresAt == nil) != (l.OwnershipState != "leased") {
				x.t.Errorf("%+v", l)
			}
		}
		x.report(claims[1], "complete", "").Want(http.StatusOK)
		x.report(claims[2], "release", "").Want(http.StatusOK)
		taken := x.claims(`"max":100,"worker_id":"c",` + lasting)
		got := x.leases("")
		if len(taken) != 5 || len(got) != 5 || len(x.leases("worker_id=c")) != 5 {
			x.t.Errorf("%d taken, %+v", len(taken), got)
		}
	}},
	{"leases: of the namespace, and what is no page", func(x *executionTest) {
		x.create("")
		x.claim(lasting)
		if n := x.in("theirs").Get("/v1/leases?lane=" + x.lane).Want(http.StatusOK).Len("items"); n != 0 {
			x.t.Errorf("%d leases are theirs", n)
		}
		for query, code := range map[string]fault.Code{"limit=0": fault.CodeValidationFailed, "limit=501": fault.CodeValidationFailed, "limit=x": fault.CodeInvalidParameter,
			"cursor=x": fault.CodeInvalidCursor, "cursor=AAAA": fault.CodeInvalidCursor, "bogus=1": fault.CodeValidationFailed, "worker_id=a%20b": fault.CodeInvalidParameter} {
			x.Get("/v1/leases?" + query).Problem(code)
		}
	}},
	{"leases: many that run out at the same time, none skipped (2.20)", func(x *executionTest) {
		const n = 9
		for range n {
			x.create("")
		}
		claims := x.claims(`"max":9,"lease_ttl_ms":60000`)
		seen := map[uuid.UUID]int{}
		for _, l := range x.leases("") {
			seen[l.ExecutionID]++
		}
		x.advance(time.Minute)
		for _, l := range x.leases("expired_as_of=2101-01-01T00:00:00Z") {
			seen[l.ExecutionID]++
		}
		for _, c := range claims {
			if seen[c.Execution.ID] != 2 {
				x.t.Errorf("%s was seen %d times", c.Execution.ID, seen[c.Execution.ID])
			}
		}
		if len(seen) != n {
			x.t.Errorf("%d leases", len(seen))
		}
	}},
}
