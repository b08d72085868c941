// Package waitpoint holds the tokens by which somebody outside may signal a waitpoint, and the ring of secrets that they are
// made with.
//
// A token is `<kid>:<64 lower-case hex digits>`, the HMAC-SHA256 of kid, execution and waitpoint under the secret of that kid.
// Nothing of it is stored: who has the ring can make it again, and who has not can make none.
package waitpoint

import (
	"crypto/hmac"
	"crypto/sha256"
	"crypto/subtle"
	"encoding/hex"
	"fmt"
	"io"
	"strings"

	"github.com/google/uuid"

	"github.com/flowapi/flowapi/internal/domain/fault"
)

// maxKid is the length of the longest kid, in bytes.
const maxKid = 64

// Token opens one waitpoint of one execution. It shows itself only by [Token.Reveal] and [Token.Link]: printed, logged or made
// JSON, it is redacted.
type Token struct {
	kid    string
	digest hidden
}

// hidden is bytes that nothing prints: whoever has a token in an unexported field is printed without asking the token, and of a
// function there is nothing to see but its address.
type hidden func() []byte

func hide(b []byte) hidden { return func() []byte { return b } }

// ParseToken reads what Reveal wrote, to the letter. It returns CodeInvalidToken.
func ParseToken(text string) (Token, error) {
	kid, digits, ok := strings.Cut(text, ":")
	if !ok || !validKid(kid) || len(digits) != 2*sha256.Size || !lowerHex(digits) {
		return Token{}, errToken()
	}
	digest, err := hex.DecodeString(digits)
	if err != nil {
		return Token{}, errToken()
	}
	return Token{kid: kid, digest: hide(digest)}, nil
}

// ParseLink reads what Link wrote, to the letter. It returns CodeInvalidToken.
func ParseLink(text string) (waitpoint uuid.UUID, t Token, err error) {
	parts := strings.Split(text, ".")
	if len(parts) != 3 {
		return uuid.Nil, Token{}, errToken()
	}
	waitpoint, err = uuid.Parse(parts[0])
	if err != nil || waitpoint.String() != parts[0] {
		return uuid.Nil, Token{}, errToken()
	}
	t, err = ParseToken(parts[1] + ":" + parts[2])
	if err != nil {
		return uuid.Nil, Token{}, err
	}
	return waitpoint, t, nil
}

// errToken is the one answer for whatever is wrong with a token.
func errToken() error {
	return fault.New(fault.CodeInvalidToken, "The token does not open this waitpoint. Use the one that was given out with it; one of a secret that was replaced may be over.")
}

// Kid names the secret that the token was made with.
func (t Token) Kid() string { return t.kid }

// IsZero says whether t is no token.
func (t Token) IsZero() bool { return t.digest == nil }

// Equal compares tokens, in a time that does not depend on their secret part.
func (t Token) Equal(other Token) bool {
	if t.IsZero() || other.IsZero() {
		return t.IsZero() == other.IsZero()
	}
	return t.kid == other.kid && subtle.ConstantTimeCompare(t.digest(), other.digest()) == 1
}

// Reveal returns the token itself, for whom it is meant; "" for none.
func (t Token) Reveal() string {
	if t.IsZero() {
		return ""
	}
	return t.kid + ":" + hex.EncodeToString(t.digest())
}

// ApprovePath is where the links of approvals lead: what follows is [Token.Link].
const ApprovePath = "/approve/"

// Link returns the token with what it is for, as the last part of a path: `<waitpoint_id>.<kid>.<hex>`. It is as secret as Reveal.
func (t Token) Link(waitpoint uuid.UUID) string {
	if t.IsZero() {
		return ""
	}
	return waitpoint.String() + "." + t.kid + "." + hex.EncodeToString(t.digest())
}

// Fingerprint tells tokens apart where they may be seen, in logs and audits: a quarter of the digest, which opens nothing.
func (t Token) Fingerprint() string {
	if t.IsZero() {
		return ""
	}
	return hex.EncodeToString(t.digest()[:8])
}

// String returns the token without its secret part.
func (t Token) String() string {
	size := 2 * sha256.Size
	if t.IsZero() {
		size = 0
	}
	return fmt.Sprintf("%s:<REDACTED:len=%d>", t.kid, size)
}

// GoString is String, for %#v.
func (t Token) GoString() string { return t.String() }

// Format is String, for every verb: %x and %d would print the bytes.
func (t Token) Format(s fmt.State, _ rune) { _, _ = io.WriteString(s, t.String()) }

// MarshalText is String, for JSON and for loggers, which use that.
func (t Token) MarshalText() ([]byte, error) { return []byte(t.String()), nil }

// sign makes a token.
func sign(secret Secret, kid, what string) Token {
	mac := hmac.New(sha256.New, secret.Reveal())
	_, _ = io.WriteString(mac, kid+":"+what)
	return Token{kid: kid, digest: hide(mac.Sum(nil))}
}

// validKid says whether a kid can stand in a token, in a link and in a path without being quoted.
func validKid(kid string) bool {
	if kid == "" || len(kid) > maxKid {
		return false
	}
	for i := range len(kid) {
		c := kid[i]
		if (c < 'a' || c > 'z') && (c < 'A' || c > 'Z') && (c < '0' || c > '9') && c != '_' && c != '-' {
			return false
		}
	}
	return true
}

func lowerHex(s string) bool {
	for i := range len(s) {
		if c := s[i]; (c < '0' || c > '9') && (c < 'a' || c > 'f') {
			return false
		}
	}
	return true
}
