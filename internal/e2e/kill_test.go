package e2e

import (
	"math/rand/v2"
	"net/http"
	"path/filepath"
	"testing"
	"time"
)

// Whatever was answered survives kill -9, and the database is always one that the server could have left on purpose.
func TestKill(t *testing.T) { //nolint:paralleltest // it wants the machine for itself
	const kills, clients, rounds = 20, 8, 12
	file := filepath.Join(t.TempDir(), "flowapi.db")
	load := newLoad(t)
	load.hangUp = true
	random := rand.New(rand.NewPCG(5, 20))
	client := newClient(t)
	var audited audit
	for i := range kills {
		s := serve(t, file)
		told := load.snapshot()
		if err := audited.check(t.Context(), file, told); err != nil {
			t.Fatalf("after kill %d: %v", i, err)
		}
		sample(t, client, s.url, told)
		load.aim(s.url) // until now the clients have tried in vain
		if i == 0 {
			load.start(clients)
		}
		eventually(t, "the clients get on", func() bool { return load.ends() >= len(told.completed)+rounds })
		select {
		case <-time.After(time.Duration(random.IntN(400)) * time.Millisecond):
		case <-t.Context().Done():
		}
		s.kill()
	}
	s := serve(t, file)
	load.aim(s.url)
	if err := load.stop(); err != nil {
		t.Error(err)
	}
	told := load.snapshot()
	sample(t, client, s.url, told)
	s.terminate()
	if code := s.ended(stopLimit); code != 0 {
		t.Errorf("exit code %d: %s", code, s.said())
	}
	if err := new(audit).check(t.Context(), file, told); err != nil {
		t.Errorf("in the end: %v", err)
	}
	t.Logf("%d creations, %d claims, %d completions, %d failures, %d frames, %d signals were answered; %d times a client hung up, %d calls were replayed; %d events",
		len(told.created), len(told.claimed), len(told.completed), len(told.failed), len(told.frames), len(told.signalled), told.hungUp, told.replayed, audited.events)
	if len(told.frames) < kills/2 || len(told.signalled) < kills/4 || told.hungUp < kills || told.replayed == 0 {
		t.Error("that was no load")
	}
}

// sample asks the server itself for some of what was answered.
func sample(t *testing.T, client *http.Client, url string, told *ledger) {
	t.Helper()
	const most = 10
	asked := 0
	for id, result := range told.completed { // in random order
		if asked++; asked > most {
			break
		}
		if r := must(t, client, http.MethodGet, url+"/v1/executions/"+id+"/result", ""); r.status != http.StatusOK || string(r.body) != result {
			t.Errorf("the result of %s = %d %s, want %s", id, r.status, r.body, result)
		}
	}
	asked = 0
	for id := range told.created {
		if asked++; asked > most {
			break
		}
		if r := must(t, client, http.MethodGet, url+"/v1/executions/"+id, ""); r.status != http.StatusOK {
			t.Errorf("execution %s = %d %s", id, r.status, r.body)
		}
	}
}
