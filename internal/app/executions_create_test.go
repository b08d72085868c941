package app_test

import (
	"fmt"
	"net/http"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/google/uuid"

	"github.com/flowapi/flowapi/internal/apitest"
	"github.com/flowapi/flowapi/internal/domain/fault"
	"github.com/flowapi/flowapi/internal/handlers/oapi"
)

// TestExecutions_Create: executions.md 2.1 and 6.1.
func TestExecutions_Create(t *testing.T) {
	t.Parallel()
	runExecutionCases(t, executionsCreateCases)
}

var executionsCreateCases = []executionCase{
	{"created and read (6.1/1, 6.1/17)", func(x *executionTest) {
		answer := x.Post("/v1/executions", x.sent(`"kind":"shell","payload":{"run":"go build"},"priority":5,"tags":{"team.name":"platform","a.b":""}`)).Want(http.StatusCreated)
		got := answerAs[oapi.Execution](answer)
		want := oapi.Execution{
			ID: got.ID, Namespace: "default", Lane: x.lane, Kind: "shell", Priority: 5, PublicState: "waiting",
			StateVector: oapi.StateVector{LifecyclePhase: "runnable", OwnershipState: "unowned", EligibilityState: "eligible_now",
				BlockingReason: "waiting_for_worker", TerminalOutcome: "none", AttemptState: "pending_first_attempt", PublicState: "waiting"},
			BlockingReason: "waiting_for_worker", Payload: oapi.Document(`{"run":"go build"}`), PayloadEncoding: "json", Policy: oapi.Document("null"),
			RequiredCapabilities: []string{}, Tags: oapi.Tags{"a.b": "", "team.name": "platform"}, BudgetIds: oapi.BudgetIDs{}, QuotaPolicyIds: oapi.QuotaPolicyIDs{},
			Estimate:  oapi.CountedAmounts{},
			CreatedAt: got.CreatedAt,
		}
		if diff := cmp.Diff(want, got); diff != "" {
			x.t.Errorf("(-want +got):\n%s", diff)
		}
		if got.ID.Version() != 7 || got.CreatedAt.IsZero() {
			x.t.Errorf("id %s of version %d, created at %s", got.ID, got.ID.Version(), got.CreatedAt)
		}
		if location := answer.Header.Get("Location"); location != "/v1/executions/"+got.ID.String() || answer.ETag() != `"0"` {
			x.t.Errorf("Location %q, ETag %s", location, answer.ETag())
		}
		if diff := cmp.Diff(got, x.get(got.ID)); diff != "" {
			x.t.Errorf("created and read differ (-created +read):\n%s", diff)
		}
		if x.attempts(got.ID) == nil || len(x.attempts(got.ID)) > 0 {
			x.t.Error("there are attempts before the first claim")
		}
		x.told(got.ID, "execution.created")
	}},
	{"the same id twice changes nothing (6.1/2)", func(x *executionTest) {
		id := uuid.New()
		first := x.Post("/v1/executions", x.sent(`"priority":5,"id":"`+id.String()+`"`)).Want(http.StatusCreated)
		for _, body := range []string{`"priority":5,`, `"priority":9,"payload":1,"tags":{"a.b":"c"},`, `"tags":{"BAD":""},"deadline_at":"2001-01-01T00:00:00Z",`} {
			again := x.unchanged(http.StatusOK, func() *apitest.Response { return x.Post("/v1/executions", x.sent(body+`"id":"`+id.String()+`"`)) }, id)
			if string(again.Body) != string(first.Body) || again.Header.Get("Idempotent-Replay") != "true" || again.ETag() != `"0"` {
				x.t.Errorf("the second create answers %v\n%s\nthe first\n%s", again.Header, again.Body, first.Body)
			}
		}
		x.claim("")
		again := x.Post("/v1/executions", x.sent(`"id":"`+id.String()+`"`)).Want(http.StatusOK)
		if again.Str("public_state") != "active" {
			x.t.Errorf("what is stored is not what is answered: %s", again.Body)
		}
	}},
	{"the same idempotency_key creates once (6.1/3)", func(x *executionTest) {
		first := x.create(`"idempotency_key":"k-` + x.lane + `","payload":1`)
		again := x.unchanged(http.StatusOK, func() *apitest.Response {
			return x.Post("/v1/executions", x.sent(`"idempotency_key":"k-`+x.lane+`","payload":2,"id":"`+uuid.NewString()+`"`))
		}, first.ID)
		if again.Str("id") != first.ID.String() || again.Int("payload") != 1 || again.Header.Get("Idempotent-Replay") != "true" {
			x.t.Errorf("a second create answers %s", again.Body)
		}
		x.advance(24*time.Hour - time.Minute)
		x.Post("/v1/executions", x.sent(`"idempotency_key":"k-`+x.lane+`"`)).Want(http.StatusOK)
		x.advance(2 * time.Minute)
		if later := x.create(`"idempotency_key":"k-` + x.lane + `","payload":3`); later.ID == first.ID {
			x.t.Error("after its window the key is still taken")
		}
		x.server.Clock.Advance(25 * time.Hour) // and nobody has swept it away yet
		x.create(`"idempotency_key":"k-` + x.lane + `"`)
		x.Post("/v1/executions", x.sent(`"idempotency_key":"k-`+x.lane+`"`)).Want(http.StatusOK)
	}},
	{"the window of an idempotency_key is the policy's (2.1)", func(x *executionTest) {
		window := func(ms int) string {
			return fmt.Sprintf(`"idempotency_key":"w%d-%s","policy":{"dedup_window_ms":%d}`, ms, x.lane, ms)
		}
		x.create(window(0))
		x.create(window(0)) // 0 does not record it
		x.create(window(600000))
		x.advance(9 * time.Minute)
		x.Post("/v1/executions", x.sent(window(600000))).Want(http.StatusOK)
		x.advance(2 * time.Minute)
		x.create(window(600000))
	}},
	{"the key is looked at before the id, and both before what is wrong (2.1)", func(x *executionTest) {
		keyed, other := x.create(`"idempotency_key":"o-`+x.lane+`"`), x.create("")
		for _, members := range []string{
			`"id":"` + other.ID.String() + `"`, `"tags":{"BAD":""}`, `"required_capabilities":["a,b"]`, `"deadline_at":"2001-01-01T00:00:00Z"`,
		} {
			answer := x.unchanged(http.StatusOK, func() *apitest.Response {
				return x.Post("/v1/executions", x.sent(`"idempotency_key":"o-`+x.lane+`",`+members))
			}, keyed.ID)
			if answer.Str("id") != keyed.ID.String() {
				x.t.Errorf("%s: got %s instead of %s", members, answer.Str("id"), keyed.ID)
			}
		}
	}},
	{"what is refused does not take its key (2.1)", func(x *executionTest) {
		key := `"idempotency_key":"r-` + x.lane + `"`
		x.refused(fault.CodeInvalidTagKey, func() *apitest.Response { return x.Post("/v1/executions", x.sent(key+`,"tags":{"BAD":""}`)) })
		batch := fmt.Sprintf(`{"executions":[%s,%s]}`, x.sent(key+`,"tags":{"BAD":""}`), x.sent(key+`,"deadline_at":"2001-01-01T00:00:00Z"`))
		x.unchanged(http.StatusCreated, func() *apitest.Response { return x.Post("/v1/executions/batch", batch) })
		x.create(key)
	}},
	{"a key whose execution is gone is free", func(x *executionTest) {
		first := x.create(`"idempotency_key":"g-` + x.lane + `"`)
		x.tamper(`DELETE FROM executions WHERE id = ?`, rowID(first.ID))
		if next := x.create(`"idempotency_key":"g-` + x.lane + `"`); next.ID == first.ID {
			x.t.Error("the dead execution was answered")
		}
		x.Post("/v1/executions", x.sent(`"idempotency_key":"g-`+x.lane+`"`)).Want(http.StatusOK)
	}},
	{"many creates of one key, or one id, at once make one execution (5/33)", func(x *executionTest) {
		for name, members := range map[string]string{"key": `"idempotency_key":"c-` + x.lane + `"`, "id": `"id":"` + uuid.NewString() + `"`} {
			answers := atOnce(8, func(int) *apitest.Response { return x.Post("/v1/executions", x.sent(members)) })
			made, ids := 0, map[string]bool{}
			for _, a := range answers {
				if a.Status == http.StatusCreated {
					made++
				} else {
					a.Want(http.StatusOK)
				}
				ids[a.Str("id")] = true
			}
			if made != 1 || len(ids) != 1 {
				x.t.Errorf("by %s: %d were made, %v", name, made, ids)
			}
		}
	}},
	{"lane, kind, payload and requirements are kept (6.1/4)", func(x *executionTest) {
		e := x.create(`"kind":"k\n'\"$é","payload":{"b":1e3,"a":[1.0,12345678901234567890,"<&>"]},"required_capabilities":["linux","go","go"],
				"policy":{"routing_requirements":{"required_capabilities":["gpu","go"]},"max_replay_count":3}`)
		got := x.get(e.ID)
		if got.Kind != "k\n'\"$é" || string(got.Payload) != `{"b":1e3,"a":[1.0,12345678901234567890,"\u003c\u0026\u003e"]}` {
			x.t.Errorf("kind %q, payload %s", got.Kind, got.Payload)
		}
		if !slices.Equal(got.RequiredCapabilities, []string{"go", "gpu", "linux"}) {
			x.t.Errorf("requires %v", got.RequiredCapabilities)
		}
		if want := `{"routing_requirements":{"required_capabilities":["gpu","go"]},"max_replay_count":3}`; string(got.Policy) != want {
			x.t.Errorf("policy %s", got.Policy)
		}
	}},
	{"priority is clamped, never refused (6.1/5)", func(x *executionTest) {
		for given, want := range map[int32]int32{10000: 9000, -5: 0, 50: 50, 9000: 9000, 0: 0, 2147483647: 9000, -2147483648: 0} {
			e := x.create(fmt.Sprintf(`"priority":%d`, given))
			if e.Priority != want || x.get(e.ID).Priority != want {
				x.t.Errorf("priority %d became %d, want %d", given, e.Priority, want)
			}
		}
		for _, want := range []int32{9000, 9000, 9000, 50, 0, 0, 0} {
			if got := x.claim("").Execution.Priority; got != want {
				x.t.Errorf("claimed priority %d, want %d", got, want)
			}
		}
	}},
	{"a deadline is kept, and counts (6.1/6)", func(x *executionTest) {
		at := x.server.Clock.Now().Add(time.Hour)
		by := x.create(`"deadline_at":"` + at.In(time.FixedZone("", 5400)).Format(time.RFC3339Nano) + `"`)
		if by.DeadlineAt == nil || !by.DeadlineAt.Time().Equal(at) {
			x.t.Errorf("deadline %v, want %s", by.DeadlineAt, at)
		}
		policy := x.create(`"policy":{"timeout_policy":{"execution_deadline_ms":3600000}}`)
		if policy.DeadlineAt == nil || policy.DeadlineAt.Time().Sub(policy.CreatedAt.Time()) != time.Hour {
			x.t.Errorf("created %s, deadline %v", policy.CreatedAt, policy.DeadlineAt)
		}
		x.advance(59 * time.Minute)
		x.stands(by.ID, atWaiting)
		x.advance(2 * time.Minute)
		for _, id := range []uuid.UUID{by.ID, policy.ID} {
			e := x.stands(id, atExpiredIdle)
			if e.Failure == nil || e.Failure.Reason != "execution_deadline" || e.CompletedAt == nil || e.StartedAt != nil {
				x.t.Errorf("expired: %+v, completed %v, started %v", e.Failure, e.CompletedAt, e.StartedAt)
			}
			x.told(id, "execution.created", "execution.expired")
		}
		x.none("")
	}},
	{"delayed (6.1/7)", func(x *executionTest) {
		until := x.server.Clock.Now().Add(time.Hour)
		at := x.create(`"delay_until":"` + until.Format(time.RFC3339Nano) + `"`)
		in := x.create(`"delay_ms":3600000`)
		for _, id := range []uuid.UUID{at.ID, in.ID} {
			e := x.stands(id, atDelayed)
			if e.DelayUntil == nil || !strings.HasPrefix(e.BlockingDetail, "delayed until ") {
				x.t.Errorf("until %v: %q", e.DelayUntil, e.BlockingDetail)
			}
		}
		if !at.DelayUntil.Time().Equal(until) || in.DelayUntil.Time().Sub(in.CreatedAt.Time()) != time.Hour {
			x.t.Errorf("until %s and %s, want %s", at.DelayUntil, in.DelayUntil, until)
		}
		x.none("")
		x.advance(59 * time.Minute)
		x.none("")
		x.advance(2 * time.Minute)
		for _, id := range []uuid.UUID{at.ID, in.ID} {
			e := x.stands(id, atWaiting)
			if e.DelayUntil != nil || e.BlockingDetail != "" {
				x.t.Errorf("until %v: %q", e.DelayUntil, e.BlockingDetail)
			}
			x.told(id, "execution.created", "execution.eligible")
		}
		if got := x.claims(`"max":5`); len(got) != 2 {
			x.t.Errorf("%d claims", len(got))
		}
	}},
	{"delayed until the past is not delayed (2.1)", func(x *executionTest) {
		for _, members := range []string{`"delay_until":"2001-01-01T00:00:00Z"`, `"delay_ms":0`, `"delay_until":"` + x.server.Clock.Now().Format(time.RFC3339Nano) + `"`} {
			if e := x.create(members); e.PublicState != "waiting" || e.DelayUntil != nil {
				x.t.Errorf("%s: %s until %v", members, e.PublicState, e.DelayUntil)
			}
		}
	}},
	{"what is refused leaves nothing (6.3/39, 7.2/28)", func(x *executionTest) {
		long := strings.Repeat("x", 4097)
		tests := []struct {
			members string
			code    fault.Code
			pointer string
		}{
			{`"required_capabilities":["a,b"]`, fault.CodeInvalidCapabilities, "/required_capabilities"},
			{`"required_capabilities":["a b"]`, fault.CodeInvalidCapabilities, "/required_capabilities"},
			{`"required_capabilities":["a\tb"]`, fault.CodeInvalidCapabilities, "/required_capabilities"},
			{`"required_capabilities":["\u007f"]`, fault.CodeInvalidCapabilities, "/required_capabilities"},
			{`"required_capabilities":[""]`, fault.CodeInvalidCapabilities, "/required_capabilities"},
			{`"required_capabilities":["` + long + `"]`, fault.CodeInvalidCapabilities, "/required_capabilities"},
			{`"required_capabilities":[` + capabilityTokens(257) + `]`, fault.CodeInvalidCapabilities, "/required_capabilities"},
			{`"required_capabilities":[1]`, fault.CodeValidationFailed, "/required_capabilities/0"},
			{`"required_capabilities":"gpu"`, fault.CodeValidationFailed, "/required_capabilities"},
			{`"policy":{"routing_requirements":{"required_capabilities":["a,b"]}}`, fault.CodeInvalidCapabilities, "/policy/routing_requirements/required_capabilities"},
			{`"policy":{"routing_requirements":[]}`, fault.CodeValidationFailed, "/policy/routing_requirements"},
			{`"policy":"{}"`, fault.CodeValidationFailed, "/policy"},
			{`"policy":{"retry_policy":{"max_retries":-1}}`, fault.CodeValidationFailed, "/policy/retry_policy/max_retries"},
			{`"policy":{"retry_policy":{"backoff":{"multiplier":0}}}`, fault.CodeValidationFailed, "/policy/retry_policy/backoff/multiplier"},
			{`"policy":{"retry_policy":{"backoff":{"type":"linear"}}}`, fault.CodeValidationFailed, "/policy/retry_policy/backoff/type"},
			{`"policy":{"retries":3}`, fault.CodeValidationFailed, "/policy/retries"},
			{`"tags":{"Team":"x"}`, fault.CodeInvalidTagKey, "/tags/Team"},
			{`"tags":{"a.b":1}`, fault.CodeValidationFailed, "/tags/a.b"},
			{`"deadline_at":"2001-01-01T00:00:00Z"`, fault.CodeTimerOutOfRange, "/deadline_at"},
			{`"delay_ms":1,"delay_until":"2031-01-01T00:00:00Z"`, fault.CodeValidationFailed, "/delay_ms"},
			{`"delay_ms":-1`, fault.CodeValidationFailed, "/delay_ms"},
			{`"key":"build"`, fault.CodeValidationFailed, "/key"},
			{`"lane":""`, fault.CodeValidationFailed, "/lane"},
			{`"lane":"é"`, fault.CodeValidationFailed, "/lane"},
			{`"lane":"` + strings.Repeat("x", 65) + `"`, fault.CodeValidationFailed, "/lane"},
			{`"id":"7"`, fault.CodeValidationFailed, "/id"},
			{`"namespace":"other"`, fault.CodeValidationFailed, "/namespace"},
			{`"kind":"\u0000"`, fault.CodeValidationFailed, "/kind"},
		}
		for _, tt := range tests {
			answer := x.refused(tt.code, func() *apitest.Response { return x.Post("/v1/executions", x.sent(tt.members)) })
			if fields := answer.Fields(); len(fields) == 0 || fields[0].Pointer != tt.pointer {
				x.t.Errorf("%.60s: %+v, want %s", tt.members, fields, tt.pointer)
			}
		}
		for _, members := range []string{`"budget_ids":["` + uuid.NewString() + `"]`, `"quota_policy_ids":["` + uuid.NewString() + `"]`} {
			x.refused(fault.CodeNotFound, func() *apitest.Response { return x.Post("/v1/executions", x.sent(members)) })
		}
		x.none("")
	}},
	{"the largest that is allowed (1.1, 1.7)", func(x *executionTest) {
		lane := strings.Repeat("~", 64)
		e := x.create(`"lane":"` + lane + `","required_capabilities":[` + capabilityTokens(256) + `]`)
		if len(e.RequiredCapabilities) != 256 || e.Lane != lane {
			x.t.Errorf("%d requirements in %s", len(e.RequiredCapabilities), e.Lane)
		}
		c := x.claim(`"lane":"` + lane + `","capabilities":[` + capabilityTokens(256) + `]`)
		x.report(c, "complete", "").Want(http.StatusOK)
		e = x.create(`"required_capabilities":["` + strings.Repeat("x", 4096) + `"]`)
		x.claim(`"capabilities":["` + strings.Repeat("x", 4096) + `"]`)
	}},
	{"a batch answers each item, in order", func(x *executionTest) {
		id := uuid.NewString()
		body := fmt.Sprintf(`{"executions":[%s,%s,%s,%s,%s]}`, x.sent(`"id":"`+id+`","priority":1`), x.sent(`"tags":{"BAD":""}`), x.sent(`"id":"`+id+`","priority":2`),
			x.sent(`"idempotency_key":"b-`+x.lane+`"`), x.sent(`"idempotency_key":"b-`+x.lane+`"`))
		answer := x.Post("/v1/executions/batch", body).Want(http.StatusCreated)
		items := answerAs[oapi.CreatedExecutions](answer).Items
		if len(items) != 5 || items[0].Execution == nil || items[0].Execution.ID.String() != id || items[0].Execution.Priority != 1 || items[0].Problem != nil {
			x.t.Fatalf("%s", answer.Body)
		}
		if p := items[1].Problem; p == nil || p.Code != string(fault.CodeInvalidTagKey) || p.Status != 422 || p.Instance != "/v1/executions/batch" ||
			p.RequestID != answer.Header.Get("X-Request-Id") || items[1].Execution != nil {
			x.t.Errorf("the second item: %+v", items[1])
		}
		if diff := cmp.Diff(items[0], items[2]); diff != "" {
			x.t.Errorf("the same id twice in a batch:\n%s", diff)
		}
		if diff := cmp.Diff(items[3], items[4]); diff != "" || items[3].Execution.ID == items[0].Execution.ID {
			x.t.Errorf("the same key twice in a batch:\n%s", diff)
		}
		if got := x.claims(`"max":10`); len(got) != 2 {
			x.t.Errorf("%d were made", len(got))
		}
	}},
	{"an atomic batch is all or none", func(x *executionTest) {
		body := fmt.Sprintf(`{"executions":[%s,%s,%s]}`, x.sent(""), x.sent(`"tags":{"a.b":"","BAD":""}`), x.sent(`"deadline_at":"2001-01-01T00:00:00Z"`))
		answer := x.refused(fault.CodeInvalidTagKey, func() *apitest.Response { return x.Post("/v1/executions/batch?atomic=true", body) })
		if fields := answer.Fields(); len(fields) != 1 || fields[0].Pointer != "/executions/1/tags/BAD" {
			x.t.Errorf("%+v", fields)
		}
		answer = x.refused(fault.CodeNotFound, func() *apitest.Response {
			return x.Post("/v1/executions/batch?atomic=true", `{"executions":[`+x.sent("")+`,`+x.sent(`"budget_ids":["`+uuid.NewString()+`"]`)+`]}`)
		})
		if fields := answer.Fields(); len(fields) != 1 || fields[0].Pointer != "/executions/1" {
			x.t.Errorf("%+v", fields)
		}
		x.Post("/v1/executions/batch?atomic=true", `{"executions":[`+x.sent("")+`,`+x.sent("")+`]}`).Want(http.StatusCreated)
		if got := x.claims(`"max":10`); len(got) != 2 {
			x.t.Errorf("%d were made", len(got))
		}
	}},
	{"a batch that breaks the contract is refused as a whole", func(x *executionTest) {
		for body, pointer := range map[string]string{
			`{"executions":[` + x.sent("") + `,{"kind":"no lane"}]}`: "/executions/1/lane", `{"executions":[]}`: "/executions",
			`{"executions":[` + x.sent("") + strings.Repeat(","+x.sent(""), 1000) + `]}`: "/executions",
		} {
			answer := x.refused(fault.CodeValidationFailed, func() *apitest.Response { return x.Post("/v1/executions/batch", body) })
			if fields := answer.Fields(); len(fields) != 1 || fields[0].Pointer != pointer {
				x.t.Errorf("%+v, want %s", fields, pointer)
			}
		}
	}},
	{"octets come back byte for byte", func(x *executionTest) {
		id := uuid.NewString()
		path := "/v1/executions/octets?kind=blob&priority=9999&id=" + id + "&lane=" + x.lane
		answer := x.Post(path, everyByte(), "Content-Type: application/octet-stream").Want(http.StatusCreated)
		e := answerAs[oapi.Execution](answer)
		if e.Kind != "blob" || e.Priority != 9000 || e.PayloadEncoding != "base64" || e.ID.String() != id || answer.Header.Get("Location") != "/v1/executions/"+id {
			x.t.Errorf("%+v", e)
		}
		if payload := answerAs[struct{ Payload []byte }](answer).Payload; !slices.Equal(payload, everyByte()) {
			x.t.Errorf("in JSON the payload is %q", payload)
		}
		back := x.Get("/v1/executions/" + id + "/payload").Want(http.StatusOK)
		if back.Header.Get("Content-Type") != "application/octet-stream" || !slices.Equal(back.Body, everyByte()) {
			x.t.Errorf("%s: %q", back.Header.Get("Content-Type"), back.Body)
		}
		x.unchanged(http.StatusOK, func() *apitest.Response { return x.Post(path, "other", "Content-Type: application/octet-stream") }, e.ID)
		x.refused(fault.CodeUnsupportedMediaType, func() *apitest.Response { return x.Post(path, "{}") })
	}},
	{"no octets at all are octets, too", func(x *executionTest) {
		e := answerAs[oapi.Execution](x.Post("/v1/executions/octets?lane="+x.lane, "", "Content-Type: application/octet-stream").Want(http.StatusCreated))
		if string(e.Payload) != `""` || string(x.get(e.ID).Payload) != `""` {
			x.t.Errorf("payload %s", e.Payload)
		}
		back := x.Get("/v1/executions/" + e.ID.String() + "/payload").Want(http.StatusOK)
		if back.Header.Get("Content-Type") != "application/octet-stream" || len(back.Body) != 0 {
			x.t.Errorf("%s: %q", back.Header.Get("Content-Type"), back.Body)
		}
	}},
}

// capabilityTokens returns n different capabilities.
func capabilityTokens(n int) string {
	var b strings.Builder
	for i := range n {
		fmt.Fprintf(&b, `,"t%d"`, i)
	}
	return b.String()[1:]
}

// everyByte returns the 256 bytes there are.
func everyByte() []byte {
	b := make([]byte, 256)
	for i := range b {
		b[i] = byte(i)
	}
	return b
}

// atOnce makes n calls at once and returns their answers.
func atOnce(n int, call func(i int) *apitest.Response) []*apitest.Response {
	answers := make([]*apitest.Response, n)
	var wg sync.WaitGroup
	for i := range n {
		wg.Go(func() { answers[i] = call(i) })
	}
	wg.Wait()
	return answers
}
