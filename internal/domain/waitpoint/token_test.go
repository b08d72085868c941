package waitpoint_test

import (
	"encoding/json"
	"fmt"
	"strings"
	"testing"

	"github.com/google/uuid"

	"github.com/flowapi/flowapi/internal/domain/fault"
	"github.com/flowapi/flowapi/internal/domain/waitpoint"
)

var (
	anExecution = uuid.MustParse("01985c3e-7b20-7d41-8a63-5e2c9f7b1c02")
	aWaitpoint  = uuid.MustParse("01985c3e-7b20-7d41-8a63-5e2c9f7b1c0a")
)

const (
	// of printf 'k1:01985c3e-7b20-7d41-8a63-5e2c9f7b1c02:01985c3e-7b20-7d41-8a63-5e2c9f7b1c0a' | openssl dgst -sha256 -mac hmac -macopt hexkey:0b0b…
	aDigest = "903a95f2f96d77d6f3486c65556c8ad60f8562e6cc2a625c82e15d951ed01178"
	aText   = "k1:" + aDigest
)

func secretOf(b byte) waitpoint.Secret {
	return waitpoint.SecretOf([]byte(strings.Repeat(string(rune(b)), waitpoint.MinSecret)))
}

// ring is one with the secret 0b0b… as k1.
func ring() waitpoint.Ring {
	return waitpoint.RingOf([]waitpoint.Key{{Kid: "k1", Secret: secretOf(0x0b), Current: true, CreatedAt: start}})
}

// TestToken: what a token is made of, as others compute it. executions.md 2.13.
func TestToken(t *testing.T) {
	t.Parallel()
	token, err := ring().Mint(anExecution, aWaitpoint)
	if err != nil || token.Reveal() != aText || token.Kid() != "k1" || token.Fingerprint() != aDigest[:16] || token.IsZero() {
		t.Fatalf("%s, %v", token.Reveal(), err)
	}
	if got, err := waitpoint.ParseToken(aText); err != nil || !got.Equal(token) {
		t.Errorf("ParseToken = %v, %v", got, err)
	}
	link := aWaitpoint.String() + ".k1." + aDigest
	if got := token.Link(aWaitpoint); got != link {
		t.Errorf("Link = %s", got)
	}
	if id, got, err := waitpoint.ParseLink(link); err != nil || id != aWaitpoint || !got.Equal(token) {
		t.Errorf("ParseLink = %s, %v, %v", id, got, err)
	}
}

func TestParse_refused(t *testing.T) {
	t.Parallel()
	id := aWaitpoint.String()
	want := ring().Verify("", anExecution, aWaitpoint, start).Error()
	for _, text := range []string{
		"", ":", "k1", "k1:", ":" + aDigest, aDigest, "k1" + aDigest, "k1:" + aDigest[1:], "k1:0" + aDigest, "k1:" + strings.ToUpper(aDigest), "k1:" + aDigest + "\n", " " + aText,
		"k1::" + aDigest, "a:k1:" + aDigest, "k.1:" + aDigest, "k/1:" + aDigest, "k 1:" + aDigest, "k\x001:" + aDigest, "kü:" + aDigest, strings.Repeat("k", 65) + ":" + aDigest,
		"k1:" + strings.Repeat("g", 64), "k1.", strings.Repeat(":", 100_000), strings.Repeat("k", 1<<20),
	} {
		if _, err := waitpoint.ParseToken(text); fault.CodeOf(err) != fault.CodeInvalidToken || err.Error() != want {
			t.Errorf("ParseToken(%.80q) = %v", text, err)
		}
		if err := ring().Verify(text, anExecution, aWaitpoint, start); fault.CodeOf(err) != fault.CodeInvalidToken || err.Error() != want {
			t.Errorf("Verify(%.80q) = %v", text, err)
		}
	}
	for _, text := range []string{
		"", "..", id, id + ".k1", id + ".k1." + aDigest + ".", "." + id + ".k1." + aDigest, strings.ToUpper(id) + ".k1." + aDigest, "{" + id + "}.k1." + aDigest,
		"urn:uuid:" + id + ".k1." + aDigest, strings.ReplaceAll(id, "-", "") + ".k1." + aDigest, id + ".k.1." + aDigest, id + "." + aText, id + ".k1." + aDigest[2:], id + "..k1." + aDigest,
	} {
		if _, _, err := waitpoint.ParseLink(text); fault.CodeOf(err) != fault.CodeInvalidToken || err.Error() != want {
			t.Errorf("ParseLink(%q) = %v", text, err)
		}
	}
}

// TestRedacted: whoever prints a token or a secret, or what holds one, prints nothing of it. engine.md "Security".
func TestRedacted(t *testing.T) {
	t.Parallel()
	token, err := ring().Mint(anExecution, aWaitpoint)
	if err != nil {
		t.Fatal(err)
	}
	secret := waitpoint.SecretOf([]byte("0123456789abcdef0123456789abcdef"))
	holder := struct {
		Token  waitpoint.Token
		Ptr    *waitpoint.Token
		Secret waitpoint.Secret
		Key    waitpoint.Key
		Tokens map[string]waitpoint.Token
		Raw    waitpoint.Ring
		hidden waitpoint.Token
	}{Token: token, Ptr: &token, hidden: token, Secret: secret, Key: waitpoint.Key{Kid: "k1", Secret: secret}, Raw: waitpoint.RingOf([]waitpoint.Key{{Kid: "k1", Secret: secret, Current: true}}),
		Tokens: map[string]waitpoint.Token{"a": token}}
	var printed []string
	for _, verb := range []string{"%v", "%+v", "%#v", "%s", "%q", "%x", "%X", "%d", "%o", "%b", "%t", "%c"} {
		for _, v := range []any{token, &token, secret, &secret, holder, &holder, holder.Key} {
			printed = append(printed, fmt.Sprintf(verb, v))
		}
	}
	_ = holder.hidden
	document, err := json.Marshal(holder)
	if err != nil {
		t.Fatal(err)
	}
	tokens, err := json.Marshal([]any{token, secret})
	if err != nil {
		t.Fatal(err)
	}
	printed = append(printed, string(document), string(tokens), fmt.Sprint(token, secret), token.String(), token.GoString(), secret.String(), secret.GoString())
	decimal := fmt.Sprintf("%d %d", 0x90, 0x3a)
	for _, text := range printed {
		if strings.Contains(strings.ToLower(text), aDigest[:8]) || strings.Contains(text, decimal) || strings.Contains(text, "0123456789abcdef") ||
			strings.Contains(text, "30313233") || strings.Contains(text, "48 49 50") {
			t.Errorf("it is shown: %s", text)
		}
	}
	if got := token.String(); got != "k1:<REDACTED:len=64>" {
		t.Errorf("String = %s", got)
	}
	if got := secret.String(); got != "<REDACTED:len=32>" {
		t.Errorf("String = %s", got)
	}
	if got := (waitpoint.Token{}); got.String() != ":<REDACTED:len=0>" || got.Reveal()+got.Link(aWaitpoint)+got.Fingerprint() != "" || !got.IsZero() || got.Equal(token) || !got.Equal(waitpoint.Token{}) {
		t.Errorf("no token is %s", got)
	}
	if got := (waitpoint.Secret{}); got.String() != "<REDACTED:len=0>" || !got.IsZero() || got.Equal(secret) {
		t.Errorf("no secret is %s", got)
	}
}

func TestParseSecret(t *testing.T) {
	t.Parallel()
	for _, text := range []string{strings.Repeat("0b", 32), strings.Repeat("AB", 64), strings.Repeat("aB", 128)} {
		if s, err := waitpoint.ParseSecret("/x", text); err != nil || len(s.Reveal()) != len(text)/2 || s.IsZero() {
			t.Errorf("ParseSecret(%s) = %v", text, err)
		}
	}
	for _, text := range []string{"", "0b", strings.Repeat("0b", 31), strings.Repeat("0b", 32) + "0", strings.Repeat("0b", 129), strings.Repeat("0g", 32), "0x" + strings.Repeat("0b", 32)} {
		_, err := waitpoint.ParseSecret("/x", text)
		if fault.CodeOf(err) != fault.CodeValidationFailed || len(text) > 4 && strings.Contains(err.Error(), text) {
			t.Errorf("ParseSecret(%s) = %v", text, err)
		}
	}
}
