package waitpoint_test

import (
	"encoding/hex"
	"encoding/json"
	"fmt"
	"strings"
	"testing"

	"github.com/flowapi/flowapi/internal/domain/fault"
	"github.com/flowapi/flowapi/internal/domain/waitpoint"
)

// FuzzToken: a token has one spelling in a body and one in a link, shows neither by itself, and opens nothing unless it was made
// with the secret.
func FuzzToken(f *testing.F) {
	for _, seed := range []string{"", ":", aText, aWaitpoint.String() + ".k1." + aDigest, "k1:" + strings.ToUpper(aDigest), aText + "\n", "k.1:" + aDigest, "k2:" + aDigest,
		"urn:uuid:" + aWaitpoint.String() + ".k1." + aDigest, strings.Repeat("k", 65) + ":" + aDigest} {
		f.Add(seed)
	}
	r := ring()
	f.Fuzz(func(t *testing.T, text string) {
		if token, err := waitpoint.ParseToken(text); err != nil {
			if fault.CodeOf(err) != fault.CodeInvalidToken || !token.IsZero() {
				t.Fatalf("refused with %v, and yet %v", err, token)
			}
		} else {
			digits := token.Reveal()[len(token.Kid())+1:]
			shown, err := json.Marshal(token)
			if token.Reveal() != text || err != nil || strings.Contains(fmt.Sprintf("%v %s %x %#v", token, shown, token, []any{token}), digits) {
				t.Fatalf("%q is shown as %v and %s", text, token, shown)
			}
		}
		if id, token, err := waitpoint.ParseLink(text); err != nil {
			if fault.CodeOf(err) != fault.CodeInvalidToken || !token.IsZero() {
				t.Fatalf("the link is refused with %v, and yet %v", err, token)
			}
		} else if token.Link(id) != text {
			t.Fatalf("the link %q is written as %q", text, token.Link(id))
		}
		if err := r.Verify(text, anExecution, aWaitpoint, start); (err == nil) != (text == aText) {
			t.Fatalf("%q opens the waitpoint: %v", text, err)
		}
	})
}

// FuzzSecret: a secret is the bytes that its digits say, and nothing that is printed or refused repeats them.
func FuzzSecret(f *testing.F) {
	for _, seed := range []string{"", strings.Repeat("0b", waitpoint.MinSecret), strings.Repeat("0B", waitpoint.MaxSecret), strings.Repeat("0b", waitpoint.MaxSecret+1), strings.Repeat("0", 65),
		" " + strings.Repeat("0b", waitpoint.MinSecret)} {
		f.Add(seed)
	}
	f.Fuzz(func(t *testing.T, text string) {
		secret, err := waitpoint.ParseSecret("/secret", text)
		if err != nil {
			if fault.CodeOf(err) != fault.CodeValidationFailed || !secret.IsZero() || len(text) > 8 && strings.Contains(err.Error(), text) {
				t.Fatalf("refused with %v, and yet %v", err, secret)
			}
			return
		}
		if digits := hex.EncodeToString(secret.Reveal()); !strings.EqualFold(digits, text) || strings.Contains(fmt.Sprintf("%v %x %#v", secret, secret, []any{secret}), digits) {
			t.Fatalf("%q is read as %v", text, secret)
		}
	})
}
