package bench

import (
	"strings"
	"testing"
	"time"
)

func TestCPUOf(t *testing.T) {
	t.Parallel()
	const rest = " S 1 10401 8407 0 -1 4194304 101 0 0 0 250 31 0 0 20 0 1 0 131174 3133440 366"
	for stat, want := range map[string]time.Duration{
		"10404 (flowapi)" + rest:      2810 * time.Millisecond,
		"10404 (a (b) c) 1 2)" + rest: 2810 * time.Millisecond, // a program may have any name
		"10404 (flowapi) S 1":         0,
		"":                            0,
	} {
		if got := cpuOf(stat); got != want {
			t.Errorf("cpuOf(%q) = %s, want %s", stat, got, want)
		}
	}
}

func TestRow_value(t *testing.T) {
	t.Parallel()
	for want, row := range map[string]Row{
		"1,235": {Value: 1234.5, Unit: "/s"},
		"0.05":  {Value: 0.049, Unit: unitShare},
		"1.50":  {Value: 1.5, Unit: unitRatio},
	} {
		if got := row.value(); got != want {
			t.Errorf("%v has the value %s, want %s", row, got, want)
		}
	}
}

func TestTiming_mean(t *testing.T) {
	t.Parallel()
	if got := newTiming(0, nil).mean(); got != 0 {
		t.Errorf("the mean of nothing is %s", got)
	}
	if got := newTiming(0, []time.Duration{3, 1, 2}).mean(); got != 2 {
		t.Errorf("the mean of 3, 1, 2 is %d", got)
	}
}

// A third is there for each reason, and the capabilities are of a hundred different sets.
func TestUnclaimable(t *testing.T) {
	t.Parallel()
	documents := map[string]int{}
	reasons := map[string]int{}
	for i := range 3000 {
		document := unclaimable("lane", "flow", i)
		documents[document]++
		for _, reason := range []string{`"required_capabilities"`, `"delay_ms"`, `"flow_id"`} {
			if strings.Contains(document, reason) {
				reasons[reason]++
			}
		}
	}
	for reason, n := range reasons {
		if n != 1000 {
			t.Errorf("%d of 3000 with %s", n, reason)
		}
	}
	if want := 100 + 1000 + 1; len(reasons) != 3 || len(documents) != want {
		t.Errorf("%d reasons, %d documents; want 3 and %d", len(reasons), len(documents), want)
	}
}
