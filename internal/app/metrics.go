package app

import (
	"context"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/collectors"
)

// metrics are the figures of the store, the loops and the process. Those of the requests are the handlers'.
type metrics struct {
	registry *prometheus.Registry
	group    prometheus.Histogram
	seconds  prometheus.Histogram
}

func newMetrics() *metrics {
	return &metrics{
		registry: prometheus.NewRegistry(),
		group: prometheus.NewHistogram(prometheus.HistogramOpts{Name: "flowapi_commit_operations",
			Help: "Changes that one commit carried.", Buckets: prometheus.ExponentialBuckets(1, 2, 9)}),
		seconds: prometheus.NewHistogram(prometheus.HistogramOpts{Name: "flowapi_commit_seconds",
			Help: "How long a commit took.", Buckets: prometheus.ExponentialBuckets(0.0001, 2, 14)}),
	}
}

// commit observes one commit.
func (m *metrics) commit(operations int, took time.Duration) {
	m.group.Observe(float64(operations))
	m.seconds.Observe(took.Seconds())
}

// watch registers everything that is read off a.
func (m *metrics) watch(a *App) error {
	gauge := func(name, help string, value func() float64) prometheus.Collector {
		return prometheus.NewGaugeFunc(prometheus.GaugeOpts{Name: name, Help: help}, value)
	}
	statements := prometheus.NewCounterFunc(prometheus.CounterOpts{Name: "flowapi_statements_total", Help: "Statements sent to the database, transactions' own aside."},
		func() float64 { return float64(a.store.Statements()) })
	for _, c := range []prometheus.Collector{
		collectors.NewGoCollector(),
		collectors.NewProcessCollector(collectors.ProcessCollectorOpts{}),
		m.group, m.seconds, statements,
		gauge("flowapi_write_queue_depth", "Changes that wait for the writer.", func() float64 { return float64(a.store.QueueDepth()) }),
		gauge("flowapi_sse_subscribers", "Open streams of events and of frames.", func() float64 {
			n := a.frames.Subscribers()
			for _, t := range a.tails {
				n += t.Subscribers()
			}
			return float64(n)
		}),
		gauge("flowapi_frames_waiting", "Requests that wait for frames, followers among them.", func() float64 { return float64(a.Waiting()) }),
		gauge("flowapi_graph_backlog", "Parts of graphs that are left to be decided, started, cancelled or replayed; -1 when that cannot be read.", func() float64 { return counted(a.graphs.Left) }),
		gauge("flowapi_budgets_exhausted", "Budgets that have nothing left of a limited dimension; -1 when that cannot be read.", func() float64 { return counted(a.budgets.Exhausted) }),
		loopCollector{a}, heldCollector{a},
	} {
		if err := m.registry.Register(c); err != nil {
			return err
		}
	}
	return nil
}

// counted returns what a count of rows says, -1 for one that fails.
func counted[N int | int64](count func(ctx context.Context) (N, error)) float64 {
	ctx, cancel := context.WithTimeout(context.Background(), time.Second)
	defer cancel()
	n, err := count(ctx)
	if err != nil {
		return -1
	}
	return float64(n)
}

// heldCollector shows what limits hold up.
type heldCollector struct{ app *App }

var heldBuckets = prometheus.NewDesc("flowapi_claim_buckets_held", "Claim buckets that are closed because a limit is reached, by its kind.", []string{"by"}, nil)

// Describe implements prometheus.Collector.
func (heldCollector) Describe(ch chan<- *prometheus.Desc) { ch <- heldBuckets }

// Collect implements prometheus.Collector.
func (c heldCollector) Collect(ch chan<- prometheus.Metric) {
	ctx, cancel := context.WithTimeout(context.Background(), time.Second)
	defer cancel()
	held, err := c.app.executions.HeldUp(ctx)
	if err != nil {
		return // as a scrape without them shows
	}
	for by, n := range held {
		ch <- prometheus.MustNewConstMetric(heldBuckets, prometheus.GaugeValue, float64(n), string(by))
	}
}

// loopCollector shows the figures of the background loops.
type loopCollector struct{ app *App }

var (
	loopRuns    = prometheus.NewDesc("flowapi_loop_runs_total", "Batches that a background loop has run.", []string{"loop"}, nil)
	loopActed   = prometheus.NewDesc("flowapi_loop_acted_total", "Rows that a background loop has worked on.", []string{"loop"}, nil)
	loopErrors  = prometheus.NewDesc("flowapi_loop_errors_total", "Batches of a background loop that failed.", []string{"loop"}, nil)
	loopSuccess = prometheus.NewDesc("flowapi_loop_last_success_timestamp_seconds", "When a background loop last succeeded.", []string{"loop"}, nil)
)

// Describe implements prometheus.Collector.
func (loopCollector) Describe(ch chan<- *prometheus.Desc) {
	for _, d := range []*prometheus.Desc{loopRuns, loopActed, loopErrors, loopSuccess} {
		ch <- d
	}
}

// Collect implements prometheus.Collector.
func (c loopCollector) Collect(ch chan<- prometheus.Metric) {
	for name, f := range c.app.loops.Figures() {
		ch <- prometheus.MustNewConstMetric(loopRuns, prometheus.CounterValue, float64(f.Runs), name)
		ch <- prometheus.MustNewConstMetric(loopActed, prometheus.CounterValue, float64(f.Acted), name)
		ch <- prometheus.MustNewConstMetric(loopErrors, prometheus.CounterValue, float64(f.Errors), name)
		if !f.LastSuccess.IsZero() {
			ch <- prometheus.MustNewConstMetric(loopSuccess, prometheus.GaugeValue, float64(f.LastSuccess.UnixMilli())/1000, name)
		}
	}
}
