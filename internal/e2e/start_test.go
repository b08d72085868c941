package e2e

import (
	"database/sql"
	"encoding/json"
	"fmt"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/flowapi/flowapi/internal/storetest"
)

func TestStart_refused(t *testing.T) {
	t.Parallel()
	taken, err := new(net.ListenConfig).Listen(t.Context(), "tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { taken.Close() }) // after the subtests
	port := taken.Addr().String()
	db := func(t *testing.T) string {
		t.Helper()
		return filepath.Join(t.TempDir(), "flowapi.db")
	}
	tests := []struct {
		name string
		args []string
		env  []string
		code int
		says []string
	}{
		{"an address that others reach", []string{"--addr", "0.0.0.0:0"}, nil, 1, []string{"FLOWAPI_TOKEN", "0.0.0.0:0"}},
		{"all addresses", []string{"--addr", ":0"}, nil, 1, []string{"FLOWAPI_TOKEN"}},
		{"an address that others reach, by the environment", nil, []string{"FLOWAPI_ADDR=0.0.0.0:0"}, 1, []string{"FLOWAPI_TOKEN"}},
		{"a port that is taken", []string{"--addr", port}, nil, 1, []string{port, "address already in use"}},
		{"no address", []string{"--addr", "nowhere"}, nil, 1, []string{"nowhere"}},
		{"a folder that is not there", []string{"--db", "/nowhere/flowapi.db"}, nil, 1, []string{"sqlite"}},
		{"a database that does not answer", []string{"--db", "postgres://u:secret@127.0.0.1:1/x"}, nil, 1, []string{"postgres"}},
		{"a URL that is none", []string{"--db", "postgres://u:secret@127.0.0.1:port/x"}, nil, 1, []string{"postgres"}},
		{"an unknown flag", []string{"--port", "80"}, nil, 2, []string{"--port"}},
		{"an argument", []string{"now"}, nil, 2, []string{"now"}},
		{"a master secret that is too short", nil, []string{"FLOWAPI_WAITPOINT_SECRET=" + strings.Repeat("5e", 31)}, 2, []string{"FLOWAPI_WAITPOINT_SECRET", "64 hex digits"}},
		{"a master secret that is not hex", nil, []string{"FLOWAPI_WAITPOINT_SECRET=" + strings.Repeat("xy", 32)}, 2, []string{"FLOWAPI_WAITPOINT_SECRET", "64 hex digits"}},
		{"an unknown level", []string{"--log-level", "loud"}, nil, 2, []string{"--log-level"}},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			env := append([]string{"FLOWAPI_ADDR=127.0.0.1:0", "FLOWAPI_DATABASE_URL=" + db(t)}, tt.env...)
			got := run(t, env, append([]string{"serve"}, tt.args...)...)
			if got.code != tt.code || !strings.Contains("\n"+got.errors, "\nflowapi: ") {
				t.Errorf("exit code %d, want %d: %s", got.code, tt.code, got.errors)
			}
			for _, text := range tt.says {
				if !strings.Contains(got.errors, text) {
					t.Errorf("%q does not name %s", got.errors, text)
				}
			}
			if strings.Contains(got.errors, "secret") {
				t.Errorf("the password is told: %q", got.errors)
			}
		})
	}
}

func TestUsage(t *testing.T) {
	t.Parallel()
	for _, tt := range []struct {
		args []string
		code int
		says string
	}{
		{nil, 0, "serve"}, {[]string{"--help"}, 0, "serve"}, {[]string{"--version"}, 0, "flowapi version"},
		{[]string{"nonsense"}, 2, "nonsense"}, {[]string{"--nonsense"}, 2, "nonsense"}, {[]string{"token", "revoke"}, 2, "arg"},
		{[]string{"prune", "--url", "http://127.0.0.1:1"}, 1, "connection refused"},
	} {
		if got := run(t, nil, tt.args...); got.code != tt.code || !strings.Contains(got.out+got.errors, tt.says) {
			t.Errorf("flowapi %v: %+v, want exit code %d and a word of %s", tt.args, got, tt.code, tt.says)
		}
	}
}

// A database that a newer version has been at is left alone.
func TestStart_newer_database(t *testing.T) {
	t.Parallel()
	storetest.Databases(t, func(t *testing.T, url string) {
		s := serve(t, url)
		s.terminate()
		s.ended(stopLimit)
		driver := "sqlite"
		if strings.HasPrefix(url, "postgres://") {
			driver = "pgx"
		}
		db, err := sql.Open(driver, url)
		if err != nil {
			t.Fatal(err)
		}
		defer db.Close()
		if _, err := db.ExecContext(t.Context(), `INSERT INTO goose_db_version (version_id, is_applied) VALUES (9999, 'true')`); err != nil {
			t.Fatal(err)
		}
		got := run(t, nil, "serve", "--addr", "127.0.0.1:0", "--db", url)
		if got.code != 1 || !strings.Contains(got.errors, "9999") || !strings.Contains(got.errors, "too old") {
			t.Errorf("exit code %d: %s", got.code, got.errors)
		}
	})
}

// Without a master secret in the environment the server makes one: beside its file, or in its working directory.
func TestStart_waitpoint_secret(t *testing.T) {
	t.Parallel()
	storetest.Databases(t, func(t *testing.T, url string) {
		s := serveWith(t, []string{"FLOWAPI_WAITPOINT_SECRET="}, "--addr", "127.0.0.1:0", "--db", url)
		file := url + ".secret"
		if strings.HasPrefix(url, "postgres://") {
			file = filepath.Join(s.cmd.Dir, "flowapi.secret")
		}
		if info, err := os.Stat(file); err != nil || info.Mode().Perm() != 0o600 {
			t.Errorf("%v, %v", info, err)
		}
		s.kill()
		got := run(t, nil, "serve", "--addr", "127.0.0.1:0", "--db", url) // with that of the other tests
		if got.code != 1 || !strings.Contains(got.errors, "not sealed with the master secret of FLOWAPI_WAITPOINT_SECRET") {
			t.Errorf("exit code %d: %s", got.code, got.errors)
		}
	})
}

// Two servers on one file would not know of each other.
func TestStart_file_in_use(t *testing.T) {
	t.Parallel()
	file := filepath.Join(t.TempDir(), "flowapi.db")
	first := serve(t, file)
	got := run(t, nil, "serve", "--addr", "127.0.0.1:0", "--db", file)
	if got.code != 1 || !strings.Contains(got.errors, file) || !strings.Contains(got.errors, "another process") {
		t.Errorf("the second server ended with exit code %d: %s", got.code, got.errors)
	}
	if r := must(t, newClient(t), http.MethodPost, first.url+"/v1/executions", `{"lane":"a"}`); r.status != http.StatusCreated {
		t.Errorf("the first server = %d %s", r.status, r.body)
	}
	first.kill()
	serve(t, file)
}

// With a token in the environment nobody is let in without one, wherever the server listens.
func TestStart_token(t *testing.T) {
	t.Parallel()
	for _, addr := range []string{"127.0.0.1:0", "0.0.0.0:0"} {
		t.Run(addr, func(t *testing.T) {
			t.Parallel()
			const root = "a-token-of-the-operator"
			s := serveWith(t, []string{"FLOWAPI_TOKEN=" + root}, "--addr", addr, "--db", filepath.Join(t.TempDir(), "flowapi.db"))
			_, port, _ := net.SplitHostPort(strings.TrimPrefix(s.url, "http://"))
			url, client := "http://127.0.0.1:"+port, newClient(t)
			for _, header := range []string{"X-Nothing: x", "Authorization: Bearer wrong", "Authorization: Basic " + root, "Authorization: Bearer "} {
				if r := must(t, client, http.MethodGet, url+"/v1/executions", "", header); r.status != http.StatusUnauthorized || r.code() != "unauthenticated" {
					t.Errorf("%s = %d %s", header, r.status, r.body)
				}
			}
			for _, path := range []string{"/livez", "/readyz"} {
				if r := must(t, client, http.MethodGet, url+path, ""); r.status != http.StatusOK {
					t.Errorf("%s without a token = %d %s", path, r.status, r.body)
				}
			}
			if r := must(t, client, http.MethodGet, url+"/v1/executions", "", "Authorization: Bearer "+root); r.status != http.StatusOK {
				t.Errorf("with the token = %d %s", r.status, r.body)
			}
			if strings.Contains(s.said(), root) || strings.Contains(s.said(), "no admin token") {
				t.Errorf("the log says %s", s.said())
			}
		})
	}
}

// Tokens are made, listed and revoked with the same binary, over HTTP.
func TestTokens(t *testing.T) {
	t.Parallel()
	s := serve(t, filepath.Join(t.TempDir(), "flowapi.db"))
	client := newClient(t)
	status := func(token, method, path, body string) int {
		t.Helper()
		return must(t, client, method, s.url+path, body, "Authorization: Bearer "+token).status
	}
	cli := func(token string, args ...string) outcome {
		t.Helper()
		env := []string{"FLOWAPI_URL=" + s.url}
		if token != "" {
			env = append(env, "FLOWAPI_TOKEN="+token)
		}
		return run(t, env, append([]string{"token"}, args...)...)
	}
	// The first one is made by whoever is at the machine; from then on nobody is let in without one.
	admin := secretOf(t, cli("", "create", "--role", "admin", "--name", "first", "--namespace", "*"))
	if got := cli("", "list"); got.code != 1 || !strings.Contains(got.errors, "unauthenticated") {
		t.Errorf("an anonymous list: %+v", got)
	}
	if r := must(t, client, http.MethodPost, s.url+"/v1/executions", `{"lane":"a"}`); r.status != http.StatusUnauthorized {
		t.Errorf("an anonymous create = %d %s", r.status, r.body)
	}
	worker := secretOf(t, cli(admin, "create", "--role", "worker", "--name", "w", "--namespace", "red"))
	short := secretOf(t, cli(admin, "create", "--role", "viewer", "--name", "s", "--ttl", "1s"))
	if got := status(worker, http.MethodPost, "/v1/claims", `{"lane":"a","worker_id":"w"}`); got != http.StatusNoContent {
		t.Errorf("the worker's claim = %d", got)
	}
	if got := status(worker, http.MethodGet, "/v1/admin/tokens", ""); got != http.StatusForbidden {
		t.Errorf("the worker's list of tokens = %d", got)
	}
	if got := cli(worker, "list"); got.code != 1 || !strings.Contains(got.errors, "forbidden") {
		t.Errorf("the worker's list: %+v", got)
	}
	eventually(t, "the short token is over", func() bool { return status(short, http.MethodGet, "/v1/executions", "") == http.StatusUnauthorized })

	listed := cli(admin, "list")
	for _, want := range []string{"first", "admin", "worker", "red", "expired"} {
		if !strings.Contains(listed.out, want) {
			t.Errorf("the list does not have %q:\n%s", want, listed.out)
		}
	}
	for _, token := range []string{admin, worker, short} {
		if strings.Contains(listed.out, token) {
			t.Error("the list tells a secret")
		}
	}
	ids := tokenIDs(t, cli(admin, "list", "--json"))
	if got := cli(admin, "revoke", ids["w"]); got.code != 0 || got.out != "revoked\n" {
		t.Errorf("token revoke: %+v", got)
	}
	if got := status(worker, http.MethodPost, "/v1/claims", `{"lane":"a","worker_id":"w"}`); got != http.StatusUnauthorized {
		t.Errorf("a claim with the revoked token = %d", got)
	}
	for _, tt := range refusedTokenCommands {
		if got := cli(admin, tt.args...); got.code != tt.code || !strings.HasPrefix(got.errors, "flowapi: ") {
			t.Errorf("token %v: %+v, want exit code %d", tt.args, got, tt.code)
		}
	}
	// What was made is there after a restart, and so is what was revoked.
	file := s.cmd.Args[len(s.cmd.Args)-1]
	s.kill()
	s = serve(t, file)
	if got := status(worker, http.MethodGet, "/v1/executions", ""); got != http.StatusUnauthorized {
		t.Errorf("the revoked token after a restart = %d", got)
	}
	if got := status(admin, http.MethodGet, "/v1/executions", ""); got != http.StatusOK {
		t.Errorf("the admin token after a restart = %d", got)
	}
	// With a stored admin token the server may be reached from outside.
	s.terminate()
	s.ended(stopLimit)
	outside := serveWith(t, nil, "--addr", "0.0.0.0:0", "--db", file)
	_, port, _ := net.SplitHostPort(strings.TrimPrefix(outside.url, "http://"))
	if r := must(t, client, http.MethodGet, fmt.Sprintf("http://127.0.0.1:%s/v1/executions", port), ""); r.status != http.StatusUnauthorized {
		t.Errorf("anonymous on all addresses = %d", r.status)
	}
}

// secretOf is the token that a command has made.
func secretOf(t *testing.T, o outcome) string {
	t.Helper()
	token, more, ended := strings.Cut(o.out, "\n")
	if o.code != 0 || !ended || more != "" || len(token) < 20 {
		t.Fatalf("token create: exit code %d, %q, %q", o.code, o.out, o.errors)
	}
	return token
}

// tokenIDs are the ids of the three tokens of a list, by name.
func tokenIDs(t *testing.T, got outcome) map[string]string {
	t.Helper()
	var list struct {
		Items []struct {
			ID   string `json:"token_id"`
			Name string
		}
	}
	if json.Unmarshal([]byte(got.out), &list) != nil || len(list.Items) != 3 {
		t.Fatalf("token list --json: %+v", got)
	}
	ids := map[string]string{}
	for _, item := range list.Items {
		ids[item.Name] = item.ID
	}
	return ids
}

var refusedTokenCommands = []struct {
	args []string
	code int
}{
	{[]string{"revoke", "x"}, 2}, {[]string{"revoke"}, 2}, {[]string{"create", "--role", "admin"}, 2}, {[]string{"create", "--role", "king", "--name", "n"}, 1},
	{[]string{"revoke", "00000000-0000-4000-8000-000000000000"}, 1},
}

// A server is there at once.
func TestStart_time(t *testing.T) {
	t.Parallel()
	file := filepath.Join(t.TempDir(), "flowapi.db")
	began := time.Now()
	s := serve(t, file)
	if r := must(t, newClient(t), http.MethodGet, s.url+"/readyz", ""); r.status != http.StatusOK {
		t.Errorf("readyz = %d %s", r.status, r.body)
	}
	t.Logf("the first answer came after %s", time.Since(began).Round(time.Millisecond))
}
