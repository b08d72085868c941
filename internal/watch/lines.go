package watch

import (
	"fmt"
	"io"
	"time"
)

// Lines writes one line for each change of a flow.
type Lines struct {
	Out    io.Writer
	states map[string]string
	status string
	person bool
}

// Show writes what has changed since the last time.
func (l *Lines) Show(s *Snapshot, now time.Time) error {
	if l.states == nil {
		l.states = map[string]string{}
	}
	say := func(text string) error {
		_, err := fmt.Fprintf(l.Out, "%s  %s\n", now.Local().Format(time.TimeOnly), text)
		return err
	}
	status := func() error {
		if s.Flow.Status == l.status {
			return nil
		}
		l.status = s.Flow.Status
		text := fmt.Sprintf("%s: %s", firstLine(s.Flow.Goal), s.Flow.Status)
		if s.Flow.EndedAt != nil {
			text += " after " + Duration(s.Flow.EndedAt.Sub(s.Flow.CreatedAt))
		}
		return say(text)
	}
	if !s.Flow.Ended() {
		if err := status(); err != nil {
			return err
		}
	}
	members := order(&s.Graph)
	for i := range members {
		p := &members[i]
		state := fmt.Sprint(p.PublicState, p.Attempts)
		before, known := l.states[p.ID]
		l.states[p.ID] = state
		if state == before || !known && (p.PublicState == "waiting" || p.PublicState == "waiting_children") {
			continue
		}
		if err := say(change(s, p, now)); err != nil {
			return err
		}
	}
	if s.Person && !l.person {
		if err := say("nothing but a person can move it now"); err != nil {
			return err
		}
	}
	l.person = s.Person
	return status()
}

func change(s *Snapshot, p *placed, now time.Time) string {
	note := s.note(p)
	if p.PublicState == "waiting" && note != "" {
		return p.Name() + " is " + note
	}
	text := p.Name() + " " + words(p.PublicState)
	if t := took(p.Node, now); t > 0 && p.Ended() {
		text += " after " + Duration(t)
	}
	if p.Attempts > 1 {
		text += fmt.Sprintf(", attempt %d", p.Attempts)
	}
	if note != "" {
		text += ": " + note
	}
	return text
}
