package page_test

import (
	"encoding/base64"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/google/uuid"
	"pgregory.net/rapid"

	"github.com/flowapi/flowapi/internal/domain/fault"
	"github.com/flowapi/flowapi/internal/domain/page"
)

func TestNameCursor_RoundTrip(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(t *rapid.T) {
		name := rapid.StringMatching(`[^\x00]+`).Draw(t, "name")
		if got, err := page.ParseName(page.NameCursor(name)); err != nil || got != name {
			t.Fatalf("ParseName(NameCursor(%q)) = %q, %v", name, got, err)
		}
	})
	if got, err := page.ParseName(""); got != "" || err != nil {
		t.Errorf("the beginning is %q, %v", got, err)
	}
}

func TestParseName_Refuses(t *testing.T) {
	t.Parallel()
	good := page.NameCursor("builder-1")
	for name, cursor := range map[string]string{
		"no base64": "builder 1", "padded": good + "=", "in two lines": good + "\n", "plain": base64.RawURLEncoding.EncodeToString([]byte("builder-1")), "nothing in it": "Ag",
		"not UTF-8": page.NameCursor("\xff"), "a NUL": page.NameCursor("a\x00b"), "of a list by time": page.After(time.UnixMilli(1), uuid.New()).String(),
	} {
		if got, err := page.ParseName(cursor); fault.CodeOf(err) != fault.CodeInvalidCursor || got != "" {
			t.Errorf("%s: %q, %v", name, got, err)
		}
	}
	if _, err := page.Parse(good); fault.CodeOf(err) != fault.CodeInvalidCursor {
		t.Errorf("a list by time takes the cursor of a list by name: %v", err)
	}
}

func TestOfNames(t *testing.T) {
	t.Parallel()
	name := func(s string) string { return s }
	for _, tt := range []struct {
		rows []string
		want page.Named[string]
	}{
		{nil, page.Named[string]{}},
		{[]string{"a", "b"}, page.Named[string]{Items: []string{"a", "b"}}},
		{[]string{"a", "b", "c"}, page.Named[string]{Items: []string{"a", "b"}, Next: "b"}},
	} {
		if diff := cmp.Diff(tt.want, page.OfNames(tt.rows, 2, name)); diff != "" {
			t.Errorf("%v (-want +got):\n%s", tt.rows, diff)
		}
	}
}
