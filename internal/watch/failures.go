package watch

import (
	"fmt"
	"io"
	"strings"

	"github.com/flowapi/flowapi/internal/client"
)

// Failed returns the members that failed, in their order.
func Failed(s *Snapshot) []*client.Node {
	var failed []*client.Node
	for _, p := range order(&s.Graph) {
		if p.PublicState == "failed" || p.PublicState == "expired" {
			failed = append(failed, p.Node)
		}
	}
	return failed
}

const (
	shownFailures = 10
	shownLines    = 15
)

// Explain says which members failed and why, and how to look further.
func Explain(w io.Writer, s *Snapshot, outputs map[string]Output) {
	failed := Failed(s)
	for i, n := range failed {
		if i == shownFailures {
			fmt.Fprintf(w, "\nand %d more\n", len(failed)-i)
			break
		}
		reason := n.PublicState
		if n.Failure != nil && n.Failure.Reason != "" {
			reason += ": " + n.Failure.Reason
		}
		fmt.Fprintf(w, "\n%s %s\n", n.Name(), reason)
		out := outputs[n.ID]
		for _, line := range out.Last(shownLines) {
			fmt.Fprintf(w, "  | %s\n", strings.Map(printable, line))
		}
		fmt.Fprintf(w, "  flowapi why %s\n  flowapi tail --frames %s\n", n.ID, n.ID)
	}
	if s.Flow.Failure != nil && len(failed) == 0 {
		fmt.Fprintf(w, "\n%s\n", s.Flow.Failure.Reason)
	}
	fmt.Fprintf(w, "\nto run again what failed: flowapi replay %s\n", s.Flow.ID)
}

func printable(r rune) rune {
	if r < ' ' && r != '\t' || r == 0x7f {
		return -1
	}
	return r
}

// Questions says what people are asked, and how to answer.
func Questions(w io.Writer, s *Snapshot) {
	for i := range s.Asks {
		ask := &s.Asks[i]
		id := ask.ExecutionID
		if id == "" {
			id = ask.FlowID
		}
		fmt.Fprintf(w, "asks a person: %s\n  flowapi approve %s\n  flowapi reject %s\n", ask.Title, id, id)
	}
}
