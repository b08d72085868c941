package bench

import (
	"fmt"
	"strings"
	"testing"
	"time"
)

// However the network cuts a stream, what is read is the same.
func TestFrames_anyCut(t *testing.T) {
	t.Parallel()
	var stream strings.Builder
	stream.WriteString(": hello\nretry: 1000\n\n")
	var want []int64
	for id := int64(8); id < 20; id++ {
		fmt.Fprintf(&stream, "id: %d\nevent: execution.created\ndata: {\"id\":%d,\"text\":\"a: b\"}\n\n: comment\n\n", id, id)
		want = append(want, id)
	}
	for size := 1; size < 200; size++ {
		var got []int64
		var kept []byte
		for left := stream.String(); left != ""; {
			n := min(size, len(left))
			kept = append(kept, left[:n]...)
			left = left[n:]
			rest, err := frames(kept, func(f frame) error {
				if string(f.kind) == "execution.created" && string(f.data) == fmt.Sprintf(`{"id":%d,"text":"a: b"}`, number(f.id)) {
					got = append(got, number(f.id))
				}
				return nil
			})
			if err != nil {
				t.Fatal(err)
			}
			kept = rest
		}
		if digestOf(got) != digestOf(want) {
			t.Fatalf("in pieces of %d bytes: read %v, want %v", size, got, want)
		}
	}
}

func TestDigest(t *testing.T) {
	t.Parallel()
	all := digestOf([]int64{1, 2, 3})
	for _, other := range [][]int64{nil, {1, 2}, {1, 3, 2}, {1, 2, 3, 3}, {1, 2, 4}} {
		if digestOf(other) == all {
			t.Errorf("%v has the digest of [1 2 3]", other)
		}
	}
	text, _ := all.MarshalText()
	var read digest
	if err := read.UnmarshalText(text); err != nil || read != all {
		t.Errorf("read %v from %s, %v; want %v", read, text, err, all)
	}
}

func TestTiming_quantile(t *testing.T) {
	t.Parallel()
	var h histogram
	var each []time.Duration
	for i := 100; i > 0; i-- {
		each = append(each, time.Duration(i)*time.Millisecond)
		h.add(time.Duration(i)*time.Millisecond - 1)
	}
	tests := []struct {
		q    float64
		want float64 // ms
	}{{0, 1}, {0.5, 50}, {0.99, 99}, {1, 100}}
	for _, tt := range tests {
		if got := ms(newTiming(time.Second, each).quantile(tt.q)); got != tt.want {
			t.Errorf("quantile(%v) = %v ms, want %v", tt.q, got, tt.want)
		}
		if got := h.quantile(tt.q); got != tt.want && tt.q > 0 {
			t.Errorf("histogram: quantile(%v) = %v ms, want %v", tt.q, got, tt.want)
		}
	}
}

func TestThousands(t *testing.T) {
	t.Parallel()
	for n, want := range map[float64]string{0: "0", 999.4: "999", 999.5: "1,000", 1_234_567: "1,234,567", -1_234: "-1,234"} {
		if got := thousands(n); got != want {
			t.Errorf("thousands(%v) = %s, want %s", n, got, want)
		}
	}
}
