package work

import (
	"bytes"
	"context"
	"encoding/base64"
	"fmt"
	"net/http"
	"slices"
	"time"
	"unicode/utf8"

	"github.com/flowapi/flowapi/internal/client"
)

// How output becomes frames.
const (
	frameSize    = 64 << 10               // the most that a frame may have
	batchSize    = 128 << 10              // of one request: every byte may become six in JSON, and a body has a megabyte
	batchPause   = 100 * time.Millisecond // between two requests
	gatherPause  = 10 * time.Millisecond  // after a silence, for the rest of what begins
	framesLimit  = 1000                   // of one request
	encodingText = "utf8"
	encodingBase = "base64"
)

// packer makes frames of output. Each has a key that no other frame of the stream has, whoever holds the execution.
type packer struct {
	epoch int64
	next  int
}

// pack makes frames of chunks: what is neighbour and of one kind goes together.
func (p *packer) pack(chunks []chunk) []client.NewFrame {
	var frames []client.NewFrame
	for i := 0; i < len(chunks); {
		kind, data := chunks[i].kind, chunks[i].data
		for i++; i < len(chunks) && chunks[i].kind == kind; i++ {
			data = append(slices.Clip(data), chunks[i].data...)
		}
		for len(data) > 0 {
			n := cut(data, frameSize)
			frames = append(frames, p.frame(kind, data[:n]))
			data = data[n:]
		}
	}
	return frames
}

// cut returns where to end a piece of at most limit bytes: after a line if possible, else after a character.
func cut(data []byte, limit int) int {
	if len(data) <= limit {
		return len(data)
	}
	if n := bytes.LastIndexByte(data[:limit], '\n') + 1; n > 0 {
		return n
	}
	for n := limit; n > limit-utf8.UTFMax; n-- {
		if utf8.RuneStart(data[n]) {
			return n
		}
	}
	return limit
}

func (p *packer) frame(kind string, data []byte) client.NewFrame {
	f := client.NewFrame{Kind: kind, Key: fmt.Sprintf("%d.%d", p.epoch, p.next), Payload: string(data), Encoding: encodingText}
	p.next++
	if !utf8.Valid(data) || bytes.IndexByte(data, 0) >= 0 {
		f.Payload, f.Encoding = base64.StdEncoding.EncodeToString(data), encodingBase
	}
	return f
}

// send appends what comes to the stream of the execution, in order, until there is no more. What cannot be sent for now is sent
// later, and meanwhile the command waits. When the stream takes no more, the rest is dropped.
func (j *job) send(ctx context.Context) {
	for {
		select {
		case <-j.output.filled:
		case <-ctx.Done():
			j.output.ignore()
			return
		}
		client.Sleep(ctx, gatherPause)
		chunks, more := j.output.take(batchSize)
		for frames := j.packer.pack(chunks); len(frames) > 0; {
			n := min(len(frames), framesLimit)
			if err := j.append(ctx, frames[:n]); err != nil {
				if cause := gone(err); cause != nil {
					j.lose(cause)
				} else if ctx.Err() == nil {
					j.tell("trouble", "its output is refused: "+err.Error(), 0)
				}
				j.output.ignore()
				return
			}
			frames = frames[n:]
		}
		if !more {
			return
		}
		select {
		case <-j.ended.begun: // the rest is there
		default:
			client.Sleep(ctx, batchPause-gatherPause)
		}
	}
}

func (j *job) append(ctx context.Context, frames []client.NewFrame) error {
	in := struct {
		Handle string            `json:"handle"`
		Frames []client.NewFrame `json:"frames"`
	}{j.claim.Handle, frames}
	var out client.Directives
	_, err := j.w.Client.Insist(ctx, client.Request{Method: http.MethodPost, Path: j.path("/frames"), Body: in, Timeout: answerLimit}, &out, j.w.troubled)
	if err == nil {
		j.w.fine()
		j.heed(out.Directives)
	}
	return err
}
