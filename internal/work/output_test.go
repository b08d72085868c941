package work

import (
	"bytes"
	"encoding/base64"
	"fmt"
	"io"
	"math/rand/v2"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/flowapi/flowapi/internal/client"
)

// source is a pipe that a test writes to.
type source struct{ io.Reader }

func (source) SetReadDeadline(time.Time) error { return nil }

func TestOutput_take(t *testing.T) {
	t.Parallel()
	o := newOutput(2)
	put := func(kind, text string) { o.put(kind, []byte(text)) }
	take := func(limit int) string {
		t.Helper()
		chunks, more := o.take(limit)
		text := ""
		for _, c := range chunks {
			text += fmt.Sprintf("%s %q ", c.kind, c.data)
		}
		if !more {
			text += "end"
		}
		return text
	}
	for i, tt := range []struct {
		do   func()
		want string
	}{
		{func() { put("out", "a\nb"); put("err", "c\n") }, `out "a\n" err "c\n" `},
		{func() { put("out", "b\n") }, `out "b" out "b\n" `},
		{func() { put("out", "a prompt: ") }, ``},
		{func() {}, `out "a prompt: " `},
		{func() { put("out", "x"); put("err", "y\n"); put("out", "z\n") }, `out "x" err "y\n" out "z\n" `},
		{func() { put("out", "half"); o.closeOne() }, ``},
		{func() { o.closeOne() }, `out "half" end`},
	} {
		tt.do()
		if got := take(100); got != tt.want {
			t.Errorf("%d: got %s, want %s", i, got, tt.want)
		}
	}
	put("out", "123456789\n")
	if got := take(4) + take(4) + take(4); got != `out "1234" out "5678" out "9\n" end` {
		t.Errorf("in pieces: %s", got)
	}
}

// Who writes more than is taken waits, and nothing is lost or changes its place.
func TestOutput_backpressure(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		o, r, w := newOutput(1), (*io.PipeReader)(nil), (*io.PipeWriter)(nil)
		r, w = io.Pipe()
		go o.read("out", source{r})
		written := 0
		var want bytes.Buffer
		go func() {
			for i := range 5 * outputLimit / 16 {
				line := fmt.Sprintf("%015d\n", i)
				want.WriteString(line)
				if _, err := io.WriteString(w, line); err != nil {
					t.Error(err)
				}
				written += len(line)
			}
			w.Close()
		}()
		synctest.Wait()
		if written < outputLimit || written > outputLimit+2*readSize {
			t.Errorf("%d bytes were written before anything was taken", written)
		}
		var got bytes.Buffer
		for more := true; more; {
			var chunks []chunk
			chunks, more = o.take(batchSize)
			for _, c := range chunks {
				got.Write(c.data)
			}
			synctest.Wait()
		}
		if !bytes.Equal(got.Bytes(), want.Bytes()) {
			t.Errorf("%d bytes of %d arrived, or not in order", got.Len(), want.Len())
		}
	})
}

// Nobody waits for room when nobody takes anything any more.
func TestOutput_ignore(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		o := newOutput(2)
		for range 2 {
			go o.read("out", source{io.LimitReader(zeros{}, 5*outputLimit)})
		}
		synctest.Wait()
		o.ignore()
		synctest.Wait()
		if chunks, more := o.take(1); len(chunks) > 0 || more {
			t.Errorf("%d chunks are left, more %v", len(chunks), more)
		}
	})
}

type zeros struct{}

func (zeros) Read(b []byte) (int, error) {
	clear(b)
	return len(b), nil
}

func TestPacker(t *testing.T) {
	t.Parallel()
	p := packer{epoch: 7}
	got := p.pack([]chunk{{kind: "stdout", data: []byte("a\n")}, {kind: "stdout", data: []byte("é\n")}, {kind: "stderr", data: []byte("\xff")},
		{kind: "stdout", data: []byte("b\x00")}})
	want := []client.NewFrame{
		{Kind: "stdout", Key: "7.0", Encoding: "utf8", Payload: "a\né\n"},
		{Kind: "stderr", Key: "7.1", Encoding: "base64", Payload: "/w=="},
		{Kind: "stdout", Key: "7.2", Encoding: "base64", Payload: "YgA="},
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("pack() differs (-want +got):\n%s", diff)
	}
	// Whatever is packed comes out again, in frames that are not too large and break no character.
	for range 20 {
		text := strings.Repeat(strings.Repeat("é€😀x", rand.N(40_000))+"\n", 1+rand.N(3))
		var all []byte
		for _, f := range p.pack([]chunk{{kind: "stdout", data: []byte(text)}}) {
			payload := []byte(f.Payload)
			if f.Encoding == encodingBase {
				t.Fatal("a character was broken")
			}
			if len(payload) > frameSize || len(payload) == 0 {
				t.Errorf("a frame has %d bytes", len(payload))
			}
			all = append(all, payload...)
		}
		if string(all) != text {
			t.Fatal("another text came out")
		}
	}
	var all []byte
	noise := bytes.Repeat([]byte{0xff, 0x80, 0x80, 0x80, 0x80}, 30_000)
	for _, f := range p.pack([]chunk{{kind: "stdout", data: noise}}) {
		b, err := base64.StdEncoding.DecodeString(f.Payload)
		if err != nil || len(b) > frameSize {
			t.Fatal(len(b), err)
		}
		all = append(all, b...)
	}
	if !bytes.Equal(all, noise) {
		t.Error("other bytes came out")
	}
}
