package streams

import (
	"testing"

	"go.uber.org/goleak"

	"github.com/flowapi/flowapi/internal/repo/store"
	streamrepo "github.com/flowapi/flowapi/internal/repo/stream"
	"github.com/flowapi/flowapi/internal/sse"
	"github.com/flowapi/flowapi/internal/storetest"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// TestSources_gone: whoever begins to follow when an execution has just been deleted is told that the log has ended, and does not wait
// for where it would begin.
func TestSources_gone(t *testing.T) {
	t.Parallel()
	storetest.Stores(t, func(t *testing.T, s *store.Store) {
		repo, id := streamrepo.New(s), store.NewID()
		for name, source := range map[string]sse.Source{"frames": &frames{repo, id, 0}, "the next attempt": &nextAttempt{repo, id, 0}} {
			newest, err := source.Newest(t.Context())
			if err != nil {
				t.Fatalf("%s: %v", name, err)
			}
			page, err := source.Read(t.Context(), newest)
			if err != nil || !page.Final || page.Farewell != nil {
				t.Errorf("%s: %+v, %v", name, page, err)
			}
		}
	})
}
