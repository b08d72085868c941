package execution_test

import (
	"testing"
	"time"

	"github.com/flowapi/flowapi/internal/domain/execution"
)

// TestDueAt: the earliest of what time can do to an execution.
func TestDueAt(t *testing.T) {
	t.Parallel()
	held := active(t)
	tests := []struct {
		name string
		e    execution.Execution
		want time.Time
	}{
		{"waiting", created(t), time.Time{}},
		{"waiting with a deadline", withDeadline(created)(t), after(50)},
		{"delayed", delayed(t), after(100)},
		{"delayed beyond its deadline", created(t, func(in *execution.Create) { in.DelayUntil, in.DeadlineAt = after(100), after(50) }), after(50)},
		{"active", active(t), after(61)},
		{"active with a deadline", withDeadline(active)(t), after(50)},
		{"active, lease longer than the attempt may take", must(t)(held.Renew(held.Fence(), time.Hour, after(2))), after(601)},
		{"lost", lapsed(t), after(601)},
		{"given back", released(t), time.Time{}},
		{"retrying", retrying(t), after(305)},
		{"completed", completed(t), time.Time{}},
	}
	for _, tt := range tests {
		if got := tt.e.DueAt(); !got.Equal(tt.want) {
			t.Errorf("%s: DueAt() = %s, want %s", tt.name, got, tt.want)
		}
		if tt.want.IsZero() {
			if c, ok := tt.e.Pass(after(1e9)); ok {
				t.Errorf("%s: time made it %s", tt.name, c.Execution.Public())
			}
			continue
		}
		if c, ok := tt.e.Pass(tt.want.Add(-time.Millisecond)); ok {
			t.Errorf("%s: time made it %s too early", tt.name, c.Execution.Public())
		}
		if _, ok := tt.e.Pass(tt.want); !ok {
			t.Errorf("%s: time did nothing at its due time", tt.name)
		}
	}
}
