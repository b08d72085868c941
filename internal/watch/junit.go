package watch

import (
	"cmp"
	"encoding/xml"
	"fmt"
	"io"
	"strings"
	"time"
)

type suites struct {
	XMLName  xml.Name `xml:"testsuites"`
	Name     string   `xml:"name,attr"`
	Tests    int      `xml:"tests,attr"`
	Failures int      `xml:"failures,attr"`
	Skipped  int      `xml:"skipped,attr"`
	Time     string   `xml:"time,attr"`
	Suite    suite    `xml:"testsuite"`
}

type suite struct {
	Name      string `xml:"name,attr"`
	ID        string `xml:"id,attr"`
	Tests     int    `xml:"tests,attr"`
	Failures  int    `xml:"failures,attr"`
	Errors    int    `xml:"errors,attr"`
	Skipped   int    `xml:"skipped,attr"`
	Time      string `xml:"time,attr"`
	Timestamp string `xml:"timestamp,attr"`
	Cases     []test `xml:"testcase"`
}

type test struct {
	Name    string   `xml:"name,attr"`
	Class   string   `xml:"classname,attr"`
	Time    string   `xml:"time,attr"`
	Failure *failure `xml:"failure,omitempty"`
	Skipped *skipped `xml:"skipped,omitempty"`
	Out     string   `xml:"system-out,omitempty"`
}

type failure struct {
	Message string `xml:"message,attr"`
	Type    string `xml:"type,attr"`
	Text    string `xml:",chardata"`
}

type skipped struct {
	Message string `xml:"message,attr"`
}

// JUnit writes a report with a test case for each member. A member that failed without the flow failing for it, has not ended or was
// cancelled counts as skipped: only what makes the flow fail is a failure.
func JUnit(w io.Writer, s *Snapshot, outputs map[string]Output, now time.Time) error {
	end := now
	if s.Flow.EndedAt != nil {
		end = *s.Flow.EndedAt
	}
	all := suite{Name: s.Flow.Goal, ID: s.Flow.ID, Time: seconds(end.Sub(s.Flow.CreatedAt)), Timestamp: s.Flow.CreatedAt.UTC().Format("2006-01-02T15:04:05")}
	members := order(&s.Graph)
	for i := range members {
		p := &members[i]
		c := test{Name: p.Name(), Class: cmp.Or(s.Flow.Kind, "flow") + "." + cmp.Or(p.Kind, p.Lane), Time: seconds(took(p.Node, now))}
		reason, category := p.PublicState, p.PublicState
		if p.Failure != nil {
			reason, category = cmp.Or(p.Failure.Reason, reason), cmp.Or(p.Failure.Category, category)
		}
		out := outputs[p.ID]
		text := strings.Join(out.All, "\n")
		switch {
		case p.PublicState == "completed":
		case (p.PublicState == "failed" || p.PublicState == "expired") && s.Flow.Status == "finished":
			c.Skipped, c.Out = &skipped{"it was not needed, and failed: " + reason}, text
		case p.PublicState == "failed" || p.PublicState == "expired":
			c.Failure = &failure{Message: reason, Type: category, Text: text}
			all.Failures++
		case p.Ended():
			c.Skipped = &skipped{p.PublicState}
		default:
			note := p.PublicState
			if more := s.note(p); more != "" {
				note += ", " + more
			}
			c.Skipped = &skipped{"it has not ended: " + note}
		}
		if c.Skipped != nil {
			all.Skipped++
		}
		all.Tests++
		all.Cases = append(all.Cases, c)
	}
	report := suites{Name: "flowapi", Tests: all.Tests, Failures: all.Failures, Skipped: all.Skipped, Time: all.Time, Suite: all}
	if _, err := io.WriteString(w, xml.Header); err != nil {
		return err
	}
	enc := xml.NewEncoder(w)
	enc.Indent("", "  ")
	if err := enc.Encode(report); err != nil {
		return err
	}
	_, err := io.WriteString(w, "\n")
	return err
}

func seconds(d time.Duration) string { return fmt.Sprintf("%.3f", max(d, 0).Seconds()) }
