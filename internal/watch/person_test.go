package watch

import (
	"encoding/json"
	"fmt"
	"strconv"
	"strings"
	"testing"

	"github.com/flowapi/flowapi/internal/client"
)

func TestSnapshot_person(t *testing.T) {
	t.Parallel()
	const asks = `[{"kind":"waitpoint","execution_id":"0"}]`
	for _, tt := range []struct {
		name, wait, states, asks string
		still, person            bool
	}{
		{"at work", "null", "active", "[]", false, false},
		{"an approval", "null", "suspended", asks, true, true},
		{"an approval and its followers", "null", "suspended waiting_children completed skipped failed", asks, true, true},
		{"an approval and work", "null", "suspended active", asks, false, false},
		{"an approval and a queue", "null", "suspended waiting", asks, false, false},
		{"an approval and a backoff", "null", "suspended delayed", asks, false, false},
		{"an approval and a quota", "null", "suspended rate_limited", asks, false, false},
		{"a callback", "null", "suspended", "[]", true, false},
		{"an approval and a callback", "null", "suspended suspended", asks, true, false},
		{"nothing at all", "null", "completed", "[]", false, false},
		{"only followers", "null", "waiting_children", "[]", false, false},
		{"a manual wait", `{"condition":{"kind":"manual"}}`, "completed", "[]", true, true},
		{"a manual wait and work", `{"condition":{"kind":"manual"}}`, "active", "[]", false, false},
		{"a timer", `{"condition":{"kind":"timer"}}`, "completed", "[]", false, false},
		{"a person or a timer", `{"condition":{"kind":"any","of":[{"kind":"manual"},{"kind":"timer"}]}}`, "completed", "[]", false, false},
		{"people", `{"condition":{"kind":"all","of":[{"kind":"manual"},{"kind":"manual"}]}}`, "completed", "[]", true, true},
	} {
		var s Snapshot
		text := fmt.Sprintf(`{"Flow":{"status":"running","wait":%s},"Asks":%s}`, tt.wait, tt.asks)
		if err := json.Unmarshal([]byte(text), &s); err != nil {
			t.Fatal(err)
		}
		for i, state := range strings.Fields(tt.states) {
			s.Graph.Nodes = append(s.Graph.Nodes, client.Node{ID: strconv.Itoa(i), PublicState: state})
		}
		got := still(&s)
		if got != tt.still || got && asksOnly(&s) != tt.person {
			t.Errorf("%s: still %v, want %v; only people %v, want %v", tt.name, got, tt.still, asksOnly(&s), tt.person)
		}
	}
}
