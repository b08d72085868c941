package execution_test

import (
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"pgregory.net/rapid"

	"github.com/flowapi/flowapi/internal/domain/execution"
	"github.com/flowapi/flowapi/internal/domain/fault"
)

// many returns n different tokens of the given length.
func many(n, length int) []string {
	tokens := make([]string, n)
	for i := range tokens {
		tokens[i] = fmt.Sprintf("%0*d", length, i)
	}
	return tokens
}

// TestNewCapabilities: executions.md 1.7. Both limits are inclusive, and what is said twice counts once.
func TestNewCapabilities(t *testing.T) {
	t.Parallel()
	tests := []struct {
		name   string
		tokens []string
		want   string // why it is refused
	}{
		{"none", nil, ""},
		{"one", []string{"gpu"}, ""},
		{"letters of any script", []string{"größe", "日本", "a!b~c"}, ""},
		{"256 tokens", many(256, 3), ""},
		{"257 tokens", many(257, 3), "too_many_tokens"},
		{"257 tokens, one twice", append(many(256, 3), "000"), ""},
		{"4096 bytes", append(many(40, 100), strings.Repeat("x", 4096-40*101)), ""},
		{"4097 bytes", append(many(40, 100), strings.Repeat("x", 4097-40*101)), "too_many_bytes"},
		{"4096 bytes in one token", []string{strings.Repeat("x", 4096)}, ""},
		{"4097 bytes in one token", []string{strings.Repeat("x", 4097)}, "too_many_bytes"},
		{"empty", []string{"a", ""}, "empty_token"},
		{"comma", []string{"a", "b,c"}, "comma_in_token"},
		{"space", []string{"a b"}, "control_or_whitespace"},
		{"tab", []string{"a\tb"}, "control_or_whitespace"},
		{"newline", []string{"a\n"}, "control_or_whitespace"},
		{"NUL", []string{"\x00"}, "control_or_whitespace"},
		{"unit separator", []string{"\x1f"}, "control_or_whitespace"},
		{"delete", []string{"a\x7f"}, "control_or_whitespace"},
	}
	for _, tt := range tests {
		for _, side := range []string{"required", "worker"} {
			given := slices.Clone(tt.tokens)
			set, err := execution.NewCapabilities(given, side, "/at")
			if tt.want == "" {
				if err != nil || !slices.IsSorted(set) {
					t.Errorf("%s: %v, %v", tt.name, set, err)
				}
			} else {
				refused(t, err, fault.CodeInvalidCapabilities, "/at")
				if got := err.Error(); !strings.HasSuffix(got, side+":"+tt.want) || set != nil {
					t.Errorf("%s: %q, want %s:%s", tt.name, got, side, tt.want)
				}
			}
			if !slices.Equal(given, tt.tokens) {
				t.Errorf("%s: the argument was changed", tt.name)
			}
		}
	}
}

func TestCapabilities_Cover(t *testing.T) {
	t.Parallel()
	tests := []struct {
		name         string
		worker, need []string
		want         bool
	}{
		{"nothing needed, nothing there", nil, nil, true},
		{"nothing needed", []string{"gpu"}, nil, true},
		{"exactly", []string{"gpu", "go"}, []string{"go", "gpu"}, true},
		{"more than needed", []string{"gpu", "go", "linux"}, []string{"go"}, true},
		{"one is missing", []string{"go"}, []string{"go", "gpu"}, false},
		{"nothing in common", []string{"a"}, []string{"b"}, false},
		{"nothing there", nil, []string{"b"}, false},
		{"another case", []string{"GPU"}, []string{"gpu"}, false},
		{"a part of a token", []string{"gpu-large"}, []string{"gpu"}, false},
		{"a token with a part", []string{"gpu"}, []string{"gpu-large"}, false},
	}
	for _, tt := range tests {
		worker, err := execution.NewCapabilities(tt.worker, "worker", "")
		if err != nil {
			t.Fatal(err)
		}
		need, err := execution.NewCapabilities(tt.need, "required", "")
		if err != nil {
			t.Fatal(err)
		}
		if got := worker.Cover(need); got != tt.want {
			t.Errorf("%s: %t", tt.name, got)
		}
	}
}

// TestCapabilities_Property: a set covers another one iff every token of that is in it, and what is stored is read again.
func TestCapabilities_Property(t *testing.T) {
	t.Parallel()
	tokens := rapid.SliceOfN(rapid.SampledFrom([]string{"a", "b", "c", "aa", "A", "é", "a-b", "~"}), 0, 6)
	rapid.Check(t, func(t *rapid.T) {
		mine, theirs := tokens.Draw(t, "worker"), tokens.Draw(t, "required")
		worker, err := execution.NewCapabilities(mine, "worker", "")
		if err != nil {
			t.Fatal(err)
		}
		need, err := execution.NewCapabilities(theirs, "required", "")
		if err != nil {
			t.Fatal(err)
		}
		want := !slices.ContainsFunc(theirs, func(token string) bool { return !slices.Contains(mine, token) })
		if got := worker.Cover(need); got != want {
			t.Errorf("%v covers %v: %t", worker, need, got)
		}
		if again := execution.ParseCapabilities(need.String()); !cmp.Equal(again.String(), need.String()) || !worker.Cover(again) == want {
			t.Errorf("%v was read again as %v", need, again)
		}
	})
}
