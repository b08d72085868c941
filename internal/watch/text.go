package watch

import (
	"fmt"
	"strings"
	"time"

	"github.com/flowapi/flowapi/internal/client"
)

// note says what a member waits for, or why it ended as it did.
func (s *Snapshot) note(p *placed) string {
	switch p.PublicState {
	case "waiting":
		return s.waits(p)
	case "delayed", "rate_limited":
		return words(p.BlockingReason)
	case "waiting_children":
		return p.waitsFor()
	case "suspended":
		for i := range s.Asks {
			if s.Asks[i].ExecutionID == p.ID {
				return "asks a person: " + s.Asks[i].Title
			}
		}
		return words(p.BlockingReason)
	case "failed", "expired", "cancelled":
		if p.Failure != nil {
			return firstLine(p.Failure.Reason)
		}
	}
	return ""
}

func (s *Snapshot) waits(p *placed) string {
	switch p.BlockingReason {
	case "waiting_for_worker", "none":
		return "waiting for a worker of the lane " + p.Lane
	case "waiting_for_capable_worker":
		return "waiting for a capable worker of the lane " + p.Lane
	default:
		return words(p.BlockingReason)
	}
}

// waitsFor names what a member waits for.
func (p *placed) waitsFor() string {
	if len(p.needs) == 0 {
		return ""
	}
	const most = 4
	list := p.needs
	if len(list) > most {
		list = append(list[:most-1:most-1], fmt.Sprintf("%d more", len(p.needs)-most+1))
	}
	text := strings.Join(list, ", ")
	switch {
	case p.group == nil || p.group.Kind == "all_of":
		return "needs " + text
	case p.group.Kind == "any_of":
		return "needs one of " + text
	default:
		return fmt.Sprintf("needs %d more of %s", max(p.group.K-p.group.Satisfied, 0), text)
	}
}

// words makes a name of the contract readable.
func words(name string) string {
	if name == "none" {
		return ""
	}
	return strings.ReplaceAll(name, "_", " ")
}

func firstLine(text string) string {
	line, _, _ := strings.Cut(text, "\n")
	return line
}

// took returns how long a member has run, 0 when it has not.
func took(n *client.Node, now time.Time) time.Duration {
	switch {
	case n.StartedAt == nil:
		return 0
	case n.CompletedAt != nil:
		return max(n.CompletedAt.Sub(*n.StartedAt), 0)
	case n.Ended():
		return 0
	default:
		return max(now.Sub(*n.StartedAt), 0)
	}
}

// Duration returns a duration as people write it.
func Duration(d time.Duration) string {
	switch {
	case d <= 0:
		return ""
	case d < time.Minute:
		return fmt.Sprintf("%.1fs", d.Seconds())
	case d < time.Hour:
		return fmt.Sprintf("%dm%02ds", int(d.Minutes()), int(d.Seconds())%60)
	default:
		return fmt.Sprintf("%dh%02dm", int(d.Hours()), int(d.Minutes())%60)
	}
}
