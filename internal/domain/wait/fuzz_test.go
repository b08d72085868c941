package wait_test

import (
	"encoding/json"
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/flowapi/flowapi/internal/domain/fault"
	"github.com/flowapi/flowapi/internal/domain/wait"
)

// refusedAt fails unless err is a refusal with this code that points into the condition.
func refusedAt(t *testing.T, err error, code fault.Code) *fault.Error {
	t.Helper()
	f, ok := errors.AsType[*fault.Error](err)
	if !ok || f.Code != code || len(f.Fields) != 1 || !strings.HasPrefix(f.Fields[0].Pointer, "/condition") {
		t.Fatalf("refused with %#v", err)
	}
	return f
}

// kept returns a condition as it is read after it was stored.
func kept(t *testing.T, c wait.Condition) (text []byte, again wait.Condition) {
	t.Helper()
	text, err := json.Marshal(c)
	if err != nil {
		t.Fatal(err)
	}
	if err := json.Unmarshal(text, &again); err != nil || !again.Equal(c) {
		t.Fatalf("%+v is stored as %s and read as %+v, %v", c, text, again, err)
	}
	return text, again
}

// FuzzCondition: a condition whose times can be waited for is read as it is shown, and as it is stored.
func FuzzCondition(f *testing.F) {
	for _, seed := range []string{
		`{"kind":"manual"}`, `{"kind":"timer","at":"2026-11-22t13:00:00.2509+01:00"}`, `{"kind":"external_event","topic":" a ","correlation_id":"ü"}`, `null`, `"manual"`, `{"Kind":"manual"}`,
		`{"kind":"any","of":[{"kind":"all","of":[{"kind":"manual"},{"kind":"timer","at":"2026-11-23T00:00:00Z"}]}]}`, `{"kind":"all","of":[]}`, `{"kind":"manual","kind":"timer"}`,
		`{"kind":"any","of":[{"kind":"any","of":[{"kind":"any","of":[{"kind":"manual"}]}]}]}`, `{"kind":"timer","at":"9999-12-31T23:59:59-23:59"}`, `{"kind":"signal","waitpoints":["a"]}`,
	} {
		f.Add([]byte(seed))
	}
	now := time.Date(2026, 11, 22, 0, 0, 0, 0, time.UTC)
	f.Fuzz(func(t *testing.T, raw []byte) {
		c, err := wait.Parse(raw, "/condition")
		if err != nil {
			_ = refusedAt(t, err, fault.CodeBadWaitCondition)
			return
		}
		if err := (wait.Spec{Condition: c}).Check(now, wait.DefaultHorizon, ""); err != nil {
			_ = refusedAt(t, err, fault.CodeTimerOutOfRange)
			return
		}
		text, _ := kept(t, c)
		if again, err := wait.Parse(text, "/condition"); err != nil || !again.Equal(c) {
			t.Fatalf("%+v is shown as %s and read as %+v, %v", c, text, again, err)
		}
		if leaves := len(c.Progress(nil)); leaves < 1 || leaves > wait.MaxLeaves {
			t.Fatalf("%s has %d leaves", text, leaves)
		}
		if at, ok := c.HoldsFrom(c.Progress(nil)); ok && !at.After(now) {
			t.Fatalf("%s holds from %s on, before anything has come", text, at)
		}
	})
}

// FuzzResumeCondition: a condition of an execution is read as it is stored, its refusals name a rule, and it holds once everything has
// come that it listens to.
func FuzzResumeCondition(f *testing.F) {
	for _, seed := range []string{
		`"OperatorOnly"`, ` "TimeoutOnly" `, `null`, `{}`, `{"Single":{"waitpoint_key":"a","matcher":{"ByName":"go"}}}`, `{"Single":{"waitpoint_key":"","matcher":"Wildcard"}}`,
		`{"Composite":{"kind":"AllOf","members":["OperatorOnly",{"Single":{"waitpoint_key":"a","matcher":"Wildcard"}}]}}`, `{"single":{}}`,
		`{"Composite":{"kind":"Count","n":2,"count_kind":"DistinctWaitpoints","waitpoints":["a","b"]}}`, `{"Composite":{"kind":"Count","n":2,"count_kind":"DistinctSources","matcher":{"ByName":"x"},"waitpoints":["a"]}}`,
		nest(4, `"OperatorOnly"`), nest(5, `"OperatorOnly"`), `{"Composite":{"kind":"Count","n":1e3,"count_kind":"DistinctSignals","waitpoints":["a"]}}`,
	} {
		f.Add([]byte(seed))
	}
	f.Fuzz(func(t *testing.T, raw []byte) {
		c, err := wait.ParseResume(raw, "/condition")
		if err != nil {
			if rule, ok := refusedAt(t, err, fault.CodeInvalidCondition).Facts["rule"].(string); !ok || rule == "" {
				t.Fatalf("refused without a rule: %v", err)
			}
			return
		}
		text, _ := kept(t, c)
		parts := c.Progress(nil)
		if len(parts) < 1 || len(parts) > wait.MaxResumeParts || c.Satisfied(parts, start) {
			t.Fatalf("%s has %d parts, and holds at once: %t", text, len(parts), c.Satisfied(parts, start))
		}
		var signals []wait.Signal
		for _, key := range c.Listens() {
			for _, name := range append(c.Names(key), "any") {
				for i := range 16 {
					signals = append(signals, wait.Signal{ID: fmt.Sprint(key, name, i), Waitpoint: key, Name: name, SourceIdentity: fmt.Sprint(key, name, i)})
				}
			}
		}
		w := wait.Wait{Spec: wait.Spec{Condition: c}}
		w, _ = w.DeliverAll(signals, start)
		if w.Condition.Satisfied(w.Progress(), start) != (len(w.Lacks()) == 0 && !strings.Contains(string(text), `"kind":"manual"`) && !strings.Contains(string(text), `"kind":"timeout"`)) {
			t.Fatalf("%s, after %d signals, lacks %q", text, len(signals), w.Lacks())
		}
	})
}
