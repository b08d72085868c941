package watch

import (
	"bytes"
	"context"
	"regexp"
	"strconv"
	"strings"
	"time"

	"github.com/flowapi/flowapi/internal/client"
)

// escapes are what programs send to terminals to be colourful.
var escapes = regexp.MustCompile(`\x1b(\[[\x30-\x3f]*[\x20-\x2f]*[\x40-\x7e]|\][^\x07\x1b]*(\x07|\x1b\\)|[\x40-\x5f])`)

// Output is the end of what a member has written.
type Output struct {
	Errors []string // lines of its standard error
	All    []string // of both, as they came
}

// Last returns the last n lines that say most about a failure: those of standard error, or, when there is hardly any, of everything.
func (o *Output) Last(n int) []string {
	const hardly = 3
	if len(o.Errors) < hardly {
		return last(o.All, n)
	}
	return last(o.Errors, n)
}

func last(lines []string, n int) []string { return lines[max(len(lines)-n, 0):] }

// keepLines is how much is kept of what a member has written.
const keepLines = 200

// OutputOf reads the end of what a member has written. Streams are read forwards only, so it looks at the last seconds first.
func OutputOf(ctx context.Context, c *client.Client, n *client.Node) (Output, error) {
	froms := []string{"start"}
	if n.CompletedAt != nil {
		froms = []string{before(*n.CompletedAt, 10*time.Second), before(*n.CompletedAt, 10*time.Minute), "start"}
	}
	var out Output
	for _, from := range froms {
		var all, errs tail
		err := c.Frames(ctx, n.ID, from, func(f client.Frame) {
			switch f.Kind {
			case "stdout":
				all.add(f.Payload)
			case "stderr":
				all.add(f.Payload)
				errs.add(f.Payload)
			}
		})
		if err != nil {
			return out, err
		}
		if out = (Output{Errors: errs.end(), All: all.end()}); len(out.All) > 0 {
			break
		}
	}
	return out, nil
}

func before(t time.Time, d time.Duration) string { return strconv.FormatInt(t.Add(-d).UnixMilli(), 10) }

// tail keeps the last lines of a text.
type tail struct {
	lines []string
	begun []byte
}

func (t *tail) add(b []byte) {
	t.begun = append(t.begun, b...)
	for {
		i := bytes.IndexByte(t.begun, '\n')
		if i < 0 {
			return
		}
		t.line(t.begun[:i])
		t.begun = t.begun[i+1:]
	}
}

func (t *tail) line(b []byte) {
	text := strings.TrimRight(escapes.ReplaceAllString(strings.ToValidUTF8(string(b), "�"), ""), "\r")
	if i := strings.LastIndexByte(text, '\r'); i >= 0 {
		text = text[i+1:] // what a progress bar has come to
	}
	if t.lines = append(t.lines, text); len(t.lines) > 2*keepLines {
		t.lines = append([]string(nil), last(t.lines, keepLines)...)
	}
}

func (t *tail) end() []string {
	if len(t.begun) > 0 {
		t.line(t.begun)
	}
	return last(t.lines, keepLines)
}
