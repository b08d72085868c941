package wire_test

import (
	"encoding/json"
	"testing"
	"time"

	"github.com/flowapi/flowapi/internal/handlers/wire"
)

func TestTime_JSON(t *testing.T) {
	t.Parallel()
	for _, tt := range []struct{ name, in, want string }{
		{"no fraction", "2026-11-21T09:30:00Z", "2026-11-21T09:30:00.000Z"},
		{"nanoseconds are cut", "2026-11-21T09:30:00.123999999Z", "2026-11-21T09:30:00.123Z"},
		{"offset", "2026-11-21T11:30:00.5+02:00", "2026-11-21T09:30:00.500Z"},
		{"lower case", "2026-11-21t09:30:00z", "2026-11-21T09:30:00.000Z"},
		{"before the epoch", "1969-12-31T23:59:59.999Z", "1969-12-31T23:59:59.999Z"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			var got wire.Time
			if err := json.Unmarshal([]byte(`"`+tt.in+`"`), &got); err != nil {
				t.Fatal(err)
			}
			b, err := json.Marshal(got)
			if err != nil {
				t.Fatal(err)
			}
			if string(b) != `"`+tt.want+`"` || got.String() != tt.want {
				t.Errorf("%s is written as %s and %s, want %s", tt.in, b, got, tt.want)
			}
			if !wire.FromMillis(got.UnixMilli()).Equal(got) {
				t.Errorf("%s does not survive milliseconds", tt.in)
			}
		})
	}
}

func TestTime_UnmarshalJSON_refuses(t *testing.T) {
	t.Parallel()
	for _, in := range []string{`""`, `"now"`, `"2026-11-21"`, `"2026-11-21 09:30:00Z"`, `"2026-02-30T09:30:00Z"`, `"2026-11-21T09:30:00"`,
		`"9999-12-31T23:59:59-23:59"`, `"0001-01-01T00:00:00Z"`, `1`, `{}`} {
		var got wire.Time
		if err := json.Unmarshal([]byte(in), &got); err == nil {
			t.Errorf("%s was read as %s", in, got)
		}
	}
}

func TestTime_MarshalJSON(t *testing.T) { //nolint:paralleltest // it counts allocations
	if _, err := json.Marshal(wire.Time(time.Date(10000, 1, 1, 0, 0, 0, 0, time.UTC))); err == nil {
		t.Error("the year 10000 was written")
	}
	at := wire.FromMillis(1795253400123)
	if n := testing.AllocsPerRun(100, func() { _, _ = at.MarshalJSON() }); n > 1 {
		t.Errorf("MarshalJSON allocates %v times, want once", n)
	}
	buf := make([]byte, 0, 64)
	if n := testing.AllocsPerRun(100, func() { _, _ = at.AppendText(buf) }); n != 0 {
		t.Errorf("AppendText allocates %v times, want never", n)
	}
}

func TestField(t *testing.T) {
	t.Parallel()
	type request struct {
		Key wire.Field[string] `json:"key,omitzero"`
	}
	for _, tt := range []struct {
		name, body string
		want       wire.Field[string]
	}{
		{"absent", `{}`, wire.Field[string]{}},
		{"null", `{"key":null}`, wire.Null[string]()},
		{"value", `{"key":"a"}`, wire.Some("a")},
	} {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			var got request
			if err := json.Unmarshal([]byte(tt.body), &got); err != nil {
				t.Fatal(err)
			}
			if got.Key.Present != tt.want.Present || (got.Key.Value == nil) != (tt.want.Value == nil) ||
				got.Key.Value != nil && *got.Key.Value != *tt.want.Value {
				t.Errorf("%s was read as %+v, want %+v", tt.body, got.Key, tt.want)
			}
			if b, err := json.Marshal(got); err != nil || string(b) != tt.body {
				t.Errorf("written again it is %s (%v), want %s", b, err, tt.body)
			}
		})
	}
	if err := json.Unmarshal([]byte(`{"key":1}`), new(request)); err == nil {
		t.Error("a number was read as a string")
	}
}
