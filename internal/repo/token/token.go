// Package token keeps the API tokens and knows whom a bearer token belongs to.
package token

import (
	"context"
	"crypto/rand"
	"crypto/sha256"
	"crypto/subtle"
	"encoding/hex"
	"fmt"
	"sync"
	"time"
	"unicode/utf8"

	"github.com/google/uuid"

	"github.com/flowapi/flowapi/internal/call"
	"github.com/flowapi/flowapi/internal/domain/access"
	"github.com/flowapi/flowapi/internal/domain/event"
	"github.com/flowapi/flowapi/internal/domain/fault"
	"github.com/flowapi/flowapi/internal/domain/page"
	"github.com/flowapi/flowapi/internal/repo/store"
)

// Repo is the store of tokens.
type Repo struct {
	store   *store.Store
	root    [sha256.Size]byte // hash of the token that was given to the server, which no row holds
	hasRoot bool

	mu      sync.Mutex
	known   map[string]known // by hash of the bearer token
	forgot  int              // how often known was emptied
	closed  bool             // an admin token was made
	counted time.Time        // when that was looked up
	writing sync.WaitGroup   // of last_used_at
}

type known struct {
	who     access.Identity
	expires time.Time
	read    time.Time
	used    time.Time // when last_used_at was last stored
}

const (
	knownFor   = 5 * time.Second // how long a look-up is remembered; a revocation in this process ends it at once
	usedEvery  = time.Minute
	knownLimit = 10000
	prefixSize = 12
)

// New returns a repository on s. root is an admin token that is valid beside the stored ones, "" for none.
func New(ctx context.Context, s *store.Store, root string) (*Repo, error) {
	r := &Repo{store: s, known: map[string]known{}, hasRoot: root != ""}
	r.root = sha256.Sum256([]byte(root))
	return r, r.count(ctx)
}

type row struct {
	ID         store.ID     `db:"id"`
	Name       string       `db:"name"`
	Role       string       `db:"role"`
	Namespace  string       `db:"namespace"`
	Prefix     string       `db:"prefix"`
	Hash       []byte       `db:"hash"`
	CreatedAt  store.Millis `db:"created_at"`
	ExpiresAt  store.Millis `db:"expires_at"`
	LastUsedAt store.Millis `db:"last_used_at"`
	RevokedAt  store.Millis `db:"revoked_at"`
}

const columns = `id, name, role, namespace, prefix, hash, created_at, expires_at, last_used_at, revoked_at`

func (r *row) token() access.Token {
	return access.Token{ID: uuid.UUID(r.ID), Name: r.Name, Role: access.Role(r.Role), Namespace: r.Namespace, Prefix: r.Prefix,
		CreatedAt: time.Time(r.CreatedAt), ExpiresAt: time.Time(r.ExpiresAt), LastUsedAt: time.Time(r.LastUsedAt), RevokedAt: time.Time(r.RevokedAt)}
}

// Create makes a token. Its secret is in the answer and nowhere else. It returns CodeTimerOutOfRange for an expiry that is
// not in the future.
func (r *Repo) Create(ctx context.Context, in access.Token) (access.Token, error) {
	made, err := store.Write(ctx, r.store, func(tx *store.Tx, out *access.Token) error {
		if !in.ExpiresAt.IsZero() && !in.ExpiresAt.After(tx.Now()) {
			return fault.Invalid(fault.CodeTimerOutOfRange, "/expires_at", "The expiry has passed. Send a later time, or none.")
		}
		*out = in
		out.ID, out.CreatedAt, out.Secret = store.NewID(), tx.Now(), secret()
		out.Prefix = out.Secret[:prefixSize]
		hash := sha256.Sum256([]byte(out.Secret))
		err := tx.ExecOne(`INSERT INTO tokens (id, name, role, namespace, prefix, hash, created_at, expires_at) VALUES (?, ?, ?, ?, ?, ?, ?, ?)`,
			store.ID(out.ID), out.Name, string(out.Role), out.Namespace, out.Prefix, hash[:], store.Millis(out.CreatedAt), store.Millis(out.ExpiresAt))
		if err != nil {
			return fmt.Errorf("insert token: %w", err)
		}
		tx.Emit(event.Event{Type: event.TokenCreated, Data: map[string]any{"token_id": out.ID, "name": out.Name, "role": out.Role}})
		return nil
	})
	if err != nil {
		return access.Token{}, err
	}
	return made, r.count(ctx)
}

// Tokens lists the tokens that the caller may see, newest first, without their secrets: those of its namespace, or all.
func (r *Repo) Tokens(ctx context.Context, after page.Cursor, limit int) (page.Page[access.Token], error) {
	var list []access.Token
	err := r.store.Read(ctx, func(q *store.Queries) error {
		where, c := store.NewWhere("1 = 1"), call.From(ctx)
		where.If(!c.AllNamespaces, "namespace = ?", c.Namespace)
		where.If(!after.IsZero(), "(created_at, id) < (?, ?)", after.At, store.ID(after.ID))
		var rows []row
		err := q.Select(&rows, `SELECT `+columns+` FROM tokens WHERE `+where.String()+` ORDER BY created_at DESC, id DESC LIMIT ?`, where.Args(limit+1)...)
		for i := range rows {
			list = append(list, rows[i].token())
		}
		return err
	})
	return page.Of(list, limit, func(t access.Token) page.Cursor { return page.After(t.CreatedAt, t.ID) }), err
}

// Revoke ends a token. It may be repeated. It returns CodeNotFound.
func (r *Repo) Revoke(ctx context.Context, id uuid.UUID) error {
	err := store.Do(ctx, r.store, func(tx *store.Tx) error {
		where := store.NewWhere("id = ?", store.ID(id))
		where.If(!tx.Call.AllNamespaces, "namespace = ?", tx.Call.Namespace)
		var found row
		err := tx.Find(&found, "token", id, `SELECT `+columns+` FROM tokens WHERE `+where.String()+tx.ForUpdate(), where.Args()...)
		if err != nil || !time.Time(found.RevokedAt).IsZero() {
			return err
		}
		if err := tx.ExecOne(`UPDATE tokens SET revoked_at = ? WHERE id = ?`, store.Millis(tx.Now()), store.ID(id)); err != nil {
			return err
		}
		tx.Emit(event.Event{Type: event.TokenRevoked, Data: map[string]any{"token_id": id}})
		return nil
	})
	if err != nil {
		return err
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	clear(r.known)
	r.forgot++
	return nil
}

// errUnknown is the one answer for whatever is wrong with a token.
func errUnknown() error {
	return fault.New(fault.CodeUnauthenticated, "The token is not known, has expired or was revoked. An administrator makes one with flowapi token create.")
}

// Authenticate returns whom a bearer token belongs to. It returns CodeUnauthenticated.
func (r *Repo) Authenticate(ctx context.Context, bearer string) (access.Identity, error) {
	hash := sha256.Sum256([]byte(bearer))
	if r.hasRoot && subtle.ConstantTimeCompare(hash[:], r.root[:]) == 1 {
		return access.Identity{TokenID: "root", Name: "root", Role: access.RoleAdmin, Namespace: access.AllNamespaces}, nil
	}
	key, now := string(hash[:]), r.store.Now()
	r.mu.Lock()
	k, ok := r.known[key]
	forgot := r.forgot
	r.mu.Unlock()
	if !ok || now.Sub(k.read) > knownFor || now.Before(k.read) {
		var err error
		if k, err = r.look(ctx, bearer, hash, now); err != nil {
			return access.Identity{}, err
		}
	}
	if !k.expires.IsZero() && !k.expires.After(now) {
		return access.Identity{}, errUnknown()
	}
	if now.Sub(k.used) > usedEvery {
		k.used = now
		r.writing.Go(func() { r.used(context.WithoutCancel(ctx), k.who.TokenID, now) })
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	if len(r.known) > knownLimit {
		clear(r.known)
	}
	if r.forgot == forgot { // else a token was revoked while this one was looked up
		r.known[key] = k
	}
	return k.who, nil
}

func (r *Repo) look(ctx context.Context, bearer string, hash [sha256.Size]byte, now time.Time) (known, error) {
	if len(bearer) < prefixSize || !utf8.ValidString(bearer[:prefixSize]) {
		return known{}, errUnknown()
	}
	var found row
	err := r.store.Read(ctx, func(q *store.Queries) error {
		return q.Get(&found, `SELECT `+columns+` FROM tokens WHERE prefix = ?`, bearer[:prefixSize])
	})
	if store.NotFound(err) {
		return known{}, errUnknown()
	}
	if err != nil {
		return known{}, err
	}
	if subtle.ConstantTimeCompare(found.Hash, hash[:]) != 1 || !time.Time(found.RevokedAt).IsZero() {
		return known{}, errUnknown()
	}
	t := found.token()
	return known{who: access.Identity{TokenID: t.ID.String(), Name: t.Name, Role: t.Role, Namespace: t.Namespace}, expires: t.ExpiresAt, read: now, used: t.LastUsedAt}, nil
}

// Close waits for what is being written beside requests.
func (r *Repo) Close() { r.writing.Wait() }

// used keeps when a token was last used: at most once a minute, and beside the request.
func (r *Repo) used(ctx context.Context, id string, at time.Time) {
	_ = store.Do(call.With(ctx, call.Engine("")), r.store, func(tx *store.Tx) error {
		_, err := tx.Exec(`UPDATE tokens SET last_used_at = ? WHERE id = ?`, store.Millis(at), store.ID(uuid.MustParse(id)))
		return err
	}, store.Background())
}

// Anonymous says whether callers on the loopback interface need no token: as long as no admin token was made. Another process
// may have made one, so the answer is looked up again every few seconds.
func (r *Repo) Anonymous() bool {
	if r.hasRoot {
		return false
	}
	r.mu.Lock()
	known, fresh := r.closed, r.store.Now().Sub(r.counted).Abs() < knownFor
	r.mu.Unlock()
	if known || fresh {
		return !known // what was closed stays closed
	}
	if err := r.count(context.Background()); err != nil {
		return false
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	return !r.closed
}

// count looks whether an admin token was ever made. Expired and revoked ones count: a server that was
// closed once does not open by itself.
func (r *Repo) count(ctx context.Context) error {
	var n int
	err := r.store.Read(ctx, func(q *store.Queries) error {
		return q.Get(&n, `SELECT count(*) FROM tokens WHERE role = 'admin'`)
	})
	if err != nil {
		return fmt.Errorf("count admin tokens: %w", err)
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	r.closed, r.counted = n > 0, r.store.Now()
	return nil
}

func secret() string {
	var b [24]byte
	_, _ = rand.Read(b[:])
	return "fa_" + hex.EncodeToString(b[:])
}
