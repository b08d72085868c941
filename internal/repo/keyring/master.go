package keyring

import (
	"crypto/rand"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"runtime"
	"strings"
)

// MinMaster is the size of the smallest master secret, in bytes.
const MinMaster = 32

// posix says whether files have permission bits, and folders can be synced.
const posix = runtime.GOOS != "windows"

// Master is the secret that the stored ones are sealed with, or where it is.
type Master struct {
	Secret []byte // given by the operator; nil for that of the file
	File   string // made at the first start
}

// name says where the secret comes from.
func (m Master) name() string {
	if m.Secret != nil {
		return "FLOWAPI_WAITPOINT_SECRET"
	}
	return m.File
}

// ParseMaster reads the hex digits of a master secret. Its errors do not repeat them.
func ParseMaster(text string) ([]byte, error) {
	secret, err := hex.DecodeString(strings.TrimSpace(text))
	if err != nil || len(secret) < MinMaster {
		return nil, fmt.Errorf("it must be at least %d hex digits, an even number of them, such as `openssl rand -hex %d` prints", 2*MinMaster, MinMaster)
	}
	return secret, nil
}

// read returns the master secret. It makes the file when it is not there and may be made.
func (m Master) read(create bool) ([]byte, error) {
	if m.Secret != nil {
		return m.Secret, nil
	}
	secret, err := readMaster(m.File)
	if !errors.Is(err, fs.ErrNotExist) {
		return secret, err
	}
	if !create {
		return nil, fmt.Errorf("the file %s is missing, which opens the waitpoint secrets of this database: put it back from your backup, or set FLOWAPI_WAITPOINT_SECRET "+
			"to what it held; if it is lost, %s", m.File, startAnew)
	}
	if err := makeMaster(m.File); err != nil {
		return nil, fmt.Errorf("make the file %s for the master secret (or set FLOWAPI_WAITPOINT_SECRET): %w", m.File, err)
	}
	return readMaster(m.File) // ours, or that of another process which was there first
}

// readMaster reads the file, unless others can.
func readMaster(name string) ([]byte, error) {
	file, err := os.Open(name) //nolint:gosec // the file that the operator names
	if err != nil {
		return nil, err
	}
	defer file.Close()
	info, err := file.Stat()
	if err != nil {
		return nil, err
	}
	if mode := info.Mode().Perm(); mode&0o077 != 0 && posix {
		return nil, fmt.Errorf("the secret in %s can be read by others (mode %04o): chmod 600 it, and replace it if they may have", name, mode)
	}
	text, err := io.ReadAll(io.LimitReader(file, 64<<10))
	if err != nil {
		return nil, err
	}
	secret, err := ParseMaster(string(text))
	if err != nil {
		return nil, fmt.Errorf("the file %s does not hold a secret: %w", name, err)
	}
	return secret, nil
}

// makeMaster makes the file with a random secret. It is there as a whole and durable, or not at all; one that is there stays.
func makeMaster(name string) (err error) {
	draft, err := os.CreateTemp(filepath.Dir(name), filepath.Base(name)+".*.tmp") // exclusive, mode 0600
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, os.Remove(draft.Name())) }()
	var secret [MinMaster]byte
	_, _ = rand.Read(secret[:])
	_, err = draft.WriteString(hex.EncodeToString(secret[:]) + "\n")
	if err = errors.Join(err, draft.Sync(), draft.Close()); err != nil {
		return err
	}
	if err := os.Link(draft.Name(), name); err != nil && !errors.Is(err, fs.ErrExist) {
		return err
	}
	if !posix {
		return nil
	}
	folder, err := os.Open(filepath.Dir(name))
	if err != nil {
		return err
	}
	return errors.Join(folder.Sync(), folder.Close())
}
