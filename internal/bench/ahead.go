package bench

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"
)

// ahead measures what a claim costs in a lane where cfg.Ahead executions stand before the claimable ones and cannot be claimed,
// and in a lane where none do. The two take turns, so that both see the same machine.
func (r *run) ahead(ctx context.Context) error {
	return r.on(ctx, func(srv *server, api *client) error {
		if err := api.warmUp(ctx); err != nil {
			return fmt.Errorf("warm up: %w", err)
		}
		lanes := [...]string{api.lane(), api.lane()}
		flow, err := api.createFlow(ctx)
		if err != nil {
			return err
		}
		err = api.createMany(ctx, r.cfg.Ahead, func(i int) string { return unclaimable(lanes[1], flow, i) })
		if err != nil {
			return fmt.Errorf("create what cannot be claimed: %w", err)
		}
		fmt.Fprintf(r.cfg.Log, "created %d that cannot be claimed\n", r.cfg.Ahead)
		behind := "behind " + thousands(float64(r.cfg.Ahead)) + " unclaimable"

		before := stored(srv, api)
		each, err := r.claimsInTurn(ctx, api, lanes)
		if err != nil {
			return err
		}
		r.compare(before, "claim, 1 connection", behind, each)

		before = stored(srv, api)
		each, err = r.claimsInBlocks(ctx, srv, api, lanes)
		if err != nil {
			return err
		}
		r.compare(before, fmt.Sprintf("claim, %d connections", r.cfg.Connections), behind, each)
		return nil
	})
}

// unclaimable returns an execution of the highest priority that a worker without capabilities cannot have: of three, one
// requires capabilities, of a hundred different sets, one is delayed, and one is a member of a flow that has not started.
func unclaimable(lane, flow string, i int) string {
	why := ""
	switch i % 3 {
	case 0:
		why = fmt.Sprintf(`"required_capabilities":["bench","set-%d"]`, i/3%100)
	case 1:
		why = fmt.Sprintf(`"delay_ms":%d`, farAway(i))
	default:
		why = `"flow_id":"` + flow + `"`
	}
	return `{"lane":"` + lane + `","kind":"demo",` + why + `,"priority":9000` + load
}

// farAway returns a delay in ms that no measurement sees the end of, another one for each i.
func farAway(i int) int64 { return (30 * 24 * time.Hour).Milliseconds() + int64(i) }

// claimsInTurn claims from one connection, one after the other: each execution is created, claimed and completed, and the
// claim is timed.
func (r *run) claimsInTurn(ctx context.Context, api *client, lanes [2]string) (all [2]timing, err error) {
	n := max(1, r.cfg.N/10)
	var each [2][]time.Duration
	for i := range n {
		for j := range lanes {
			which := (i + j) % 2
			id, err := api.create(ctx, lanes[which])
			if err != nil {
				return all, err
			}
			begin := time.Now()
			held, err := api.claim(ctx, lanes[which], 1)
			if err != nil {
				return all, err
			}
			each[which] = append(each[which], time.Since(begin))
			if err := errors.Join(same([]string{id}, idsOf(held)), api.complete(ctx, held[0])); err != nil {
				return all, err
			}
		}
	}
	api.stored += len(lanes) * n
	return [2]timing{newTiming(0, each[0]), newTiming(0, each[1])}, nil
}

// claimsInBlocks claims from all connections: blocks of executions are created, claimed and completed. A block is long enough
// for the coarse clock of the server's processor time.
func (r *run) claimsInBlocks(ctx context.Context, srv *server, api *client, lanes [2]string) (all [2]timing, err error) {
	n := 5 * r.cfg.Batch
	for block := range max(1, r.cfg.N/2/n) {
		for j := range lanes {
			which := (block + j) % 2
			t, err := r.claimBlock(ctx, srv, api, lanes[which], n)
			if err != nil {
				return all, err
			}
			all[which] = all[which].with(t)
		}
	}
	return all, nil
}

// claimBlock times the claims of n executions.
func (r *run) claimBlock(ctx context.Context, srv *server, api *client, lane string, n int) (timing, error) {
	var created []string
	for len(created) < n {
		ids, err := api.createBatch(ctx, lane, r.cfg.Batch)
		if err != nil {
			return timing{}, err
		}
		created = append(created, ids...)
	}
	api.stored += len(created)
	held := make([]claim, len(created))
	t, err := r.parallel(ctx, srv, len(held), func(ctx context.Context, i int) error {
		got, err := api.claim(ctx, lane, 1)
		if err == nil {
			held[i] = got[0]
		}
		return err
	})
	if err := errors.Join(err, same(created, idsOf(held))); err != nil {
		return t, err
	}
	for some := range slices.Chunk(held, r.cfg.Batch) {
		if err := api.completeBatch(ctx, some); err != nil {
			return t, err
		}
	}
	return t, nil
}

// compare reports what a call takes in an empty lane and behind others.
func (r *run) compare(stored int, name, behind string, each [2]timing) {
	var rows [2]Row
	for i, t := range each {
		rows[i] = Row{
			Measure: name + ", " + [...]string{"empty lane", behind}[i] + ": mean", Stored: stored, Value: us(t.mean()), Unit: "us",
			P50: ms(t.quantile(0.50)), P99: ms(t.quantile(0.99)), CPU: us(t.cpu) / float64(len(t.sorted)),
		}
		r.report.add(rows[i])
	}
	add := func(what string, value float64) {
		r.report.add(Row{Measure: name + ", " + behind + ": " + what + ", to an empty lane's", Stored: stored, Value: value, Unit: unitRatio})
	}
	add("mean", rows[1].Value/rows[0].Value)
	if rows[0].CPU > 0 {
		add("server CPU", rows[1].CPU/rows[0].CPU)
	}
}
