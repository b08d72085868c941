package bench

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"strconv"
	"sync"
	"sync/atomic"
	"time"
)

// events measures the event stream: so many subscribers, in a third process, receive everything while this one creates
// executions at a steady rate. Each must receive every event, in order.
func (r *run) events(ctx context.Context, subscribers int) error {
	return r.on(ctx, func(srv *server, api *client) error {
		if err := api.warmUp(ctx); err != nil {
			return fmt.Errorf("warm up: %w", err)
		}
		before, err := api.eventsAfter(ctx, 0)
		if err != nil {
			return err
		}
		if len(before) == 0 {
			return errors.New("executions were created, and no event tells")
		}
		cursor := before[len(before)-1]

		crowd, err := subscribe(ctx, r.cfg.Self, api.url+"/v1/events/stream", subscribers, strconv.FormatInt(cursor, 10))
		if err != nil {
			return err
		}
		defer crowd.leave()
		peak := sync.OnceValue(watchMemory(srv))
		defer peak()
		writes, err := api.pace(ctx, api.lane(), r.cfg.Rate, r.cfg.Duration, r.cfg.Connections)
		if err != nil {
			return err
		}
		written, err := api.eventsAfter(ctx, cursor)
		if err != nil {
			return err
		}
		heard, err := crowd.hear(written)
		if err != nil {
			return err
		}

		stored := 0
		if srv == nil {
			stored = unknown
		}
		name := fmt.Sprintf("%s subscribers: ", thousands(float64(subscribers)))
		r.report.rate(name+"executions created", stored, len(writes.sorted), writes)
		r.report.add(Row{Stored: stored, Measure: name + "events written", Value: float64(len(written)) / writes.elapsed.Seconds(), Unit: "/s"})
		r.report.add(Row{
			Stored: stored, Measure: name + "events received, commit to client", Value: float64(len(written)*subscribers) / writes.elapsed.Seconds(), Unit: "/s",
			P50: heard.P50, P99: heard.P99,
		})
		r.report.add(Row{Stored: stored, Measure: name + "slowest event", Value: heard.Max, Unit: "ms"})
		r.report.add(Row{Stored: stored, Measure: name + "reconnects", Value: float64(heard.Reconnects), Unit: ""})
		if srv != nil {
			r.report.add(Row{Stored: stored, Measure: name + "resident memory at most", Value: mb(peak()), Unit: "MB"})
		}
		return nil
	})
}

// pace creates executions at a steady rate for a time: each has its moment, and is sent then or as soon as a connection is free.
// The latencies are of the requests; a server that falls behind shows in the rate.
func (c *client) pace(ctx context.Context, lane string, rate int, duration time.Duration, connections int) (timing, error) {
	n := int(duration.Seconds() * float64(rate))
	each := make([]time.Duration, n)
	begin := time.Now()
	t, err := parallel(ctx, n, connections, func(ctx context.Context, i int) error {
		time.Sleep(time.Until(begin.Add(time.Duration(i) * time.Second / time.Duration(rate))))
		sent := time.Now()
		_, err := c.create(ctx, lane)
		each[i] = time.Since(sent)
		return err
	})
	return newTiming(t.elapsed, each), err
}

// watchMemory looks at the server's memory until peak is called, which returns the most that it saw.
func watchMemory(srv *server) (peak func() int64) {
	if srv == nil {
		return func() int64 { return 0 }
	}
	var most atomic.Int64
	stop, stopped := make(chan struct{}), make(chan struct{})
	go func() {
		defer close(stopped)
		for {
			most.Store(max(most.Load(), srv.memory()))
			select {
			case <-stop:
				return
			case <-time.After(100 * time.Millisecond):
			}
		}
	}()
	return func() int64 {
		close(stop)
		<-stopped
		return most.Load()
	}
}

// listeners is the subscribers' process, seen from here. It says "ready" when all are connected, is told the last event, and
// answers with what they heard.
type listeners struct {
	cmd *exec.Cmd
	in  *json.Encoder
	out *bufio.Reader
	n   int
}

func subscribe(ctx context.Context, self, url string, n int, from string) (*listeners, error) {
	l := &listeners{cmd: exec.CommandContext(ctx, self, Subscribe, url, strconv.Itoa(n), from), n: n} //nolint:gosec // this program itself
	l.cmd.Stderr = os.Stderr
	in, errIn := l.cmd.StdinPipe()
	out, errOut := l.cmd.StdoutPipe()
	if err := errors.Join(errIn, errOut); err != nil {
		return nil, err
	}
	l.in, l.out = json.NewEncoder(in), bufio.NewReader(out)
	if err := l.cmd.Start(); err != nil {
		return nil, err
	}
	if line, err := l.out.ReadString('\n'); line != ready {
		l.leave()
		return nil, fmt.Errorf("the subscribers did not connect: %q: %w", line, err)
	}
	return l, nil
}

const ready = "ready\n"

// hear waits until all have received what was written, and checks that they have.
func (l *listeners) hear(written []int64) (heard, error) {
	var h heard
	if len(written) == 0 {
		return h, errors.New("no event was written")
	}
	if err := l.in.Encode(written[len(written)-1]); err != nil {
		return h, err
	}
	if err := json.NewDecoder(l.out).Decode(&h); err != nil {
		return h, fmt.Errorf("the subscribers ended early: %w", err)
	}
	if all := h.Heard[digestOf(written)]; all != l.n {
		return h, fmt.Errorf("%d events were written, %d of %d subscribers heard them all, in order", len(written), all, l.n)
	}
	return h, nil
}

func (l *listeners) leave() {
	_ = l.cmd.Process.Kill()
	_ = l.cmd.Wait()
}
