package shape_test

import (
	"testing"
	"time"

	"github.com/flowapi/flowapi/internal/handlers/shape"
)

func TestRateLimit(t *testing.T) {
	t.Parallel()
	now := time.Date(2026, 11, 22, 9, 30, 0, 0, time.UTC)
	for _, tt := range []struct {
		name         string
		limits       []shape.Limit
		policy, left string
	}{
		{"no limits", nil, "", ""},
		{"one that never begins anew", []shape.Limit{{Name: "tokens", Max: 10000, Left: 120}}, `"tokens";q=10000`, `"tokens";r=120`},
		{"one with a window", []shape.Limit{{Name: "tokens", Max: 10000, Left: 120, Window: 24 * time.Hour, MoreAt: now.Add(time.Hour)}}, `"tokens";q=10000;w=86400`, `"tokens";r=120;t=3600`},
		{"one with a schedule", []shape.Limit{{Name: "tokens", Max: 7, MoreAt: now.Add(time.Minute)}}, `"tokens";q=7`, `"tokens";r=0;t=60`},
		{"parts of a second count as one", []shape.Limit{{Name: "a", Max: 1, Window: 1500 * time.Millisecond, MoreAt: now.Add(time.Millisecond)}}, `"a";q=1;w=2`, `"a";r=0;t=1`},
		{"what is due, and what was gone over", []shape.Limit{{Name: "a", Max: 1, Left: -3, MoreAt: now.Add(-time.Hour)}}, `"a";q=1`, `"a";r=0;t=0`},
		{"more than a header can say", []shape.Limit{{Name: "a", Max: 1<<53 - 1, Left: 1<<53 - 2}}, `"a";q=999999999999999`, `"a";r=999999999999999`},
		{"two", []shape.Limit{{Name: "requests", Max: 2, Left: 1}, {Name: "concurrent", Max: 3, Left: 2}}, `"requests";q=2, "concurrent";q=3`, `"requests";r=1, "concurrent";r=2`},
	} {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			policy, left := shape.RateLimit(tt.limits, now)
			if got := text(policy); got != tt.policy {
				t.Errorf("policy %s, want %s", got, tt.policy)
			}
			if got := text(left); got != tt.left {
				t.Errorf("left %s, want %s", got, tt.left)
			}
		})
	}
}

func text(header *string) string {
	if header == nil {
		return ""
	}
	return *header
}
