package bench

import (
	"bytes"
	"context"
	"fmt"
	"net/http"
	"strings"
	"sync"
	"time"
)

// ofFrames tells the subscribers that they follow a stream of frames.
const ofFrames = "frames"

// numberOfFrame reads which frame of the measurement it is: its payload begins with that.
func numberOfFrame(f frame) int64 {
	_, payload, _ := bytes.Cut(f.data, []byte(`"payload":"`))
	return number(payload)
}

// frames measures the stream of one attempt: so many followers, in a third process, receive everything while this one, the
// worker, appends at a steady rate. Each must receive every frame, in order.
func (r *run) frames(ctx context.Context) error {
	return r.on(ctx, func(srv *server, api *client) error {
		if err := api.warmUp(ctx); err != nil {
			return fmt.Errorf("warm up: %w", err)
		}
		lane := api.lane()
		if _, err := api.create(ctx, lane); err != nil {
			return err
		}
		held, err := api.claim(ctx, lane, 1)
		if err != nil {
			return err
		}
		id := held[0].Execution.ID
		crowd, err := subscribe(ctx, r.cfg.Self, api.url+"/v1/executions/"+id+"/attempts/current/stream", r.cfg.Followers, ofFrames)
		if err != nil {
			return err
		}
		defer crowd.leave()
		peak := sync.OnceValue(watchMemory(srv))
		defer peak()
		before := srv.cpu()
		appends, err := api.appendAll(ctx, held[0], r.cfg.FrameRate, r.cfg.FrameBatch, r.cfg.Duration)
		if err != nil {
			return err
		}
		appends.cpu = srv.cpu() - before
		appended := make([]int64, len(appends.sorted)*r.cfg.FrameBatch)
		for i := range appended {
			appended[i] = int64(i) + 1
		}
		heard, err := crowd.hear(appended)
		if err != nil {
			return err
		}

		at := stored(srv, api)
		name := fmt.Sprintf("%s followers: ", thousands(float64(r.cfg.Followers)))
		r.report.rate(fmt.Sprintf("%sframes appended, %d at a time", name, r.cfg.FrameBatch), at, len(appended), appends)
		r.report.add(Row{Stored: at, Measure: name + "frames received, append to client", Value: float64(len(appended)*r.cfg.Followers) / appends.elapsed.Seconds(), Unit: "/s", P50: heard.P50, P99: heard.P99})
		r.report.add(Row{Stored: at, Measure: name + "slowest frame", Value: heard.Max, Unit: "ms"})
		r.report.add(Row{Stored: at, Measure: name + "reconnects", Value: float64(heard.Reconnects)})
		if srv != nil {
			r.report.add(Row{Stored: at, Measure: name + "resident memory at most", Value: mb(peak()), Unit: "MB"})
		}
		return api.complete(ctx, held[0])
	})
}

// appendAll appends frames at a steady rate for a time, batch by batch, as the one worker that it is. Each carries its number,
// and about as much text as a line of a log.
func (c *client) appendAll(ctx context.Context, held claim, rate, batch int, duration time.Duration) (timing, error) {
	n := int(duration.Seconds()*float64(rate)) / batch
	each := make([]time.Duration, n)
	text := strings.Repeat("x", 80)
	begin := time.Now()
	t, err := parallel(ctx, n, 1, func(ctx context.Context, i int) error {
		body := bytes.NewBufferString(`{"handle":"` + held.Handle + `","frames":[`)
		for j := range batch {
			if j > 0 {
				body.WriteByte(',')
			}
			fmt.Fprintf(body, `{"payload":"%d %s\n"}`, i*batch+j+1, text)
		}
		body.WriteString("]}")
		time.Sleep(time.Until(begin.Add(time.Duration(i*batch) * time.Second / time.Duration(rate))))
		sent := time.Now()
		var answer struct {
			Frames []struct {
				ID string `json:"id"`
			} `json:"frames"`
		}
		err := c.do(ctx, http.MethodPost, "/v1/executions/"+held.Execution.ID+"/frames", body.String(), &answer)
		if err == nil && len(answer.Frames) != batch {
			err = fmt.Errorf("appended %d frames, got %d ids", batch, len(answer.Frames))
		}
		each[i] = time.Since(sent)
		return err
	})
	return newTiming(t.elapsed, each), err
}
