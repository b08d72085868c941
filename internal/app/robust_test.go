package app_test

import (
	"bufio"
	"fmt"
	"net"
	"net/http"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/uuid"

	"github.com/flowapi/flowapi/internal/apptest"
	"github.com/flowapi/flowapi/internal/repo/store"
)

// A client that closes its half of the connection after the request gets the answer, or none; never an empty 200.
func TestHalfClosedClients(t *testing.T) {
	t.Parallel()
	s := apptest.Start(t, t.TempDir()+"/flowapi.db")
	send := func(request string) *http.Response {
		t.Helper()
		conn, err := (&net.Dialer{Timeout: 5 * time.Second}).DialContext(t.Context(), "tcp", strings.TrimPrefix(s.Base(), "http://"))
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { _ = conn.Close() })
		if _, err := conn.Write([]byte(request)); err != nil {
			t.Fatal(err)
		}
		if err := conn.(*net.TCPConn).CloseWrite(); err != nil {
			t.Fatal(err)
		}
		resp, err := http.ReadResponse(bufio.NewReader(conn), nil)
		if err != nil {
			return nil // cut: nobody takes it for an answer
		}
		return resp
	}
	post := func(path, length, body string) string {
		return "POST " + path + " HTTP/1.1\r\nHost: localhost\r\nContent-Length: " + length + "\r\n\r\n" + body
	}
	body := `{"lane":"half"}`
	answered := 0
	for range 50 {
		resp := send(post("/v1/executions", fmt.Sprint(len(body)), body))
		switch {
		case resp == nil:
		case resp.StatusCode == http.StatusCreated:
			answered++
			_ = resp.Body.Close()
		default:
			t.Fatalf("a create was answered by %s, length %d", resp.Status, resp.ContentLength)
		}
	}
	if made := s.Get("/v1/executions?limit=500").Want(200).Len("items"); made < answered {
		t.Errorf("%d creates were answered, %d executions exist", answered, made)
	}
	if resp := send(post("/v1/executions", "50", `{"lane":"x"`)); resp != nil {
		if resp.StatusCode != http.StatusBadRequest {
			t.Errorf("a body that ends early was answered by %s", resp.Status)
		}
		_ = resp.Body.Close()
	}
}

// A lane may have seen any number of sets of capabilities: whatever stands in it is found.
func TestClaims_beyond_a_thousand_buckets(t *testing.T) {
	t.Parallel()
	apptest.Databases(t, func(t *testing.T, s *apptest.Server) {
		const tokens, sets = 11, 1100
		names := make([]string, tokens)
		for i := range names {
			names[i] = fmt.Sprintf("%q", fmt.Sprintf("cap%02d", i))
		}
		var items []string
		for set := 1; set <= sets; set++ {
			var need []string
			for i, name := range names {
				if set&(1<<i) != 0 {
					need = append(need, name)
				}
			}
			items = append(items, `{"lane":"many","required_capabilities":[`+strings.Join(need, ",")+`]}`)
		}
		for some := range slices.Chunk(items, 100) {
			s.Post("/v1/executions/batch", `{"executions":[`+strings.Join(some, ",")+`]}`).Want(201)
		}
		worker := `{"lane":"many","worker_id":"w","max":100,"capabilities":[` + strings.Join(names, ",") + `]}`
		for got := 0; got < sets; {
			n := s.Post("/v1/claims", worker).Want(200).Len("claims")
			if n == 0 {
				t.Fatalf("only %d of %d were found", got, sets)
			}
			got += n
		}
		s.Post("/v1/claims", worker).Want(204)
	})
}

// One that cannot be read does not keep the others of a batch, or of a flow, from what happens to them.
func TestCorruptExecution_stands_alone(t *testing.T) {
	t.Parallel()
	apptest.Databases(t, func(t *testing.T, s *apptest.Server) {
		spoil := func(id string) {
			t.Helper()
			err := store.Do(t.Context(), s.App.Store(), func(tx *store.Tx) error {
				return tx.ExecOne(`UPDATE executions SET progress = '{' WHERE id = ?`, store.ID(uuid.MustParse(id)))
			})
			if err != nil {
				t.Fatal(err)
			}
		}
		var items []string
		for range 2 {
			s.Post("/v1/executions", `{"lane":"l"}`).Want(201)
			claim := s.Post("/v1/claims", `{"lane":"l","worker_id":"w","lease_ttl_ms":3600000}`).Want(200)
			items = append(items, fmt.Sprintf(`{"execution_id":%q,"handle":%q}`, claim.Str("claims.0.execution.id"), claim.Str("claims.0.handle")))
			if len(items) == 1 {
				spoil(claim.Str("claims.0.execution.id"))
			}
		}
		done := s.Post("/v1/completions", `{"items":[`+strings.Join(items, ",")+`]}`).Want(200)
		if bad, good := done.Str("items.0.problem.code"), done.Str("items.1.execution.public_state"); bad != "corrupt_record" || good != "completed" {
			t.Errorf("the batch is answered %s", done.Body)
		}
		flow := s.Post("/v1/flows", `{"goal":"g","start":false,"graph":{"executions":[{"key":"a","lane":"m"},{"key":"b","lane":"m"}]}}`).Want(201)
		spoil(flow.Str("graph.executions.a"))
		s.Post("/v1/flows/"+flow.Str("id")+"/start", nil).Want(200)
		if got := s.Post("/v1/claims", `{"lane":"m","worker_id":"w"}`).Want(200).Str("claims.0.execution.id"); got != flow.Str("graph.executions.b") {
			t.Errorf("claimed %s", got)
		}
	})
}

// A row that cannot be read harms nobody else: sweeps and claims pass it by.
func TestCorruptExecution_is_put_aside(t *testing.T) {
	t.Parallel()
	apptest.Databases(t, func(t *testing.T, s *apptest.Server) {
		bad := s.Post("/v1/executions", `{"lane":"l","delay_ms":1000,"priority":9}`).Want(201).Str("id")
		worse := s.Post("/v1/executions", `{"lane":"l","priority":9}`).Want(201).Str("id")
		good := s.Post("/v1/executions", `{"lane":"l","delay_ms":1000}`).Want(201).Str("id")
		err := store.Do(t.Context(), s.App.Store(), func(tx *store.Tx) error {
			_, err := tx.Exec(`UPDATE executions SET progress = '{' WHERE priority = 9`)
			return err
		})
		if err != nil {
			t.Fatal(err)
		}
		s.Clock.Advance(2 * time.Second)
		for range 2 { // the first round tells of the one that is put aside
			_ = s.App.Settle(t.Context())
		}
		if got := s.Get("/v1/executions/" + good + "/state").Want(200).Str("public_state"); got != "waiting" {
			t.Errorf("the good one is %s", got)
		}
		if got := s.Post("/v1/claims", `{"lane":"l","worker_id":"w"}`).Want(200).Str("claims.0.execution.id"); got != good {
			t.Errorf("claimed %s, want %s", got, good)
		}
		for _, id := range []string{bad, worse} {
			s.Get("/v1/executions/" + id).Want(500).Problem("corrupt_record")
		}
	})
}

// A time that cannot be written again is refused before it is stored.
func TestTimes_out_of_reach(t *testing.T) {
	t.Parallel()
	apptest.Databases(t, func(t *testing.T, s *apptest.Server) {
		for _, body := range []string{
			`{"lane":"p","deadline_at":"9999-12-31T23:59:59-23:59"}`,
			`{"lane":"p","delay_until":"9999-12-31T23:59:59-23:59"}`,
			`{"lane":"p","deadline_at":"0001-01-01T00:00:00Z"}`,
		} {
			s.Post("/v1/executions", body).Want(422).Problem("validation_failed")
		}
		s.Post("/v1/admin/tokens", `{"name":"t","role":"viewer","expires_at":"9999-12-31T23:59:59-23:59"}`).Want(422)
		if n := s.Get("/v1/executions").Want(200).Len("items"); n != 0 {
			t.Errorf("%d executions were made", n)
		}
		if n := s.Get("/v1/admin/tokens").Want(200).Len("items"); n != 0 {
			t.Errorf("%d tokens were made", n)
		}
	})
}
