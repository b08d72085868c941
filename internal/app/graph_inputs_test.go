package app_test

import (
	"encoding/base64"
	"fmt"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/google/uuid"

	"github.com/flowapi/flowapi/internal/apitest"
	"github.com/flowapi/flowapi/internal/domain/fault"
	"github.com/flowapi/flowapi/internal/handlers/oapi"
)

// given checks the inputs of a claim, as documents.
func (f *graphFlow) given(c oapi.Claim, want map[string]string) {
	f.t.Helper()
	got, wanted := map[string]any{}, map[string]any{}
	for name, doc := range c.Inputs {
		got[name] = docAs[any](f.t, doc)
	}
	for name, doc := range want {
		wanted[name] = docAs[any](f.t, []byte(doc))
	}
	if c.Inputs == nil || cmp.Diff(wanted, got) != "" {
		f.t.Errorf("inputs (-want +got):\n%s", cmp.Diff(wanted, got))
	}
}

// TestGraph_Inputs: results that are passed on. flows-streams-budgets.md 2.6 "Data passing", 9.13, 10.3, defects 14, 65.
func TestGraph_Inputs(t *testing.T) {
	t.Parallel()
	runGraphCases(t, graphInputsCases)
}

var graphInputsCases = []graphCase{
	{"results come beside the payload, by key, of the edges that ask for them (data passing, defect 14)", func(g *graphTest) {
		f := g.graph("", "a", "b", "c", `d < a! b c! | "payload":{"own":1}`)
		f.report("a", "complete", `"result":{"n":[1,2]}`).Want(http.StatusOK)
		f.report("b", "complete", `"result":"not asked for"`).Want(http.StatusOK)
		f.report("c", "complete", `"result":null`).Want(http.StatusOK)
		f.claim("d")
		f.given(f.held["d"], map[string]string{"a": `{"n":[1,2]}`, "c": "null"})
		if got := string(f.held["d"].Execution.Payload); got != `{"own":1}` {
			g.t.Errorf("the payload is %s", got)
		}
		f.complete("d")
	}},
	{"the id names what has no key", func(g *graphTest) {
		f := g.bare("")
		up := flowAs[oapi.FlowMember](f.call("members", `"execution":`+g.w.sent("")).Want(http.StatusCreated)).Execution.ID
		f.build("b < " + up.String() + "!")
		c := g.w.claim(lasting)
		g.w.report(c, "complete", `"result":7`).Want(http.StatusOK)
		f.claim("b")
		f.given(f.held["b"], map[string]string{up.String(): "7"})
		f.complete("b")
	}},
	{"an upstream without a result passes nothing, nor does one that ended badly (9.13)", func(g *graphTest) {
		f := g.graph("", "a", "b", "c", "d < a!", "e any < b! c!")
		f.report("a", "complete", "").Want(http.StatusOK)
		f.claim("d")
		f.given(f.held["d"], map[string]string{})
		f.fail("b")
		f.complete("c")
		f.claim("e")
		f.given(f.held["e"], map[string]string{"c": `"c"`})
		f.complete("d", "e")
	}},
	{"any and quorum get what there is when they are claimed", func(g *graphTest) {
		f := g.graph("", "a", "b", "c", "any any < a! b! c!", "two 2 < a! b! c!")
		f.complete("b")
		f.claim("any")
		f.given(f.held["any"], map[string]string{"b": `"b"`})
		f.complete("a", "c")
		f.claim("two")
		f.given(f.held["two"], map[string]string{"a": `"a"`, "b": `"b"`, "c": `"c"`})
		if e := f.stand("any", atActive); e.Revision != f.held["any"].Execution.Revision { // an active child is left alone: defect 65
			g.t.Errorf("%+v", e)
		}
		f.complete("any", "two")
	}},
	{"an octet result comes as base64", func(g *graphTest) {
		f := g.graph("", "a", "b < a!")
		f.claim("a")
		octets := []byte{0, 1, 0xff, '"', '\n'}
		g.Post(operatorPath(f.of["a"], "complete"), octets, "Content-Type: application/octet-stream", "Flowapi-Handle: "+f.held["a"].Handle).Want(http.StatusOK)
		f.claim("b")
		f.given(f.held["b"], map[string]string{"a": quoted(base64.StdEncoding.EncodeToString(octets))})
		f.complete("b")
	}},
	{"an edge that is staged asks, too, also once its upstream has ended (9.11)", func(g *graphTest) {
		f := g.graph("", "a", "b", "c", "d")
		f.edge("a", "b", `"pass_result":true`)
		f.edge("a", "c")
		f.complete("a")
		f.edge("a", "d", `"pass_result":true`)
		for key, want := range map[string]map[string]string{"b": {"a": `"a"`}, "c": {}, "d": {"a": `"a"`}} {
			f.claim(key)
			f.given(f.held[key], want)
		}
		f.complete("b", "c", "d")
	}},
	{"whoever claims it again gets them again: a retry, a released, a resumed and a reclaimed one, and a replay", func(g *graphTest) {
		f := g.graph("", "a", "b < a! | "+retryPolicy(1))
		f.complete("a")
		want := map[string]string{"a": `"a"`}
		f.claim("b")
		for _, c := range []struct {
			kind oapi.ClaimKind
			how  func()
		}{
			{"resumed", func() { f.report("b", "release", "").Want(http.StatusOK) }},
			{"retry", func() { f.report("b", "fail", `"reason":"x","retry_after_ms":0`).Want(http.StatusOK) }},
			{"resumed", func() {
				f.report("b", "suspend", waitForGo).Want(http.StatusOK)
				f.w.operated(f.of["b"], "resume", "")
			}},
			{"reclaimed", func() { f.w.operator(f.of["b"], "revoke-lease", "").Want(http.StatusOK) }},
			{"reclaimed", func() { g.advance(2 * time.Hour) }},
			{"replay", func() { f.report("b", "complete", "").Want(http.StatusOK); f.again("b") }},
		} {
			f.given(f.held["b"], want)
			c.how()
			g.advance(0)
			f.claim("b")
			if f.held["b"].Kind != c.kind {
				g.t.Errorf("%s, want %s", f.held["b"].Kind, c.kind)
			}
		}
		f.given(f.held["b"], want)
		f.complete("b")
	}},
	{"the result of a replayed upstream is the new one", func(g *graphTest) {
		f := g.graph("", "a", "b < a!", "hold")
		f.report("a", "complete", `"result":1`).Want(http.StatusOK)
		delete(f.held, "a")
		f.again("a")
		f.stand("b", atBlocked)
		f.report("a", "complete", `"result":2`).Want(http.StatusOK)
		f.claim("b")
		f.given(f.held["b"], map[string]string{"a": "2"})
		f.complete("b", "hold")
	}},
	{"every way of claiming hands them out: grants, an operator, text/plain, many at once", func(g *graphTest) {
		f := g.graph("", "a", "b < a!", "c < a!", "d < a!", "e < a!", `f < a! | "lane":"g-e"`)
		f.report("a", "complete", `"result":{"it's":"a \"b\""}`).Want(http.StatusOK)
		want := map[string]string{"a": `{"it's":"a \"b\""}`}
		w := f.w.on("b")
		f.given(w.used(w.reserved(""), "claim", ""), want)
		f.given(answerAs[oapi.Claims](f.w.operator(f.of["c"], "operator-claim", lasting).Want(http.StatusOK)).Claims[0], want)
		text := f.w.on("d").ask("", "Accept: text/plain").Want(http.StatusOK)
		if line := `INPUTS='{"a":{"it'\''s":"a \"b\""}}'`; !strings.Contains(string(text.Body), line) {
			g.t.Errorf("%s\nwithout %s", text.Body, line)
		}
		for _, c := range f.w.on("e").claims(`"max":5`) {
			f.given(c, want)
		}
	}},
	{"a claim without any has an empty object", func(g *graphTest) {
		g.w.create("")
		c := g.w.claim("")
		(&graphFlow{graphTest: g}).given(c, map[string]string{})
		g.w.create("")
		if text := g.w.ask("", "Accept: text/plain"); !strings.Contains(string(text.Body), "INPUTS='{}'\n") {
			g.t.Errorf("%s", text.Body)
		}
	}},
	{"a claim that is repeated by its key has them, too", func(g *graphTest) {
		f := g.graph("", "a", "b < a!", "c < a!")
		f.report("a", "complete", `"result":"`+strings.Repeat("x", 70<<10)+`"`).Want(http.StatusOK)
		first := f.w.on("b").ask(lasting, "Idempotency-Key: c").Want(http.StatusOK)
		again := f.idle(http.StatusOK, func() *apitest.Response { return f.w.on("b").ask(lasting, "Idempotency-Key: c") })
		if string(first.Body) != string(again.Body) || again.Header.Get("Idempotent-Replay") != "true" || len(first.Body) < 70<<10 {
			g.t.Errorf("%v, %d bytes after %d", again.Header, len(again.Body), len(first.Body))
		}
	}},
	{"a member keeps its inputs when its flow is gone from others' sight (namespaces)", func(g *graphTest) {
		far := graphsOn(g.t, g.server, g.namespace+"-other")
		f, other := g.graph("", "a", "b < a!"), far.graph("", "a", "b < a!")
		f.report("a", "complete", `"result":1`).Want(http.StatusOK)
		other.report("a", "complete", `"result":2`).Want(http.StatusOK)
		f.claim("b")
		other.claim("b")
		f.given(f.held["b"], map[string]string{"a": "1"})
		other.given(other.held["b"], map[string]string{"a": "2"})
		far.w.report(f.held["b"], "complete", "").Problem(fault.CodeNotFound)
		f.complete("b")
	}},
	{"many results come with many claims", func(g *graphTest) {
		lines, needs := []string{}, []string{}
		for i := range 60 {
			lines = append(lines, fmt.Sprintf(`u%d | "lane":"ups"`, i))
			needs = append(needs, fmt.Sprintf("u%d!", i))
		}
		f := g.graph("", append(lines, "a < "+strings.Join(needs, " "), `b < u1! u2 | "lane":"g-a"`)...)
		w := executionsOn(g.t, g.server, "ups")
		w.Client = g.Client
		var items []string
		for i, c := range w.claims(`"max":100,` + lasting) {
			items = append(items, fmt.Sprintf(`{"execution_id":%q,"handle":%q,"result":{"i":%d}}`, c.Execution.ID, c.Handle, i))
		}
		g.Post("/v1/completions", `{"items":[`+strings.Join(items, ",")+`]}`).Want(http.StatusOK)
		got := map[uuid.UUID]int{}
		for _, c := range f.w.on("a").claims(`"max":2,` + lasting) {
			got[c.Execution.ID] = len(c.Inputs)
		}
		if got[f.of["a"]] != 60 || got[f.of["b"]] != 1 {
			g.t.Errorf("%v inputs", got)
		}
	}},
}
