package manifest_test

import (
	"bytes"
	"encoding/json"
	"testing"

	"github.com/flowapi/flowapi/internal/manifest"
)

// FuzzParse: whatever is written becomes one JSON value that says the same when it is read again, or is refused with words.
func FuzzParse(f *testing.F) {
	for _, seed := range []string{
		"", "# nothing\n", "a: 1\n---\nb: 2\n", "goal: x\ngraph:\n  executions:\n    - {key: a, lane: ci}\n", "a: &x {b: 1}\nc: {<<: *x, b: 2}\n", "a: &a [*a]\n", "a: 0755\nb: 0x1F\n", "a: .inf\n",
		"? [a]\n: b\n", "a: !!binary eA==\n", "a: |\n  x\n y\n", "a: \"\\ud800\"\n", "a: 1_0\nb: +.5e-3\n", "<<: [{a: 1}, {a: 2}]\n", "%YAML 1.1\n---\na: b\n", `{"a":1,"a":2}`, "a: \"\xff\"\n", "a: !!str\n", "- - -\n", "a: !!null x\n",
		"a: !!bool yes\n", "a: !!int x\n", "&a a: *a\n", "a: 'x\n\n  y'\n", "\ufeffa: 1\n",
	} {
		f.Add([]byte(seed), false)
		f.Add([]byte(seed), true)
	}
	f.Fuzz(func(t *testing.T, data []byte, strict bool) {
		name := "x.yaml"
		if strict {
			name = "x.json"
		}
		d, err := manifest.Parse(name, data)
		if err != nil {
			if d != nil || err.Error() == "" {
				t.Fatalf("refused with %q, and yet %v", err, d)
			}
			return
		}
		if !json.Valid(d.JSON) {
			t.Fatalf("%q becomes %q", data, d.JSON)
		}
		again, err := manifest.Parse("y.json", d.JSON)
		if err != nil || !bytes.Equal(again.JSON, d.JSON) {
			t.Fatalf("%q becomes %s, and that %v, %v", data, d.JSON, again, err)
		}
		if line := d.Line("/a/0/b"); line < 0 || line > 2+bytes.Count(data, []byte("\n"))+bytes.Count(data, []byte("\r")) {
			t.Fatalf("%q has no line %d", data, line) // what is missing at the end stands in the line after it
		}
	})
}
