package app

import (
	"time"

	"github.com/flowapi/flowapi/internal/domain/execution"
	"github.com/flowapi/flowapi/internal/domain/page"
	"github.com/flowapi/flowapi/internal/handlers/ask"
	"github.com/flowapi/flowapi/internal/handlers/oapi"
)

const maxStreams = 10_000

// limits are those that GET /v1/meta tells.
var limits = oapi.Limits{
	BatchItemsMax: 1000, BodyBulkBytes: 16 << 20, BodyDocumentBytes: 1 << 20, BodyVerbBytes: 64 << 10, CapabilitiesBytesMax: 4096, CapabilitiesMax: 256,
	ClaimsMax: 100, ExternalEventTTLMs: (24 * time.Hour).Milliseconds(), IdempotencyTTLMs: (24 * time.Hour).Milliseconds(), JSONDepthMax: 100,
	LeaseTTLMsMax: execution.MaxLeaseTTL.Milliseconds(), LeaseTTLMsMin: execution.MinLeaseTTL.Milliseconds(), ListLimitMax: page.MaxLimit,
	PreferWaitSecondsMax: int64(ask.MaxWait / time.Second), TimerHorizonMs: (30 * 24 * time.Hour).Milliseconds(),
}

// features are what this version has, for clients that meet several.
var features = []string{"flows", "executions", "workers", "lanes", "bulk", "events", "inbox", "suspension", "signals", "approvals"}
