package main

import (
	stdlog "log"
	"strings"

	"github.com/rs/zerolog"
)

// stdLogger passes on what net/http has to say.
func stdLogger(log zerolog.Logger) *stdlog.Logger { return stdlog.New(lineWriter{log}, "", 0) }

type lineWriter struct{ log zerolog.Logger }

func (w lineWriter) Write(p []byte) (int, error) {
	w.log.Debug().Msg(strings.TrimSpace(string(p)))
	return len(p), nil
}
