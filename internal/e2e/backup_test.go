package e2e

import (
	"database/sql"
	"fmt"
	"net/http"
	"net/url"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"github.com/google/uuid"
	_ "github.com/jackc/pgx/v5/stdlib" // the driver "pgx"

	"github.com/flowapi/flowapi/internal/storetest"
)

// What docs/operations.md says about backups brings back what was there, as the server made it: what came later is gone, waitpoint
// tokens still open, and whoever has seen later events is told.
func TestBackup(t *testing.T) {
	t.Parallel()
	text, err := os.ReadFile("../../docs/operations.md")
	if err != nil {
		t.Fatal(err)
	}
	for kind, needs := range map[string][]string{"sqlite": {"sqlite3"}, "postgres": {"pg_dump", "pg_restore", "psql"}} {
		t.Run(kind, func(t *testing.T) {
			t.Parallel()
			for _, program := range needs {
				if _, err := exec.LookPath(program); err != nil {
					t.Skipf("there is no %s", program)
				}
			}
			backUpAndRestore(t, kind, string(text))
		})
	}
}

func backUpAndRestore(t *testing.T, kind, text string) {
	t.Helper()
	folder := t.TempDir()
	database, env := filepath.Join(folder, "flowapi.db"), []string{"FLOWAPI_WAITPOINT_SECRET="} // it is in the file beside it
	if kind == "postgres" {
		database, env = ownDatabase(t), nil
	}
	follow := func(part string) {
		t.Helper()
		block := regexp.MustCompile("(?s)<!-- " + part + " " + kind + " -->\n```sh\n(.*?)```").FindStringSubmatch(text)
		if block == nil {
			t.Fatalf("docs/operations.md does not say how to %s %s", part, kind)
		}
		cmd := exec.CommandContext(t.Context(), "sh", "-eu", "-c", block[1])
		cmd.Dir, cmd.Env = folder, append(os.Environ(), "FLOWAPI_DATABASE_URL="+database)
		if out, err := cmd.CombinedOutput(); err != nil {
			t.Fatalf("%s: %v\n%s", part, err, out)
		}
	}
	args := []string{"--addr", "127.0.0.1:0", "--db", database}
	s := serveWith(t, env, args...)
	id := s.create(`{"lane":"ci"}`)
	var claimed struct{ Claims []struct{ Handle string } }
	s.post("/v1/claims", `{"lane":"ci","worker_id":"w"}`, &claimed)
	var asked struct {
		Waitpoints []struct {
			ID    string `json:"waitpoint_id"`
			Token string
		}
	}
	s.post("/v1/executions/"+id+"/suspend", fmt.Sprintf(`{"handle":%q,"reason_code":"waiting_for_signal","waitpoints":[{"waitpoint_key":"k"}],
		"resume_condition":{"Single":{"waitpoint_key":"k","matcher":"Wildcard"}}}`, claimed.Claims[0].Handle), &asked)
	follow("backup")
	later := s.create(`{"lane":"ci"}`)
	var log struct {
		Next int64 `json:"next_cursor"`
	}
	s.get("/v1/events?limit=500", &log)
	s.terminate()
	s.ended(stopLimit)
	follow("restore")

	s = serveWith(t, env, args...)
	if e := s.execution(id); e.PublicState != "suspended" {
		t.Errorf("the execution is %+v", e)
	}
	if r := must(t, newClient(t), http.MethodGet, s.url+"/v1/executions/"+later, ""); r.status != http.StatusNotFound {
		t.Errorf("what came after the backup: %d %s", r.status, r.body)
	}
	for range 5 { // as many events as were lost, and more
		s.create(`{"lane":"ci"}`)
	}
	var events struct {
		Reset *int64 `json:"reset_to"`
	}
	s.get(fmt.Sprintf("/v1/events?after=%d", log.Next), &events)
	if events.Reset == nil {
		t.Error("who has seen later events is not told")
	}
	point := asked.Waitpoints[0]
	s.post("/v1/executions/"+id+"/signals", fmt.Sprintf(`{"waitpoint_id":%q,"token":%q,"signal_name":"go"}`, point.ID, point.Token), nil)
	s.becomes(id, "waiting")
}

// ownDatabase returns the URL of a new database, not only of a schema, for tools that know no schemas of ours.
func ownDatabase(t *testing.T) string {
	t.Helper()
	u, err := url.Parse(storetest.Postgres(t))
	if err != nil {
		t.Fatal(err)
	}
	query := u.Query()
	query.Del("search_path")
	u.RawQuery = query.Encode()
	db, err := sql.Open("pgx", u.String())
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { db.Close() })
	name := "backup_" + strings.ReplaceAll(uuid.NewString(), "-", "")
	if _, err := db.Exec("CREATE DATABASE " + name); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if _, err := db.Exec("DROP DATABASE " + name + " WITH (FORCE)"); err != nil {
			t.Errorf("drop the database: %v", err)
		}
	})
	u.Path = "/" + name
	return u.String()
}
