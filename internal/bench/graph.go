package bench

import (
	"context"
	"fmt"
	"strings"
	"time"
)

// What the graphs of PartGraph are.
const (
	chainNodes  = 10   // of a flow whose members follow one another
	graphNodes  = 1000 // of a large graph
	graphEdges  = 5000
	graphRounds = 20
)

// graphs measures flows whose members follow one another, from their submission to their end, and the submission of large graphs.
func (r *run) graphs(ctx context.Context) error {
	return r.on(ctx, func(srv *server, api *client) error {
		if err := api.warmUp(ctx); err != nil {
			return fmt.Errorf("warm up: %w", err)
		}
		flows := max(r.cfg.N/chainNodes, 1)
		each, before, lanes := make([]time.Duration, flows), srv.cpu(), make(chan string, r.cfg.Connections)
		for range r.cfg.Connections {
			lanes <- api.lane()
		}
		t, err := parallel(ctx, flows, r.cfg.Connections, func(ctx context.Context, i int) error {
			lane := <-lanes
			defer func() { lanes <- lane }()
			begin := time.Now()
			defer func() { each[i] = time.Since(begin) }()
			return api.runChain(ctx, lane)
		})
		if err != nil {
			return err
		}
		all := newTiming(t.elapsed, each)
		all.cpu = srv.cpu() - before
		api.stored += flows * chainNodes
		r.report.rate(fmt.Sprintf("flow of %d members in a row, from submission to end", chainNodes), stored(srv, api), flows, all)

		each, before = make([]time.Duration, graphRounds), srv.cpu()
		begin := time.Now()
		for i := range each {
			body := largeGraph(api.lane())
			start := time.Now()
			if _, _, err := api.submit(ctx, body, graphNodes); err != nil {
				return err
			}
			each[i] = time.Since(start)
		}
		all = newTiming(time.Since(begin), each)
		all.cpu = srv.cpu() - before
		api.stored += graphRounds * graphNodes
		r.report.rate(fmt.Sprintf("submit a graph of %d members and %d edges", graphNodes, graphEdges), stored(srv, api), graphRounds, all)
		return nil
	})
}

// runChain submits a flow whose members follow one another, and does their work.
func (c *client) runChain(ctx context.Context, lane string) error {
	var b strings.Builder
	b.WriteString(`{"goal":"chain","graph":{"executions":[`)
	for i := range chainNodes {
		if i == 0 {
			fmt.Fprintf(&b, `{"key":"n0","lane":%q}`, lane)
			continue
		}
		fmt.Fprintf(&b, `,{"key":"n%d","lane":%q,"needs":["n%d"]}`, i, lane, i-1)
	}
	b.WriteString(`]}}`)
	id, members, err := c.submit(ctx, b.String(), chainNodes)
	if err != nil {
		return err
	}
	for i := range chainNodes {
		held, err := c.claim(ctx, lane, 1)
		if err == nil && held[0].Execution.ID != members[fmt.Sprintf("n%d", i)] {
			err = fmt.Errorf("claimed %s of flow %s before its turn", held[0].Execution.ID, id)
		}
		if err == nil {
			err = c.complete(ctx, held[0])
		}
		if err != nil {
			return err
		}
	}
	var flow struct {
		Status string `json:"status"`
	}
	err = c.do(ctx, "GET", "/v1/flows/"+id, "", &flow)
	if err == nil && flow.Status != "finished" {
		err = fmt.Errorf("flow %s is %s after its last member", id, flow.Status)
	}
	return err
}

// submit submits a flow with a graph of n executions, whose ids it returns by key.
func (c *client) submit(ctx context.Context, body string, n int) (id string, members map[string]string, err error) {
	var made struct {
		ID    string `json:"id"`
		Graph struct {
			Executions map[string]string `json:"executions"`
		} `json:"graph"`
	}
	err = c.post(ctx, "/v1/flows", body, &made)
	if err == nil && len(made.Graph.Executions) != n {
		err = fmt.Errorf("%d executions were made, want %d", len(made.Graph.Executions), n)
	}
	return made.ID, made.Graph.Executions, err
}

// largeGraph is a graph whose members depend on some of those before them.
func largeGraph(lane string) string {
	var b strings.Builder
	b.WriteString(`{"goal":"large","graph":{"executions":[`)
	edges := 0
	for i := range graphNodes {
		if i > 0 {
			b.WriteByte(',')
		}
		fmt.Fprintf(&b, `{"key":"n%d","lane":%q,"payload":{"run":"make %d"}`, i, lane, i)
		needs := min(i, (graphEdges-edges+graphNodes-i-1)/(graphNodes-i))
		edges += needs
		for j := range needs {
			sep := ","
			if j == 0 {
				sep = `,"needs":[`
			}
			fmt.Fprintf(&b, `%s"n%d"`, sep, i-1-j)
		}
		if needs > 0 {
			b.WriteByte(']')
		}
		b.WriteByte('}')
	}
	b.WriteString(`]}}`)
	return b.String()
}
