package waitpoint

import (
	"bytes"
	"crypto/subtle"
	"encoding/hex"
	"fmt"
	"io"

	"github.com/flowapi/flowapi/internal/domain/fault"
)

// The sizes of a secret, in bytes. Who has one token can try secrets at home, as fast as machines go: one shorter than the
// digest would be the weakest part. Beyond its block of 64 bytes HMAC hashes the secret first; 128 are room enough.
const (
	MinSecret = 32
	MaxSecret = 128
)

// Secret is what tokens are made with. It shows itself only by [Secret.Reveal].
type Secret struct{ raw hidden }

// ParseSecret reads hex digits, two for a byte. pointer is where they stand in the request. It returns CodeValidationFailed, which
// does not repeat them.
func ParseSecret(pointer, text string) (Secret, error) {
	raw, err := hex.DecodeString(text)
	if err != nil || len(raw) < MinSecret || len(raw) > MaxSecret {
		return Secret{}, fault.Invalid(fault.CodeValidationFailed, pointer, "The secret must be %d to %d hex digits, an even number of them.", 2*MinSecret, 2*MaxSecret)
	}
	return SecretOf(raw), nil
}

// SecretOf returns the secret of these bytes.
func SecretOf(raw []byte) Secret { return Secret{hide(bytes.Clone(raw))} }

// IsZero says whether s is no secret.
func (s Secret) IsZero() bool { return len(s.Reveal()) == 0 }

// Reveal returns the secret itself, for whoever seals it. It must not be changed.
func (s Secret) Reveal() []byte {
	if s.raw == nil {
		return nil
	}
	return s.raw()
}

// Equal compares secrets of one length in a time that does not depend on their content.
func (s Secret) Equal(other Secret) bool {
	return subtle.ConstantTimeCompare(s.Reveal(), other.Reveal()) == 1
}

// String returns nothing of the secret.
func (s Secret) String() string { return fmt.Sprintf("<REDACTED:len=%d>", len(s.Reveal())) }

// GoString is String, for %#v.
func (s Secret) GoString() string { return s.String() }

// Format is String, for every verb: %x and %d would print the bytes.
func (s Secret) Format(f fmt.State, _ rune) { _, _ = io.WriteString(f, s.String()) }

// MarshalText is String, for JSON and for loggers, which use that.
func (s Secret) MarshalText() ([]byte, error) { return []byte(s.String()), nil }
