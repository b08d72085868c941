package storetest

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"sync"
	"syscall"
	"time"
)

// cluster returns the URL of the PostgreSQL server of this test binary, which it starts at the first call. The server ends
// with the process that started it.
var cluster = sync.OnceValues(func() (string, error) {
	if url := os.Getenv("FLOWAPI_TEST_POSTGRES_URL"); url != "" {
		return url, nil
	}
	bin, err := binaries()
	if err != nil {
		return "", err
	}
	return start(bin)
})

// binaries returns the folder of initdb and postgres.
func binaries() (string, error) {
	folders, _ := filepath.Glob("/usr/lib/postgresql/*/bin")
	for _, folder := range slices.Backward(folders) {
		if _, err := os.Stat(filepath.Join(folder, "initdb")); err == nil {
			return folder, nil
		}
	}
	initdb, err := exec.LookPath("initdb")
	if err != nil {
		return "", errors.New("neither FLOWAPI_TEST_POSTGRES_URL nor initdb")
	}
	return filepath.Dir(initdb), nil
}

// start makes a cluster in a new folder and runs it, as the unprivileged user nobody when we are root.
func start(bin string) (string, error) {
	dir, err := os.MkdirTemp("", "flowapi-postgres-")
	if err != nil {
		return "", err
	}
	attr := &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL}
	if os.Getuid() == 0 {
		const nobody = 65534
		if err := os.Chown(dir, nobody, nobody); err != nil {
			return "", err
		}
		attr.Credential = &syscall.Credential{Uid: nobody, Gid: nobody}
	}
	data := filepath.Join(dir, "data")
	command := func(name string, args ...string) *exec.Cmd {
		cmd := exec.Command(filepath.Join(bin, name), args...) //nolint:noctx // a program of the test's own
		cmd.SysProcAttr, cmd.Dir = attr, dir
		cmd.Env = []string{"PATH=" + os.Getenv("PATH"), "HOME=" + dir, "LC_ALL=C"}
		return cmd
	}
	if out, err := command("initdb", "-D", data, "-U", "flowapi", "-A", "trust", "-E", "UTF8", "--no-sync").CombinedOutput(); err != nil {
		return "", fmt.Errorf("initdb: %w: %s", err, out)
	}
	port, err := freePort()
	if err != nil {
		return "", err
	}
	// The guard removes the cluster when this process ends, however it ends: its standard input is our pipe.
	guard := command("postgres", "-D", data, "-k", dir, "-h", "127.0.0.1", "-p", strconv.Itoa(port), "-c", "max_connections=500",
		"-c", "fsync=off", "-c", "full_page_writes=off", "-c", "wal_level=minimal", "-c", "max_wal_senders=0", "-c", "jit=off")
	script := `"$@" & pid=$!; cat >/dev/null; kill -QUIT $pid; wait $pid; rm -rf "$0"`
	guard.Path, guard.Args = "/bin/sh", append([]string{"sh", "-c", script, dir, guard.Path}, guard.Args[1:]...)
	guard.SysProcAttr.Pdeathsig = 0
	guard.SysProcAttr.Setpgid = true
	stdin, err := guard.StdinPipe()
	if err != nil {
		return "", err
	}
	log, err := os.Create(filepath.Join(dir, "log"))
	if err != nil {
		return "", err
	}
	defer log.Close()
	guard.Stderr = log
	if err := guard.Start(); err != nil {
		return "", err
	}
	keep = stdin
	if err := await(port); err != nil {
		text, _ := os.ReadFile(log.Name())
		return "", fmt.Errorf("%w: %s", err, text)
	}
	return urlOf(port), nil
}

// keep holds the guard's standard input open for as long as this process lives.
var keep interface{ Close() error } //nolint:unused // see above

func urlOf(port int) string {
	return fmt.Sprintf("postgres://flowapi@127.0.0.1:%d/postgres?sslmode=disable", port)
}

func freePort() (int, error) {
	l, err := net.Listen("tcp", "127.0.0.1:0") //nolint:noctx // a moment
	if err != nil {
		return 0, err
	}
	defer l.Close()
	return l.Addr().(*net.TCPAddr).Port, nil //nolint:forcetypeassert // of a TCP listener
}

// await returns as soon as the server answers.
func await(port int) error {
	db, err := sql.Open("pgx", urlOf(port))
	if err != nil {
		return err
	}
	defer db.Close()
	ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
	defer cancel()
	for {
		if err = db.PingContext(ctx); err == nil {
			return nil
		}
		select {
		case <-ctx.Done():
			return fmt.Errorf("PostgreSQL does not start: %w", err)
		case <-time.After(20 * time.Millisecond):
		}
	}
}
