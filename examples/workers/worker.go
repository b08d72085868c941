// Command workers is a worker of flowapi in Go: FLOWAPI_URL=… go run ./examples/workers LANE. docs/worker-guide.md explains it.
package main

import (
	"context"
	"crypto/rand"
	"fmt"
	"os"
	"os/signal"
	"slices"
	"syscall"
	"time"

	"github.com/flowapi/flowapi/internal/client"
)

func work(ctx context.Context, e client.Execution) (any, error) { // put yours here; it ends early, with an error, when ctx ends
	if d, err := time.ParseDuration(string(e.Payload) + "s"); e.Kind == "sleep" && err == nil && client.Sleep(ctx, d) {
		return e.Payload, nil
	}
	return nil, fmt.Errorf("%s was not done", e.Kind)
}

func post(path string, body map[string]any) (told client.Claims, err error) { // repeats it until it is answered, or a lease could be over
	ctx, cancel := context.WithTimeout(context.Background(), 20*time.Second)
	defer cancel()
	server := client.Client{URL: os.Getenv("FLOWAPI_URL"), Token: os.Getenv("FLOWAPI_TOKEN")}
	_, err = server.Insist(ctx, client.Request{Method: "POST", Path: path, Body: body, Key: rand.Text(), Wait: 5 * time.Second}, &told, nil)
	return told, err
}

func main() {
	for stopped, _ := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM); stopped.Err() == nil; {
		got, err := post("/v1/claims", map[string]any{"lane": os.Args[1], "worker_id": "go"})
		if err != nil && !client.Temporary(err) {
			panic(err)
		}
		for _, c := range got.Claims {
			at := "/v1/executions/" + c.Execution.ID
			ctx, end := context.WithCancel(stopped)
			go func() { // renews the lease until the work is over, and ends it early when the lease is lost, or the server wants that
				for client.Sleep(ctx, 5*time.Second) {
					if told, err := post(at+"/renew", map[string]any{"handle": c.Handle}); err != nil || slices.Contains(told.Directives, "cancel") {
						end()
					}
				}
			}()
			result, err := work(ctx, c.Execution)
			if err == nil {
				_, err = post(at+"/complete", map[string]any{"handle": c.Handle, "result": result})
			}
			if err != nil && ctx.Err() != nil { // what is to be cancelled is cancelled by that, and what is lost is refused
				_, _ = post(at+"/release", map[string]any{"handle": c.Handle})
			} else if err != nil {
				_, _ = post(at+"/fail", map[string]any{"handle": c.Handle, "reason": err.Error()})
			}
			end()
		}
	}
}
