package run

import (
	"crypto/sha256"
	"crypto/subtle"
	"time"

	"github.com/flowapi/flowapi/internal/domain/event"
	"github.com/flowapi/flowapi/internal/domain/fault"
)

// The bounds of a lease. reference: model.md "Run".
const (
	MinLeaseTTL = time.Second
	MaxLeaseTTL = time.Hour
)

// Lease is who drives a run. That it has run out refuses nothing: it only lets somebody else take the run over, who has a new
// generation then.
type Lease struct {
	Owner []byte    // a digest of the holder's token, nil for nobody
	Until time.Time // zero exactly when nobody holds it
}

// OwnerOf returns what is stored of a lease's token.
func OwnerOf(token string) []byte {
	sum := sha256.Sum256([]byte(token))
	return sum[:]
}

// Live says whether somebody holds the lease at a time.
func (l *Lease) Live(at time.Time) bool { return l.Owner != nil && !l.Until.Before(at) }

func (l *Lease) of(owner []byte) bool {
	return l.Owner != nil && subtle.ConstantTimeCompare(l.Owner, owner) == 1
}

// Leased says how a lease was got.
type Leased string

// How.
const (
	Granted   Leased = "granted"
	Renewed   Leased = "renewed"
	TakenOver Leased = "taken_over"
)

// Acquire takes the lease for the holder of a token, or renews it. A new holder has a new generation. Renewing is no event. It
// returns CodeRunTerminal, CodeLeaseHeld, and CodeOutOfRange for a ttl that no lease has.
// reference: runs-and-taskflows.md A7.
func (r Run) Acquire(token string, ttl time.Duration, by event.By) (Change, Leased, error) {
	if ttl < MinLeaseTTL || ttl > MaxLeaseTTL {
		return Change{}, "", fault.Invalid(fault.CodeOutOfRange, "/ttl_ms", "ttl_ms is %d; a lease lasts %d to %d.", ttl.Milliseconds(), MinLeaseTTL.Milliseconds(), MaxLeaseTTL.Milliseconds())
	}
	if err := r.Takes(); err != nil {
		return Change{}, "", err
	}
	owner, before := OwnerOf(token), r.Lease
	how := Granted
	switch {
	case before.of(owner):
		how = Renewed
	case before.Live(by.At):
		return Change{}, "", fault.New(fault.CodeLeaseHeld, "Somebody else holds the lease of run %s until %s. Ask again then: it can be taken over when it has run out.", r.ID, event.Stamp(before.Until)).
			With("lease_until", event.Stamp(before.Until))
	case before.Owner != nil:
		how = TakenOver
	}
	r.Lease = Lease{Owner: owner, Until: by.At.Add(ttl)}
	if how == Renewed {
		return Change{Run: r}, how, nil
	}
	r.Generation++
	r.UpdatedAt = by.At
	return r.told(event.RunLeased, leasedData{r.Generation, how, event.Stamp(r.Lease.Until)}), how, nil
}

type leasedData struct {
	Generation int64       `json:"generation"`
	Outcome    Leased      `json:"outcome"`
	LeaseUntil event.Stamp `json:"lease_until"`
}

// Release is what a holder says who gives the lease back.
type Release struct {
	Token       string
	Generation  int64
	NeedsResume bool // the run is not done: somebody has to go on with it
}

// Release gives the lease back: everybody can have it at once. A run that is cancelling has ended with that, since nobody is left to
// end it. It returns CodeLeaseLost for whoever does not hold it, and CodeIllegalTransition for a run that cannot be given up.
func (r Run) Release(in Release, by event.By) (Change, error) {
	if err := r.Fence(in.Generation); err != nil {
		return Change{}, err
	}
	if !r.Lease.of(OwnerOf(in.Token)) {
		return Change{}, fault.New(fault.CodeLeaseLost, "The lease of run %s is not this token's. Stop, or take the lease again.", r.ID).With("current_generation", r.Generation)
	}
	r.Lease, r.UpdatedAt = Lease{}, by.At
	switch {
	case r.Status == Cancelling:
		return r.cancelled(by)
	case in.NeedsResume:
		next, err := r.move(NeedsResume, by)
		if err != nil {
			return Change{}, err
		}
		return next.told(event.RunNeedsResume, nil), nil
	}
	return r.told(event.RunLeaseReleased, generationData{r.Generation}), nil
}

type generationData struct {
	Generation int64 `json:"generation"`
}
