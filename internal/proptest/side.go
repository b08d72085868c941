package proptest

import (
	"fmt"
	"io"
	"net/http"
	"strings"
	"sync"
	"testing"
	"time"

	"pgregory.net/rapid"

	"github.com/flowapi/flowapi/internal/apitest"
	"github.com/flowapi/flowapi/internal/app"
	"github.com/flowapi/flowapi/internal/apptest"
	"github.com/flowapi/flowapi/internal/repo/store"
	"github.com/flowapi/flowapi/internal/storetest"
)

// Server is a server on one of the databases, on which nothing happens by itself. It may be started anew.
type Server struct {
	*apptest.Server
	tb     testing.TB
	name   string
	change []func(*app.Config)
}

// Start starts a server on each database. All of them share a clock.
func Start(t *testing.T, change ...func(*app.Config)) []*Server {
	t.Helper()
	clock := store.StillClock(time.Date(2031, 5, 4, 12, 0, 0, 0, time.UTC))
	urls := storetest.URLs(t)
	var servers []*Server
	for _, name := range []string{"sqlite", "postgres"} {
		if url := urls[name]; url != "" {
			servers = append(servers, &Server{apptest.Still(t, url, clock, change...), t, name, change})
		}
	}
	return servers
}

// Side is one of the servers as a run sees it: a client in a namespace of the run's own.
type Side struct {
	*apitest.Client
	Name      string
	Namespace string
	server    *Server
	tb        testing.TB
}

// Side returns what run n sees of s.
func (s *Server) Side(tb testing.TB, n int) Side {
	side := Side{Name: s.name, Namespace: fmt.Sprintf("run-%d", n), server: s, tb: tb}
	side.connect()
	return side
}

func (s *Side) connect() { s.Client = s.server.For(reporter{s.tb, s.Name}).In(s.Namespace) }

// reporter reports to one run of a property, so that it can be made smaller.
type reporter struct {
	testing.TB
	side string
}

func (r reporter) Errorf(format string, args ...any) { fail(r.side, format, args...) }
func (r reporter) Fatalf(format string, args ...any) { fail(r.side, format, args...) }
func (r reporter) Fatal(args ...any)                 { fail(r.side, "%s", fmt.Sprint(args...)) }

// disagreement is what ends a run. The format stands for it in the error, which has to be the same each time or the run cannot be
// made smaller: what differs is logged.
type disagreement struct{ format, text string }

func fail(side, format string, args ...any) {
	panic(disagreement{format, side + ": " + fmt.Sprintf(format, args...)})
}

// Failf ends the work of the side, and the run.
func (s *Side) Failf(format string, args ...any) { fail(s.Name, format, args...) }

// Each lets all sides do the same at the same time. step is what is done, and story what was done before, for who reads a failure.
func Each[S any](t *rapid.T, sides []S, step string, story func() []string, do func(s S)) {
	t.Helper()
	var wg sync.WaitGroup
	wrong := make([]any, len(sides))
	for i, s := range sides {
		wg.Go(func() {
			defer func() { wrong[i] = recover() }()
			do(s)
		})
	}
	wg.Wait()
	for _, r := range wrong {
		switch r := r.(type) {
		case nil:
		case disagreement:
			t.Logf("%s\n\n%s", strings.Join(story(), "\n"), r.text)
			t.Fatalf("%s: %s", step, r.format)
		default:
			panic(r)
		}
	}
}

// Server returns the server as it is at present.
func (s *Side) Server() *apptest.Server { return s.server.Server }

// Restart stops the server, and starts another one on its database.
func (s *Side) Restart() {
	s.server.Stop()
	s.server.Server = apptest.Still(s.server.tb, s.server.URL, s.server.Clock, s.server.change...)
	s.connect()
}

// Settle lets everything happen that is left to do.
func (s *Side) Settle() {
	if err := s.Server().App.Settle(s.tb.Context()); err != nil {
		s.Failf("what is left to do cannot be done: %v", err)
	}
}

// Sync lets every event be read that was written.
func (s *Side) Sync() {
	if err := s.Server().App.Store().Sync(s.tb.Context()); err != nil {
		s.Failf("%v", err)
	}
}

// Newest returns the place of the newest event.
func (s *Side) Newest() int64 {
	s.Sync()
	return Decode[struct {
		EventLog struct {
			Newest int64 `json:"newest"`
		} `json:"event_log"`
	}](s.Fetch("/v1/meta")).EventLog.Newest
}

// Fetch reads what is compared. It passes the contract's checks by: there are many of these.
func (s *Side) Fetch(path string) []byte {
	request := Must(http.NewRequestWithContext(s.tb.Context(), http.MethodGet, s.Base()+path, nil))
	request.Header.Set("Flowapi-Namespace", s.Namespace)
	answer, err := http.DefaultClient.Do(request)
	if err != nil {
		s.Failf("GET %s: %v", path, err)
	}
	defer answer.Body.Close()
	body := Must(io.ReadAll(answer.Body))
	if answer.StatusCode != http.StatusOK {
		s.Failf("GET %s: %d %s", path, answer.StatusCode, body)
	}
	return body
}
