package app

import (
	"cmp"
	"time"

	"github.com/flowapi/flowapi/internal/domain/execution"
	"github.com/flowapi/flowapi/internal/domain/graph"
	"github.com/flowapi/flowapi/internal/domain/page"
	"github.com/flowapi/flowapi/internal/domain/stream"
	"github.com/flowapi/flowapi/internal/handlers/ask"
	"github.com/flowapi/flowapi/internal/handlers/oapi"
)

// mostStreams is how many streams of one kind may be open at a time.
func (a *App) mostStreams() int { return cmp.Or(a.cfg.Streams, 10_000) }

// limits are those that GET /v1/meta tells.
func (a *App) limits() oapi.Limits {
	l := limits
	l.StreamsMax = int64(a.mostStreams())
	return l
}

var limits = oapi.Limits{
	BatchItemsMax: 1000, BodyBulkBytes: 16 << 20, BodyDocumentBytes: 1 << 20, BodyVerbBytes: 64 << 10, CapabilitiesBytesMax: 4096, CapabilitiesMax: 256,
	ClaimsMax: 100, ExternalEventTTLMs: (24 * time.Hour).Milliseconds(), IdempotencyTTLMs: (24 * time.Hour).Milliseconds(), JSONDepthMax: 100,
	LeaseTTLMsMax: execution.MaxLeaseTTL.Milliseconds(), LeaseTTLMsMin: execution.MinLeaseTTL.Milliseconds(), ListLimitMax: page.MaxLimit,
	PreferWaitSecondsMax: int64(ask.MaxWait / time.Second), TimerHorizonMs: (30 * 24 * time.Hour).Milliseconds(),
	FramesMax: 1000, FramePayloadBytes: stream.MaxPayload, FramesPerSecond: stream.FramesPerSecond, FramesBurst: stream.Burst, StreamPageMax: 1000,
	GraphExecutionsMax: graph.MaxNodes, GraphEdgesMax: graph.MaxEdges, TailBlockMsMax: 30_000, SummaryBytes: stream.MaxSummary,
}

// features are what this version has, for clients that meet several.
var features = []string{"flows", "executions", "workers", "lanes", "graphs", "streams", "bulk", "events", "inbox", "suspension", "signals", "approvals", "runs", "gates", "budgets", "quotas"}
