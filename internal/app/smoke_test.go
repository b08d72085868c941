package app_test

import (
	"testing"
	"time"

	"github.com/flowapi/flowapi/internal/apptest"
)

func TestSmoke(t *testing.T) {
	t.Parallel()
	apptest.Databases(t, func(t *testing.T, s *apptest.Server) {
		s.Post("/v1/executions", `{"lane":"ci"}`).Want(201)
		c := s.Post("/v1/claims", `{"lane":"ci","worker_id":"w","lease_ttl_ms":1000}`).Want(200)
		s.Advance(2 * time.Second)
		_ = c
		s.Post("/v1/claims", `{"lane":"ci","worker_id":"w2"}`).Want(200)
	})
}
