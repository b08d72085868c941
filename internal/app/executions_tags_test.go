package app_test

import (
	"fmt"
	"net/http"
	"net/url"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/google/uuid"

	"github.com/flowapi/flowapi/internal/apitest"
	"github.com/flowapi/flowapi/internal/domain/fault"
	"github.com/flowapi/flowapi/internal/handlers/oapi"
)

// tag sets one tag of an execution.
func (x *executionTest) tag(id uuid.UUID, key, value string, headers ...string) *apitest.Response {
	x.t.Helper()
	return x.Do(http.MethodPut, operatorPath(id, "tags/"+url.PathEscape(key)), fmt.Sprintf(`{"value":%q}`, value), headers...)
}

// TestExecutions_Tags: executions.md 2.19, 6.8/109 to 111; 5/32.
func TestExecutions_Tags(t *testing.T) {
	t.Parallel()
	runExecutionCases(t, executionsTagsCases)
}

var executionsTagsCases = []executionCase{
	{"set, read, overwritten, two of them, none (6.8/109)", func(x *executionTest) {
		e := x.create("")
		path := operatorPath(e.ID, "tags")
		if got := x.Get(path).Want(http.StatusOK); got.ETag() != `"0"` || len(answerAs[oapi.TagSet](got).Tags) != 0 || !strings.Contains(string(got.Body), `"tags":{}`) {
			x.t.Errorf("%s %s", got.ETag(), got.Body)
		}
		want := oapi.Tags{}
		for i, tag := range []oapi.Tag{{Key: "team.name", Value: "a"}, {Key: "team.name", Value: "b"}, {Key: "a.b.c.d", Value: ""}, {Key: "a.b", Value: "é:{}"}, {Key: "a.b_c.0", Value: "x"}} {
			n, had := len(x.events(e.ID)), want[tag.Key]
			_, was := want[tag.Key]
			answer := x.tag(e.ID, tag.Key, tag.Value).Want(http.StatusOK)
			want[tag.Key] = tag.Value
			if diff := cmp.Diff(tag, answerAs[oapi.Tag](answer)); diff != "" || answer.ETag() != etagOf(int64(i+1)) {
				x.t.Errorf("ETag %s (-want +got):\n%s", answer.ETag(), diff)
			}
			one := x.Get(path + "/" + tag.Key).Want(http.StatusOK)
			if diff := cmp.Diff(tag, answerAs[oapi.Tag](one)); diff != "" || one.ETag() != answer.ETag() {
				x.t.Errorf("(-want +got):\n%s", diff)
			}
			all := x.Get(path).Want(http.StatusOK)
			if diff := cmp.Diff(want, answerAs[oapi.TagSet](all).Tags); diff != "" || all.ETag() != answer.ETag() {
				x.t.Errorf("(-want +got):\n%s", diff)
			}
			if diff := cmp.Diff(want, x.get(e.ID).Tags); diff != "" {
				x.t.Errorf("(-want +got):\n%s", diff)
			}
			told := x.toldSince(e.ID, n, "execution.tag_set")
			data := map[string]any{"key": tag.Key, "value": tag.Value}
			if was {
				data["previous"] = had
			}
			if diff := cmp.Diff(data, eventData(x.t, told[0])); diff != "" {
				x.t.Errorf("(-want +got):\n%s", diff)
			}
		}
		for _, key := range []string{"nobody.has", "a.c", "team.nam"} {
			if missing := x.Get(path + "/" + key).Problem(fault.CodeNotFound); missing.Str("resource") != "tag" {
				x.t.Errorf("%s", missing.Body)
			}
		}
		x.unchanged(http.StatusOK, func() *apitest.Response { return x.tag(e.ID, "team.name", "b") }, e.ID)
		x.unchanged(http.StatusOK, func() *apitest.Response { return x.tag(e.ID, "a.b.c.d", "") }, e.ID)
		if n := len(answerAs[oapi.ExecutionList](x.Get("/v1/executions?tag=team.name:b&lane=" + x.lane).Want(http.StatusOK)).Items); n != 1 {
			x.t.Errorf("%d are listed by it", n)
		}
	}},
	{"keys that are none (6.8/110)", func(x *executionTest) {
		e := x.create("")
		for _, key := range []string{"Cairn.x", "cairn", "cairn.", "cairn..x", "1cairn.x", "cairn.foo bar", `cairn.foo"`, "cairn.Foo", "cairn.foo-bar", ".x", "cairn.x\n"} {
			for _, call := range []func() *apitest.Response{
				func() *apitest.Response { return x.tag(e.ID, key, "x") },
				func() *apitest.Response { return x.Get(operatorPath(e.ID, "tags/"+url.PathEscape(key))) },
			} {
				answer := x.refused(fault.CodeInvalidTagKey, call, e.ID)
				if fields := answer.Fields(); len(fields) != 1 || fields[0].In != fault.InPath || fields[0].Pointer != "key" {
					x.t.Errorf("%s: %+v", key, fields)
				}
			}
		}
		x.Get(operatorPath(e.ID, "tags/")).Problem(fault.CodeNotFound)
		x.refused(fault.CodeInvalidTagKey, func() *apitest.Response { return x.tag(uuid.New(), "Cairn.x", "x") }) // before it is looked for
	}},
	{"of what is not there (6.8/111)", func(x *executionTest) {
		id := uuid.New()
		for _, call := range []func() *apitest.Response{
			func() *apitest.Response { return x.tag(id, "a.b", "x") },
			func() *apitest.Response { return x.Get(operatorPath(id, "tags")) },
			func() *apitest.Response { return x.Get(operatorPath(id, "tags/a.b")) },
		} {
			if missing := x.refused(fault.CodeNotFound, call); missing.Str("resource") != "execution" {
				x.t.Errorf("%s", missing.Body)
			}
		}
	}},
	{"on a revision", func(x *executionTest) {
		e := x.create("")
		answer := x.refused(fault.CodeRevisionMismatch, func() *apitest.Response { return x.tag(e.ID, "a.b", "x", ifMatch(1)) }, e.ID)
		if answer.Int("expected") != 1 || answer.Int("actual") != 0 {
			x.t.Errorf("%s", answer.Body)
		}
		x.refused(fault.CodeRevisionMismatch, func() *apitest.Response {
			return x.Do(http.MethodPut, operatorPath(e.ID, "tags/a.b?revision=7"), `{"value":"x"}`)
		}, e.ID)
		x.tag(e.ID, "a.b", "x", ifMatch(0)).Want(http.StatusOK)
		x.tag(e.ID, "a.b", "y", `If-Match: W/"1"`).Want(http.StatusOK)
	}},
	{"in every phase, and the phase stays", func(x *executionTest) {
		x.inEachPhase(func(x *executionTest, p operatorPhase, id uuid.UUID, c oapi.Claim) {
			before := x.get(id)
			x.tag(id, "a.b", "c").Want(http.StatusOK)
			want := before
			want.Tags, want.Revision = oapi.Tags{"a.b": "c"}, before.Revision+1
			if diff := cmp.Diff(want, x.get(id)); diff != "" {
				x.t.Errorf("(-want +got):\n%s", diff)
			}
			if p.at == atActive {
				x.report(c, "complete", "").Want(http.StatusOK)
			}
		})
		for _, outcome := range terminals {
			e, _ := x.ended(outcome, "")
			x.tag(e.ID, "a.b", outcome).Want(http.StatusOK)
			if got := x.get(e.ID); got.Tags["a.b"] != outcome || got.PublicState != e.PublicState || !got.CompletedAt.Equal(*e.CompletedAt) {
				x.t.Errorf("%+v", got)
			}
		}
	}},
	{"the tag of an instance stands on its events from then on", func(x *executionTest) {
		e := x.create("")
		x.tag(e.ID, "cairn.instance_id", "i-7").Want(http.StatusOK)
		x.report(x.claim(""), "complete", "").Want(http.StatusOK)
		x.tag(e.ID, "cairn.instance_id", "i-8").Want(http.StatusOK)
		var got []string
		for _, event := range x.events(e.ID) {
			tag := ""
			if event.InstanceTag != nil {
				tag = *event.InstanceTag
			}
			got = append(got, event.Type+" "+tag)
		}
		want := []string{"execution.created ", "execution.tag_set i-7", "lease.acquired i-7", "execution.completed i-7", "lease.revoked i-7", "execution.tag_set i-8"}
		if diff := cmp.Diff(want, got); diff != "" {
			x.t.Errorf("(-want +got):\n%s", diff)
		}
	}},
	{"set by many at once, none is lost", func(x *executionTest) {
		e := x.create("")
		const n = 8
		atOnce(n, func(i int) *apitest.Response { return x.tag(e.ID, fmt.Sprintf("a.k%d", i), "x").Want(http.StatusOK) })
		if got := x.get(e.ID); len(got.Tags) != n || got.Revision != n {
			x.t.Errorf("%d tags at revision %d", len(got.Tags), got.Revision)
		}
	}},
	{"one too many, and one too long", func(x *executionTest) {
		e := x.create("")
		for i := 0; ; i++ {
			answer := x.tag(e.ID, fmt.Sprintf("a.k%d", i), "x")
			if answer.Status == http.StatusOK && i < 1000 {
				continue
			}
			answer.Problem(fault.CodeValidationFailed)
			if i < 10 || i >= 1000 {
				x.t.Errorf("%d tags", i)
			}
			break
		}
		x.refused(fault.CodeValidationFailed, func() *apitest.Response { return x.tag(e.ID, "a.k0", strings.Repeat("x", 5000)) }, e.ID)
		x.tag(e.ID, "a.k0", "y").Want(http.StatusOK) // one that is there already may change
	}},
}

// TestExecutions_Whole: every operation in the life of one execution. executions.md 6.8/119.
func TestExecutions_Whole(t *testing.T) {
	t.Parallel()
	runExecutionCases(t, []executionCase{
		{"all methods in one lifecycle (6.8/119)", func(x *executionTest) {
			e := x.create(`"required_capabilities":["go"],"delay_ms":60000,` + retryPolicy(1))
			x.stands(e.ID, atDelayed)
			x.operated(e.ID, "priority", `"priority":7`)
			x.tag(e.ID, "team.name", "x").Want(http.StatusOK)
			x.advance(time.Minute)
			x.turned("pause", "")
			x.none(`"capabilities":["go"]`)
			x.turned("resume", "")
			c := x.used(x.reserved(`"capabilities":["go"]`), "claim", lasting) // attempt 0, epoch 1
			x.report(c, "renew", lasting).Want(http.StatusOK)
			x.report(c, "progress", `"pct":10`).Want(http.StatusOK)
			x.report(c, "delay", `"delay_ms":60000`).Want(http.StatusOK)
			x.advance(time.Minute)
			c = x.claim(`"capabilities":["go"],` + lasting) // epoch 2
			x.report(c, "wait-children", "").Want(http.StatusOK)
			x.operated(e.ID, "resume", "")
			c = x.claim(`"capabilities":["go"],` + lasting) // epoch 3
			x.report(c, "release", "").Want(http.StatusOK)
			x.operator(e.ID, "operator-claim", `"lease_ttl_ms":60000`).Want(http.StatusOK) // epoch 4
			x.advance(time.Minute)
			x.stands(e.ID, atLost)
			c = x.used(x.reservedLost(e.ID, `"capabilities":["go"]`), "reclaim", lasting) // attempt 1, epoch 5
			x.operator(e.ID, "revoke-lease", "").Want(http.StatusOK)                      // epoch 6
			x.refused(fault.CodeLeaseRevoked, func() *apitest.Response { return x.report(c, "complete", "") }, e.ID)
			c = x.claim(`"capabilities":["go"],` + lasting) // attempt 2, epoch 7
			x.report(c, "fail", `"reason":"boom"`).Want(http.StatusOK)
			x.advance(retryDelay)
			c = x.claim(`"capabilities":["go"],` + lasting) // attempt 3, epoch 8
			x.operated(e.ID, "operator-cancel", `"reason":"no","grace_ms":60000`)
			x.report(c, "cancel", "").Want(http.StatusOK)
			x.stands(e.ID, atCancelled)
			x.operated(e.ID, "replay", "")
			c = x.claim(`"capabilities":["go"],` + lasting) // attempt 4, epoch 9
			if c.Fence.AttemptIndex != 4 || c.Fence.LeaseEpoch != 9 || c.Kind != "replay" {
				x.t.Errorf("a %s claim: %+v", c.Kind, c.Fence)
			}
			x.report(c, "complete", `"result":{"done":true}`).Want(http.StatusOK)
			done := x.stands(e.ID, atCompleted)
			if done.ReplayCount != 1 || done.RetryCount != 0 || done.LeaseReclaimCount != 0 || done.TotalAttemptCount != 5 || done.Priority != 7 || done.Tags["team.name"] != "x" {
				x.t.Errorf("%+v", done)
			}
			var types, states []string
			for _, a := range x.attempts(e.ID) {
				types, states = append(types, string(a.AttemptType)), append(states, string(a.State))
			}
			if diff := cmp.Diff([]string{"initial", "reclaim", "reclaim", "retry", "replay"}, types); diff != "" {
				x.t.Errorf("(-want +got):\n%s", diff)
			}
			if diff := cmp.Diff([]string{"interrupted_reclaimed", "interrupted_reclaimed", "ended_failure", "ended_cancelled", "ended_success"}, states); diff != "" {
				x.t.Errorf("(-want +got):\n%s", diff)
			}
			revision := int64(-1)
			for _, event := range x.events(e.ID) {
				if *event.Revision < revision {
					x.t.Errorf("%s at revision %d after %d", event.Type, *event.Revision, revision)
				}
				revision = *event.Revision
			}
			if revision != done.Revision {
				x.t.Errorf("the last event is of revision %d, the execution of %d", revision, done.Revision)
			}
		}},
	})
}
