package app_test

import (
	"fmt"
	"net/http"
	"net/url"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/google/uuid"

	"github.com/flowapi/flowapi/internal/apitest"
	"github.com/flowapi/flowapi/internal/domain/fault"
	"github.com/flowapi/flowapi/internal/handlers/oapi"
)

// laneOf reads one lane; none is nil.
func (x *executionTest) laneOf(name string) *oapi.Lane {
	x.t.Helper()
	for path := "/v1/lanes?limit=500"; path != ""; {
		answer := x.Get(path).Want(http.StatusOK)
		p := answerAs[oapi.LaneList](answer)
		if i := slices.IndexFunc(p.Items, func(l oapi.Lane) bool { return l.Lane == name }); i >= 0 {
			return &p.Items[i]
		}
		path = nextPage(x.t, answer, p.NextCursor)
	}
	return nil
}

// turn pauses or resumes the case's lane.
func (x *executionTest) turn(verb, members string, headers ...string) *apitest.Response {
	x.t.Helper()
	return x.Post("/v1/lanes/"+x.lane+"/"+verb, executionJSON(members), headers...)
}

// turned is turn, which succeeds and is answered with the lane as it is then.
func (x *executionTest) turned(verb, members string) oapi.Lane {
	x.t.Helper()
	answer := x.turn(verb, members).Want(http.StatusOK)
	got, now := answerAs[oapi.Lane](answer), x.laneOf(x.lane)
	if now == nil {
		x.t.Fatalf("%s is on no list", x.lane)
	}
	now.Depth, now.OldestAt, now.Throughput = nil, nil, nil // in lists only
	if diff := cmp.Diff(*now, got); diff != "" || answer.ETag() != etagOf(got.Revision) {
		x.t.Errorf("ETag %s; answered and listed differ:\n%s", answer.ETag(), diff)
	}
	return got
}

// laneEvents are the events of the case's lane.
func (x *executionTest) laneEvents() []oapi.Event {
	x.t.Helper()
	var all []oapi.Event
	for after := int64(0); ; {
		p := answerAs[oapi.EventList](x.Get(fmt.Sprintf("/v1/events?topic=lane&limit=500&after=%d", after)).Want(http.StatusOK))
		for _, e := range p.Items {
			if eventData(x.t, e)["lane"] == x.lane {
				all = append(all, e)
			}
		}
		if !p.More {
			return all
		}
		after = p.NextCursor
	}
}

// TestLanes: the lanes, and what pausing one does. executions.md 2.19, 6.1/20, 7.3/46.
func TestLanes(t *testing.T) {
	t.Parallel()
	runExecutionCases(t, lanesCases)
}

var lanesCases = []executionCase{
	{"listed by name, in pages (6.1/20)", func(x *executionTest) {
		y := x.in("lanes-" + x.lane)
		if answer := y.Get("/v1/lanes").Want(http.StatusOK); answer.Len("items") != 0 || answer.Get("next_cursor") != nil {
			x.t.Errorf("%s", answer.Body)
		}
		want := []string{"alpha", "bravo", "charlie", "delta", "echo"}
		for _, i := range []int{3, 0, 4, 1} {
			y.Post("/v1/executions", `{"lane":"`+want[i]+`"}`).Want(http.StatusCreated)
		}
		y.Post("/v1/lanes/charlie/pause", nil).Want(http.StatusOK) // it never had anything
		var got []string
		pages := 0
		for path := "/v1/lanes?limit=2"; path != ""; pages++ {
			answer := y.Get(path).Want(http.StatusOK)
			p := answerAs[oapi.LaneList](answer)
			for _, l := range p.Items {
				if got = append(got, l.Lane); l.Namespace != "lanes-"+x.lane || (l.State == "paused") != (l.Lane == "charlie") {
					x.t.Errorf("%+v", l)
				}
			}
			path = nextPage(x.t, answer, p.NextCursor)
		}
		if diff := cmp.Diff(want, got); diff != "" || pages != 3 {
			x.t.Errorf("%d pages (-want +got):\n%s", pages, diff)
		}
		for query, code := range map[string]fault.Code{"limit=0": fault.CodeValidationFailed, "limit=501": fault.CodeValidationFailed, "limit=x": fault.CodeInvalidParameter, "cursor=!": fault.CodeInvalidCursor} {
			y.Get("/v1/lanes?" + query).Problem(code)
		}
	}},
	{"a lane is there from its first execution on, also one of a batch or of octets, and stays", func(x *executionTest) {
		a, b, c := x.on("a"), x.on("b"), x.on("c")
		for _, y := range []*executionTest{a, b, c} {
			if y.laneOf(y.lane) != nil {
				x.t.Errorf("%s is there already", y.lane)
			}
		}
		a.ask("").Want(http.StatusNoContent)
		if a.laneOf(a.lane) != nil {
			x.t.Error("a claim has made it")
		}
		e := a.create("")
		x.Post("/v1/executions/batch", `{"executions":[`+b.sent("")+`]}`).Want(http.StatusCreated)
		x.Post("/v1/executions/octets?lane="+c.lane, "x", "Content-Type: application/octet-stream").Want(http.StatusCreated)
		for _, y := range []*executionTest{a, b, c} {
			l := y.laneOf(y.lane)
			if l == nil || l.State != "active" || l.Reason != nil || l.Actor != nil || l.Since != nil || l.Revision != 0 || *l.Depth != 1 || l.OldestAt == nil {
				x.t.Errorf("%s is %+v", y.lane, l)
			}
		}
		a.operated(e.ID, "operator-cancel", `"reason":"no"`)
		if l := a.laneOf(a.lane); l == nil || *l.Depth != 0 || l.OldestAt != nil {
			x.t.Errorf("%+v", l)
		}
	}},
	{"depth, age and throughput", func(x *executionTest) {
		depth := func(want int64, oldest *oapi.Time) {
			x.t.Helper()
			l := x.laneOf(x.lane)
			if *l.Depth != want || (l.OldestAt == nil) != (oldest == nil) || oldest != nil && !l.OldestAt.Equal(*oldest) {
				x.t.Errorf("depth %d since %s, want %d since %s", *l.Depth, l.OldestAt, want, oldest)
			}
		}
		first := x.create(`"required_capabilities":["go"]`)
		x.advance(time.Second)
		x.create("")
		x.create(`"delay_ms":3600000`)
		depth(2, &first.CreatedAt)
		x.reserved("")
		depth(1, &first.CreatedAt) // what is reserved no other can have
		x.advance(10 * time.Second)
		x.claim(`"worker_id":"w2","lease_ttl_ms":1000`)
		depth(1, &first.CreatedAt)
		x.advance(time.Second)
		depth(2, &first.CreatedAt) // the lost one counts
		held := x.claims(`"max":2,"capabilities":["go"],` + lasting)
		depth(0, nil)
		before := x.laneOf(x.lane).Throughput
		if before.Completed != 0 || before.WindowMs <= 0 || before.WindowMs > 60000 {
			x.t.Errorf("%+v", before)
		}
		x.report(held[0], "complete", "").Want(http.StatusOK)
		x.report(held[1], "fail", `"reason":"boom"`).Want(http.StatusOK)
		x.rows() // the log has them
		if now := x.laneOf(x.lane).Throughput; now.Completed != 2 {
			x.t.Errorf("%+v", now)
		}
		x.advance(2 * time.Minute)
		if now := x.laneOf(x.lane).Throughput; now.Completed != 0 {
			x.t.Errorf("%+v", now)
		}
	}},
	{"paused: nothing can be claimed, what is held runs on, no state changes", func(x *executionTest) {
		held, waiting, lost := x.create(`"priority":9`), x.create(`"priority":5`), x.create(`"priority":7`)
		c := x.claim(lasting)
		x.claim(`"lease_ttl_ms":1000`)
		x.advance(time.Second)
		needs := x.create(`"required_capabilities":["go"]`)
		before := x.snapshot(held.ID, waiting.ID, lost.ID, needs.ID)
		paused := x.turned("pause", `"reason":"the registry is down"`)
		if paused.State != "paused" || *paused.Reason != "the registry is down" || *paused.Actor != "local" || paused.Since == nil || paused.Revision != 1 || paused.Depth != nil {
			x.t.Errorf("%+v", paused)
		}
		if diff := cmp.Diff(before.Records, x.snapshot(held.ID, waiting.ID, lost.ID, needs.ID).Records); diff != "" {
			x.t.Errorf("pausing changed executions (-before +after):\n%s", diff)
		}
		fresh, novel := x.create(""), x.create(`"required_capabilities":["gpu"]`) // also what comes later, also with requirements nobody had
		batch := x.Post("/v1/executions/batch", `{"executions":[`+x.sent(`"required_capabilities":["tpu"]`)+`]}`).Want(http.StatusCreated)
		all := `"capabilities":["go","gpu","tpu"]`
		x.unchanged(http.StatusNoContent, func() *apitest.Response { return x.ask(`"max":100,` + all) }, held.ID, waiting.ID, lost.ID, needs.ID)
		x.unchanged(http.StatusNoContent, func() *apitest.Response { return x.reserve(all) }, waiting.ID, fresh.ID, novel.ID)
		x.stands(fresh.ID, atWaiting)
		x.stands(novel.ID, atWaiting)
		if got := answerAs[oapi.Execution](x.Get("/v1/executions/" + batch.Str("items.0.execution.id"))); got.PublicState != "waiting" {
			x.t.Errorf("%s", got.PublicState)
		}
		x.report(c, "progress", `"pct":1`).Want(http.StatusOK)
		x.report(c, "renew", lasting).Want(http.StatusOK)
		x.report(c, "release", "").Want(http.StatusOK) // and what is given back stays there
		x.none(all)
		x.advance(time.Hour)
		x.none(all)
		x.turned("resume", "")
		if n := len(x.claims(`"max":100,` + all)); n != 7 {
			x.t.Errorf("%d can be claimed again", n)
		}
	}},
	{"other lanes, and this one elsewhere, go on", func(x *executionTest) {
		other, elsewhere := x.on("other"), x.in("elsewhere")
		x.turned("pause", "")
		x.create("")
		other.create("")
		elsewhere.create("")
		x.none("")
		other.claim("")
		elsewhere.claim("")
		e := other.create("")
		if c := x.claim(fmt.Sprintf(`"lanes":["%s","%s"]`, x.lane, other.lane)); c.Execution.ID != e.ID {
			x.t.Errorf("got %s of %s", c.Execution.ID, c.Execution.Lane)
		}
		elsewhere.turned("resume", "")
		x.none("")
	}},
	{"a grant cannot be used while its lane is paused, and nothing lost can be reserved", func(x *executionTest) {
		e := x.create("")
		g := x.reserved(`"grant_ttl_ms":60000`)
		x.turned("pause", "")
		x.refused(fault.CodeExecutionNotLeaseable, func() *apitest.Response { return x.use(g, "claim", "") }, e.ID)
		x.refused(fault.CodeExecutionNotLeaseable, func() *apitest.Response {
			return x.use(oapi.Grant{ExecutionID: e.ID, GrantID: uuid.New()}, "claim", "")
		}, e.ID)
		x.turned("resume", "")
		x.used(g, "claim", `"lease_ttl_ms":1000`)
		x.advance(time.Second)
		x.turned("pause", "")
		x.refused(fault.CodeExecutionNotLeaseable, func() *apitest.Response {
			return x.Post("/v1/executions/"+e.ID.String()+"/reclaim-grants", `{"worker_id":"w2","worker_instance_id":"w2","grant_ttl_ms":1000}`)
		}, e.ID)
	}},
	{"resumed: those who wait are woken, as many as there is work", func(x *executionTest) {
		x.turned("pause", "")
		const n = 4
		want, got := map[string]bool{}, map[string]bool{}
		for range n - 1 {
			want[x.create("").ID.String()] = true
		}
		var waiters []*waitingClaim
		for range n - 1 {
			waiters = append(waiters, x.wait(lasting))
		}
		gpu := x.wait(`"worker_id":"w2","capabilities":["gpu"],` + lasting)
		needs := x.create(`"priority":100,"required_capabilities":["gpu"]`)
		x.settled()
		x.turn("resume", `"reason":"it is up again"`).Want(http.StatusOK)
		for _, w := range waiters {
			got[w.got().Execution.ID.String()] = true
		}
		if diff := cmp.Diff(want, got); diff != "" {
			x.t.Errorf("(-want +got):\n%s", diff)
		}
		if c := gpu.got(); c.Execution.ID != needs.ID {
			x.t.Errorf("got %s", c.Execution.ID)
		}
	}},
	{"again, it changes nothing; each turn is one event", func(x *executionTest) {
		by, actor := x.as("operator", "op-"+x.lane)
		x.create("")
		x.unchanged(http.StatusOK, func() *apitest.Response { return x.turn("resume", `"reason":"why not"`) })
		by.turn("pause", `"reason":"first"`).Want(http.StatusOK)
		first := x.laneOf(x.lane)
		for _, members := range []string{"", `"reason":"second"`} {
			again := x.unchanged(http.StatusOK, func() *apitest.Response { return x.turn("pause", members) })
			if again.Str("reason") != "first" || again.Str("actor") != actor || again.ETag() != `"1"` {
				x.t.Errorf("%s", again.Body)
			}
		}
		if now := x.laneOf(x.lane); *now.Reason != "first" || !now.Since.Equal(*first.Since) {
			x.t.Errorf("%+v", now)
		}
		resumed := x.turned("resume", `"reason":"done"`)
		if resumed.State != "active" || resumed.Reason != nil || resumed.Actor != nil || resumed.Revision != 2 || resumed.Since == nil {
			x.t.Errorf("%+v", resumed)
		}
		x.unchanged(http.StatusOK, func() *apitest.Response { return x.turn("resume", "") })
		x.turned("pause", "")
		var got []string
		for _, e := range x.laneEvents() {
			data := eventData(x.t, e)
			got = append(got, fmt.Sprint(e.Type, " ", *e.Revision, " ", e.Actor, " ", data["reason"]))
		}
		want := []string{"lane.paused 1 " + actor + " first", "lane.resumed 2 local done", "lane.paused 3 local <nil>"}
		if diff := cmp.Diff(want, got); diff != "" {
			x.t.Errorf("(-want +got):\n%s", diff)
		}
	}},
	{"a lane that is not paused stays as it is, also one that nobody has used", func(x *executionTest) {
		answer := x.turn("resume", "").Want(http.StatusOK)
		if answer.Str("state") != "active" || answer.Int("revision") != 0 || strings.Contains(string(answer.Body), "depth") {
			x.t.Errorf("%s", answer.Body)
		}
		if l := x.laneOf(x.lane); l != nil {
			x.t.Errorf("resuming it put it on the list: %+v", l)
		}
		x.refused(fault.CodeRevisionMismatch, func() *apitest.Response { return x.turn("pause", "", ifMatch(1)) })
		if l := x.laneOf(x.lane); l != nil {
			x.t.Errorf("a refusal put it on the list: %+v", l)
		}
	}},
	{"on a revision", func(x *executionTest) {
		x.create("")
		answer := x.refused(fault.CodeRevisionMismatch, func() *apitest.Response { return x.turn("pause", "", ifMatch(7)) })
		if answer.Int("expected") != 7 || answer.Int("actual") != 0 {
			x.t.Errorf("%s", answer.Body)
		}
		x.turn("pause", "", ifMatch(0)).Want(http.StatusOK)
		x.refused(fault.CodeRevisionMismatch, func() *apitest.Response { return x.turn("pause", "", ifMatch(0)) }) // even if it changes nothing
		x.refused(fault.CodeRevisionMismatch, func() *apitest.Response { return x.turn("resume?revision=0", "") })
		x.turn("resume?revision=1", "").Want(http.StatusOK)
		x.turn("pause", "", `If-Match: W/"2"`).Want(http.StatusOK)
	}},
	{"turned by many at once: one event a turn", func(x *executionTest) {
		x.create("")
		for _, verb := range []string{"pause", "resume"} {
			atOnce(5, func(int) *apitest.Response { return x.turn(verb, "").Want(http.StatusOK) })
		}
		if got := x.laneOf(x.lane); got.Revision != 2 || len(x.laneEvents()) != 2 {
			x.t.Errorf("revision %d, %d events", got.Revision, len(x.laneEvents()))
		}
	}},
	{"claimed while it is paused and resumed, nothing is lost", func(x *executionTest) {
		const n = 30
		for i := range n {
			x.create(fmt.Sprintf(`"required_capabilities":[%s]`, []string{``, `"go"`, `"gpu"`}[i%3]))
		}
		got := make([]int, 4)
		atOnce(len(got)+1, func(i int) *apitest.Response {
			if i == len(got) {
				for range 5 {
					x.turn("pause", "").Want(http.StatusOK)
					x.turn("resume", "").Want(http.StatusOK)
				}
				return nil
			}
			for range 20 {
				if answer := x.ask(`"max":2,"capabilities":["go","gpu"],` + lasting); answer.Status == http.StatusOK {
					got[i] += answer.Len("claims")
				}
			}
			return nil
		})
		rest := len(x.claims(`"max":100,"capabilities":["go","gpu"],` + lasting))
		if sum := got[0] + got[1] + got[2] + got[3] + rest; sum != n {
			x.t.Errorf("%d of %d: %v and %d", sum, n, got, rest)
		}
	}},
	{"made while it is being paused, what requires something new is paused, too", func(x *executionTest) {
		for round := range 4 {
			y := x.on(fmt.Sprint(round))
			y.create("")
			capabilities := make([]string, 6)
			atOnce(len(capabilities)+1, func(i int) *apitest.Response {
				if i == len(capabilities) {
					return y.turn("pause", "").Want(http.StatusOK)
				}
				capabilities[i] = fmt.Sprintf("new-%s-%d", y.lane, i)
				y.create(`"required_capabilities":["` + capabilities[i] + `"]`)
				return nil
			})
			all := `"max":100,"capabilities":["` + strings.Join(capabilities, `","`) + `"]`
			y.none(all)
			y.turn("resume", "").Want(http.StatusOK)
			if n := len(y.claims(all)); n != len(capabilities)+1 {
				x.t.Errorf("%d can be claimed again", n)
			}
		}
	}},
	{"a name with odd characters is one, and what is none", func(x *executionTest) {
		name := "a b/ü"
		x.Post("/v1/lanes/"+url.PathEscape(name)+"/pause", nil).Problem(fault.CodeInvalidParameter)
		name = "a b?#%~" + x.lane
		paused := x.Post("/v1/lanes/"+url.PathEscape(name)+"/pause", nil).Want(http.StatusOK)
		if paused.Str("lane") != name || x.laneOf(name) == nil {
			x.t.Errorf("%s", paused.Body)
		}
		x.refused(fault.CodeValidationFailed, func() *apitest.Response { return x.Post("/v1/lanes/"+strings.Repeat("x", 65)+"/pause", nil) })
		x.refused(fault.CodeValidationFailed, func() *apitest.Response { return x.turn("pause", `"reason":"`+strings.Repeat("x", 4097)+`"`) })
	}},
}
