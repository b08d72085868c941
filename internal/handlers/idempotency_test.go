package handlers

import (
	"net/http/httptest"
	"strings"
	"testing"

	"github.com/flowapi/flowapi/internal/domain/fault"
)

func TestIdempotencyOf(t *testing.T) {
	t.Parallel()
	request := func(method, target, key string) [32]byte {
		r := httptest.NewRequest(method, target, nil)
		r.Header.Set("Idempotency-Key", key)
		got, err := idempotencyOf(r, []byte("body"))
		if err != nil || got == nil || got.Key != key {
			t.Fatalf("%s %s %q = %v, %v", method, target, key, got, err)
		}
		return got.Hash
	}
	one := request("POST", "/v1/flows", "k")
	if request("POST", "/v1/flows", "other") != one {
		t.Error("the hash depends on the key")
	}
	if request("POST", "/v1/flows?dry_run=true", "k") == one || request("POST", "/v1/claims", "k") == one {
		t.Error("the hash does not depend on path and query")
	}
	r := httptest.NewRequest("POST", "/v1/flows", nil)
	r.Header.Set("Idempotency-Key", "k")
	if other, _ := idempotencyOf(r, []byte("other")); other.Hash == one {
		t.Error("the hash does not depend on the body")
	}

	for key, ok := range map[string]bool{"": false, strings.Repeat("k", 255): true, strings.Repeat("k", 256): false, "a\tb": false, "ä": false, "a b": true} {
		r.Header["Idempotency-Key"] = []string{key}
		_, err := idempotencyOf(r, nil)
		if (err == nil) != ok || !ok && fault.CodeOf(err) != fault.CodeInvalidParameter {
			t.Errorf("%q: %v", key, err)
		}
	}
	r = httptest.NewRequest("PUT", "/v1/flows", nil)
	r.Header.Set("Idempotency-Key", "k")
	if got, err := idempotencyOf(r, nil); got != nil || err != nil {
		t.Errorf("PUT: %v, %v", got, err)
	}
	if got, err := idempotencyOf(httptest.NewRequest("POST", "/v1/flows", nil), nil); got != nil || err != nil {
		t.Errorf("without: %v, %v", got, err)
	}
}
