// Package proptest is what tests have in common that hold servers to a model: the loop over runs of a property, the servers side by
// side, and how a disagreement is told. It is for tests only.
package proptest

import (
	"encoding/json"
	"fmt"
	"maps"
	"net/http"
	"os"
	"slices"
	"strings"
	"testing"
	"time"

	"pgregory.net/rapid"
)

// Property is what is held, run after run.
type Property struct {
	Runs   int      // when nobody asks for more: FLOWAPI_TEST_MODEL=5m goes on for five minutes, and then insists on what follows
	Kinds  []string // of steps, each of which has to succeed once
	Points []string // that some run has to come by
	Run    func(rt *rapid.T, n int, c *Counts)
}

// Counts tell what the runs have come by.
type Counts struct {
	Steps   int
	Did     map[string]int // steps that have succeeded, by kind
	Reached map[string]int // points
}

// Batches holds a property once with servers that change much in one transaction, and once with such as leave almost everything to what
// goes on in the background.
func Batches(t *testing.T, holds func(t *testing.T, batch int)) {
	t.Helper()
	for _, batch := range []int{250, 3} {
		t.Run(fmt.Sprintf("batches of %d", batch), func(t *testing.T) {
			t.Parallel()
			holds(t, batch)
		})
	}
}

// Go does about a hundred steps.
func (c *Counts) Go(rt *rapid.T, step func()) {
	const repeats = 3 // of some 30 steps
	for range repeats {
		rt.Repeat(map[string]func(*rapid.T){"": func(*rapid.T) {}, "step": func(*rapid.T) {
			step()
			c.Steps++
		}})
	}
}

// Check goes through runs of the property until there were enough, and makes the first one smaller that fails.
func Check(t *testing.T, p Property) {
	t.Helper()
	t.Cleanup(http.DefaultClient.CloseIdleConnections)
	began, long := time.Now(), time.Duration(0)
	if text := os.Getenv("FLOWAPI_TEST_MODEL"); text != "" {
		long = Must(time.ParseDuration(text))
	}
	c := &Counts{Did: map[string]int{}, Reached: map[string]int{}}
	runs, failed := 0, false
	enough := func() bool {
		if failed { // it is being made smaller
			return false
		}
		spent := time.Since(began)
		return long == 0 && runs >= p.Runs || long > 0 && spent >= long && (spent >= 2*long || len(p.unreached(c)) == 0)
	}
	for over := false; !over; over = enough() || t.Failed() {
		rapid.Check(t, func(rt *rapid.T) {
			if enough() {
				return
			}
			ended := false
			defer func() { failed = failed || !ended && rt.Failed() }() // a run of an earlier failure that fits no more has not failed
			runs++
			p.Run(rt, runs, c)
			ended = true
		})
	}
	t.Logf("%d runs, %d steps in %s", runs, c.Steps, time.Since(began).Round(time.Millisecond))
	if long == 0 || t.Failed() {
		return
	}
	for _, what := range p.unreached(c) {
		t.Errorf("it never came to this: %s", what)
	}
	report(t, "succeeded", c.Did)
	report(t, "reached", c.Reached)
}

func report(t *testing.T, what string, counts map[string]int) {
	t.Helper()
	var text strings.Builder
	text.WriteString(what + ":")
	for _, name := range slices.Sorted(maps.Keys(counts)) {
		fmt.Fprintf(&text, "\n  %6d  %s", counts[name], name)
	}
	t.Log(text.String())
}

// unreached lists the steps that have never succeeded, and the points that no run has come by.
func (p *Property) unreached(c *Counts) []string {
	var names []string
	for _, kind := range p.Kinds {
		if c.Did[kind] == 0 {
			names = append(names, kind)
		}
	}
	for _, point := range p.Points {
		if c.Reached[point] == 0 {
			names = append(names, point)
		}
	}
	return names
}

// Must returns v, or panics.
func Must[T any](v T, err error) T {
	if err != nil {
		panic(err)
	}
	return v
}

// Decode reads JSON, or panics.
func Decode[T any](data []byte) T {
	var v T
	if err := json.Unmarshal(data, &v); err != nil {
		panic(fmt.Sprintf("%v: %s", err, data))
	}
	return v
}
