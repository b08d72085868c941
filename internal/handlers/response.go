package handlers

import (
	"compress/gzip"
	"net/http"
	"strings"
	"sync"
)

// compressFrom is the size in bytes from which an answer is worth compressing.
const compressFrom = 1 << 10

// response counts what is sent, knows whether the answer has begun, and compresses it when that was asked for.
//
// A compressible answer keeps its header back until its first byte, because only then its size is known: the generated
// code writes a JSON body at once.
type response struct {
	http.ResponseWriter
	status int
	bytes  int64
	offer  *sync.Pool // of *gzip.Writer; nil when the client does not want gzip
	held   bool       // the header has been given, and not been sent
	gzip   *gzip.Writer
}

var (
	_ http.Flusher                    = (*response)(nil)
	_ interface{ FlushError() error } = (*response)(nil) // what http.ResponseController prefers
)

// begun reports whether a part of the answer has been sent, so that another answer is impossible.
func (w *response) begun() bool { return w.status != 0 && !w.held }

// restart forgets an answer that has not begun.
func (w *response) restart() {
	if w.held {
		w.status, w.held = 0, false
	}
}

func (w *response) WriteHeader(status int) {
	switch {
	case status >= 100 && status < 200:
		w.ResponseWriter.WriteHeader(status)
	case w.status != 0:
	default:
		w.status = status
		if w.offer != nil && compressible(status, w.Header()) {
			w.held = true
			return
		}
		w.ResponseWriter.WriteHeader(status)
	}
}

func (w *response) Write(p []byte) (int, error) {
	if w.status == 0 {
		w.WriteHeader(http.StatusOK)
	}
	if w.held {
		w.release(len(p) >= compressFrom)
	}
	w.bytes += int64(len(p))
	if w.gzip != nil {
		return w.gzip.Write(p)
	}
	return w.ResponseWriter.Write(p)
}

// Flush is [response.FlushError] for those who do not ask.
func (w *response) Flush() { _ = w.FlushError() } // the next Write tells

// FlushError sends what has been written so far.
func (w *response) FlushError() error {
	if w.status == 0 {
		w.WriteHeader(http.StatusOK)
	}
	if w.held {
		w.release(false)
	}
	if w.gzip != nil {
		if err := w.gzip.Flush(); err != nil {
			return err
		}
	}
	return http.NewResponseController(w.ResponseWriter).Flush()
}

// Unwrap is for http.ResponseController.
func (w *response) Unwrap() http.ResponseWriter { return w.ResponseWriter }

// close ends the answer. It must be called once the handler has returned.
func (w *response) close() {
	if w.held {
		w.release(false)
	}
	if w.gzip != nil {
		_ = w.gzip.Close() // the connection is gone, and so is the one to tell
		w.offer.Put(w.gzip)
		w.gzip = nil
	}
}

func (w *response) release(compress bool) {
	w.held = false
	h := w.Header()
	h.Add("Vary", "Accept-Encoding")
	if compress {
		h.Set("Content-Encoding", "gzip")
		h.Del("Content-Length")
		w.gzip = w.offer.Get().(*gzip.Writer)
		w.gzip.Reset(w.ResponseWriter)
	}
	w.ResponseWriter.WriteHeader(w.status)
}

// compressible reports whether an answer is JSON with a body that nobody has encoded yet. Streams never are.
func compressible(status int, h http.Header) bool {
	if status == http.StatusNoContent || status == http.StatusNotModified || h.Get("Content-Encoding") != "" {
		return false
	}
	kind, _, _ := strings.Cut(h.Get("Content-Type"), ";")
	return kind == "application/json" || kind == "application/problem+json"
}

// wantsGzip reports whether r's client asked for gzip and is not on this machine, where compressing costs more than
// it saves (Go's client asks for it unbidden).
func wantsGzip(r *http.Request) bool {
	accept := r.Header["Accept-Encoding"]
	return len(accept) != 0 && r.Method != http.MethodHead && acceptsGzip(accept) && !fromLoopback(r)
}

func acceptsGzip(accept []string) bool {
	for _, line := range accept {
		for entry := range strings.SplitSeq(line, ",") {
			coding, weight, _ := strings.Cut(entry, ";")
			if !strings.EqualFold(strings.TrimSpace(coding), "gzip") {
				continue
			}
			q, weighed := strings.CutPrefix(strings.TrimSpace(weight), "q=")
			zero := strings.Trim(q, "0.") == ""
			return !weighed || !zero
		}
	}
	return false
}
