package app_test

import (
	"fmt"
	"net/http"
	"slices"
	"strings"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/google/uuid"

	"github.com/flowapi/flowapi/internal/apitest"
	"github.com/flowapi/flowapi/internal/domain/fault"
	"github.com/flowapi/flowapi/internal/handlers/oapi"
)

func runGateInboxCases() []runCase {
	return []runCase{
		{"a gate is there once, with all that is needed to answer it (F2.4)", func(x *runTest) {
			f := x.flowTest.running("")
			r := x.running(`"definition_snapshot":{"title":"Release 1.4"},"flow_id":"` + f.ID.String() + `"`)
			s := x.gate(r, `"gate_type":"human_review","prompt":"Publish 1.4?","requested_by":"ada","options":[{"value":"stable","label":"Everybody"},{"value":"beta"}]`)
			x.do(r, "wait", `"blocked_on":{"type":"human_review","gate_name":"review"}`) // its own wait is in no inbox
			since, deadline := oapi.Time(s.Gate.OpenedAt.Time()), oapi.Time(s.Gate.DeadlineAt.Time())
			items := x.inbox("")
			if len(items) != 1 {
				x.t.Fatalf("%+v", items)
			}
			want := oapi.InboxItem{
				Kind: "gate", WaitID: items[0].WaitID, FlowID: &f.ID, RunID: &r.ID, StepID: &s.ID, Title: "Release 1.4: review", Prompt: new("Publish 1.4?"), Reason: new("human_review"),
				RequestedBy: new("ada"), Since: since, DeadlineAt: &deadline, Options: []oapi.GateOption{{Value: "stable", Label: "Everybody"}, {Value: "beta", Label: "beta"}},
				Actions: []string{"approve", "reject", "feedback"},
			}
			if diff := cmp.Diff([]oapi.InboxItem{want}, items); diff != "" {
				x.t.Errorf("(-want +got):\n%s", diff)
			}
			if strings.Contains(string(x.Get("/v1/inbox").Body), "token\"") {
				x.t.Error("there is a token in it")
			}
			x.decided(r, s.ID, "approve", "")
			if items := x.inbox(""); len(items) != 0 {
				x.t.Errorf("%+v", items)
			}
		}},
		{"nothing is there before it opens, and after any outcome", func(x *runTest) {
			for outcome, end := range map[string]func(r oapi.Run, s oapi.RunStep){
				"approved":  func(r oapi.Run, s oapi.RunStep) { x.decided(r, s.ID, "approve", "") },
				"rejected":  func(r oapi.Run, s oapi.RunStep) { x.decided(r, s.ID, "reject", "") },
				"timed_out": func(oapi.Run, oapi.RunStep) { x.advance(time.Minute) },
				"skipped":   func(r oapi.Run, s oapi.RunStep) { x.moved(r, s.ID, `"status":"skipped"`) },
				"cancelled": func(r oapi.Run, _ oapi.RunStep) { x.do(r, "cancel", "") },
			} {
				r := x.running("")
				s := x.step(r, `"step_name":"review","role":"gate","gate":{"gate_type":"human_review","timeout_ms":60000}`)
				if items := x.inbox("?run_id=" + r.ID.String()); len(items) != 0 {
					x.t.Errorf("%s: before it opens there is %+v", outcome, items)
				}
				s = x.moved(r, s.ID, `"status":"waiting"`)
				if items := x.inbox("?run_id=" + r.ID.String()); len(items) != 1 || *items[0].StepID != s.ID {
					x.t.Errorf("%s: open there is %+v", outcome, items)
				}
				end(r, s)
				if items := x.inbox("?run_id=" + r.ID.String()); len(items) != 0 {
					x.t.Errorf("%s: then there is %+v", outcome, items)
				}
				if g := x.readGate(r, s.ID); string(g.State) != outcome {
					x.t.Errorf("it is %s, want %s", g.State, outcome)
				}
			}
		}},
	}
}

func runGateInboxFilterCases() []runCase {
	return []runCase{
		{"what a machine answers is asked of nobody", func(x *runTest) {
			r := x.running("")
			for i, kind := range []string{"pr_approval", "pr_checks", "quality_gate", "my_resolver"} {
				s := x.step(r, fmt.Sprintf(`"step_name":"g%d","role":"gate","gate":{"gate_type":%q}`, i, kind))
				x.moved(r, s.ID, `"status":"waiting"`)
			}
			if items := x.inbox("?kind=gate"); len(items) != 1 || orNone(items[0].Reason) != "my_resolver" {
				x.t.Errorf("%+v", items)
			}
		}},
		{"filters, and long prompts", func(x *runTest) {
			f := x.flowTest.running("")
			x.park(f.ID, manual)
			one, two := x.running(`"flow_id":"`+f.ID.String()+`"`), x.running("")
			a, b := x.gate(one, `"prompt":`+quoted(strings.Repeat("é", 1001))), x.gate(two, "")
			ids := func(query string) []uuid.UUID {
				found := []uuid.UUID{}
				for _, i := range x.inbox(query) {
					if i.StepID == nil {
						found = append(found, *i.FlowID)
						continue
					}
					found = append(found, *i.StepID)
				}
				return found
			}
			for query, want := range map[string][]uuid.UUID{
				"": {f.ID, a.ID, b.ID}, "?kind=gate": {a.ID, b.ID}, "?kind=flow_wait": {f.ID}, "?kind=waitpoint": {}, "?run_id=" + two.ID.String(): {b.ID},
				"?flow_id=" + f.ID.String(): {f.ID, a.ID}, "?kind=gate&flow_id=" + f.ID.String(): {a.ID}, "?run_id=" + uuid.NewString(): {},
			} {
				got := ids(query)
				slices.SortFunc(got, func(a, b uuid.UUID) int { return strings.Compare(a.String(), b.String()) })
				slices.SortFunc(want, func(a, b uuid.UUID) int { return strings.Compare(a.String(), b.String()) })
				if diff := cmp.Diff(want, got); diff != "" {
					x.t.Errorf("inbox%s (-want +got):\n%s", query, diff)
				}
			}
			for _, i := range x.inbox("?run_id=" + one.ID.String()) {
				if orNone(i.Prompt) != strings.Repeat("é", 1000) {
					x.t.Errorf("the prompt has %d characters", len([]rune(orNone(i.Prompt))))
				}
			}
			if items := x.flowTest.in(x.namespace + "-other").inbox(""); len(items) != 0 {
				x.t.Errorf("another namespace has %+v", items)
			}
		}},
	}
}

// gates lists gates, and returns the names of their steps.
func (x *runTest) gates(query string) []string {
	x.t.Helper()
	names := []string{}
	for _, g := range flowAs[oapi.GateList](x.Get("/v1/gates" + query).Want(http.StatusOK)).Items {
		names = append(names, g.StepName)
	}
	return names
}

func runGateListCases() []runCase {
	return []runCase{
		{"those that were opened, newest first, by state, type, run and workflow (C3 waiting gates)", (*runTest).gateLists},
		{"pages (A13 40)", func(x *runTest) {
			r := x.running("")
			var want []string
			for i := range 7 {
				name := fmt.Sprintf("g%d", i)
				s := x.step(r, fmt.Sprintf(`"step_name":%q,"role":"gate","position":%d,"gate":{"gate_type":"human_review"}`, name, 9-i))
				x.moved(r, s.ID, `"status":"waiting"`)
				if i%2 == 1 {
					x.advance(time.Second) // others have the same time
				}
				want = append([]string{name}, want...)
			}
			if diff := cmp.Diff(want, x.gates("")); diff != "" {
				x.t.Errorf("(-want +got):\n%s", diff)
			}
			for query, want := range map[string][]string{"?limit=3": want, "?limit=1&state=pending": want, "?limit=2&gate_type=other": nil} {
				if diff := cmp.Diff(want, pagedNames(x, "/v1/gates"+query, func(g oapi.RunGate) string { return g.StepName }), equateEmpty); diff != "" {
					x.t.Errorf("%s (-want +got):\n%s", query, diff)
				}
			}
		}},
		{"filters that are none are refused", func(x *runTest) {
			for query, parameter := range map[string]string{"?state=open": "state", "?state=": "state", "?gate_type=Human": "gate_type", "?run_id=x": "run_id", "?limit=0": "limit", "?limit=501": "limit", "?stat=pending": "stat"} {
				answer := x.Get("/v1/gates" + query)
				if fields := answer.Fields(); len(fields) != 1 || fields[0].Pointer != parameter || fields[0].In != fault.InQuery || answer.Status/100 != 4 {
					x.t.Errorf("%s = %d %s", query, answer.Status, answer.Body)
				}
			}
			x.Get("/v1/gates?cursor=nonsense").Problem(fault.CodeInvalidCursor)
		}},
	}
}

func (x *runTest) gateLists() {
	one, two := x.running(`"workflow_name":"release"`), x.running(`"workflow_name":"deploy"`)
	add := func(r oapi.Run, name, kind string) oapi.RunStep {
		x.advance(time.Second)
		s := x.step(r, fmt.Sprintf(`"step_name":%q,"role":"gate","gate":{"gate_type":%q}`, name, kind))
		return x.moved(r, s.ID, `"status":"waiting"`)
	}
	x.step(one, `"step_name":"never","role":"gate","gate":{"gate_type":"human_review"}`)
	x.step(one, `"step_name":"agent"`)
	a, b, c := add(one, "a", "human_review"), add(two, "b", "human_review"), add(one, "c", "pr_checks")
	d, e := add(two, "d", "human_approval"), add(one, "e", "human_approval")
	add(one, "f", "human_approval")
	x.decided(one, a.ID, "approve", "")
	x.decided(two, b.ID, "reject", "")
	x.moved(one, c.ID, `"status":"timed_out"`)
	x.moved(two, d.ID, `"status":"skipped"`)
	x.moved(one, e.ID, `"status":"cancelled"`)
	for query, want := range map[string][]string{
		"": {"f", "e", "d", "c", "b", "a"}, "?state=pending": {"f"}, "?state=approved": {"a"}, "?state=rejected": {"b"}, "?state=timed_out": {"c"}, "?state=skipped": {"d"}, "?state=cancelled": {"e"},
		"?gate_type=human_review": {"b", "a"}, "?gate_type=human_review&state=approved": {"a"}, "?run_id=" + two.ID.String(): {"d", "b"}, "?workflow_name=deploy": {"d", "b"},
		"?workflow_name=release&gate_type=human_approval": {"f", "e"}, "?workflow_name=deploy&state=pending": {}, "?gate_type=never_used": {}, "?run_id=" + uuid.NewString(): {},
		"?workflow_name=deploy&run_id=" + one.ID.String(): {},
	} {
		if diff := cmp.Diff(want, x.gates(query)); diff != "" {
			x.t.Errorf("%s (-want +got):\n%s", query, diff)
		}
	}
	for _, g := range flowAs[oapi.GateList](x.Get("/v1/gates").Want(http.StatusOK)).Items {
		if g.Votes != nil || g.Approvals != nil || g.WorkflowName == nil || g.OpenedAt == nil {
			x.t.Errorf("%+v", g)
		}
	}
	if got := x.in(x.namespace + "-other").gates(""); len(got) != 0 {
		x.t.Errorf("another namespace has %v", got)
	}
}

// pagedNames reads a list page by page, as the Link headers lead, and returns the name of each item.
func pagedNames[T any](x *runTest, path string, name func(item T) string) []string {
	x.t.Helper()
	names := []string{}
	for pages := 0; path != ""; pages++ {
		answer := x.Get(path).Want(http.StatusOK)
		list := flowAs[struct {
			Items      []T     `json:"items"`
			NextCursor *string `json:"next_cursor"`
		}](answer)
		for _, item := range list.Items {
			names = append(names, name(item))
		}
		link := answer.Header.Get("Link")
		if (link == "") != (list.NextCursor == nil) || pages > 0 && len(list.Items) == 0 || pages > 100 {
			x.t.Fatalf("page %d has %d items, the cursor %q and the link %q", pages, len(list.Items), orNone(list.NextCursor), link)
		}
		path = strings.TrimSuffix(strings.TrimPrefix(link, "<"), `>; rel="next"`)
	}
	return names
}

func runGateStatsCases() []runCase {
	return []runCase{
		{"hits, outcomes, rate and waits are counted by workflow, step and type (A6.8)", (*runTest).gateStats},
		{"percentiles are the smallest wait that so many do not exceed", func(x *runTest) {
			r := x.running("")
			var ids []uuid.UUID
			for i := range 20 {
				s := x.step(r, fmt.Sprintf(`"step_name":"review","path":"g%d","role":"gate","gate":{"gate_type":"human_review"}`, i))
				x.moved(r, s.ID, `"status":"waiting"`)
				ids = append(ids, s.ID)
			}
			for i := range 20 {
				x.advance(time.Second)
				x.decided(r, ids[(i*7)%20], "approve", "")
			}
			want := oapi.GateStats{WorkflowName: "release", StepName: "review", GateType: "human_review", Hits: 20, Approvals: 20, ApprovalRate: 1, AvgWaitMs: 10_500, P50WaitMs: 10_000, P95WaitMs: 19_000}
			if diff := cmp.Diff([]oapi.GateStats{want}, x.stats("")); diff != "" {
				x.t.Errorf("(-want +got):\n%s", diff)
			}
		}},
		{"only what was opened in the last days is counted", func(x *runTest) {
			r := x.running("")
			s := x.gate(r, "")
			x.decided(r, s.ID, "approve", "")
			x.advance(24*time.Hour + time.Second)
			x.server.Settle()
			for query, want := range map[string]int{"?days=1": 0, "?days=2": 1, "": 1, "?days=365": 1} {
				if got := x.stats(query); len(got) != want {
					x.t.Errorf("%s: %+v", query, got)
				}
			}
			for query, parameter := range map[string]string{"?days=0": "days", "?days=366": "days", "?days=x": "days", "?gate_type=A": "gate_type"} {
				answer := x.Get("/v1/gates/stats" + query)
				if fields := answer.Fields(); len(fields) != 1 || fields[0].Pointer != parameter || answer.Status/100 != 4 {
					x.t.Errorf("%s = %d %s", query, answer.Status, answer.Body)
				}
			}
		}},
	}
}

// stats reads the statistics of gates.
func (x *runTest) stats(query string) []oapi.GateStats {
	x.t.Helper()
	return flowAs[oapi.GateStatsList](x.Get("/v1/gates/stats" + query).Want(http.StatusOK)).Items
}

func (x *runTest) gateStats() {
	r, other := x.running(""), x.running(`"workflow_name":"deploy"`)
	if got := x.stats(""); len(got) != 0 {
		x.t.Errorf("before anything was asked: %+v", got)
	}
	open := func(r oapi.Run, path, members string) oapi.RunStep {
		s := x.step(r, fmt.Sprintf(`"step_name":"review","path":%q,"role":"gate","gate":%s`, path, flowBody(members, `"gate_type":"human_review"`)))
		return x.moved(r, s.ID, `"status":"waiting"`)
	}
	for i, answer := range []struct{ decision, members string }{
		{"approve", `"feedback":"ok"`}, {"approve", ""}, {"reject", `"feedback":"nööö"`}, {"approve", ""}, {"approve", `"feedback":"at last"`},
	} { // they take 10, 20, 30, 40 and 50 s
		s := open(r, fmt.Sprint("g", i), "")
		x.advance(time.Duration(i+1) * 10 * time.Second)
		x.decided(r, s.ID, answer.decision, answer.members)
	}
	open(r, "late", `"timeout_ms":60000`)
	x.advance(time.Minute)
	x.moved(r, open(r, "skipped", "").ID, `"status":"skipped"`)
	x.decided(other, open(other, "o", "").ID, "approve", "")
	x.decided(r, open(r, "checks", `"gate_type":"pr_checks"`).ID, "reject", "")
	open(r, "waits", "") // has no outcome and does not count
	review := oapi.GateStats{
		WorkflowName: "release", StepName: "review", GateType: "human_review", Hits: 7, Approvals: 4, Rejections: 1, TimedOut: 1, ApprovalRate: 4.0 / 7,
		AvgWaitMs: 30_000, P50WaitMs: 30_000, P95WaitMs: 50_000, AvgFeedbackLength: 4, // (2 + 4 + 7) / 3
	}
	checks := oapi.GateStats{WorkflowName: "release", StepName: "review", GateType: "pr_checks", Hits: 1, Rejections: 1}
	deploy := oapi.GateStats{WorkflowName: "deploy", StepName: "review", GateType: "human_review", Hits: 1, Approvals: 1, ApprovalRate: 1}
	for query, want := range map[string][]oapi.GateStats{
		"": {review, checks, deploy}, "?gate_type=human_review": {review, deploy}, "?workflow_name=deploy": {deploy}, "?workflow_name=release&gate_type=pr_checks": {checks}, "?gate_type=other": {},
	} {
		if diff := cmp.Diff(want, x.stats(query)); diff != "" {
			x.t.Errorf("%s (-want +got):\n%s", query, diff)
		}
	}
	x.same(func() *apitest.Response { return x.Get("/v1/gates/stats") }, r.ID)
	if got := x.in(x.namespace + "-other").stats(""); len(got) != 0 {
		x.t.Errorf("another namespace has %+v", got)
	}
}
