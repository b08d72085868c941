package stream_test

import (
	"math"
	"reflect"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"pgregory.net/rapid"

	"github.com/flowapi/flowapi/internal/domain/fault"
	"github.com/flowapi/flowapi/internal/domain/stream"
)

var start = time.Date(2026, 11, 21, 9, 30, 0, 0, time.UTC)

// TestStream_Append_IDs: whatever the clock does, ids strictly increase, and never lie before their time. 9 (17).
func TestStream_Append_IDs(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(t *rapid.T) {
		var s stream.Stream
		last, count := stream.Start, int64(0)
		for range rapid.IntRange(1, 20).Draw(t, "appends") {
			now := start.Add(time.Duration(rapid.IntRange(-3_600_000, 3_600_000).Draw(t, "clock")) * time.Millisecond)
			frames := make([]stream.Frame, rapid.IntRange(1, 1000).Draw(t, "frames"))
			s.Pace = stream.Pace{} // how fast is another question
			if err := s.Append(frames, now); err != nil {
				t.Fatal(err)
			}
			for _, f := range frames {
				if again, err := stream.ParseID(f.ID.String()); f.ID <= last || f.ID.At().Before(now) || err != nil || again != f.ID {
					t.Fatalf("%s at %s after %s; read again %s, %v", f.ID, now, last, again, err)
				}
				last = f.ID
			}
			count += int64(len(frames))
			if s.Last != last || s.Count != count {
				t.Fatalf("%d frames, the last %s: %+v", count, last, s)
			}
		}
	})
}

func TestParseID(t *testing.T) {
	t.Parallel()
	for text, want := range map[string]string{"0-0": "0-0", "5": "5-0", "1763718600000-7": "1763718600000-7", "007-01": "7-1", "5-1048575": "5-1048575", "5-1048576": "6-0"} {
		if got, err := stream.ParseID(text); err != nil || got.String() != want {
			t.Errorf("ParseID(%q) = %s, %v, want %s", text, got, err, want)
		}
	}
	for _, text := range []string{"99999999999999999999", "99999999999999999999-5", "5-99999999999999999999", "8796093022207", "8796093022206-8796093022206", "5-9223372036854775807"} {
		if got, err := stream.ParseID(text); err != nil || got != stream.End || got.Next() != stream.End {
			t.Errorf("ParseID(%q) = %s, %v, want the end", text, got, err)
		}
	}
	for _, text := range []string{"", "-", "+", "start", "end", "-5", "+5", "5-", "5--1", "5-+1", "5 ", " 5", "0x5", "5-1-1", "5.0", "٥"} {
		if got, err := stream.ParseID(text); fault.CodeOf(err) != fault.CodeInvalidCursor {
			t.Errorf("ParseID(%q) = %s, %v", text, got, err)
		}
		if _, err := stream.ParseBound(text); text != "start" && text != "end" && fault.CodeOf(err) != fault.CodeInvalidCursor {
			t.Errorf("ParseBound(%q): %v", text, err)
		}
	}
	for _, text := range []string{"", "5-0", "/5-0", "-1/5-0", "0/", "0/end", "99999999999/5-0", "0/5-0/1"} {
		if got, err := stream.ParsePlace(text); fault.CodeOf(err) != fault.CodeInvalidCursor {
			t.Errorf("ParsePlace(%q) = %s, %v", text, got, err)
		}
	}
	if got, err := stream.ParsePlace("3/5-7"); err != nil || got.Attempt != 3 || got.String() != "3/5-7" {
		t.Errorf("ParsePlace() = %s, %v", got, err)
	}
}

// TestStream_Append_Rate: a burst goes through at once, then the steady rate; what was waited for goes through again.
func TestStream_Append_Rate(t *testing.T) {
	t.Parallel()
	var s stream.Stream
	for range 10 {
		if err := s.Append(make([]stream.Frame, 1000), start); err != nil {
			t.Fatal(err)
		}
	}
	before := s
	err := s.Append(make([]stream.Frame, 500), start)
	if f, ok := err.(*fault.Error); !ok || f.Code != fault.CodeRateLimited || f.Facts["retry_after_ms"] != int64(100) || !reflect.DeepEqual(before, s) { //nolint:errorlint // it is not wrapped
		t.Fatalf("%v, %+v", err, s)
	}
	if err := s.Append(make([]stream.Frame, 500), start.Add(100*time.Millisecond)); err != nil {
		t.Error(err)
	}
	back := start.Add(-time.Hour)
	for i, want := range []fault.Code{"", fault.CodeRateLimited} { // one append goes through, as the end of a burst
		if err := s.Append(make([]stream.Frame, 1000), back); fault.CodeOf(err) != want {
			t.Errorf("append %d after the clock went back: %v", i, err)
		}
	}
	if err := s.Append(make([]stream.Frame, 500), back.Add(100*time.Millisecond)); err != nil {
		t.Errorf("later: %v", err)
	}
	rapid.Check(t, func(t *rapid.T) {
		var s stream.Stream
		now, begun := start, start
		for range 50 {
			now = now.Add(time.Duration(rapid.IntRange(0, 300).Draw(t, "pause")) * time.Millisecond)
			before := s
			if err := s.Append(make([]stream.Frame, rapid.IntRange(1, 1000).Draw(t, "frames")), now); err != nil && !reflect.DeepEqual(before, s) {
				t.Fatalf("a refusal changed %+v to %+v", before, s)
			}
			if most := stream.Burst + now.Sub(begun).Seconds()*stream.FramesPerSecond; float64(s.Count) > most {
				t.Fatalf("%d frames in %s, %g may be", s.Count, now.Sub(begun), most)
			}
		}
	})
}

// live is a best-effort frame.
func live(l stream.Live) stream.Frame { return stream.Frame{Mode: stream.BestEffort, Live: l} }

// TestStream_BestEffort is the formula of 4.2, append by append: K = clamp(ceil(rate · ttl · 2)).
func TestStream_BestEffort(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(t *rapid.T) {
		l := stream.Live{TTL: time.Duration(rapid.IntRange(1, 60_000).Draw(t, "ttl")) * time.Millisecond, Floor: rapid.Int64Range(1, 100).Draw(t, "floor"),
			Ceiling: rapid.Int64Range(1, 5000).Draw(t, "ceiling"), Alpha: rapid.Float64Range(0.01, 1).Draw(t, "alpha")}
		ceiling := max(l.Ceiling, l.Floor)
		var s stream.Stream
		now, last, rate, retained, durable := start, start, 0.0, int64(0), int64(0)
		for i := range 100 {
			gap := rapid.SampledFrom([]int{0, 0, 1, 10, 500, 30_000}).Draw(t, "gap")
			now = now.Add(time.Duration(gap) * time.Millisecond)
			if rapid.IntRange(0, 4).Draw(t, "durable") == 0 {
				if err := s.Append([]stream.Frame{{Mode: stream.Durable}}, now); err != nil {
					t.Fatal(err)
				}
				durable++
			}
			n := rapid.SampledFrom([]int{1, 1, 2, 100}).Draw(t, "frames")
			if err := s.Append(slices.Repeat([]stream.Frame{live(l)}, n), now); err != nil {
				t.Fatal(err)
			}
			if i == 0 {
				rate = float64(l.Floor) / (2 * l.TTL.Seconds())
			} else {
				rate = l.Alpha*float64(n)*1000/math.Max(1, float64(now.Sub(last).Milliseconds())) + (1-l.Alpha)*rate
			}
			last = now
			k := int64(math.Min(math.Max(math.Ceil(rate*l.TTL.Seconds()*2), float64(l.Floor)), float64(ceiling)))
			if s.Rate.Maxlen != k {
				t.Fatalf("frame %d: K is %d, want %d", i, s.Rate.Maxlen, k)
			}
			retained += int64(n)
			kept, gone := s.Trim(10_000, false)
			if want := max(0, retained-k); gone != want || kept != 0 {
				t.Fatalf("%d best-effort frames of %d are too many, want %d; and %d durable ones", gone, retained, want, kept)
			}
			retained -= gone
			if s.Live != retained || s.Kept != durable {
				t.Fatalf("%+v, want %d and %d", s, retained, durable)
			}
		}
	})
}

// A stream of ten frames every second has a rate of ten a second, however they are sent.
func TestStream_BestEffort_Batches(t *testing.T) {
	t.Parallel()
	for _, each := range []int{1, 5, 10, 100} {
		var s stream.Stream
		for i := range 100 {
			now := start.Add(time.Duration(i*each) * 100 * time.Millisecond)
			if err := s.Append(slices.Repeat([]stream.Frame{live(stream.Live{TTL: time.Second})}, each), now); err != nil {
				t.Fatal(err)
			}
		}
		if s.Rate.Hertz < 9.9 || s.Rate.Hertz > 10.1 {
			t.Errorf("%d at a time: %g a second", each, s.Rate.Hertz)
		}
	}
}

// TestTrimAgain: what is too old goes many at a time, and not much later than it is.
func TestTrimAgain(t *testing.T) {
	t.Parallel()
	for _, tt := range []struct{ next, shortest, want time.Duration }{
		{-time.Second, 2 * time.Millisecond, time.Second},
		{time.Millisecond, 2 * time.Second, time.Second},
		{time.Millisecond, 160 * time.Second, 10 * time.Second},
		{time.Minute, 160 * time.Second, time.Minute},
	} {
		if got := stream.TrimAgain(start.Add(tt.next), start, tt.shortest).Sub(start); got != tt.want {
			t.Errorf("TrimAgain(%s, %s) is %s later, want %s", tt.next, tt.shortest, got, tt.want)
		}
	}
}

func TestStream_BestEffort_Examples(t *testing.T) {
	t.Parallel()
	var s stream.Stream
	l := stream.Live{TTL: time.Second}
	appendAt := func(ms int) int64 {
		t.Helper()
		if err := s.Append([]stream.Frame{live(l)}, start.Add(time.Duration(ms)*time.Millisecond)); err != nil {
			t.Fatal(err)
		}
		return s.Rate.Maxlen
	}
	if k := appendAt(0); k != stream.DefaultFloor {
		t.Errorf("the first frame keeps %d", k)
	}
	burst := int64(0)
	for ms := 1; ms <= 100; ms++ {
		burst = appendAt(ms)
	}
	if burst < 1000 {
		t.Errorf("a burst keeps %d", burst)
	}
	if idle := appendAt(60_000); idle >= burst {
		t.Errorf("after a pause it keeps %d, %d before", idle, burst)
	}
	l.Ceiling, l.Alpha = 100, 7 // no weight: the default
	if k := appendAt(60_001); k != 100 {
		t.Errorf("the ceiling keeps %d", k)
	}
	l.Ceiling, l.Floor = 10, 70 // the floor wins
	if k := appendAt(70_000); k != 70 {
		t.Errorf("a ceiling below the floor keeps %d", k)
	}
	if want := start.Add(2 * time.Second); !s.TrimAt.Equal(want) {
		t.Errorf("something is to go at %s, want %s", s.TrimAt, want)
	}
}

func TestStream_Trim(t *testing.T) {
	t.Parallel()
	type gone struct{ Kept, Live int64 }
	tests := []struct {
		name    string
		kept    int64
		length  int64
		exactly bool
		want    gone
	}{
		{"exactly as many", 50, 50, true, gone{}},
		{"one too many", 51, 50, true, gone{Kept: 1}},
		{"none at all", 3, 0, true, gone{Kept: 3}},
		{"about as many", 10_250, 10_000, false, gone{}},
		{"far too many", 10_251, 10_000, false, gone{Kept: 251}},
	}
	for _, tt := range tests {
		s := stream.Stream{Kept: tt.kept, Live: 7}
		kept, live := s.Trim(tt.length, tt.exactly)
		if diff := cmp.Diff(tt.want, gone{kept, live}); diff != "" || s.Kept != tt.kept-kept || s.Live != 7 {
			t.Errorf("%s: %+v\n%s", tt.name, s, diff)
		}
	}
}

func TestDecode(t *testing.T) {
	t.Parallel()
	largest := strings.Repeat("x", stream.MaxPayload)
	for name, tt := range map[string]struct {
		payload  string
		encoding stream.Encoding
		code     fault.Code
	}{
		"empty":                  {"", stream.UTF8, ""},
		"as large as may be":     {largest, stream.UTF8, ""},
		"larger":                 {largest + "x", stream.UTF8, fault.CodePayloadTooLarge},
		"letters are not bytes":  {strings.Repeat("ü", stream.MaxPayload/2+1), stream.UTF8, fault.CodePayloadTooLarge},
		"bytes":                  {"AP8=", stream.Base64, ""},
		"bytes as large as may":  {strings.Repeat("AAAA", stream.MaxPayload/3) + "AA==", stream.Base64, ""},
		"more bytes":             {strings.Repeat("AAAA", stream.MaxPayload/3+1), stream.Base64, fault.CodePayloadTooLarge},
		"no padding":             {"YQ", stream.Base64, fault.CodeValidationFailed},
		"a line break":           {"AP8=\n", stream.Base64, fault.CodeValidationFailed},
		"a carriage return":      {"AP\r8=", stream.Base64, fault.CodeValidationFailed},
		"bits that mean nothing": {"YR==", stream.Base64, fault.CodeValidationFailed},
	} {
		got, err := stream.Decode(tt.payload, tt.encoding, 3)
		if fault.CodeOf(err) != tt.code {
			t.Errorf("%s: %v", name, err)
		}
		if f, ok := err.(*fault.Error); ok && f.Fields[0].Pointer != "/frames/3/payload" { //nolint:errorlint // it is not wrapped
			t.Errorf("%s points at %+v", name, f.Fields)
		}
		if f := (stream.Frame{Payload: got, Encoding: tt.encoding}); err == nil && f.Encode() != tt.payload {
			t.Errorf("%s comes back as %q", name, f.Encode())
		}
	}
}
