package work

import (
	"context"
	"sync"
)

// phase is something that begins once.
type phase struct {
	once  *sync.Once
	begun chan struct{}
}

func newPhase() phase { return phase{new(sync.Once), make(chan struct{})} }

// begin begins p, and says whether it had not begun before.
func (p phase) begin() (first bool) {
	p.once.Do(func() {
		close(p.begun)
		first = true
	})
	return first
}

// over says whether what p ends is over.
func (p phase) over() bool {
	select {
	case <-p.begun:
		return true
	default:
		return false
	}
}

// context returns a context that ends when p begins, or ctx ends.
func (p phase) context(ctx context.Context) context.Context {
	ctx, cancel := context.WithCancel(ctx)
	go func() {
		defer cancel()
		select {
		case <-p.begun:
		case <-ctx.Done():
		}
	}()
	return ctx
}

// trouble is whether the server answers, so that an outage is told of once.
type trouble struct {
	mu   sync.Mutex
	told string
}

// troubled tells what is wrong with the server, unless that was told before.
func (w *worker) troubled(err error) {
	w.trouble.mu.Lock()
	defer w.trouble.mu.Unlock()
	if text := err.Error(); w.trouble.told == "" {
		w.trouble.told = text
		w.tell(Report{What: "trouble", Detail: text})
	}
}

// fine says that the server has answered.
func (w *worker) fine() {
	w.trouble.mu.Lock()
	defer w.trouble.mu.Unlock()
	if w.trouble.told != "" {
		w.trouble.told = ""
		w.tell(Report{What: "connected", Detail: "the server answers again"})
	}
}
