package execution_test

import (
	"testing"

	"github.com/flowapi/flowapi/internal/domain/execution"
	repo "github.com/flowapi/flowapi/internal/repo/execution"
	"github.com/flowapi/flowapi/internal/repo/store"
	waitrepo "github.com/flowapi/flowapi/internal/repo/wait"
	"github.com/flowapi/flowapi/internal/storetest"
)

// BenchmarkLifecycle measures the hot path without HTTP: one caller, so every change is a commit of its own.
func BenchmarkLifecycle(b *testing.B) {
	st := storetest.Open(b, store.Config{URL: storetest.SQLite(b)})
	r := repo.New(st, waitrepo.New(st, waitrepo.Config{}), nil)
	ctx := b.Context()
	in := execution.Create{Lane: "bench", Kind: "demo", Payload: &execution.Value{Bytes: []byte(`{"hello":"world"}`), Encoding: execution.EncodingJSON},
		Tags: map[string]string{"a.b": "c"}}
	const batch = 500
	run := func(name string, step func(b *testing.B)) {
		b.Run(name, func(b *testing.B) {
			for b.Loop() {
				step(b)
			}
		})
	}
	many := make([]execution.Item[execution.Create], batch)
	for i := range many {
		many[i].Value = in
	}
	run("create 500", func(b *testing.B) {
		if _, err := r.CreateMany(ctx, many, true); err != nil {
			b.Fatal(err)
		}
	})
	req := execution.ClaimRequest{Lanes: []string{"bench"}, WorkerID: "w", TTL: execution.DefaultLeaseTTL, Max: 1, Reclaim: true}
	run("create, claim, complete 500", func(b *testing.B) {
		if _, err := r.CreateMany(ctx, many, true); err != nil {
			b.Fatal(err)
		}
		req.Max = batch
		got, err := r.Claim(ctx, req)
		if err != nil {
			b.Fatal(err)
		}
		ends := make([]execution.Ending, len(got.Claims))
		for i := range got.Claims {
			ends[i] = execution.Ending{Fence: got.Claims[i].Execution.Fence(), Result: &execution.Value{Bytes: []byte(`1`), Encoding: execution.EncodingJSON}}
		}
		if _, err := r.End(ctx, ends); err != nil {
			b.Fatal(err)
		}
	})
}
