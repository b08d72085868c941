package tag_test

import (
	"errors"
	"strings"
	"testing"

	"github.com/flowapi/flowapi/internal/domain/fault"
	"github.com/flowapi/flowapi/internal/domain/tag"
)

// FuzzKey: a key that is taken can stand in a path and in a filter as it is, and is taken in a set, too.
func FuzzKey(f *testing.F) {
	for _, seed := range []string{"", "a.b", "a", "a..b", "a.", ".a", "A.b", "a.b\n", "a/b.c", "é.a", "a.\x00", tag.Instance, strings.Repeat("a", 255) + ".b", "a.b:c"} {
		f.Add(seed)
	}
	f.Fuzz(func(t *testing.T, key string) {
		inSet := tag.Check(map[string]string{key: "v"}, "/tags")
		if err := tag.CheckKey(key, "/key"); err != nil {
			parameter, ok := errors.AsType[*fault.Error](tag.CheckParameter(key))
			if fault.CodeOf(err) != fault.CodeInvalidTagKey || fault.CodeOf(inSet) != fault.CodeInvalidTagKey || !ok || parameter.Fields[0].In != fault.InPath {
				t.Fatalf("refused with %v, %v, %v", err, inSet, parameter)
			}
			return
		}
		if inSet != nil || tag.CheckParameter(key) != nil || strings.Trim(key, "abcdefghijklmnopqrstuvwxyz0123456789_.") != "" || !strings.Contains(key, ".") {
			t.Fatalf("%q is taken, and in a set it is %v", key, inSet)
		}
	})
}
