package sse

import (
	"cmp"
	"slices"
)

// chunk is what one look at the log found, rendered once for all subscribers. It never changes after it was published,
// except that its successor is set once. The ring is a list of chunks of which only the last is held: each subscriber
// holds the one that it has written last, and what nobody stands before any more is garbage.
type chunk struct {
	entries []entry
	frames  []byte // of all entries, one after the other
	last    int64  // all ids through this one are in the ring at or before this chunk, or are not shown
	broken  bool   // the chunk does not follow on its predecessor: read the log instead
	final   bool   // a stream ends after this chunk, with:
	bye     []byte // the last frame, nil for none
	total   int64  // bytes that this chunk and all before it take or took

	ready chan struct{} // closed when next is set
	next  *chunk
}

// entry is one message of a chunk. Its frame ends at end.
type entry struct {
	id     int64
	end    int
	fields Fields
}

func newChunk(page Page) *chunk {
	size := 0
	for i := range page.Messages {
		size += len(page.Messages[i].Frame)
	}
	c := &chunk{
		entries: make([]entry, len(page.Messages)),
		frames:  make([]byte, 0, size),
		last:    page.Through,
		final:   page.Final,
		bye:     page.Farewell,
		ready:   make(chan struct{}),
	}
	for i := range page.Messages {
		m := &page.Messages[i]
		c.frames = append(c.frames, m.Frame...)
		c.entries[i] = entry{id: m.ID, end: len(c.frames), fields: m.Fields}
	}
	return c
}

// size is roughly the memory that c takes.
func (c *chunk) size() int64 {
	const entrySize, chunkSize = 128, 256
	return chunkSize + int64(len(c.frames)) + entrySize*int64(len(c.entries))
}

// follow publishes n as the successor of c. It is called once.
func (c *chunk) follow(n *chunk) {
	n.total = c.total + n.size()
	c.next = n
	close(c.ready)
}

// after returns the index of the first entry with a greater id.
func (c *chunk) after(id int64) int {
	i, _ := slices.BinarySearchFunc(c.entries, id, func(e entry, id int64) int { return cmp.Compare(e.id, id+1) })
	return i
}

// run returns the bounds of the first run of neighbours from index i on that pass the filter. It is empty when nothing more
// passes; else the entry at its end, if there is one, does not pass.
func (c *chunk) run(i int, filter Filter) (from, to int) {
	if filter == nil {
		return i, len(c.entries)
	}
	for i < len(c.entries) && !filter(&c.entries[i].fields) {
		i++
	}
	from = i
	for i < len(c.entries) && (i == from || filter(&c.entries[i].fields)) {
		i++
	}
	return from, i
}

// framesOf returns the frames of the entries from index from to before index to.
func (c *chunk) framesOf(from, to int) []byte { return c.frames[c.start(from):c.start(to)] }

func (c *chunk) start(i int) int {
	if i == 0 {
		return 0
	}
	return c.entries[i-1].end
}
