package execution_test

import (
	"encoding/base64"
	"strings"
	"testing"

	"github.com/google/uuid"
	"pgregory.net/rapid"

	"github.com/flowapi/flowapi/internal/domain/execution"
	"github.com/flowapi/flowapi/internal/domain/fault"
)

func fences() *rapid.Generator[execution.Fence] {
	return rapid.Custom(func(t *rapid.T) execution.Fence {
		ids := rapid.Custom(func(t *rapid.T) uuid.UUID { return uuid.UUID(rapid.SliceOfN(rapid.Byte(), 16, 16).Draw(t, "id")) })
		return execution.Fence{
			ExecutionID: ids.Draw(t, "execution"), LeaseID: ids.Draw(t, "lease"), AttemptID: ids.Draw(t, "attempt"),
			LeaseEpoch: rapid.Int64Range(1, 1<<62).Draw(t, "epoch"), AttemptIndex: rapid.IntRange(0, 1<<30).Draw(t, "index"),
		}
	})
}

func TestHandle_RoundTrip(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(t *rapid.T) {
		f := fences().Draw(t, "fence")
		h := f.Handle()
		got, err := execution.ParseHandle(h, f.ExecutionID)
		if err != nil || got != f {
			t.Fatalf("ParseHandle(Handle(%+v)) = %+v, %v", f, got, err)
		}
		if strings.ContainsFunc(h, func(r rune) bool {
			return !strings.ContainsRune("ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789-_", r)
		}) {
			t.Fatalf("the handle %q is not safe in a URL, a header and a shell", h)
		}
	})
}

// TestHandle_Mutations: whatever is done to a handle, it is refused, or it does not prove the ownership any more.
func TestHandle_Mutations(t *testing.T) {
	t.Parallel()
	e := active(t)
	own := e.Fence().Handle()
	const alphabet = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789-_=+/ .\x00é"
	check := func(h string) {
		t.Helper()
		f, err := execution.ParseHandle(h, e.ID)
		switch {
		case err != nil && fault.CodeOf(err) != fault.CodeInvalidHandle:
			t.Errorf("ParseHandle(%q) = %v", h, err)
		case err == nil && fault.CodeOf(e.Check(f, after(2))) != fault.CodeStaleLease:
			t.Errorf("%q proves the ownership that %q stands for", h, own)
		}
	}
	for i := range own {
		for _, r := range alphabet {
			if byte(r) != own[i] {
				check(own[:i] + string(r) + own[i+1:])
			}
		}
		check(own[:i])
		check(own[i+1:])
		check(own[:i] + own[i+1:])
		check(own[:i] + "A" + own[i:])
	}
}

func TestParseHandle_Refusals(t *testing.T) {
	t.Parallel()
	e := active(t)
	own := e.Fence().Handle()
	raw, err := base64.RawURLEncoding.DecodeString(own)
	if err != nil {
		t.Fatal(err)
	}
	with := func(i int, b byte) string {
		changed := append([]byte{}, raw...)
		changed[i] = b
		return base64.RawURLEncoding.EncodeToString(changed)
	}
	tests := map[string]string{
		"empty": "", "no handle": "nonsense", "padded": own + "=", "another version": with(0, 2), "another execution": with(1, raw[1]+1),
		"an epoch without measure": with(49, 0xff), "an index without measure": with(57, 0xff), "twice": own + own, "with a space": " " + own, "in two lines": own[:9] + "\n" + own[9:], "in base64 proper": base64.StdEncoding.EncodeToString(raw),
	}
	for name, h := range tests {
		f, err := execution.ParseHandle(h, e.ID)
		if f != (execution.Fence{}) {
			t.Errorf("%s: a refused handle gave %+v", name, f)
		}
		refused(t, err, fault.CodeInvalidHandle, "/handle")
	}
}
