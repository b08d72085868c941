package watch

import (
	"fmt"
	"io"
	"slices"
	"strings"
	"time"
	"unicode/utf8"
)

// Tree draws a flow in place on a terminal.
type Tree struct {
	Out   io.Writer
	Size  func() (width, height int)
	Color bool
	drawn int // lines that stand there
}

const maxIndent = 8

// Draw draws s where the last one was drawn.
func (t *Tree) Draw(s *Snapshot, now time.Time) error {
	width, height := t.Size()
	lines := t.fit(t.lines(s, now, width), height-1)
	var b strings.Builder
	if t.drawn > 0 {
		fmt.Fprintf(&b, "\x1b[%dA", t.drawn)
	}
	b.WriteString("\r\x1b[?7l") // a character that is wider than we think must not begin a new line
	for _, l := range lines {
		b.WriteString(l.text)
		b.WriteString("\x1b[K\n")
	}
	b.WriteString("\x1b[J\x1b[?7h")
	t.drawn = len(lines)
	_, err := io.WriteString(t.Out, b.String())
	return err
}

// Leave lets what is drawn stand; the next one is drawn below.
func (t *Tree) Leave() { t.drawn = 0 }

type line struct {
	text string
	dull bool // it has nothing to tell that others have not
}

// lines returns a head and one line for each member.
func (t *Tree) lines(s *Snapshot, now time.Time, width int) []line {
	members := order(&s.Graph)
	name, state, ended := 0, 0, 0
	for i := range members {
		p := &members[i]
		name = max(name, indent(p)+utf8.RuneCountInString(p.Name()))
		state = max(state, len(p.PublicState))
		if p.Ended() {
			ended++
		}
	}
	name = min(name, 40)
	end := now
	if s.Flow.EndedAt != nil {
		end = *s.Flow.EndedAt
	}
	head := fmt.Sprintf("%s  %s  %d of %d  %s", firstLine(s.Flow.Goal), s.Flow.Status, ended, len(members), Duration(end.Sub(s.Flow.CreatedAt)))
	lines := []line{{text: t.paint(mark(s.Flow.Status), clip(head, width))}}
	for i := range members {
		p := &members[i]
		m := mark(p.PublicState)
		text := fmt.Sprintf("%s%s %s  %s  %6s", strings.Repeat(" ", indent(p)), m.sign, pad(p.Name(), name-indent(p)), pad(p.PublicState, state), Duration(took(p.Node, now)))
		if p.Attempts > 1 {
			text += fmt.Sprintf("  attempt %d", p.Attempts)
		}
		if note := s.note(p); note != "" {
			text += "  " + note
		}
		lines = append(lines, line{t.paint(m, clip(text, width)), p.PublicState == "completed" || p.PublicState == "skipped" || p.PublicState == "waiting_children"})
	}
	return lines
}

func indent(p *placed) int { return min(2*p.depth, maxIndent) }

// fit leaves out lines when there is no room for all, those first that have the least to tell.
func (t *Tree) fit(lines []line, room int) []line {
	room = max(room, 2)
	if len(lines) <= room {
		return lines
	}
	room-- // for what says how many are left out
	for _, dull := range []bool{true, false} {
		for i := len(lines) - 1; i > 0 && len(lines) > room; i-- {
			if lines[i].dull == dull {
				lines = slices.Delete(lines, i, i+1)
			}
		}
	}
	return append(lines, line{text: "  …"})
}

// sign is how a state looks.
type sign struct{ sign, color string }

func mark(state string) sign {
	switch state {
	case "completed", "finished":
		return sign{"✓", "32"}
	case "failed", "expired":
		return sign{"✗", "31"}
	case "cancelled", "skipped":
		return sign{"-", "2"}
	case "active", "running":
		return sign{"●", "36"}
	case "suspended":
		return sign{"?", "33"}
	default:
		return sign{"○", ""}
	}
}

func (t *Tree) paint(s sign, text string) string {
	if !t.Color || s.color == "" {
		return text
	}
	return "\x1b[" + s.color + "m" + text + "\x1b[0m"
}

func pad(text string, width int) string {
	n := utf8.RuneCountInString(text)
	if n > width {
		return clip(text, width)
	}
	return text + strings.Repeat(" ", width-n)
}

// clip makes text fit, and harmless to a terminal.
func clip(text string, width int) string {
	runes := []rune(strings.Map(func(r rune) rune {
		if r < ' ' || r == 0x7f {
			return ' '
		}
		return r
	}, text))
	if len(runes) <= width {
		return string(runes)
	}
	return string(runes[:max(width-1, 0)]) + "…"
}
