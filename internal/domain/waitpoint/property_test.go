package waitpoint_test

import (
	"maps"
	"slices"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/google/uuid"
	"pgregory.net/rapid"

	"github.com/flowapi/flowapi/internal/domain/fault"
	"github.com/flowapi/flowapi/internal/domain/waitpoint"
)

func drawID(t *rapid.T, label string) uuid.UUID {
	return uuid.UUID(rapid.SliceOfN(rapid.Byte(), 16, 16).Draw(t, label))
}

func drawSecret(t *rapid.T, label string) waitpoint.Secret {
	return waitpoint.SecretOf(rapid.SliceOfN(rapid.Byte(), waitpoint.MinSecret, 48).Draw(t, label))
}

var drawKid = rapid.StringMatching(`[A-Za-z0-9_-]{1,64}`)

// TestToken_property: a token opens its waitpoint, and no other one; no other text does. executions.md 5/26.
func TestToken_property(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(t *rapid.T) {
		execution, wait := drawID(t, "execution"), drawID(t, "waitpoint")
		kid, other := drawKid.Draw(t, "kid"), drawKid.Draw(t, "other kid")
		secret := drawSecret(t, "secret")
		r := waitpoint.RingOf([]waitpoint.Key{{Kid: kid, Secret: secret, Current: true}})
		if other != kid { // even with the same secret
			r = waitpoint.RingOf([]waitpoint.Key{{Kid: kid, Secret: secret, Current: true}, {Kid: other, Secret: secret, ExpiresAt: at(time.Hour)}})
		}
		token, err := r.Mint(execution, wait)
		if err != nil {
			t.Fatal(err)
		}
		text := token.Reveal()
		refused := r.Verify("", execution, wait, start)
		check := func(what string, err error) {
			if fault.CodeOf(err) != fault.CodeInvalidToken || !cmp.Equal(err, refused) {
				t.Fatalf("%s: %v", what, err)
			}
		}
		if err := r.Verify(text, execution, wait, start); err != nil {
			t.Fatal(err)
		}
		place := rapid.IntRange(0, len(text)-1).Draw(t, "place")
		changed := []byte(text)
		changed[place] = rapid.Byte().Filter(func(b byte) bool { return b != text[place] }).Draw(t, "byte")
		check("a byte changed", r.Verify(string(changed), execution, wait, start))
		check("a byte less", r.Verify(text[:place]+text[place+1:], execution, wait, start))
		check("a byte more", r.Verify(text[:place]+string(rapid.Byte().Draw(t, "more"))+text[place:], execution, wait, start))
		check("anything", r.Verify(rapid.String().Draw(t, "text"), execution, wait, start))
		if id := drawID(t, "another id"); id != execution && id != wait {
			check("another execution", r.Verify(text, id, wait, start))
			check("another waitpoint", r.Verify(text, execution, id, start))
		}
		if execution != wait {
			check("the other way round", r.Verify(text, wait, execution, start))
		}
		if other != kid {
			check("another kid", r.Verify(other+text[len(kid):], execution, wait, start))
		}
		id, linked, err := waitpoint.ParseLink(token.Link(wait))
		if err != nil || id != wait || !linked.Equal(token) {
			t.Fatalf("the link is %s, %v, %v", id, linked, err)
		}
	})
}

// ringMachine is a ring under random operations, beside what a model knows of it.
type ringMachine struct {
	r      waitpoint.Ring
	now    time.Time
	byKid  map[string]waitpoint.Secret // of kids that are in the ring
	until  map[string]time.Time        // zero for the current one
	tokens map[string]waitpoint.Token
}

// TestRing_property: rotations in any order, at any time. executions.md 5/27, 7.2/32.
func TestRing_property(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(t *rapid.T) {
		first := drawSecret(t, "first")
		r, _, err := waitpoint.Ring{}.Seed("k1", first, true, start)
		if err != nil {
			t.Fatal(err)
		}
		m := &ringMachine{r: r, now: start, byKid: map[string]waitpoint.Secret{"k1": first}, until: map[string]time.Time{"k1": {}}, tokens: map[string]waitpoint.Token{}}
		t.Repeat(map[string]func(*rapid.T){
			"rotate": m.rotate,
			"wait": func(t *rapid.T) {
				m.now = m.now.Add(time.Duration(rapid.IntRange(0, 5).Draw(t, "ms")) * time.Millisecond)
			},
			"seed": func(t *rapid.T) {
				kid := rapid.SampledFrom([]string{"k1", "k2", "k3"}).Draw(t, "kid")
				after, out, err := m.r.Seed(kid, drawSecret(t, "secret"), false, m.now)
				if m.verifies(kid) && (err != nil || !out.Already) || !m.verifies(kid) && fault.CodeOf(err) != fault.CodeRotationConflict {
					t.Fatalf("seed %s = %+v, %v", kid, out, err)
				}
				m.r = after
			},
			"": m.check,
		})
	})
}

func (m *ringMachine) current() string {
	for kid, until := range m.until {
		if until.IsZero() {
			return kid
		}
	}
	return ""
}

func (m *ringMachine) verifies(kid string) bool {
	until, ok := m.until[kid]
	return ok && (until.IsZero() || !m.now.After(until))
}

func (m *ringMachine) rotate(t *rapid.T) {
	kid := rapid.SampledFrom([]string{"k1", "k2", "k3", "k4"}).Draw(t, "kid")
	in := waitpoint.Rotation{Kid: kid, Given: true, Secret: drawSecret(t, "secret"), Grace: time.Duration(rapid.IntRange(0, 8).Draw(t, "grace")) * time.Millisecond}
	if known, ok := m.byKid[kid]; ok && rapid.Bool().Draw(t, "same") {
		in.Secret = known
	}
	previous := m.current()
	next, out, err := m.r.Rotate(in, m.now)
	conflict := m.verifies(kid) && !m.byKid[kid].Equal(in.Secret)
	switch {
	case conflict != (fault.CodeOf(err) == fault.CodeRotationConflict):
		t.Fatalf("rotate to %s = %v", kid, err)
	case conflict:
		if diff := cmp.Diff(m.r.Keys(), next.Keys()); diff != "" {
			t.Fatal("refused, and changed: " + diff)
		}
		return
	case err != nil:
		t.Fatal(err)
	case out.Noop != (kid == previous):
		t.Fatalf("%+v", out)
	}
	if !out.Noop {
		for _, gone := range out.Collected {
			if gone == previous || m.verifies(gone) {
				t.Fatalf("%s was collected", gone)
			}
		}
		maps.DeleteFunc(m.until, func(k string, _ time.Time) bool { return slices.Contains(out.Collected, k) })
		for _, gone := range out.Collected {
			delete(m.byKid, gone)
			delete(m.tokens, gone)
		}
		m.until[previous], m.until[kid], m.byKid[kid] = m.now.Add(in.Grace), time.Time{}, in.Secret
	}
	// rotate twice = once
	twice, again, err := next.Rotate(in, m.now)
	if diff := cmp.Diff(next.Keys(), twice.Keys()); err != nil || diff != "" || !again.Noop {
		t.Fatalf("the second time: %+v, %v %s", again, err, diff)
	}
	m.r = next
	token, err := m.r.Mint(anExecution, aWaitpoint)
	if err != nil || token.Kid() != kid {
		t.Fatalf("%v, %v", token, err)
	}
	m.tokens[kid] = token
}

// check: one secret is current; tokens verify until the end of their kid's grace, inclusive, and never after.
func (m *ringMachine) check(t *rapid.T) {
	current, n := "", 0
	for _, k := range m.r.Keys() {
		if k.Current {
			current, n = k.Kid, n+1
		}
		if k.Current != k.ExpiresAt.IsZero() {
			t.Fatalf("%+v", k)
		}
	}
	if n != 1 || current != m.current() {
		t.Fatalf("%d are current, %s", n, current)
	}
	for kid, token := range m.tokens {
		if got := verifies(m.r, token, m.now); got != m.verifies(kid) {
			t.Fatalf("a token of %s verifies: %t", kid, got)
		}
		again, err := m.r.Again(kid, anExecution, aWaitpoint, m.now)
		if err != nil || !verifies(m.r, again, m.now) || m.verifies(kid) != again.Equal(token) {
			t.Fatalf("again of %s is of %s, %v", kid, again.Kid(), err)
		}
	}
	var want, got []string
	for kid := range m.until {
		if m.verifies(kid) {
			want = append(want, kid)
		}
	}
	for _, k := range m.r.Verifying(m.now) {
		got = append(got, k.Kid)
	}
	slices.Sort(want)
	slices.Sort(got)
	if diff := cmp.Diff(want, got); diff != "" {
		t.Fatal(diff)
	}
}
