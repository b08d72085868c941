package manifest_test

import (
	"fmt"
	"strings"
	"testing"

	"github.com/flowapi/flowapi/internal/manifest"
)

func TestParse(t *testing.T) {
	t.Parallel()
	for _, tt := range []struct{ name, text, want string }{
		{"JSON is what it is", " {\"a\" : 1.50, \"b\":\"<&>\"}\n", `{"a" : 1.50, "b":"<&>"}`},
		{"types", "s: x\ni: 12\nf: 1.50\nt: true\nn: null\nt2: ~\ne:\nq: '12'\nl: [1, two]\nm: {a: {}}\n",
			`{"s":"x","i":12,"f":1.50,"t":true,"n":null,"t2":null,"e":null,"q":"12","l":[1,"two"],"m":{"a":{}}}`},
		{"what YAML 1.1 took for booleans", "a: yes\nb: NO\nc: on\nd: True\n", `{"a":"yes","b":"NO","c":"on","d":true}`},
		{"times are text", "a: 2026-01-02\nb: 2026-01-02T10:00:00Z\n", `{"a":"2026-01-02","b":"2026-01-02T10:00:00Z"}`},
		{"versions are numbers as written", "a: 1.10\nb: 1.2.3\n", `{"a":1.10,"b":"1.2.3"}`},
		{"numbers of other kinds", "a: 0o17\nb: 0x1F\nc: 1_000\nd: +12\ne: 12345678901234567890123\nf: 1.\ng: 1e3\nh: .5\n",
			`{"a":15,"b":31,"c":1000,"d":12,"e":12345678901234567890123,"f":1,"g":1e3,"h":0.5}`},
		{"text of several lines", "a: |\n  x\n  y\nb: >-\n  x\n  y\n", `{"a":"x\ny\n","b":"x y"}`},
		{"characters", "a: \"é <&> \\u2028\"\n", `{"a":"é <&> \u2028"}`},
		{"anchors", "a: &x {b: 1, c: 2}\nd: *x\ne: {<<: *x, c: 3}\n", `{"a":{"b":1,"c":2},"d":{"b":1,"c":2},"e":{"c":3,"b":1}}`},
		{"a tag", "a: !!str 12\n", `{"a":"12"}`},
	} {
		got, err := manifest.Parse("x.yaml", []byte(tt.text))
		if err != nil || string(got.JSON) != tt.want {
			t.Errorf("%s: %v\n got %s\nwant %s", tt.name, err, got.JSON, tt.want)
		}
	}
}

func TestParse_refused(t *testing.T) {
	t.Parallel()
	bomb, merges := "a0: &a0 [x]\n", "a0: &a0 {x: 1}\n"
	for i := range 40 {
		bomb += fmt.Sprintf("a%d: &a%d [*a%d, *a%d]\n", i+1, i+1, i, i)
		merges += fmt.Sprintf("a%d: &a%d {<<: [*a%d, *a%d]}\n", i+1, i+1, i, i)
	}
	for _, tt := range []struct{ name, file, text, says string }{
		{"nothing", "x", "", "empty"},
		{"a comment", "x", "# nothing\n", "empty"},
		{"two documents", "x", "a: 1\n---\nb: 2\n", "line "},
		{"a bracket", "x", "a: 1\nb: [1\nc: 2\n", "line 3"},
		{"a tab", "x", "a:\n\tb: 1\n", "line 2"},
		{"a colon", "x", "a: b: c\n", "line 1"},
		{"a name twice", "x", "a: 1\nb: 2\na: 3\n", `line 3: "a" is there already, in line 1`},
		{"a name that is a number", "x", "a:\n  1: x\n", "line 2"},
		{"octal or not", "x", "a: 0755\n", "line 1"},
		{"infinity", "x", "a: .inf\n", "line 1"},
		{"a boolean that is none", "x", "a: !!bool yes\n", "line 1: yes is neither"},
		{"a tag of one's own", "x", "a: !env X\n", "line 1"},
		{"an alias of nothing", "x", "a: *b\n", "b"},
		{"itself", "x", "a: &a [*a]\n", "levels"},
		{"a bomb", "x", bomb, "larger"},
		{"a bomb of merges", "x", merges, "merges"},
		{"depth", "x", "# deep\n" + strings.Repeat("[", 200) + strings.Repeat("]", 200), "levels"},
		{"JSON that is none", "x.json", "{\n\"a\": 1,\n}", "line 3"},
		{"JSON and more", "x.json", "{}\n{}", "more follows"},
	} {
		got, err := manifest.Parse(tt.file, []byte(tt.text))
		if err == nil || !strings.Contains(err.Error(), tt.says) {
			t.Errorf("%s: %v, %v; want %q", tt.name, got, err, tt.says)
		}
	}
}

func TestDocument_Line(t *testing.T) {
	t.Parallel()
	d, err := manifest.Parse("x.yaml", []byte("goal: x\ngraph:\n  executions:\n    - key: a\n      lane: ci\n    - key: b\n      nonsense/x: 1\n"))
	if err != nil {
		t.Fatal(err)
	}
	for pointer, want := range map[string]int{"": 1, "/goal": 1, "/graph/executions/0/lane": 5, "/graph/executions/1": 6, "/graph/executions/1/nonsense~1x": 7,
		"/graph/executions/1/kind": 6, "/graph/executions/9": 3} {
		if got := d.Line(pointer); got != want {
			t.Errorf("%q is in line %d, want %d", pointer, got, want)
		}
	}
}
