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

// TestUnder: the refusal of a part points into the whole, below the part or at it, as often as it is told; what is no fault of the caller's
// points nowhere.
func TestUnder(t *testing.T) {
	t.Parallel()
	field := func(err error) fault.Field {
		f, ok := errors.AsType[*fault.Error](fault.Under(err, "/child"))
		if !ok || len(f.Fields) != 1 {
			t.Fatalf("%+v", f)
		}
		return f.Fields[0]
	}
	invalid := fault.Invalid(fault.CodeValidationFailed, "/lane", "No.")
	for range 2 {
		if got := field(invalid); got.Pointer != "/child/lane" || got.In != fault.InBody {
			t.Errorf("%+v", got)
		}
	}
	if got := field(fault.MovedTo(fault.Invalid(fault.CodeValidationFailed, "lane", "No."), fault.InQuery, "")); got.Pointer != "lane" {
		t.Errorf("%+v", got)
	}
	if got := field(fault.NotFound("flow", 7)); got.Pointer != "/child" || got.In != fault.InBody || got.Code != fault.CodeNotFound {
		t.Errorf("%+v", got)
	}
	busy := fault.New(fault.CodeBusy, "Later.")
	for _, err := range []error{busy, errors.New("x")} {
		if got := fault.Under(err, "/child"); !errors.Is(got, err) {
			t.Errorf("%+v", got)
		}
	}
	if len(busy.Fields) > 0 {
		t.Errorf("%+v", busy.Fields)
	}
}

// TestExpect: who has read nothing, or the present revision, may go on.
func TestExpect(t *testing.T) {
	t.Parallel()
	for _, read := range []*int64{nil, new(int64(3))} {
		if err := fault.Expect("Budget 7", read, 3); err != nil {
			t.Error(err)
		}
	}
	f, ok := errors.AsType[*fault.Error](fault.Expect("Budget 7", new(int64(2)), 3))
	if !ok || f.Code != fault.CodeRevisionMismatch || f.Facts["expected"] != int64(2) || f.Facts["actual"] != int64(3) {
		t.Errorf("%+v", f)
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
