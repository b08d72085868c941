package apitest

import (
	"flag"
	"fmt"
	"os"
	"slices"
	"strings"
	"sync"

	"github.com/getkin/kin-openapi/openapi3"

	"github.com/flowapi/flowapi/internal/domain/fault"
)

// reached is what the answers of a whole run of tests were: the operations that succeeded, and the codes of refusals.
type reached struct {
	mu         sync.Mutex
	operations map[string]bool
	codes      map[fault.Code]bool
}

// all is that of this process: whichever test an answer is for, it passes through here.
var all = reached{operations: map[string]bool{}, codes: map[fault.Code]bool{}}

func (r *reached) success(operation string) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.operations[operation] = true
}

func (r *reached) refusal(code fault.Code) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.codes[code] = true
}

// missing returns what no answer was: the operations of the contract that never succeeded, and the codes of the catalogue that never
// came, elsewhere excepted.
func (r *reached) missing(spec *openapi3.T, elsewhere map[fault.Code]string) []string {
	r.mu.Lock()
	defer r.mu.Unlock()
	var lines []string
	for _, item := range spec.Paths.Map() {
		for _, operation := range item.Operations() {
			if !r.operations[operation.OperationID] {
				lines = append(lines, fmt.Sprintf("the operation %s has never succeeded", operation.OperationID))
			}
		}
	}
	for _, entry := range fault.Catalogue() {
		if !r.codes[entry.Code] && elsewhere[entry.Code] == "" {
			lines = append(lines, fmt.Sprintf("the code %s was never answered", entry.Code))
		}
	}
	slices.Sort(lines)
	return lines
}

// Runner runs the tests of a package.
type Runner interface{ Run() int }

// Whole is the run of a package whose tests reach, if all of them run, every operation of the contract with success and every
// code of the catalogue; elsewhere names those that another test reaches, and which one. What is missing fails the run.
type Whole struct {
	Runner
	Spec      *openapi3.T
	Elsewhere map[fault.Code]string
}

// Run runs the tests.
func (w Whole) Run() int {
	status := w.Runner.Run()
	if status != 0 || part() {
		return status
	}
	missing := all.missing(w.Spec, w.Elsewhere)
	if len(missing) == 0 {
		return 0
	}
	fmt.Fprintf(os.Stderr, "FAIL: the tests do not reach everything:\n\t%s\n", strings.Join(missing, "\n\t"))
	return 1
}

// part says whether only some of the tests were run, or none.
func part() bool {
	for _, name := range []string{"test.run", "test.skip", "test.list", "test.fuzz"} {
		if flag.Lookup(name).Value.String() != "" {
			return true
		}
	}
	return flag.Lookup("test.short").Value.String() == "true"
}
