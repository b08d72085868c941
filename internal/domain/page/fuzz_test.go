package page_test

import (
	"errors"
	"testing"

	"github.com/google/uuid"

	"github.com/flowapi/flowapi/internal/domain/fault"
	"github.com/flowapi/flowapi/internal/domain/page"
)

// FuzzCursor: a text is the cursor of one kind of list at most, has one spelling, and is refused otherwise.
func FuzzCursor(f *testing.F) {
	byTime, byName := page.Cursor{At: 1, ID: uuid.Max}.String(), page.NameCursor("builder-1")
	for _, seed := range []string{"", byTime, byName, byTime + "=", byName + "A", "AQ", "Ag", "A", "\x00", page.NameCursor("\xff")} {
		f.Add(seed)
	}
	f.Fuzz(func(t *testing.T, text string) {
		c, err := page.Parse(text)
		name, nameErr := page.ParseName(text)
		for _, err := range []error{err, nameErr} {
			if f, ok := errors.AsType[*fault.Error](err); err != nil && (!ok || f.Code != fault.CodeInvalidCursor || len(f.Fields) != 1 || f.Fields[0].In != fault.InQuery) {
				t.Fatalf("refused with %#v", err)
			}
		}
		switch {
		case text == "":
			if err != nil || nameErr != nil || !c.IsZero() || name != "" {
				t.Fatalf("the beginning is %+v %v, %q %v", c, err, name, nameErr)
			}
		case err == nil && nameErr == nil:
			t.Fatalf("it is both %+v and %q", c, name)
		case err == nil && !c.IsZero() && c.String() != text:
			t.Fatalf("%+v is written as %q", c, c.String())
		case nameErr == nil && page.NameCursor(name) != text:
			t.Fatalf("%q is written as %q", name, page.NameCursor(name))
		}
	})
}
