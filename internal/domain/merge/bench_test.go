package merge_test

import (
	"encoding/json"
	"fmt"
	"strings"
	"testing"

	"github.com/flowapi/flowapi/internal/domain/merge"
)

// BenchmarkPatch is a small patch of a large document: the writer waits for each.
func BenchmarkPatch(b *testing.B) {
	var doc strings.Builder
	for i := range 14_400 {
		fmt.Fprintf(&doc, `,"m%d-%d":%d`, i%6, i/6, i/6)
	}
	target := json.RawMessage("{" + doc.String()[1:] + "}")
	b.SetBytes(int64(len(target)))
	for b.Loop() {
		d := merge.Open(target)
		d.Patch(json.RawMessage(`{"m0-1":1}`), nil)
		target = d.Text()
	}
}
