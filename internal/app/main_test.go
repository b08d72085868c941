package app_test

import (
	"fmt"
	"os"
	"testing"

	"go.uber.org/goleak"

	"github.com/flowapi/flowapi/internal/apitest"
	"github.com/flowapi/flowapi/internal/domain/fault"
	"github.com/flowapi/flowapi/internal/handlers/oapi"
)

// reachedElsewhere are the codes that cannot be provoked here, with the tests that reach them.
var reachedElsewhere = map[fault.Code]string{
	fault.CodeInternal:    "handlers.TestServer_Refusals: no request is known that provokes it",
	fault.CodeReactorLoop: "store.TestWrite_reactor_loop_is_a_fault: the server has no such reactors",
	fault.CodeUnavailable: "handlers.TestPages_NotReady: a server whose database is gone",
}

// TestMain: no goroutine is left behind, and all tests together reach every operation and every code.
func TestMain(m *testing.M) {
	spec, err := oapi.Spec()
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
	goleak.VerifyTestMain(apitest.Whole{Runner: m, Spec: spec, Elsewhere: reachedElsewhere})
}
