package main

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/http"
	"net/netip"
	"net/url"
	"os"
	"runtime/debug"
	"strings"
	"time"

	"github.com/rs/zerolog"
	"github.com/spf13/cobra"
	"golang.org/x/sync/errgroup"

	"github.com/flowapi/flowapi/internal/app"
	"github.com/flowapi/flowapi/internal/repo/keyring"
)

// The server's time limits. Streams set their own.
const (
	readHeaderTimeout = 5 * time.Second
	readTimeout       = time.Minute
	writeTimeout      = 2 * time.Minute // the longest long poll, the longest change that may end it, and the answer
	idleTimeout       = 2 * time.Minute
	shutdownTimeout   = 8 * time.Second
)

// serveConfig is what the operator decides about a server.
type serveConfig struct {
	addr      string
	database  string
	publicURL string
	token     string // FLOWAPI_TOKEN only: a flag would show in the process list
	secret    string // FLOWAPI_WAITPOINT_SECRET only, as the token
	logLevel  string
}

func serveCommand(env environment) *cobra.Command {
	cfg := serveConfig{token: env.getenv("FLOWAPI_TOKEN"), secret: env.getenv("FLOWAPI_WAITPOINT_SECRET")}
	cmd := &cobra.Command{
		Use:   "serve",
		Short: "Run the server",
		Long: `Run the server.

Two secrets come by environment variables only: FLOWAPI_TOKEN, an admin token that is valid beside the stored ones, and
FLOWAPI_WAITPOINT_SECRET, 64 hex digits or more that seal the secrets of waitpoint tokens.`,
		Args: noArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			return serve(cmd.Context(), cfg, env)
		},
	}
	flags := cmd.Flags()
	flags.StringVar(&cfg.addr, "addr", env.flag("FLOWAPI_ADDR", "127.0.0.1:8080"), "address to listen on (FLOWAPI_ADDR)")
	flags.StringVar(&cfg.database, "db", env.flag("FLOWAPI_DATABASE_URL", "flowapi.db"), "SQLite file or postgres://… (FLOWAPI_DATABASE_URL)")
	flags.StringVar(&cfg.publicURL, "public-url", env.flag("FLOWAPI_PUBLIC_URL", ""), "where people reach this server, for the links of approvals (FLOWAPI_PUBLIC_URL)")
	flags.StringVar(&cfg.logLevel, "log-level", env.flag("FLOWAPI_LOG_LEVEL", "info"), "debug, info, warn or error (FLOWAPI_LOG_LEVEL)")
	return cmd
}

// gcPercent lets the heap, which is small, grow further between two collections than Go does by itself: a third of the cost of
// a request was collecting what the last few had left. GOGC overrides it.
const gcPercent = 400

// serve runs a server until ctx ends, then drains it.
func serve(ctx context.Context, cfg serveConfig, env environment) error {
	if env.getenv("GOGC") == "" {
		debug.SetGCPercent(gcPercent)
	}
	level, err := zerolog.ParseLevel(cfg.logLevel)
	if err != nil {
		return usageError{fmt.Errorf("--log-level: %w", err)}
	}
	if u, err := url.Parse(cfg.publicURL); cfg.publicURL != "" && (err != nil || u.Host == "" || u.Scheme != "http" && u.Scheme != "https") {
		return usageError{fmt.Errorf("--public-url: %q is not an http or https address", cfg.publicURL)}
	}
	var master keyring.Master
	if cfg.secret != "" {
		if master.Secret, err = keyring.ParseMaster(cfg.secret); err != nil {
			return usageError{fmt.Errorf("FLOWAPI_WAITPOINT_SECRET: %w", err)}
		}
	}
	log := zerolog.New(env.err).Level(level).With().Timestamp().Logger()
	fatal := func(err error) {
		log.Error().Err(err).Msg("the database cannot be trusted any more, stopping at once")
		os.Exit(exitFailed)
	}
	a, err := app.Open(ctx, app.Config{DatabaseURL: cfg.database, PublicURL: strings.TrimRight(cfg.publicURL, "/"), Token: cfg.token, Waitpoints: master, Version: version(),
		Log: log, Fatal: fatal})
	if err != nil {
		return err
	}
	defer func() {
		if err := a.Close(); err != nil {
			log.Error().Err(err).Msg("the database was not closed cleanly")
		}
	}()
	listener, err := (&net.ListenConfig{}).Listen(ctx, "tcp", cfg.addr)
	if err != nil {
		return err
	}
	if a.Anonymous() {
		if !loopback(listener.Addr()) {
			return errors.Join(fmt.Errorf("%s can be reached from other machines and there is no admin token: set FLOWAPI_TOKEN, "+
				"or serve on 127.0.0.1 and make one with: flowapi token create --role admin --name first", cfg.addr), listener.Close())
		}
		log.Warn().Msg("no admin token exists: every caller on this machine is admin; make one with: flowapi token create --role admin --name first")
	}
	return serveOn(ctx, listener, a, log)
}

func serveOn(ctx context.Context, listener net.Listener, a *app.App, log zerolog.Logger) error {
	server := &http.Server{
		Handler: a.Handler, ReadHeaderTimeout: readHeaderTimeout, ReadTimeout: readTimeout, WriteTimeout: writeTimeout, IdleTimeout: idleTimeout,
		ErrorLog: stdLogger(log),
	}
	server.RegisterOnShutdown(a.Drain)
	loops, stopLoops := context.WithCancel(context.WithoutCancel(ctx))
	defer stopLoops()
	g, ctx := errgroup.WithContext(ctx)
	g.Go(func() error { return a.Run(loops) })
	g.Go(func() error {
		if err := server.Serve(listener); !errors.Is(err, http.ErrServerClosed) {
			return err
		}
		return nil
	})
	g.Go(func() error {
		<-ctx.Done()
		log.Info().Msg("draining")
		timeout, cancel := context.WithTimeout(context.WithoutCancel(ctx), shutdownTimeout)
		defer cancel()
		err := server.Shutdown(timeout)
		if errors.Is(err, context.DeadlineExceeded) {
			log.Warn().Msg("requests are still under way, closing their connections")
			err = server.Close()
		}
		stopLoops()
		return err
	})
	log.Info().Str("addr", listener.Addr().String()).Str("url", "http://"+listener.Addr().String()).Msg("serving")
	return g.Wait()
}

// loopback says whether only this machine can reach addr.
func loopback(addr net.Addr) bool {
	ap, err := netip.ParseAddrPort(addr.String())
	return err == nil && ap.Addr().Unmap().IsLoopback()
}

func noArgs(_ *cobra.Command, args []string) error {
	if len(args) > 0 {
		return usageError{fmt.Errorf("unexpected argument: %s", strings.Join(args, " "))}
	}
	return nil
}
