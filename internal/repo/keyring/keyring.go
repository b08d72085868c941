// Package keyring keeps the secrets that waitpoint tokens are made with, sealed, and rotates them. A rotation is in the database,
// so every server uses it from its next transaction on.
package keyring

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/flowapi/flowapi/internal/call"
	"github.com/flowapi/flowapi/internal/domain/event"
	"github.com/flowapi/flowapi/internal/domain/waitpoint"
	"github.com/flowapi/flowapi/internal/repo/store"
)

// Repo is the store of secrets.
type Repo struct {
	store *store.Store
	seal  *sealer
}

// Loop is the name of the loop that calls [Repo.Forget].
const Loop = "waitpoint_secrets"

// firstKid is the kid of the secret that a new database gets.
const firstKid = "k1"

// startAnew is what to do about secrets that nothing opens.
const startAnew = "empty the table waitpoint_secrets (DELETE FROM waitpoint_secrets) and start again: the server makes new ones, and every waitpoint token that was given out is over"

// Open returns the repository on s, with a first secret if there was none. It fails when the stored secrets are not sealed with
// this master secret: half a server would refuse the tokens that the other half made.
func Open(ctx context.Context, s *store.Store, master Master) (*Repo, error) {
	var rows []row
	if err := s.Read(ctx, func(q *store.Queries) (err error) {
		rows, err = read(q)
		return err
	}); err != nil {
		return nil, fmt.Errorf("read waitpoint secrets: %w", err)
	}
	secret, err := master.read(len(rows) == 0)
	if err != nil {
		return nil, err
	}
	r := &Repo{store: s}
	if r.seal, err = newSealer(secret); err != nil {
		return nil, err
	}
	if len(rows) == 0 {
		if _, err := r.seed(call.With(ctx, call.Engine("default")), firstKid, waitpoint.Secret{}, true); err != nil {
			return nil, explain(err, master)
		}
	}
	err = s.Read(ctx, func(q *store.Queries) error {
		_, err := r.Ring(q)
		return err
	})
	if err != nil {
		return nil, explain(err, master)
	}
	return r, nil
}

// explain says what to do about secrets that do not open.
func explain(err error, master Master) error {
	if !errors.Is(err, errSealed) {
		return fmt.Errorf("open the waitpoint secrets: %w", err)
	}
	return fmt.Errorf("the waitpoint secrets of this database are not sealed with the master secret of %s: give this server the one that they were made with "+
		"(all servers of a database need the same, by FLOWAPI_WAITPOINT_SECRET); if it is lost, %s", master.name(), startAnew)
}

type row struct {
	Kid       string       `db:"kid"`
	Secret    []byte       `db:"secret"`
	Current   int64        `db:"current"`
	CreatedAt store.Millis `db:"created_at"`
	ExpiresAt store.Millis `db:"expires_at"`
}

func read(q *store.Queries) (rows []row, err error) {
	err = q.Select(&rows, `SELECT kid, secret, current, created_at, expires_at FROM waitpoint_secrets ORDER BY kid`)
	return rows, err
}

// Ring returns the secrets as the caller's transaction or snapshot sees them. It returns CodeCorruptRecord.
func (r *Repo) Ring(q *store.Queries) (waitpoint.Ring, error) {
	rows, err := read(q)
	if err != nil {
		return waitpoint.Ring{}, fmt.Errorf("read waitpoint secrets: %w", err)
	}
	keys := make([]waitpoint.Key, len(rows))
	for i, k := range rows {
		keys[i] = waitpoint.Key{Kid: k.Kid, Current: k.Current == 1, CreatedAt: time.Time(k.CreatedAt), ExpiresAt: time.Time(k.ExpiresAt)}
		if keys[i].Secret, err = r.seal.open(k.Kid, k.Secret); err != nil {
			return waitpoint.Ring{}, store.Corrupt("waitpoint secret", k.Kid, err)
		}
	}
	return waitpoint.RingOf(keys), nil
}

// Kids returns the kids whose tokens are accepted, the current one first, without their secrets.
func (r *Repo) Kids(ctx context.Context) (keys []waitpoint.Key, err error) {
	err = r.store.Read(ctx, func(q *store.Queries) error {
		ring, err := r.Ring(q)
		keys = ring.Verifying(q.Now())
		for i := range keys {
			keys[i].Secret = waitpoint.Secret{}
		}
		return err
	})
	return keys, err
}

// Seed gives an empty ring its first secret: the given one, or a random one when secret is zero. A kid that is there is left alone.
// It returns CodeRotationConflict when another one is current.
func (r *Repo) Seed(ctx context.Context, kid string, secret waitpoint.Secret) (waitpoint.Seeded, error) {
	return r.seed(ctx, kid, secret, false)
}

// seed is Seed; it leaves a ring alone that is not empty when yield is set: another server was first.
func (r *Repo) seed(ctx context.Context, kid string, secret waitpoint.Secret, yield bool) (waitpoint.Seeded, error) {
	return store.Write(ctx, r.store, func(tx *store.Tx, out *waitpoint.Seeded) error {
		before, err := r.lock(tx)
		if _, ok := before.Current(); err != nil || ok && yield {
			return err
		}
		given := !secret.IsZero()
		use := secret
		if !given {
			use = random()
		}
		after, seeded, err := before.Seed(kid, use, given, tx.Now())
		if err != nil || seeded.Already {
			*out = seeded
			return err
		}
		*out = seeded
		tx.Emit(event.Event{Type: event.SecretSeeded, Data: map[string]any{"kid": seeded.Kid}})
		return r.save(tx, before, after)
	})
}

// Rotate makes another secret current: that of in, a random one when that is zero, under a new kid when it has none. It returns
// CodeValidationFailed and CodeRotationConflict.
func (r *Repo) Rotate(ctx context.Context, in waitpoint.Rotation) (waitpoint.Rotated, error) {
	return store.Write(ctx, r.store, func(tx *store.Tx, out *waitpoint.Rotated) error {
		before, err := r.lock(tx)
		if err != nil {
			return err
		}
		use := in
		if use.Given = !in.Secret.IsZero(); !use.Given {
			use.Secret = random()
		}
		if use.Kid == "" {
			use.Kid = before.NextKid()
		}
		after, rotated, err := before.Rotate(use, tx.Now())
		*out = rotated
		if err != nil || rotated.Noop {
			return err
		}
		data := map[string]any{"kid": rotated.Kid}
		if rotated.Previous != "" {
			data["previous_kid"], data["expires_at"] = rotated.Previous, event.Stamp(rotated.ExpiresAt)
		}
		tx.Emit(event.Event{Type: event.SecretRotated, Data: data})
		return r.save(tx, before, after)
	})
}

// lock keeps everybody else from changing the ring, and reads it.
func (r *Repo) lock(tx *store.Tx) (waitpoint.Ring, error) {
	if err := hold(tx); err != nil {
		return waitpoint.Ring{}, err
	}
	return r.Ring(&tx.Queries) // by a statement of its own, which sees what was committed while it waited
}

func hold(tx *store.Tx) error {
	var one int
	if err := tx.Get(&one, `SELECT one FROM waitpoint_ring`+tx.ForUpdate()); err != nil {
		return fmt.Errorf("lock the waitpoint secrets: %w", err)
	}
	return nil
}

// save stores what has become of the ring. Secrets that were there keep their seal.
func (r *Repo) save(tx *store.Tx, before, after waitpoint.Ring) error {
	old := map[string]waitpoint.Key{}
	for _, k := range before.Keys() {
		old[k.Kid] = k
	}
	for _, k := range slices.Backward(after.Keys()) { // the current one last: there is at most one at any moment
		was, ok := old[k.Kid]
		delete(old, k.Kid)
		var err error
		switch {
		case !ok:
			err = tx.ExecOne(`INSERT INTO waitpoint_secrets (kid, secret, current, created_at, expires_at) VALUES (?, ?, ?, ?, ?)`,
				k.Kid, r.seal.seal(k.Kid, k.Secret), store.Bit(k.Current), store.Millis(k.CreatedAt), store.Millis(k.ExpiresAt))
		case was.Current != k.Current || !was.ExpiresAt.Equal(k.ExpiresAt):
			err = tx.ExecOne(`UPDATE waitpoint_secrets SET current = ?, expires_at = ? WHERE kid = ?`, store.Bit(k.Current), store.Millis(k.ExpiresAt), k.Kid)
		}
		if err != nil {
			return fmt.Errorf("save waitpoint secret %s: %w", k.Kid, err)
		}
	}
	for kid := range old {
		if err := tx.ExecOne(`DELETE FROM waitpoint_secrets WHERE kid = ?`, kid); err != nil {
			return fmt.Errorf("forget waitpoint secret %s: %w", kid, err)
		}
	}
	return nil
}

// Forget deletes the secrets whose grace is over, and returns how many. Nothing verifies by them any more; that they go is against
// whoever gets at the database and at its master secret later.
func (r *Repo) Forget(ctx context.Context) (int, error) {
	return store.Write(ctx, r.store, func(tx *store.Tx, out *int) error {
		if err := hold(tx); err != nil {
			return err
		}
		n, err := tx.Exec(`DELETE FROM waitpoint_secrets WHERE current = 0 AND expires_at < ?`, store.Millis(tx.Now()))
		*out = int(n)
		return err
	}, store.Background())
}

func random() waitpoint.Secret {
	var raw [waitpoint.MinSecret]byte
	_, _ = rand.Read(raw[:])
	return waitpoint.SecretOf(raw[:])
}
