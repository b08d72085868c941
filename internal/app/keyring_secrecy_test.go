package app_test

import (
	"bytes"
	"encoding/hex"
	"fmt"
	"os"
	"strings"
	"sync"
	"testing"

	"github.com/google/uuid"
	"github.com/rs/zerolog"

	"github.com/flowapi/flowapi/internal/apitest"
	"github.com/flowapi/flowapi/internal/app"
	"github.com/flowapi/flowapi/internal/apptest"
	"github.com/flowapi/flowapi/internal/domain/fault"
	"github.com/flowapi/flowapi/internal/repo/store"
	"github.com/flowapi/flowapi/internal/storetest"
)

// TestKeyring_Secrecy: no secret is in an answer, an event, the log, or anywhere in the database, in whatever spelling; and what is
// stored is good for its own kid only. engine.md "Security".
func TestKeyring_Secrecy(t *testing.T) {
	t.Parallel()
	storetest.Databases(t, func(t *testing.T, url string) {
		var log lockedBuffer
		s := apptest.Start(t, url, func(c *app.Config) { c.Log = zerolog.New(&log) })
		k := &keyTest{s, t}
		secrets := []string{strings.Repeat("c0ffee11", 8), strings.Repeat("DEADBEEF", 16)}
		var answers bytes.Buffer
		for i, secret := range secrets {
			for _, answer := range []*apitest.Response{
				k.rotate(fmt.Sprintf(`"new_kid":"own%d","new_secret_hex":%q`, i, secret), "Idempotency-Key: "+fmt.Sprint(i)),
				k.rotate(fmt.Sprintf(`"new_kid":"own%d","new_secret_hex":%q`, i, secret)),
				k.rotate(fmt.Sprintf(`"new_kid":"a b","new_secret_hex":%q`, secret)),
				k.rotate(fmt.Sprintf(`"new_kid":"k1","new_secret_hex":%q`, secret)),
				k.rotate(fmt.Sprintf(`"new_kid":"z","new_secret_hex":"%s0"`, secret)),
				k.Post(secretsPath, fmt.Sprintf(`{"kid":"own%d","secret_hex":%q}`, i, secret)),
				k.Get(secretsPath), k.Get("/v1/events"),
			} {
				answers.Write(answer.Body)
			}
		}
		ring := k.ring(k.master())
		var all [][]byte
		for _, key := range ring.Keys() { // the server's own, too
			raw := key.Secret.Reveal()
			all = append(all, raw[:16], []byte(hex.EncodeToString(raw[:16])), []byte(strings.ToUpper(hex.EncodeToString(raw[:16]))))
			token, err := ring.Again(key.Kid, uuid.New(), uuid.New(), s.Clock.Now())
			if err != nil || token.Kid() != key.Kid {
				t.Fatalf("%v, %v", token, err)
			}
		}
		if len(ring.Keys()) != 3 {
			t.Fatalf("%d secrets", len(ring.Keys()))
		}
		places := map[string][]byte{"answers": answers.Bytes(), "log": log.Bytes(), "database": dumped(t, s)}
		for place, content := range places {
			if len(content) == 0 {
				t.Errorf("nothing in %s", place)
			}
			for _, secret := range all {
				if bytes.Contains(content, secret) {
					t.Errorf("%s has a secret", place)
				}
			}
		}
		// The seal is for one kid.
		if err := store.Do(t.Context(), s.App.Store(), func(tx *store.Tx) error {
			_, err := tx.Exec(`UPDATE waitpoint_secrets SET secret = (SELECT secret FROM waitpoint_secrets WHERE kid = 'own1') WHERE kid = 'own0'`)
			return err
		}); err != nil {
			t.Fatal(err)
		}
		k.Get(secretsPath).Problem(fault.CodeCorruptRecord)
		k.rotate("").Problem(fault.CodeCorruptRecord)
	})
}

// lockedBuffer is a log that several write to.
type lockedBuffer struct {
	mu sync.Mutex
	b  bytes.Buffer
}

func (l *lockedBuffer) Write(p []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.b.Write(p)
}

func (l *lockedBuffer) Bytes() []byte {
	l.mu.Lock()
	defer l.mu.Unlock()
	return bytes.Clone(l.b.Bytes())
}

// dumped is everything that a database has: its files, or each row of each table as text.
func dumped(t *testing.T, s *apptest.Server) []byte {
	t.Helper()
	if err := s.App.Store().Sync(t.Context()); err != nil {
		t.Fatal(err)
	}
	var all bytes.Buffer
	if file := s.App.Store().File(); file != "" {
		for _, suffix := range []string{"", "-wal"} {
			content, err := os.ReadFile(file + suffix)
			if err != nil {
				t.Fatal(err)
			}
			all.Write(content)
		}
		if !bytes.Contains(all.Bytes(), []byte("own1")) {
			t.Error("the files do not have what was stored")
		}
		return all.Bytes()
	}
	if err := s.App.Store().Read(t.Context(), func(q *store.Queries) error {
		var tables []string
		if err := q.Select(&tables, `SELECT table_name FROM information_schema.tables WHERE table_schema = current_schema()`); err != nil {
			return err
		}
		for _, table := range tables {
			var rows []string
			if err := q.Select(&rows, `SELECT t::text FROM `+table+` t`); err != nil {
				return err
			}
			all.WriteString(strings.Join(rows, "\n"))
		}
		return nil
	}); err != nil {
		t.Fatal(err)
	}
	if !bytes.Contains(all.Bytes(), []byte("own1")) {
		t.Error("the dump does not have what was stored")
	}
	return all.Bytes()
}
