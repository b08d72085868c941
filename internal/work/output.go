package work

import (
	"bytes"
	"errors"
	"io"
	"os"
	"sync"
	"time"
)

const (
	readSize = 32 << 10
	// outputLimit is how much output may wait to be sent. When there is more, the command waits.
	outputLimit = 1 << 20
	// lastRead is how long a pipe may be silent before it counts as empty, after its command has ended.
	lastRead = 50 * time.Millisecond
)

// chunk is output of one kind that came in one piece.
type chunk struct {
	kind string
	data []byte
	kept bool // it is the beginning of a line, and was left for the next time once
}

// output is what a command has written and was not sent yet, in the order in which it was read.
type output struct {
	filled chan struct{} // has a value when there is something to take, or nothing more to come
	room   chan struct{} // has a value when something was taken

	mu      sync.Mutex
	chunks  []chunk
	size    int
	writers int
	deaf    bool // nobody takes anything any more
}

func newOutput(writers int) *output {
	return &output{filled: make(chan struct{}, 1), room: make(chan struct{}, 1), writers: writers}
}

// pipe is what output comes from. When its deadline passes it is read as long as it has something at once.
type pipe interface {
	io.Reader
	SetReadDeadline(time.Time) error
}

// read reads a pipe to its end. It goes no faster than what is read is taken.
func (o *output) read(kind string, r pipe) {
	defer o.closeOne()
	buf, late := make([]byte, readSize), false
	for {
		n, err := r.Read(buf)
		if n > 0 {
			o.put(kind, bytes.Clone(buf[:n]))
		}
		switch {
		case errors.Is(err, os.ErrDeadlineExceeded) && !late:
			late = true
		case err != nil:
			return // the end: a pipe has no other errors
		}
		if late {
			_ = r.SetReadDeadline(time.Now().Add(lastRead))
		}
	}
}

func (o *output) put(kind string, data []byte) {
	for {
		o.mu.Lock()
		full := o.size >= outputLimit && !o.deaf
		if !full {
			break
		}
		o.mu.Unlock()
		<-o.room
	}
	if !o.deaf {
		o.chunks = append(o.chunks, chunk{kind: kind, data: data})
		o.size += len(data)
	}
	more := o.size < outputLimit
	o.mu.Unlock()
	wake(o.filled)
	if more {
		wake(o.room) // another one may stand there
	}
}

func (o *output) closeOne() {
	o.mu.Lock()
	o.writers--
	o.mu.Unlock()
	wake(o.filled)
}

// take takes up to limit bytes. A line that has only begun stays for one time, unless nothing more comes. It says whether
// there will be more.
func (o *output) take(limit int) (taken []chunk, more bool) {
	o.mu.Lock()
	defer o.mu.Unlock()
	ended := o.writers == 0
	var rest []chunk
	for i, c := range o.chunks {
		n := len(c.data)
		begun := !ended && !c.kept && o.last(i) // the chunk may end in the middle of a line
		if begun {
			n = bytes.LastIndexByte(c.data, '\n') + 1
		}
		line := n
		n = min(n, limit)
		if n > 0 {
			taken = append(taken, chunk{kind: c.kind, data: c.data[:n]})
			limit -= n
			o.size -= n
		}
		if n < len(c.data) {
			rest = append(rest, chunk{kind: c.kind, data: c.data[n:], kept: c.kept || begun && n == line})
		}
	}
	o.chunks = rest
	wake(o.room)
	if len(rest) > 0 {
		wake(o.filled)
	}
	return taken, !ended || len(rest) > 0
}

// last says whether no other chunk of its kind comes after chunk i.
func (o *output) last(i int) bool {
	for j := i + 1; j < len(o.chunks); j++ {
		if o.chunks[j].kind == o.chunks[i].kind {
			return false
		}
	}
	return true
}

// ignore drops what there is and what is to come, so that nobody waits for it to be taken.
func (o *output) ignore() {
	o.mu.Lock()
	o.deaf, o.chunks, o.size = true, nil, 0
	o.mu.Unlock()
	wake(o.room)
	wake(o.filled)
}

func wake(c chan<- struct{}) {
	select {
	case c <- struct{}{}:
	default:
	}
}
