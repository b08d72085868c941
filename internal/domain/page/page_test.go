package page_test

import (
	"encoding/base64"
	"slices"
	"testing"
	"time"

	"github.com/google/uuid"
	"pgregory.net/rapid"

	"github.com/flowapi/flowapi/internal/domain/fault"
	"github.com/flowapi/flowapi/internal/domain/page"
)

func cursors() *rapid.Generator[page.Cursor] {
	return rapid.Custom(func(t *rapid.T) page.Cursor {
		return page.Cursor{At: rapid.Int64().Draw(t, "at"), ID: uuid.UUID(rapid.SliceOfN(rapid.Byte(), 16, 16).Draw(t, "id"))}
	})
}

func TestCursor_RoundTrip(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(t *rapid.T) {
		c := cursors().Draw(t, "cursor")
		got, err := page.Parse(c.String())
		if err != nil || got != c {
			t.Fatalf("Parse(%q) = %+v, %v, want %+v", c.String(), got, err, c)
		}
	})
}

func TestCursor_Beginning(t *testing.T) {
	t.Parallel()
	var c page.Cursor
	got, err := page.Parse("")
	if !c.IsZero() || c.String() != "" || got != c || err != nil {
		t.Errorf("the beginning is %q, and read as %+v, %v", c.String(), got, err)
	}
	if page.After(time.UnixMilli(1), uuid.Nil).IsZero() {
		t.Error("the place behind a row is the beginning")
	}
}

func TestAfter(t *testing.T) {
	t.Parallel()
	id := uuid.New()
	at := time.Date(2026, 11, 21, 9, 30, 0, 123_999_999, time.FixedZone("", 3600))
	if got, want := page.After(at, id), (page.Cursor{At: at.UnixMilli(), ID: id}); got != want {
		t.Errorf("After() = %+v, want %+v", got, want)
	}
}

func TestParse_Refusals(t *testing.T) {
	t.Parallel()
	c := page.Cursor{At: 1, ID: uuid.MustParse("01985c3e-7b20-7d41-8a63-5e2c9f7b1c02")}
	good := c.String()
	raw, err := base64.RawURLEncoding.DecodeString(good)
	if err != nil {
		t.Fatal(err)
	}
	version := slices.Clone(raw)
	version[0]++
	tests := map[string]string{
		"nonsense": "nonsense", "too short": good[:len(good)-2], "too long": good + "AA", "padded": good + "=", "spaced": good + " ", "in two lines": good[:4] + "\r\n" + good[4:],
		"a number": "44", "an id": c.ID.String(), "another version": base64.RawURLEncoding.EncodeToString(version),
		"loose bits": good[:len(good)-1] + string(good[len(good)-1]+1), "not ASCII": "é" + good,
	}
	for name, s := range tests {
		got, err := page.Parse(s)
		if fault.CodeOf(err) != fault.CodeInvalidCursor || !got.IsZero() {
			t.Errorf("%s: Parse(%q) = %+v, %v", name, s, got, err)
		}
	}
}

// TestOf walks lists of every length in pages of every size: what comes out is the list, and only the last page has no cursor.
func TestOf(t *testing.T) {
	t.Parallel()
	for length := range 8 {
		list := make([]int, length)
		for i := range list {
			list[i] = i + 1
		}
		for limit := 1; limit <= 9; limit++ {
			var got []int
			for from, pages := 0, 0; ; pages++ {
				rows := list[from:min(length, from+limit+1)] // one more than the page has
				p := page.Of(rows, limit, func(n int) page.Cursor { return page.Cursor{At: int64(n)} })
				got = append(got, p.Items...)
				if len(p.Items) > limit || pages > length {
					t.Fatalf("%d rows in pages of %d: page %d has %d", length, limit, pages, len(p.Items))
				}
				if p.Next.IsZero() {
					break
				}
				from = int(p.Next.At)
			}
			if !slices.Equal(got, list) {
				t.Errorf("%d rows in pages of %d: %v", length, limit, got)
			}
		}
	}
}
