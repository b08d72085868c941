package keyring

import (
	"crypto/aes"
	"crypto/cipher"
	"crypto/hkdf"
	"crypto/rand"
	"crypto/sha256"
	"errors"
	"fmt"
	"sync"

	"github.com/flowapi/flowapi/internal/domain/waitpoint"
)

const (
	sealVersion = 1
	sealPurpose = "flowapi waitpoint secrets v1" // what else is derived from the master secret is for another purpose
	openedLimit = 1000
)

// sealer seals secrets for the database, and opens them.
type sealer struct {
	aead cipher.AEAD

	mu     sync.Mutex
	opened map[string]waitpoint.Secret // by kid and sealed bytes: each signal reads the ring
}

func newSealer(master []byte) (*sealer, error) {
	if len(master) < MinMaster {
		return nil, fmt.Errorf("the master secret has %d bytes, and needs %d", len(master), MinMaster)
	}
	key, err := hkdf.Key(sha256.New, master, nil, sealPurpose, 32)
	if err != nil {
		return nil, fmt.Errorf("derive the key: %w", err)
	}
	block, err := aes.NewCipher(key)
	if err != nil {
		return nil, err
	}
	aead, err := cipher.NewGCM(block)
	if err != nil {
		return nil, err
	}
	return &sealer{aead: aead, opened: map[string]waitpoint.Secret{}}, nil
}

// seal returns a version, a nonce and the secret, encrypted so that it opens under its own kid only.
func (s *sealer) seal(kid string, secret waitpoint.Secret) []byte {
	sealed := make([]byte, 1+s.aead.NonceSize())
	sealed[0] = sealVersion
	_, _ = rand.Read(sealed[1:])
	return s.aead.Seal(sealed, sealed[1:], secret.Reveal(), []byte(kid)) //nolint:gosec // the nonce is drawn anew, two lines above
}

// errSealed is the error of a secret that this master secret does not open.
var errSealed = errors.New("it is sealed with another master secret, or damaged")

func (s *sealer) open(kid string, sealed []byte) (waitpoint.Secret, error) {
	key := kid + ":" + string(sealed)
	s.mu.Lock()
	defer s.mu.Unlock()
	if secret, ok := s.opened[key]; ok {
		return secret, nil
	}
	if head := 1 + s.aead.NonceSize(); len(sealed) > head && sealed[0] == sealVersion {
		if raw, err := s.aead.Open(nil, sealed[1:head], sealed[head:], []byte(kid)); err == nil {
			if len(s.opened) >= openedLimit {
				clear(s.opened)
			}
			s.opened[key] = waitpoint.SecretOf(raw)
			return s.opened[key], nil
		}
	}
	return waitpoint.Secret{}, errSealed
}
