package wait_test

import (
	"encoding/json"
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/flowapi/flowapi/internal/domain/fault"
	"github.com/flowapi/flowapi/internal/domain/wait"
)

func TestParse(t *testing.T) {
	t.Parallel()
	noon := time.Date(2026, 11, 22, 12, 0, 0, 250_000_000, time.UTC)
	tests := []struct {
		name string
		json string
		want wait.Condition
		text string // canonical, when it differs
	}{
		{"timer", `{"kind":"timer","at":"2026-11-22T12:00:00.250Z"}`, wait.Condition{Kind: wait.Timer, At: noon}, ""},
		{"timer with an offset, cut to milliseconds", `{"at":"2026-11-22t13:00:00.2509+01:00", "kind":"timer"}`, wait.Condition{Kind: wait.Timer, At: noon}, `{"kind":"timer","at":"2026-11-22T12:00:00.250Z"}`},
		{"event", `{"kind":"external_event","topic":"a","correlation_id":"b"}`, event("a", "b"), ""},
		{"names stay as they are", `{"kind":"external_event","topic":" a ","correlation_id":"ü"}`, event(" a ", "ü"), ""},
		{"manual", `{"kind":"manual"}`, wait.Condition{Kind: wait.Manual}, ""},
		{
			"three levels", `{"kind":"any","of":[{"kind":"all","of":[{"kind":"manual"},{"kind":"external_event","topic":"a","correlation_id":"b"}]},{"kind":"timer","at":"2026-11-22T12:00:00.250Z"}]}`,
			anyOf(allOf(wait.Condition{Kind: wait.Manual}, event("a", "b")), timer(noon)), "",
		},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			got, err := wait.Parse([]byte(tt.json), "/condition")
			if err != nil {
				t.Fatal(err)
			}
			if diff := cmp.Diff(tt.want, got); diff != "" {
				t.Errorf("Parse() (-want +got):\n%s", diff)
			}
			text, err := json.Marshal(got)
			if err != nil {
				t.Fatal(err)
			}
			want := tt.text
			if want == "" {
				want = tt.json
			}
			if string(text) != want {
				t.Errorf("it is written as %s, want %s", text, want)
			}
			var again wait.Condition
			if err := json.Unmarshal(text, &again); err != nil || !again.Equal(got) {
				t.Errorf("it is read again as %+v, %v", again, err)
			}
		})
	}
}

func TestParse_Refusals(t *testing.T) {
	t.Parallel()
	leaf := `{"kind":"manual"}`
	tests := []struct{ name, json, pointer string }{
		{"null", `null`, ""},
		{"text", `"timer"`, ""},
		{"list", `[]`, ""},
		{"nothing", `{}`, "/kind"},
		{"kind is a number", `{"kind":1}`, "/kind"},
		{"kind is null", `{"kind":null}`, "/kind"},
		{"unknown kind", `{"kind":"signal"}`, "/kind"},
		{"kinds are exact", `{"kind":"Timer","at":"2026-11-22T12:00:00Z"}`, "/kind"},
		{"timer without time", `{"kind":"timer"}`, "/at"},
		{"timer with null", `{"kind":"timer","at":null}`, "/at"},
		{"timer with a number", `{"kind":"timer","at":1764000000}`, "/at"},
		{"timer with a date", `{"kind":"timer","at":"2026-11-22"}`, "/at"},
		{"timer with more", `{"kind":"timer","at":"2026-11-22T12:00:00Z","topic":"x"}`, "/topic"},
		{"event without topic", `{"kind":"external_event","correlation_id":"x"}`, "/topic"},
		{"event with a null topic", `{"kind":"external_event","topic":null,"correlation_id":"x"}`, "/topic"},
		{"event with a blank topic", `{"kind":"external_event","topic":" \t","correlation_id":"x"}`, "/topic"},
		{"event without correlation", `{"kind":"external_event","topic":"x"}`, "/correlation_id"},
		{"event with a blank correlation", `{"kind":"external_event","topic":"x","correlation_id":""}`, "/correlation_id"},
		{"topic too long", `{"kind":"external_event","topic":"` + strings.Repeat("ä", 257) + `","correlation_id":"x"}`, "/topic"},
		{"correlation is a list", `{"kind":"external_event","topic":"x","correlation_id":[]}`, "/correlation_id"},
		{"manual with more", `{"kind":"manual","signal":"x"}`, "/signal"},
		{"escaped member", `{"kind":"manual","a/b~c":1}`, "/a~1b~0c"},
		{"any without parts", `{"kind":"any"}`, "/of"},
		{"all of nothing", `{"kind":"all","of":[]}`, "/of"},
		{"of is an object", `{"kind":"all","of":{}}`, "/of"},
		{"of holds null", `{"kind":"all","of":[null]}`, "/of/0"},
		{"wrong part", `{"kind":"any","of":[` + leaf + `,{"kind":"timer","at":"soon"}]}`, "/of/1/at"},
		{"wrong part of a part", `{"kind":"any","of":[{"kind":"all","of":[` + leaf + `,{"kind":"x"}]}]}`, "/of/0/of/1/kind"},
		{"four levels", `{"kind":"any","of":[{"kind":"any","of":[` + leaf + `,{"kind":"any","of":[` + leaf + `]}]}]}`, "/of/0/of/1/of/0"},
		{"33 leaves", `{"kind":"all","of":[` + strings.Repeat(leaf+",", 32) + leaf + `]}`, "/of/32"},
		{"33 leaves in parts", `{"kind":"all","of":[{"kind":"any","of":[` + strings.Repeat(leaf+",", 31) + leaf + `]},` + leaf + `]}`, "/of/1"},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			_, err := wait.Parse([]byte(tt.json), "/condition")
			if code, pointer := refusal(err); code != fault.CodeBadWaitCondition || pointer != "/condition"+tt.pointer {
				t.Errorf("Parse() = %s at %q, want %s at %q (%v)", code, pointer, fault.CodeBadWaitCondition, "/condition"+tt.pointer, err)
			}
		})
	}
	if _, err := wait.Parse([]byte(`{"kind":"all","of":[`+strings.Repeat(leaf+",", 31)+leaf+`]}`), ""); err != nil {
		t.Errorf("32 leaves are refused: %v", err)
	}
}

// TestSpec_Check holds the guardrails. reference: runs-and-taskflows.md B9, C5 NT-09 to NT-12.
func TestSpec_Check(t *testing.T) {
	t.Parallel()
	now := time.Date(2026, 11, 21, 9, 30, 0, 0, time.UTC)
	at := func(d time.Duration) wait.Condition { return timer(now.Add(d)) }
	manual := wait.Condition{Kind: wait.Manual}
	tests := []struct {
		name    string
		spec    wait.Spec
		pointer string // "" for allowed
	}{
		{"in the past", wait.Spec{Condition: at(-time.Minute)}, "/condition/at"},
		{"now", wait.Spec{Condition: at(0)}, "/condition/at"},
		{"in a moment", wait.Spec{Condition: at(time.Millisecond)}, ""},
		{"in five minutes", wait.Spec{Condition: at(5 * time.Minute)}, ""},
		{"at the horizon", wait.Spec{Condition: at(wait.DefaultHorizon)}, ""},
		{"beyond the horizon", wait.Spec{Condition: at(wait.DefaultHorizon + time.Millisecond)}, "/condition/at"},
		{"in sixty days", wait.Spec{Condition: at(60 * 24 * time.Hour)}, "/condition/at"},
		{"inside", wait.Spec{Condition: anyOf(manual, allOf(manual, at(-1)))}, "/condition/of/1/of/1/at"},
		{"deadline in the past", wait.Spec{Condition: manual, Deadline: now.Add(-1)}, "/deadline"},
		{"deadline beyond the horizon", wait.Spec{Condition: manual, Deadline: now.Add(wait.DefaultHorizon + 1)}, "/deadline"},
		{"deadline", wait.Spec{Condition: manual, Deadline: now.Add(time.Hour)}, ""},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			err := tt.spec.Check(now, wait.DefaultHorizon, "")
			code, pointer := refusal(err)
			if want := map[bool]fault.Code{true: "", false: fault.CodeTimerOutOfRange}[tt.pointer == ""]; code != want || pointer != tt.pointer {
				t.Errorf("Check() = %s at %q, want %s at %q", code, pointer, want, tt.pointer)
			}
		})
	}
	err := wait.Spec{Condition: at(-1)}.Check(now, wait.DefaultHorizon, "")
	for _, words := range []string{"must be in the future", "max horizon of 30 days"} {
		if !strings.Contains(fmt.Sprint(err), words) {
			t.Errorf("the refusal does not say %q: %v", words, err)
		}
	}
}

func TestRequest_Parse(t *testing.T) {
	t.Parallel()
	deadline := time.Date(2026, 11, 21, 9, 30, 0, 0, time.UTC)
	got, err := wait.Request{Condition: []byte(`{"kind":"manual"}`), Deadline: deadline}.Parse("")
	want := wait.Spec{Condition: wait.Condition{Kind: wait.Manual}, Deadline: deadline, OnTimeout: wait.TimeoutFails}
	if diff := cmp.Diff(want, got); err != nil || diff != "" {
		t.Errorf("Parse() = %v (-want +got):\n%s", err, diff)
	}
	_, err = wait.Request{Condition: []byte(`{"kind":"manual"}`), OnTimeout: "expire"}.Parse("/wait")
	if code, pointer := refusal(err); code != fault.CodeValidationFailed || pointer != "/wait/on_timeout" {
		t.Errorf("Parse(unknown on_timeout) = %s at %q", code, pointer)
	}
	_, err = wait.Request{}.Parse("/wait")
	if code, pointer := refusal(err); code != fault.CodeBadWaitCondition || pointer != "/wait/condition" {
		t.Errorf("Parse(nothing) = %s at %q", code, pointer)
	}
}

func TestEvent_Check(t *testing.T) {
	t.Parallel()
	for _, tt := range []struct {
		event   wait.Signal
		pointer string
	}{
		{wait.Signal{Topic: "a", CorrelationID: "b"}, ""},
		{wait.Signal{Topic: " ", CorrelationID: "b"}, "/topic"},
		{wait.Signal{Topic: "a"}, "/correlation_id"},
		{wait.Signal{Topic: "a", CorrelationID: strings.Repeat("x", 257)}, "/correlation_id"},
	} {
		if _, pointer := refusal(tt.event.Check()); pointer != tt.pointer {
			t.Errorf("Check(%+v) points at %q, want %q", tt.event, pointer, tt.pointer)
		}
	}
}

// refusal returns the code of err and where it points.
func refusal(err error) (fault.Code, string) {
	f, ok := errors.AsType[*fault.Error](err)
	if !ok || len(f.Fields) != 1 {
		return fault.CodeOf(err), ""
	}
	return f.Code, f.Fields[0].Pointer
}

func timer(at time.Time) wait.Condition { return wait.Condition{Kind: wait.Timer, At: at} }

func event(topic, correlation string) wait.Condition {
	return wait.Condition{Kind: wait.ExternalEvent, Topic: topic, CorrelationID: correlation}
}

func anyOf(of ...wait.Condition) wait.Condition { return wait.Condition{Kind: wait.Any, Of: of} }

func allOf(of ...wait.Condition) wait.Condition { return wait.Condition{Kind: wait.All, Of: of} }
