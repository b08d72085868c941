package app_test

import (
	"encoding/hex"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/rs/zerolog"

	"github.com/flowapi/flowapi/internal/app"
	"github.com/flowapi/flowapi/internal/apptest"
	"github.com/flowapi/flowapi/internal/repo/keyring"
	"github.com/flowapi/flowapi/internal/storetest"
)

// refusedStart opens a database as a server would, and returns why it cannot.
func refusedStart(t *testing.T, url string, master keyring.Master) string {
	t.Helper()
	a, err := app.Open(t.Context(), app.Config{DatabaseURL: url, Waitpoints: master, Log: zerolog.Nop()})
	if err == nil {
		_ = a.Close()
		t.Error("the server starts")
		return ""
	}
	return err.Error()
}

func wantWords(t *testing.T, text string, words ...string) {
	t.Helper()
	for _, word := range words {
		if !strings.Contains(text, word) {
			t.Errorf("%q is not in: %s", word, text)
		}
	}
}

// TestKeyring_Master: with another master secret a server does not start, says what to do, and changes nothing.
func TestKeyring_Master(t *testing.T) {
	t.Parallel()
	storetest.Databases(t, func(t *testing.T, url string) {
		folder := t.TempDir()
		right := keyring.Master{Secret: []byte(strings.Repeat("right", 8))}
		open := func() *keyTest {
			return &keyTest{apptest.Start(t, url, func(c *app.Config) { c.Waitpoints = right }), t}
		}
		k := open()
		rows := countRows(t, k.Server)
		k.Stop()
		wrong := strings.Repeat("wrong", 8)
		says := refusedStart(t, url, keyring.Master{Secret: []byte(wrong)})
		wantWords(t, says, "FLOWAPI_WAITPOINT_SECRET", "not sealed with", "DELETE FROM waitpoint_secrets")
		if strings.Contains(says, wrong) || strings.Contains(says, hex.EncodeToString([]byte(wrong))) {
			t.Error("it tells the secret")
		}
		wantWords(t, refusedStart(t, url, keyring.Master{Secret: []byte("short")}), "32")

		missing := filepath.Join(folder, "missing")
		wantWords(t, refusedStart(t, url, keyring.Master{File: missing}), missing, "missing", "backup", "DELETE FROM waitpoint_secrets")
		if _, err := os.Stat(missing); err == nil {
			t.Error("a new secret was made where the old one is missing")
		}
		other := filepath.Join(folder, "other")
		if err := os.WriteFile(other, []byte(strings.Repeat("ab", 32)), 0o600); err != nil {
			t.Fatal(err)
		}
		wantWords(t, refusedStart(t, url, keyring.Master{File: other}), other, "not sealed with")
		if diff := cmp.Diff(rows, countRows(t, open().Server)); diff != "" {
			t.Error(diff)
		}
	})
}

// TestKeyring_File: the file beside the database is for its owner alone.
func TestKeyring_File(t *testing.T) {
	t.Parallel()
	url := storetest.SQLite(t)
	file := url + ".secret"
	s := apptest.Start(t, url)
	s.Stop()
	info, err := os.Stat(file)
	if err != nil || info.Mode().Perm() != 0o600 {
		t.Fatalf("%v, %v", info, err)
	}
	content, err := os.ReadFile(file)
	if err != nil || len(content) != 65 {
		t.Errorf("%d bytes, %v", len(content), err)
	}
	names, err := filepath.Glob(url + ".secret*")
	if err != nil || len(names) != 1 {
		t.Errorf("%q are left", names)
	}
	for _, mode := range []os.FileMode{0o640, 0o604, 0o660, 0o644} {
		if err := os.Chmod(file, mode); err != nil {
			t.Fatal(err)
		}
		says := refusedStart(t, url, keyring.Master{})
		wantWords(t, says, file, "chmod 600")
		if strings.Contains(says, string(content[:64])) {
			t.Error("it tells the secret")
		}
	}
	for _, text := range []string{"", "abc", "zz" + string(content[2:])} {
		if err := os.WriteFile(file, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
		if err := os.Chmod(file, 0o400); err != nil {
			t.Fatal(err)
		}
		wantWords(t, refusedStart(t, url, keyring.Master{}), file, "does not hold a secret")
		if err := os.Chmod(file, 0o600); err != nil {
			t.Fatal(err)
		}
	}
	if err := os.WriteFile(file, content, 0o600); err != nil {
		t.Fatal(err)
	}
	k := &keyTest{apptest.Start(t, url), t}
	k.wantKids("k1")
}

// TestKeyring_File_together: servers that start at once in one folder agree on one file.
func TestKeyring_File_together(t *testing.T) {
	t.Parallel()
	url, file := storetest.Postgres(t), filepath.Join(t.TempDir(), "flowapi.secret")
	var wg sync.WaitGroup
	for range 4 {
		wg.Go(func() {
			a, err := app.Open(t.Context(), app.Config{DatabaseURL: url, Waitpoints: keyring.Master{File: file}, Log: zerolog.Nop()})
			if err != nil {
				t.Error(err)
				return
			}
			if err := a.Close(); err != nil {
				t.Error(err)
			}
		})
	}
	wg.Wait()
	if names, err := filepath.Glob(file + "*"); err != nil || len(names) != 1 {
		t.Errorf("%q are left", names)
	}
}
