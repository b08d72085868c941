package waitpoint

import (
	"cmp"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/google/uuid"

	"github.com/flowapi/flowapi/internal/domain/fault"
)

// Limits of rotation.
const (
	DefaultGrace = 24 * time.Hour
	MaxGrace     = 30 * 24 * time.Hour
	maxKeys      = 100 // that verify at a time: the ring is read by every signal
)

// Key is one secret of the ring, by its kid. Tokens are made with the current one; the others verify until they expire.
type Key struct {
	Kid       string
	Secret    Secret
	Current   bool
	CreatedAt time.Time
	ExpiresAt time.Time // the last moment at which it verifies; zero for the current one
}

// verifies says whether tokens of the key are accepted.
func (k Key) verifies(now time.Time) bool {
	return k.Current || !k.ExpiresAt.IsZero() && !k.ExpiresAt.Before(now)
}

// Ring is the secrets of a deployment. It is a value: what changes it returns another one.
type Ring struct{ keys []Key }

// RingOf returns the ring of the stored keys.
func RingOf(keys []Key) Ring { return Ring{slices.Clone(keys)} }

// Keys returns every key, the current one first, then by when they expire, the latest first.
func (r Ring) Keys() []Key {
	keys := slices.Clone(r.keys)
	slices.SortFunc(keys, func(a, b Key) int {
		switch {
		case a.Current != b.Current && a.Current:
			return -1
		case a.Current != b.Current:
			return 1
		}
		return cmp.Or(b.ExpiresAt.Compare(a.ExpiresAt), cmp.Compare(a.Kid, b.Kid))
	})
	return keys
}

// Verifying returns the keys whose tokens are accepted, in the order of [Ring.Keys].
func (r Ring) Verifying(now time.Time) []Key {
	return slices.DeleteFunc(r.Keys(), func(k Key) bool { return !k.verifies(now) })
}

// Current returns the key that tokens are made with. An empty ring has none.
func (r Ring) Current() (Key, bool) {
	i := slices.IndexFunc(r.keys, func(k Key) bool { return k.Current })
	if i < 0 {
		return Key{}, false
	}
	return r.keys[i], true
}

func (r Ring) key(kid string) (Key, bool) {
	i := slices.IndexFunc(r.keys, func(k Key) bool { return k.Kid == kid })
	if i < 0 {
		return Key{}, false
	}
	return r.keys[i], true
}

// NextKid returns a kid that the ring does not have: `k<n>`.
func (r Ring) NextKid() string {
	last := 0
	for _, k := range r.keys {
		if n, err := strconv.Atoi(strings.TrimPrefix(k.Kid, "k")); err == nil && k.Kid == "k"+strconv.Itoa(n) && n < 1<<30 {
			last = max(last, n)
		}
	}
	return "k" + strconv.Itoa(last+1)
}

// Mint makes the token of a waitpoint, with the current secret. It fails on an empty ring, which a server that has started
// does not have.
func (r Ring) Mint(execution, waitpoint uuid.UUID) (Token, error) {
	return r.mint(ofWaitpoint(execution, waitpoint))
}

// MintGate makes the token of a gate of a run, for one attempt at its step. It opens nothing else: neither the gate when it asks again, nor
// a waitpoint whose ids somebody has chosen to be the same.
func (r Ring) MintGate(run, step uuid.UUID, attempt int) (Token, error) {
	return r.mint(ofGate(run, step, attempt))
}

func (r Ring) mint(what string) (Token, error) {
	k, ok := r.Current()
	if !ok {
		return Token{}, errors.New("the ring of waitpoint secrets has no current one")
	}
	return sign(k.Secret, k.Kid, what), nil
}

// What a token is signed for.
func ofWaitpoint(execution, waitpoint uuid.UUID) string {
	return execution.String() + ":" + waitpoint.String()
}
func ofGate(run, step uuid.UUID, attempt int) string {
	return "gate:" + run.String() + ":" + step.String() + ":" + strconv.Itoa(attempt)
}

// Again returns the token of a waitpoint that was made under kid: the same one for as long as that verifies, so that it is the
// one that was given out, and after that one of the current secret.
func (r Ring) Again(kid string, execution, waitpoint uuid.UUID, now time.Time) (Token, error) {
	if k, ok := r.key(kid); ok && k.verifies(now) {
		return sign(k.Secret, k.Kid, ofWaitpoint(execution, waitpoint)), nil
	}
	return r.Mint(execution, waitpoint)
}

// Verify returns CodeInvalidToken unless text is the token of this waitpoint, under a secret that verifies. The answer is the same
// whatever is wrong, and one digest is computed in any case: neither text nor time tell which kids there are.
func (r Ring) Verify(text string, execution, waitpoint uuid.UUID, now time.Time) error {
	return r.verify(text, ofWaitpoint(execution, waitpoint), now)
}

// VerifyGate is Verify for the token of a gate.
func (r Ring) VerifyGate(text string, run, step uuid.UUID, attempt int, now time.Time) error {
	return r.verify(text, ofGate(run, step, attempt), now)
}

func (r Ring) verify(text, what string, now time.Time) error {
	given, err := ParseToken(text)
	if err != nil {
		given.kid = "-" // no text is as long as it likes
	}
	k, known := r.key(given.kid)
	if !known {
		k, _ = r.Current() // a secret of the usual length
	}
	same := sign(k.Secret, given.kid, what).Equal(given)
	if err != nil || !known || !same || !k.verifies(now) {
		return errToken()
	}
	return nil
}

// Seeded is the outcome of [Ring.Seed].
type Seeded struct {
	Kid     string
	Already bool  // the ring had the kid before; nothing was changed
	Same    *bool // whether its secret is the one that was sent; nil when none was sent, or nothing was there before
}

// Seed gives an empty ring its first secret. A kid that is there stays as it is; given says whether secret was sent, else it is a
// new one. It returns CodeValidationFailed, and CodeRotationConflict when another kid is active.
func (r Ring) Seed(kid string, secret Secret, given bool, now time.Time) (Ring, Seeded, error) {
	if err := check("/kid", kid); err != nil {
		return r, Seeded{}, err
	}
	kept, _ := r.collected(now)
	if k, ok := kept.key(kid); ok {
		out := Seeded{Kid: kid, Already: true}
		if given {
			out.Same = new(k.Secret.Equal(secret))
		}
		return r, out, nil
	}
	if k, ok := kept.Current(); ok {
		return r, Seeded{}, conflict(k.Kid, "The secret %s is current. Rotate to another one.", k.Kid)
	}
	kept.keys = append(kept.keys, Key{Kid: kid, Secret: secret, Current: true, CreatedAt: now})
	return kept, Seeded{Kid: kid}, nil
}

// Rotation asks for another current secret.
type Rotation struct {
	Kid    string
	Secret Secret // of the kid; a new one unless Given
	Given  bool   // the caller has sent the secret, and did not leave its choice to the server
	Grace  time.Duration
}

// Rotated is the outcome of [Ring.Rotate].
type Rotated struct {
	Kid       string
	Noop      bool      // it is current already; nothing was changed
	Previous  string    // the kid that was current, "" when there was none
	ExpiresAt time.Time // its last moment
	Collected []string  // kids whose grace was over, which are forgotten
}

// Rotate makes another secret current, and lets the one that was verify for the grace. The same rotation again changes nothing. A
// kid in its grace becomes current again, without an expiry, for who knows its secret. What has expired is forgotten first, so it
// does not matter whether somebody else has done so before. It returns CodeValidationFailed and CodeRotationConflict.
func (r Ring) Rotate(in Rotation, now time.Time) (Ring, Rotated, error) {
	if err := check("/new_kid", in.Kid); err != nil {
		return r, Rotated{}, err
	}
	if in.Grace < 0 || in.Grace > MaxGrace {
		return r, Rotated{}, fault.Invalid(fault.CodeValidationFailed, "/grace_ms", "The grace must be 0 to %d.", MaxGrace.Milliseconds())
	}
	next, collected := r.collected(now)
	previous, _ := next.Current()
	k, known := next.key(in.Kid)
	switch same := known && in.Given && k.Secret.Equal(in.Secret); {
	case known && k.Current && (same || !in.Given):
		return r, Rotated{Kid: in.Kid, Noop: true}, nil
	case known && !in.Given:
		return r, Rotated{}, conflict(previous.Kid, "The kid %s has been used. Choose another one; to make it current again, send its secret.", in.Kid)
	case known && !same:
		return r, Rotated{}, conflict(previous.Kid, "The kid %s has another secret. Choose another kid.", in.Kid)
	case !known && len(next.keys) >= maxKeys:
		return r, Rotated{}, conflict(previous.Kid, "%d secrets verify tokens now. Wait until the grace of one is over.", len(next.keys))
	}
	out := Rotated{Kid: in.Kid, Previous: previous.Kid, Collected: collected}
	if !known {
		k = Key{Kid: in.Kid, Secret: in.Secret, CreatedAt: now}
		next.keys = append(next.keys, k)
	}
	for i := range next.keys {
		switch key := &next.keys[i]; {
		case key.Kid == in.Kid:
			key.Current, key.ExpiresAt = true, time.Time{}
		case key.Current:
			key.Current, key.ExpiresAt = false, now.Add(in.Grace)
			out.ExpiresAt = key.ExpiresAt
		}
	}
	return next, out, nil
}

// collected returns the ring without the keys whose grace is over, and their kids. The current one is never among them.
func (r Ring) collected(now time.Time) (Ring, []string) {
	var kept Ring
	var gone []string
	for _, k := range r.keys {
		if k.verifies(now) {
			kept.keys = append(kept.keys, k)
		} else {
			gone = append(gone, k.Kid)
		}
	}
	return kept, gone
}

func check(pointer, kid string) error {
	if !validKid(kid) {
		return fault.Invalid(fault.CodeValidationFailed, pointer, "A kid has 1 to %d letters, digits, hyphens and underscores.", maxKid)
	}
	return nil
}

func conflict(current, format string, args ...any) error {
	return fault.New(fault.CodeRotationConflict, "%s", fmt.Sprintf(format, args...)).With("current_kid", current)
}
