package fault_test

import (
	"errors"
	"fmt"
	"strings"
	"testing"

	"github.com/flowapi/flowapi/internal/domain/fault"
)

// TestError: a refusal keeps its code, its cause and its facts through whatever is wrapped around it.
func TestError(t *testing.T) {
	t.Parallel()
	cause := errors.New("the disk")
	err := fmt.Errorf("read: %w", fault.NotFound("flow", "f1").Because(cause))
	if fault.CodeOf(err) != fault.CodeNotFound || !errors.Is(err, cause) || !strings.HasSuffix(err.Error(), ": the disk") {
		t.Errorf("%v", err)
	}
	if f, ok := errors.AsType[*fault.Error](err); !ok || f.Facts["resource"] != "flow" {
		t.Errorf("%#v", err)
	}
	if got := fault.New(fault.CodeBusy, "Later.").Error(); got != "busy: Later." {
		t.Errorf("%q", got)
	}
	if fault.CodeOf(nil) != "" || fault.CodeOf(cause) != fault.CodeInternal {
		t.Errorf("%q, %q", fault.CodeOf(nil), fault.CodeOf(cause))
	}
}

// TestMovedTo: a refusal can be pointed at another part of the request, and what is none stays as it is.
func TestMovedTo(t *testing.T) {
	t.Parallel()
	for pointer, want := range map[string]string{"": "/a", "tag": "tag"} {
		f, _ := errors.AsType[*fault.Error](fault.MovedTo(fault.Invalid(fault.CodeInvalidTagKey, "/a", "No."), fault.InQuery, pointer))
		if f.Fields[0].In != fault.InQuery || f.Fields[0].Pointer != want {
			t.Errorf("%+v", f.Fields)
		}
	}
	if other := errors.New("x"); !errors.Is(fault.MovedTo(other, fault.InQuery, "q"), other) {
		t.Error("another error is changed")
	}
}

// TestCatalogue: every code is described once, as a refusal, and what is not in it is our own mistake.
func TestCatalogue(t *testing.T) {
	t.Parallel()
	seen := map[fault.Code]bool{}
	for _, e := range fault.Catalogue() {
		if seen[e.Code] || e.Status < 400 || e.Status > 599 || e.Title == "" || e.About == "" || fault.Lookup(e.Code) != e {
			t.Errorf("%+v", e)
		}
		seen[e.Code] = true
	}
	if fault.Lookup("gone_fishing").Code != fault.CodeInternal {
		t.Error("an unknown code is known")
	}
}
