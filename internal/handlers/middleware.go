package handlers

import (
	"compress/gzip"
	"errors"
	"fmt"
	"math/rand/v2"
	"net/http"
	"runtime/debug"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/rs/zerolog"

	"github.com/flowapi/flowapi/internal/domain/fault"
	"github.com/flowapi/flowapi/internal/domain/waitpoint"
)

// observer is the outermost middleware: it gives each request its exchange and tells log and metrics how it ended.
type observer struct {
	log      zerolog.Logger
	now      func() time.Time
	requests *prometheus.CounterVec
	outside  prometheus.Observer // durations of requests outside the contract
	gzip     sync.Pool           // of *gzip.Writer
}

// outsideName stands for the operation of requests that match none.
const outsideName = "none"

func newObserver(log zerolog.Logger, now func() time.Time, registry prometheus.Registerer, operations []*operation) (*observer, error) {
	o := &observer{log: log, now: now, gzip: sync.Pool{New: func() any {
		w, _ := gzip.NewWriterLevel(nil, gzip.BestSpeed) // the level is a valid one
		return w
	}}}
	o.requests = prometheus.NewCounterVec(prometheus.CounterOpts{
		Name: "flowapi_http_requests_total",
		Help: "Answered requests by operation and status.",
	}, []string{"operation", "status"})
	durations := prometheus.NewHistogramVec(prometheus.HistogramOpts{
		Name:    "flowapi_http_request_duration_seconds",
		Help:    "Time to answer by operation; streams and long polls count until they end.",
		Buckets: []float64{.0005, .001, .0025, .005, .01, .025, .05, .1, .25, .5, 1, 2.5, 10, 60},
	}, []string{"operation"})
	for _, op := range operations {
		op.duration = durations.WithLabelValues(op.id)
	}
	o.outside = durations.WithLabelValues(outsideName)
	return o, errors.Join(registry.Register(o.requests), registry.Register(durations))
}

func (o *observer) middleware(next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		began := o.now()
		x := &exchange{id: requestID(r), trace: traceID(r)}
		x.response.ResponseWriter = w
		if wantsGzip(r) {
			x.response.offer = &o.gzip
		}
		w.Header()["X-Request-Id"] = []string{x.id}
		w.Header()["X-Content-Type-Options"] = []string{"nosniff"}
		r = withExchange(r, x)
		defer func() {
			x.response.close()
			o.record(r, x, o.now().Sub(began))
		}()
		next.ServeHTTP(&x.response, r)
	})
}

// statusClientGone is written to log and metrics for a client that hung up before its answer.
const statusClientGone = 499

func (o *observer) record(r *http.Request, x *exchange, took time.Duration) {
	status := x.response.status
	switch {
	case x.gone && !x.response.begun():
		status = statusClientGone
	case status == 0:
		status = http.StatusOK
	}
	operation, duration := outsideName, o.outside
	if x.operation != nil {
		operation, duration = x.operation.id, x.operation.duration
	}
	o.requests.WithLabelValues(operation, strconv.Itoa(status)).Inc()
	duration.Observe(took.Seconds())

	level := zerolog.InfoLevel
	switch {
	case status >= http.StatusInternalServerError:
		level = zerolog.ErrorLevel
	case x.operation == nil && status < http.StatusBadRequest:
		level = zerolog.DebugLevel // pages, which probes ask for all the time
	}
	line := o.log.WithLevel(level)
	line.Str("method", r.Method).
		Str("route", r.Pattern).
		Str("path", clip(redact(r.URL.Path), 512)).
		Int("status", status).
		Int64("bytes", x.response.bytes).
		Dur("duration_ms", took).
		Str("request_id", x.id)
	if x.trace != "" {
		line.Str("trace_id", x.trace)
	}
	if x.caller.Actor != "" {
		line.Str("actor", x.caller.Actor).Str("namespace", x.caller.Namespace)
	}
	line.Msg("request")
}

func clip(s string, most int) string {
	if len(s) <= most {
		return s
	}
	return s[:most] + "…"
}

// requestID returns the id that r brings when it is a sane one, and a new one otherwise.
func requestID(r *http.Request) string {
	if given := r.Header["X-Request-Id"]; len(given) == 1 && saneID(given[0]) {
		return given[0]
	}
	const digits = "0123456789abcdef"
	var id [32]byte
	for i := 0; i < len(id); i += 16 {
		n := rand.Uint64() //nolint:gosec // an id for logs is no secret
		for j := range 16 {
			id[i+j] = digits[n&15]
			n >>= 4
		}
	}
	return string(id[:])
}

func saneID(s string) bool {
	if s == "" || len(s) > 128 {
		return false
	}
	for i := range len(s) {
		c := s[i]
		if c >= 'a' && c <= 'z' || c >= 'A' && c <= 'Z' || c >= '0' && c <= '9' || strings.IndexByte("-_.:/+=@", c) >= 0 {
			continue
		}
		return false
	}
	return true
}

// traceID returns the trace id of r's W3C traceparent header, "" without a valid one.
func traceID(r *http.Request) string {
	given := r.Header["Traceparent"]
	if len(given) != 1 {
		return ""
	}
	const length = len("00-0123456789abcdef0123456789abcdef-0123456789abcdef-01")
	parent := given[0]
	if len(parent) < length || parent[2] != '-' || parent[35] != '-' || parent[52] != '-' {
		return ""
	}
	version, trace, span := parent[:2], parent[3:35], parent[36:52]
	switch {
	case !lowerHex(version) || version == "ff" || version == "00" && len(parent) != length:
		return ""
	case !lowerHex(trace) || strings.Trim(trace, "0") == "":
		return ""
	case !lowerHex(span) || strings.Trim(span, "0") == "" || !lowerHex(parent[53:55]):
		return ""
	}
	return trace
}

func lowerHex(s string) bool {
	for i := range len(s) {
		if c := s[i]; (c < '0' || c > '9') && (c < 'a' || c > 'f') {
			return false
		}
	}
	return true
}

// recoverer answers a panic with 500, and cuts the connection when an answer had begun, so that nobody takes a part of
// it for the whole.
func (p problems) recoverer(next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		defer func() {
			caught := recover()
			if caught == nil {
				return
			}
			if err, ok := caught.(error); ok && errors.Is(err, http.ErrAbortHandler) {
				panic(caught)
			}
			x := exchangeOf(r)
			p.log.Error().Interface("panic", caught).Bytes("stack", debug.Stack()).Str("request_id", x.id).Msg("panic")
			if x.response.begun() {
				panic(http.ErrAbortHandler)
			}
			p.write(w, r, fault.New(fault.CodeInternal, "The server failed to answer.").Because(fmt.Errorf("panic: %v", caught)))
		}()
		next.ServeHTTP(w, r)
	})
}

// anonymousOrigin says whether r is the form of an approval page, sent by a browser that does not say from where: the page asks for
// that by its Referrer-Policy, so that the link shows nowhere, and a page that has come over plain HTTP says no more. Nothing is lost:
// who can have it sent has the link, which is all that it takes.
func anonymousOrigin(r *http.Request) bool {
	return strings.HasPrefix(r.URL.Path, waitpoint.ApprovePath) && r.Header.Get("Origin") == "null" && r.Header.Get("Sec-Fetch-Site") == ""
}

// origins refuses what a web page of another origin sends: unsafe cross-origin requests, and, while anonymous callers are
// admin, everything that does not name this machine as its Host (a page whose name was rebound to it).
func (p problems) origins(auth Authenticator) func(http.Handler) http.Handler {
	protection := http.NewCrossOriginProtection()
	return func(next http.Handler) http.Handler {
		return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			if err := protection.Check(r); err != nil && !anonymousOrigin(r) {
				p.write(w, r, fault.New(fault.CodeCrossOrigin, "A page of another origin may not call this server. Call it from a page of its own, or from outside a browser.").Because(err))
				return
			}
			if r.Header.Get("Authorization") == "" && auth.Anonymous() && !loopbackHost(r.Host) {
				p.write(w, r, fault.New(fault.CodeCrossOrigin,
					"While no admin token exists this server answers only to a Host of its own machine, such as localhost. Make one with flowapi token create."))
				return
			}
			next.ServeHTTP(w, r)
		})
	}
}
