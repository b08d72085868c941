package app_test

import (
	"fmt"
	"net/http"
	"slices"
	"strings"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/google/uuid"

	"github.com/flowapi/flowapi/internal/domain/fault"
	"github.com/flowapi/flowapi/internal/handlers/oapi"
)

// listed lists runs by the names that a case has given them in parent_run_id.
func (x *runTest) listed(query string) []string {
	x.t.Helper()
	names := []string{}
	for _, r := range x.list(query) {
		names = append(names, orNone(r.ParentRunID))
	}
	return names
}

// lists checks what some queries list.
func (x *runTest) lists(want map[string][]string) {
	x.t.Helper()
	for query, names := range want {
		if diff := cmp.Diff(names, x.listed(query)); diff != "" {
			x.t.Errorf("%s (-want +got):\n%s", query, diff)
		}
	}
}

func runListCases() []runCase {
	return []runCase{
		{"by status: one, many, the active ones, all (C3 lists, RM-03)", func(x *runTest) {
			all := []string{"pending", "running", "waiting", "cancelling", "needs_resume", "completed", "failed", "cancelled"}
			var ids []uuid.UUID
			for _, status := range all {
				x.advance(time.Second)
				ids = append(ids, x.at(status).ID)
			}
			slices.Reverse(ids)
			of := func(statuses ...string) []uuid.UUID {
				some := []uuid.UUID{}
				for i, status := range slices.Backward(all) {
					if slices.Contains(statuses, status) {
						some = append(some, ids[len(all)-1-i])
					}
				}
				return some
			}
			want := map[string][]uuid.UUID{
				"": of(all...), "&active=true": of("pending", "running", "waiting"), "&active=false": of(all...), "&status=running,waiting": of("running", "waiting"),
				"&status=failed&status=cancelled": of("failed", "cancelled"), "&status=failed,failed&status=failed": of("failed"), "&status=" + strings.Join(all, ","): of(all...),
				"&status=completed&workflow_name=other": {},
			}
			for _, status := range all {
				want["&status="+status] = of(status)
			}
			for query, ids := range want {
				if diff := cmp.Diff(ids, runIDs(x.list(query))); diff != "" {
					x.t.Errorf("%s (-want +got):\n%s", query, diff)
				}
			}
		}},
		{"by what they are and what they belong to, combined (C3 lists)", (*runTest).listsBySubject},
		{"the active ones that are in another, level by level (C3 active chain)", func(x *runTest) {
			root := x.running(`"parent_run_id":"root"`)
			in := `"parent_workflow_run_id":"%s","parent_run_id":%q`
			child := x.create(fmt.Sprintf(in, root.ID, "child"))
			x.create(fmt.Sprintf(in, child.ID, "grandchild"))
			x.cancelled(x.create(fmt.Sprintf(in, root.ID, "ended")), "")
			x.lists(map[string][]string{
				"&active=true&root=true": {"root"}, "&active=true&parent_workflow_run_id=" + root.ID.String(): {"child"}, "&active=true&parent_workflow_run_id=" + child.ID.String(): {"grandchild"},
				"&parent_workflow_run_id=" + root.ID.String(): {"ended", "child"}, "&parent_workflow_run_id=" + uuid.NewString(): {},
			})
		}},
		{"page by page, newest first, also while others are made (A13 40)", (*runTest).listsPages},
		{"steps by position, and items in the order of their addition, page by page (A5.6, A5.8)", (*runTest).listsSteps},
		{"what is no filter is refused", func(x *runTest) {
			r := x.running("")
			s := x.step(r, "")
			for path, parameters := range map[string]map[string]string{
				"/v1/runs": {
					"status=timed_out": "status", "status=running,": "status", "status=Running": "status", "status=": "status", "active=yes": "active", "parent_workflow_run_id=x": "parent_workflow_run_id",
					"flow_id=1": "flow_id", "dismissed=2": "dismissed", "root=": "root", "limit=0": "limit", "limit=501": "limit", "limit=x": "limit", "state=running": "state",
				},
				runPath(r.ID, "steps"):      {"status=done": "status", "role=actor": "role", "limit=0": "limit", "name=x": "name"},
				stepPath(r, s.ID, "items"):  {"status=timed_out": "status", "status=waiting": "status", "limit=501": "limit"},
				"/v1/gates":                 {"state=waiting": "state"},
				"/v1/inbox":                 {"run_id=x": "run_id", "kind=run": "kind"},
				"/v1/events":                {"run_id=x": "run_id"},
				"/v1/tree/" + r.ID.String(): {"depth=1": "depth"},
				runPath(r.ID):               {"until=terminal": "until", "revision=1": "revision"},
				stepPath(r, s.ID) + "/gate": {"votes=all": "votes"},
				"/v1/gates/stats":           {"days=-1": "days"},
			} {
				for query, parameter := range parameters {
					answer := x.Get(path + "?" + query)
					if fields := answer.Fields(); len(fields) != 1 || fields[0].Pointer != parameter || fields[0].In != fault.InQuery || answer.Status != 400 && answer.Status != 422 {
						x.t.Errorf("%s?%s = %d %s", path, query, answer.Status, answer.Body)
					}
				}
			}
			for _, path := range []string{"/v1/runs", runPath(r.ID, "steps"), stepPath(r, s.ID, "items"), "/v1/gates"} {
				x.Get(path + "?cursor=nonsense").Problem(fault.CodeInvalidCursor)
			}
		}},
	}
}

func (x *runTest) listsBySubject() {
	f := x.flowTest.running("")
	named := func(name, members string) oapi.Run {
		x.advance(time.Second)
		return x.create(joined(members, `"parent_run_id":`+quoted(name)))
	}
	a := named("a", `"flow_id":"`+f.ID.String()+`"`)
	named("b", `"workflow_name":"deploy","trigger":"hook"`)
	named("c", `"trigger":"pr","parent_workflow_run_id":"`+a.ID.String()+`"`)
	d := named("d", `"workflow_name":"deploy"`)
	named("a", `"workflow_name":"Release"`)
	x.people(d, "dismiss", "").Want(http.StatusOK)
	x.lists(map[string][]string{
		"": {"a", "d", "c", "b", "a"}, "&workflow_name=deploy": {"d", "b"}, "&workflow_name=release": {"c", "a"}, "&trigger=hook": {"b"}, "&trigger=manual": {"a", "d", "a"},
		"&parent_run_id=a": {"a", "a"}, "&flow_id=" + f.ID.String(): {"c", "a"}, "&root=true": {"a", "d", "b", "a"}, "&root=true&flow_id=" + f.ID.String(): {"a"},
		"&dismissed=true": {"d"}, "&dismissed=false": {"a", "c", "b", "a"}, "&dismissed=false&workflow_name=deploy": {"b"}, "&trigger=hook&status=pending": {"b"}, "&trigger=hook&status=running": {},
		"&workflow_name=never": {}, "&flow_id=" + uuid.NewString(): {}, "&parent_run_id=A": {}, "&workflow_name=deploy%25": {},
	})
	x.people(d, "dismiss", `"dismissed":false`).Want(http.StatusOK)
	x.lists(map[string][]string{"&dismissed=true": {}})
	x.in(x.namespace + "-other").lists(map[string][]string{"": {}, "&flow_id=" + f.ID.String(): {}})
}

func (x *runTest) listsPages() {
	var want []string
	for i := range 11 {
		name := fmt.Sprint("r", i)
		x.create(fmt.Sprintf(`"parent_run_id":%q,"trigger":%q`, name, []string{"hook", "manual"}[i%2]))
		want = append([]string{name}, want...)
		if i%3 == 0 {
			x.advance(time.Second) // others have the same time
		}
	}
	name := func(r oapi.Run) string { return orNone(r.ParentRunID) }
	for _, limit := range []int{1, 3, 10, 11, 500} {
		if diff := cmp.Diff(want, pagedNames(x, fmt.Sprintf("/v1/runs?limit=%d", limit), name)); diff != "" {
			x.t.Errorf("%d at a time (-want +got):\n%s", limit, diff)
		}
	}
	var hooks []string
	for i, n := range want {
		if i%2 == 0 {
			hooks = append(hooks, n)
		}
	}
	if diff := cmp.Diff(hooks, pagedNames(x, "/v1/runs?limit=2&trigger=hook&status=pending,running", name)); diff != "" {
		x.t.Errorf("filtered (-want +got):\n%s", diff)
	}
	first := flowAs[oapi.RunList](x.Get("/v1/runs?limit=4").Want(http.StatusOK))
	x.create(`"parent_run_id":"new"`)
	var got []string
	for _, r := range first.Items {
		got = append(got, name(r))
	}
	got = append(got, pagedNames(x, "/v1/runs?limit=4&cursor="+*first.NextCursor, name)...)
	if diff := cmp.Diff(want, got); diff != "" {
		x.t.Errorf("beside a new one (-want +got):\n%s", diff)
	}
}

func (x *runTest) listsSteps() {
	r := x.running("")
	for i, row := range []struct {
		name, role, status string
		position           int
	}{{"e", "agent", "completed", 3}, {"a", "script", "running", 0}, {"c", "agent", "running", 1}, {"d", "agent", "pending", 1}, {"b", "foreach", "running", 0}} {
		s := x.stepAt(r, row.status, fmt.Sprintf(`"step_name":%q,"role":%q,"position":%d,"iteration":%d`, row.name, row.role, row.position, i))
		if row.status == "running" {
			x.moved(r, s.ID, `"status":"running","retry_count":1`) // a retry is not a further step
		}
	}
	name := func(s oapi.RunStep) string { return s.StepName }
	for query, want := range map[string][]string{
		"": {"a", "b", "c", "d", "e"}, "&status=running": {"a", "b", "c"}, "&role=agent": {"c", "d", "e"}, "&role=agent&status=running": {"c"}, "&step_name=d": {"d"}, "&step_name=D": {}, "&status=timed_out": {},
	} {
		for _, limit := range []int{1, 2, 500} {
			if diff := cmp.Diff(want, pagedNames(x, fmt.Sprintf("%s?limit=%d%s", runPath(r.ID, "steps"), limit, query), name)); diff != "" {
				x.t.Errorf("steps%s, %d at a time (-want +got):\n%s", query, limit, diff)
			}
		}
	}
	each := x.steps(r, "&role=foreach")[0]
	items := x.items(r, each.ID, "z", "y", "x", "w", "v")
	x.items(r, each.ID, "a")
	x.patchItems(r, each.ID, itemTo(items[1], "completed"), itemTo(items[3], "completed"), itemTo(items[2], "running")).Want(http.StatusOK)
	for query, want := range map[string][]string{
		"": {"z", "y", "x", "w", "v", "a"}, "&status=completed": {"y", "w"}, "&status=pending": {"z", "v", "a"}, "&status=running": {"x"}, "&status=failed": {},
	} {
		for _, limit := range []int{1, 4, 500} {
			got := pagedNames(x, fmt.Sprintf("%s?limit=%d%s", stepPath(r, each.ID, "items"), limit, query), func(it oapi.RunItem) string { return it.ItemID })
			if diff := cmp.Diff(want, got); diff != "" {
				x.t.Errorf("items%s, %d at a time (-want +got):\n%s", query, limit, diff)
			}
		}
	}
}
