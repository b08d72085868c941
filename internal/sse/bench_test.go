//go:build unix

package sse_test

import (
	"context"
	"fmt"
	"net/http"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"github.com/flowapi/flowapi/internal/sse"
)

// sink is a connection that takes everything at once.
type sink struct {
	header http.Header
	wrote  func([]byte)
}

func (s sink) Header() http.Header                { return s.header }
func (s sink) WriteHeader(int)                    {}
func (s sink) FlushError() error                  { return nil }
func (s sink) SetWriteDeadline(t time.Time) error { return nil }
func (s sink) Write(b []byte) (int, error) {
	s.wrote(b)
	return len(b), nil
}

// BenchmarkTail_Fanout shows what a window costs on its way to all subscribers, the network left out: 12 events of 330
// bytes, as in 25 ms at 500 a second. Since a tail sleeps between windows, the figure to read is the CPU time of a window
// of subscribers, not ns/op.
func BenchmarkTail_Fanout(b *testing.B) {
	for _, subscribers := range []int{1, 100, 1000} {
		for _, mode := range []string{"all", "half", "none"} {
			b.Run(fmt.Sprintf("%s/%d", mode, subscribers), func(b *testing.B) { fanout(b, subscribers, mode) })
		}
	}
}

func fanout(b *testing.B, subscribers int, mode string) {
	const window = 12
	var (
		log     = newLog()
		tail    = sse.NewTail(log, log.wake, sse.Options{})
		wg      sync.WaitGroup
		seen    atomic.Int64
		allSeen = make(chan struct{}, 1)
	)
	count := func() {
		if seen.Add(1) == int64(subscribers) {
			allSeen <- struct{}{}
		}
	}
	// A subscriber has seen a window when it was greeted, when it has written it whole, or when its filter was asked about
	// the last event of it.
	wrote, filter := func([]byte) { count() }, sse.Filter(nil)
	if mode != "all" {
		wrote = func(b []byte) {
			if b[0] == ':' {
				count()
			}
		}
		filter = func(f *sse.Fields) bool {
			if f.Topic == "last" {
				count()
			}
			return mode == "half" && f.Topic == "half"
		}
	}
	ctx, cancel := context.WithCancel(context.Background())
	wg.Go(func() {
		if err := tail.Run(ctx); err != nil {
			b.Error(err)
		}
	})
	for range subscribers {
		wg.Go(func() {
			if err := tail.Stream(ctx, sink{make(http.Header), wrote}, sse.FromNow, filter); err != nil {
				b.Error(err)
			}
		})
	}
	topics := make([]string, window)
	for i := range topics {
		topics[i] = []string{"half", "other"}[i%2]
	}
	topics[window-1] = "last"
	<-allSeen
	time.Sleep(100 * time.Millisecond)

	b.ReportAllocs()
	before := cpu(b)
	for b.Loop() {
		seen.Store(0)
		log.addSized(280, topics...)
		<-allSeen
	}
	b.ReportMetric(float64((cpu(b)-before).Microseconds())/float64(b.N), "cpu-us/op")
	cancel()
	wg.Wait()
}

// cpu returns the CPU time that this process has taken.
func cpu(b *testing.B) time.Duration {
	var u syscall.Rusage
	if err := syscall.Getrusage(syscall.RUSAGE_SELF, &u); err != nil {
		b.Fatal(err)
	}
	return time.Duration(u.Utime.Nano() + u.Stime.Nano())
}
