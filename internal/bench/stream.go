package bench

import (
	"bytes"
	"fmt"
	"math"
	"sync/atomic"
	"time"
)

// frame is one event of a stream.
type frame struct {
	id, kind, data []byte // parts of what was read
}

// frames calls note with each whole frame of buf, and returns what is left: the beginning of the next one.
func frames(buf []byte, note func(frame) error) (rest []byte, err error) {
	for {
		whole, after, found := bytes.Cut(buf, []byte("\n\n"))
		if !found {
			return buf, nil
		}
		if err := note(parseFrame(whole)); err != nil {
			return nil, err
		}
		buf = after
	}
}

// parseFrame reads the lines of a frame. Ours have one line of data, so the last one counts.
func parseFrame(b []byte) frame {
	var f frame
	for len(b) > 0 {
		var line []byte
		line, b, _ = bytes.Cut(b, []byte{'\n'})
		name, value, _ := bytes.Cut(line, []byte{':'})
		value = bytes.TrimPrefix(value, []byte{' '})
		switch string(name) {
		case "id":
			f.id = value
		case "event":
			f.kind = value
		case "data":
			f.data = value
		}
	}
	return f
}

// number reads the digits that b begins with.
func number(b []byte) (n int64) {
	for _, d := range b {
		if d < '0' || d > '9' {
			break
		}
		n = n*10 + int64(d-'0')
	}
	return n
}

// digest stands for a sequence of event ids: two that are equal have the same events in the same order, as good as certainly.
type digest struct {
	n   int
	sum uint64
}

// with returns the digest of the sequence that continues with id.
func (d digest) with(id int64) digest {
	const prime = 1099511628211                          // FNV's
	return digest{d.n + 1, (d.sum ^ uint64(id)) * prime} //nolint:gosec // all bits of the id are kept
}

func digestOf(ids []int64) digest {
	var d digest
	for _, id := range ids {
		d = d.with(id)
	}
	return d
}

// MarshalText makes a digest a key of a JSON object.
func (d digest) MarshalText() ([]byte, error) { return fmt.Appendf(nil, "%d:%x", d.n, d.sum), nil }

// UnmarshalText reads what MarshalText wrote.
func (d *digest) UnmarshalText(text []byte) error {
	_, err := fmt.Sscanf(string(text), "%d:%x", &d.n, &d.sum)
	return err
}

// histogram counts durations in steps of a tenth of a millisecond, up to twenty seconds. It may be used from many goroutines.
type histogram struct {
	counts [200_000]atomic.Uint32
}

const step = 100 * time.Microsecond

func (h *histogram) add(d time.Duration) {
	h.counts[min(max(d/step, 0), time.Duration(len(h.counts)-1))].Add(1)
}

// quantile returns, in ms, what a share of q of the durations did not exceed.
func (h *histogram) quantile(q float64) float64 {
	total := 0.0
	for i := range h.counts {
		total += float64(h.counts[i].Load())
	}
	left := math.Ceil(q * total)
	for i := range h.counts {
		if left -= float64(h.counts[i].Load()); left <= 0 && total > 0 {
			return ms(time.Duration(i+1) * step)
		}
	}
	return 0
}
