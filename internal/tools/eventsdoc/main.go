// Command eventsdoc writes docs/events.md from the catalogue of events.
package main

import (
	"fmt"
	"os"
	"strings"

	"github.com/flowapi/flowapi/internal/domain/event"
)

const head = `# Events

<!-- Generated from the catalogue in internal/domain/event by go generate. Do not edit. -->

Every change of state writes its events in its own transaction. ` + "`GET /v1/events`" + ` lists them, ` + "`GET /v1/events/stream`" + ` streams them, in one
order without gaps that agrees with each resource's revisions. An event has ` + "`id, at, namespace, topic, type, data`" + `, the ids of the flow,
run and execution that it concerns, the resource's ` + "`revision`" + ` after the change, the ` + "`actor`" + `, and the ` + "`cause`" + `: the id of the event that
brought it about, none when a request did. Members marked with ? are absent when there is nothing to say.

Clients may append types of their own to a flow's trail: ` + "`custom.<name>`" + ` (topic flow; the flow's revision stays).
`

func main() {
	if err := run(os.Args[1:]); err != nil {
		fmt.Fprintln(os.Stderr, "eventsdoc:", err)
		os.Exit(1)
	}
}

func run(args []string) error {
	if len(args) != 1 {
		return fmt.Errorf("usage: eventsdoc FILE")
	}
	var b strings.Builder
	b.WriteString(head)
	for _, topic := range event.Topics() {
		fmt.Fprintf(&b, "\n## %s\n\n| type | written when | data |\n|---|---|---|\n", topic)
		for _, e := range event.Catalogue() {
			if e.Topic == topic {
				fmt.Fprintf(&b, "| `%s` | %s | %s |\n", e.Type, e.About, e.Data)
			}
		}
	}
	return os.WriteFile(args[0], []byte(b.String()), 0o644) //nolint:gosec // a page of the documentation
}
