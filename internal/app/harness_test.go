package app_test

import (
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/flowapi/flowapi/internal/apitest"
)

// unmoved makes a call, and checks that what a look at the server shows is the same before and after it.
func unmoved[S any](t *testing.T, look func() S, call func() *apitest.Response) *apitest.Response {
	t.Helper()
	before := look()
	answer := call()
	if diff := cmp.Diff(before, look()); diff != "" {
		t.Errorf("answered %d, and something was changed (-before +after):\n%s", answer.Status, diff)
	}
	return answer
}
