package waitpoint_test

import (
	"fmt"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/google/uuid"

	"github.com/flowapi/flowapi/internal/domain/fault"
	"github.com/flowapi/flowapi/internal/domain/waitpoint"
)

var start = time.Date(2026, 11, 21, 9, 0, 0, 0, time.UTC)

func at(d time.Duration) time.Time { return start.Add(d) }

// mustRotate rotates to a kid with the secret b….
func mustRotate(t *testing.T, r waitpoint.Ring, kid string, b byte, grace time.Duration, now time.Time) (waitpoint.Ring, waitpoint.Rotated) {
	t.Helper()
	next, out, err := r.Rotate(waitpoint.Rotation{Kid: kid, Secret: secretOf(b), Given: true, Grace: grace}, now)
	if err != nil {
		t.Fatal(err)
	}
	return next, out
}

func mustMint(t *testing.T, r waitpoint.Ring) waitpoint.Token {
	t.Helper()
	token, err := r.Mint(anExecution, aWaitpoint)
	if err != nil {
		t.Fatal(err)
	}
	return token
}

func verifies(r waitpoint.Ring, token waitpoint.Token, now time.Time) bool {
	return r.Verify(token.Reveal(), anExecution, aWaitpoint, now) == nil
}

// outline is what a ring is, without its secrets.
func outline(r waitpoint.Ring) (lines []string) {
	for _, k := range r.Keys() {
		lines = append(lines, fmt.Sprintf("%s %t %v", k.Kid, k.Current, k.ExpiresAt.Sub(start)))
	}
	return lines
}

// TestRing_Seed: executions.md 2.13 "seed", 6.7 case 84.
func TestRing_Seed(t *testing.T) {
	t.Parallel()
	r, out, err := waitpoint.Ring{}.Seed("k1", secretOf(1), true, start)
	if diff := cmp.Diff(waitpoint.Seeded{Kid: "k1"}, out); err != nil || diff != "" {
		t.Fatalf("%v %s", err, diff)
	}
	for _, tt := range []struct {
		name  string
		kid   string
		b     byte
		given bool
		want  waitpoint.Seeded
		code  fault.Code
	}{
		{"the same", "k1", 1, true, waitpoint.Seeded{Kid: "k1", Already: true, Same: new(true)}, ""},
		{"another secret", "k1", 2, true, waitpoint.Seeded{Kid: "k1", Already: true, Same: new(false)}, ""},
		{"no secret", "k1", 3, false, waitpoint.Seeded{Kid: "k1", Already: true}, ""},
		{"another kid", "k2", 1, true, waitpoint.Seeded{}, fault.CodeRotationConflict},
		{"a kid that is none", "k:1", 1, true, waitpoint.Seeded{}, fault.CodeValidationFailed},
	} {
		after, out, err := r.Seed(tt.kid, secretOf(tt.b), tt.given, at(time.Hour))
		if diff := cmp.Diff(tt.want, out); diff != "" || fault.CodeOf(err) != tt.code {
			t.Errorf("%s: %v %s", tt.name, err, diff)
		}
		if diff := cmp.Diff(r.Keys(), after.Keys()); diff != "" {
			t.Errorf("%s: the ring has changed: %s", tt.name, diff)
		}
	}
}

// TestRing_Rotate: executions.md 2.13 "rotate", 6.7 cases 84 and 102, 7.2/32.
func TestRing_Rotate(t *testing.T) {
	t.Parallel()
	r, out := mustRotate(t, ring(), "k2", 2, time.Hour, start)
	if diff := cmp.Diff(waitpoint.Rotated{Kid: "k2", Previous: "k1", ExpiresAt: at(time.Hour)}, out); diff != "" {
		t.Fatal(diff)
	}
	same, out := mustRotate(t, r, "k2", 2, time.Minute, at(time.Minute))
	if diff := cmp.Diff(waitpoint.Rotated{Kid: "k2", Noop: true}, out); diff != "" {
		t.Error(diff)
	}
	if diff := cmp.Diff(outline(r), outline(same)); diff != "" {
		t.Error(diff)
	}
	for _, tt := range []struct {
		name string
		in   waitpoint.Rotation
		code fault.Code
	}{
		{"the current kid, another secret", waitpoint.Rotation{Kid: "k2", Secret: secretOf(9), Given: true}, fault.CodeRotationConflict},
		{"an old kid, another secret", waitpoint.Rotation{Kid: "k1", Secret: secretOf(9), Given: true}, fault.CodeRotationConflict},
		{"an old kid, a random secret", waitpoint.Rotation{Kid: "k1", Secret: secretOf(0x0b)}, fault.CodeRotationConflict},
		{"a kid that is none", waitpoint.Rotation{Kid: "", Secret: secretOf(9), Given: true}, fault.CodeValidationFailed},
		{"a negative grace", waitpoint.Rotation{Kid: "k3", Secret: secretOf(9), Given: true, Grace: -1}, fault.CodeValidationFailed},
		{"a grace for ever", waitpoint.Rotation{Kid: "k3", Secret: secretOf(9), Given: true, Grace: waitpoint.MaxGrace + 1}, fault.CodeValidationFailed},
	} {
		after, _, err := r.Rotate(tt.in, at(time.Minute))
		if diff := cmp.Diff(outline(r), outline(after)); diff != "" || fault.CodeOf(err) != tt.code {
			t.Errorf("%s: %v %s", tt.name, err, diff)
		}
	}
	if _, out, err := r.Rotate(waitpoint.Rotation{Kid: "k2", Secret: secretOf(9)}, start); err != nil || !out.Noop {
		t.Errorf("the current kid, whatever its secret: %+v, %v", out, err)
	}

	// Back to k1: it is current again, loses its expiry, and nobody collects it. 7.2/32
	back, out := mustRotate(t, r, "k1", 0x0b, 2*time.Hour, at(time.Minute))
	if diff := cmp.Diff(waitpoint.Rotated{Kid: "k1", Previous: "k2", ExpiresAt: at(2*time.Hour + time.Minute)}, out); diff != "" {
		t.Error(diff)
	}
	if now := at(24 * time.Hour); !verifies(back, mustMint(t, ring()), now) || len(back.Verifying(now)) != 1 {
		t.Errorf("%v", outline(back))
	}
	third, out := mustRotate(t, back, "k3", 3, 0, at(24*time.Hour))
	if diff := cmp.Diff(waitpoint.Rotated{Kid: "k3", Previous: "k1", ExpiresAt: at(24 * time.Hour), Collected: []string{"k2"}}, out); diff != "" {
		t.Error(diff)
	}
	if diff := cmp.Diff([]string{"k3 true " + time.Time{}.Sub(start).String(), "k1 false 24h0m0s"}, outline(third)); diff != "" {
		t.Error(diff)
	}
	if next, fresh := third.NextKid(), waitpoint.RingOf(nil).NextKid(); next != "k4" || fresh != "k1" {
		t.Errorf("NextKid = %s, %s", next, fresh)
	}
}

// TestRing_Grace: A→B→C, each in its grace. executions.md 6.7 case 101.
func TestRing_Grace(t *testing.T) {
	t.Parallel()
	r := ring()
	tokens := []waitpoint.Token{mustMint(t, r)}
	for i, kid := range []string{"k2", "k3"} {
		r, _ = mustRotate(t, r, kid, byte(i+2), time.Hour, at(time.Duration(i)*time.Minute))
		tokens = append(tokens, mustMint(t, r))
	}
	ends := []time.Duration{time.Hour, time.Hour + time.Minute, 1000 * time.Hour}
	for i, token := range tokens {
		if end := at(ends[i]); !verifies(r, token, start) || !verifies(r, token, end) {
			t.Errorf("%v does not verify in its grace", token)
		}
		if end := at(ends[i] + time.Millisecond); token.Kid() != "k3" && verifies(r, token, end) {
			t.Errorf("%v verifies after its grace", token)
		}
	}
	if again, err := r.Again("k1", anExecution, aWaitpoint, at(time.Hour)); err != nil || !again.Equal(tokens[0]) {
		t.Errorf("Again in the grace = %v, %v", again, err)
	}
	for _, kid := range []string{"k1", "", "never"} {
		if again, err := r.Again(kid, anExecution, aWaitpoint, at(time.Hour+time.Millisecond)); err != nil || !again.Equal(tokens[2]) {
			t.Errorf("Again(%q) after the grace = %v, %v", kid, again, err)
		}
	}
	if _, err := (waitpoint.Ring{}).Mint(anExecution, aWaitpoint); err == nil {
		t.Error("an empty ring makes tokens")
	}
	if err := (waitpoint.Ring{}).Verify(tokens[0].Reveal(), anExecution, aWaitpoint, start); fault.CodeOf(err) != fault.CodeInvalidToken {
		t.Errorf("an empty ring: %v", err)
	}
	if err := r.Verify(tokens[2].Reveal(), uuid.Nil, aWaitpoint, start); err == nil {
		t.Error("a token of another execution verifies")
	}
}

// TestRing_Limit: the ring does not grow without end.
func TestRing_Limit(t *testing.T) {
	t.Parallel()
	r, n := ring(), 1
	for ; n < 1000; n++ {
		next, _, err := r.Rotate(waitpoint.Rotation{Kid: r.NextKid(), Secret: secretOf(1), Given: true, Grace: time.Hour}, start)
		if fault.CodeOf(err) == fault.CodeRotationConflict {
			break
		}
		if err != nil {
			t.Fatal(err)
		}
		r = next
	}
	if n != 100 || len(r.Verifying(start)) != n {
		t.Errorf("%d secrets", n)
	}
	if _, out := mustRotate(t, r, "again", 1, 0, at(2*time.Hour)); len(out.Collected) != n-1 {
		t.Errorf("%d were collected", len(out.Collected))
	}
}

// TestRing_Gate: a gate and a waitpoint with the same ids have different tokens, and each opens its own.
func TestRing_Gate(t *testing.T) {
	t.Parallel()
	now := time.UnixMilli(1000)
	ring, _, err := waitpoint.RingOf(nil).Seed("k1", secretOf(1), true, now)
	if err != nil {
		t.Fatal(err)
	}
	a, b := uuid.New(), uuid.New()
	gate, err := ring.MintGate(a, b, 0)
	if err != nil {
		t.Fatal(err)
	}
	point, err := ring.Mint(a, b)
	if err != nil {
		t.Fatal(err)
	}
	for _, tt := range []struct {
		name string
		err  error
		want fault.Code
	}{
		{"a gate by its own", ring.VerifyGate(gate.Reveal(), a, b, 0, now), ""},
		{"a gate by a waitpoint's", ring.VerifyGate(point.Reveal(), a, b, 0, now), fault.CodeInvalidToken},
		{"a gate of another run", ring.VerifyGate(gate.Reveal(), b, b, 0, now), fault.CodeInvalidToken},
		{"a gate of another attempt", ring.VerifyGate(gate.Reveal(), a, b, 1, now), fault.CodeInvalidToken},
		{"a waitpoint by a gate's", ring.Verify(gate.Reveal(), a, b, now), fault.CodeInvalidToken},
		{"a waitpoint by its own", ring.Verify(point.Reveal(), a, b, now), ""},
	} {
		if got := fault.CodeOf(tt.err); got != tt.want {
			t.Errorf("%s: %v, want %s", tt.name, tt.err, tt.want)
		}
	}
	if _, err := waitpoint.RingOf(nil).MintGate(a, b, 0); err == nil {
		t.Error("an empty ring makes tokens")
	}
}
