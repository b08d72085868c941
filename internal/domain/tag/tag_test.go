package tag_test

import (
	"fmt"
	"strings"
	"testing"

	"github.com/flowapi/flowapi/internal/domain/fault"
	"github.com/flowapi/flowapi/internal/domain/tag"
)

// TestCheckKey: executions.md 1.1 and 6.8/110.
func TestCheckKey(t *testing.T) {
	t.Parallel()
	long := "a." + strings.Repeat("x", 254)
	good := []string{"cairn.instance_id", "a.b", "a1_.b", "team.name", "a.b.c", "a._", "a.0", "a.b..c", "a.b.", long}
	for _, key := range good {
		if err := tag.CheckKey(key, "/key"); err != nil {
			t.Errorf("CheckKey(%q) = %v", key, err)
		}
	}
	bad := []string{"", "Cairn.x", "cairn", "cairn.", "cairn..x", "1cairn.x", "cairn.foo bar", `cairn."`, "cairn.Foo", "cairn.foo-bar", ".x", "_a.b", "a b.c",
		"a.b\n", "é.x", "a.é", "a:b.c", long + "x"}
	for _, key := range bad {
		err := tag.CheckKey(key, "/key")
		f, ok := err.(*fault.Error) //nolint:errorlint // it is returned bare
		if !ok || f.Code != fault.CodeInvalidTagKey || len(f.Fields) != 1 || f.Fields[0].Pointer != "/key" {
			t.Errorf("CheckKey(%q) = %v", key, err)
		}
	}
}

func TestCheck(t *testing.T) {
	t.Parallel()
	many := func(n int) map[string]string {
		tags := map[string]string{}
		for i := range n {
			tags[fmt.Sprintf("t.n%d", i)] = ""
		}
		return tags
	}
	tests := []struct {
		name    string
		tags    map[string]string
		code    fault.Code
		pointer string
	}{
		{"none", nil, "", ""},
		{"two", map[string]string{"a.b": "1", "a.c": ""}, "", ""},
		{"as many as can be", many(tag.MaxCount), "", ""},
		{"one more", many(tag.MaxCount + 1), fault.CodeValidationFailed, "/tags"},
		{"as long as can be", map[string]string{"a.b": strings.Repeat("x", tag.MaxValue)}, "", ""},
		{"one byte more", map[string]string{"a.b": strings.Repeat("x", tag.MaxValue+1)}, fault.CodeValidationFailed, "/tags/a.b"},
		{"bad key", map[string]string{"Team": "x"}, fault.CodeInvalidTagKey, "/tags/Team"},
	}
	for _, tt := range tests {
		err := tag.Check(tt.tags, "/tags")
		if fault.CodeOf(err) != tt.code {
			t.Errorf("%s: %v, want %q", tt.name, err, tt.code)
			continue
		}
		if f, ok := err.(*fault.Error); ok && (len(f.Fields) != 1 || f.Fields[0].Pointer != tt.pointer) { //nolint:errorlint // it is returned bare
			t.Errorf("%s: fields %v, want %s", tt.name, f.Fields, tt.pointer)
		}
	}
}
