package flow_test

import (
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/flowapi/flowapi/internal/domain/flow"
)

// TestRetention: what a namespace leaves open is the server's, what is negative is deleted at once, and what has not ended is kept.
func TestRetention(t *testing.T) {
	t.Parallel()
	r := flow.Retention{Finished: new(7), Failed: new(-1)}.Or(flow.DefaultRetention())
	got := map[flow.Status]*int{}
	for _, s := range flow.Statuses() {
		got[s] = r.Days(s)
	}
	want := map[flow.Status]*int{}
	for _, s := range flow.Statuses() {
		want[s] = nil
	}
	want[flow.Finished], want[flow.Failed], want[flow.Cancelled] = new(7), new(0), new(30)
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("days (-want +got):\n%s", diff)
	}
	if forever := (flow.Retention{}).Days(flow.Finished); forever != nil {
		t.Errorf("what nobody limits is kept for %d days", *forever)
	}
}
