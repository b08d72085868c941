package app_test

import (
	"fmt"
	"maps"
	"net/http"
	"net/url"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/getkin/kin-openapi/openapi3"
	"github.com/google/go-cmp/cmp"

	"github.com/flowapi/flowapi/internal/apitest"
	"github.com/flowapi/flowapi/internal/apptest"
	"github.com/flowapi/flowapi/internal/domain/fault"
	"github.com/flowapi/flowapi/internal/handlers/oapi"
)

// badCase is a request that is refused, and how.
type badCase struct {
	operation string // of the contract, "" for none
	name      string
	method    string
	path      string // with its query
	body      any    // as [apitest.Client.Do] takes it
	headers   []string
	code      fault.Code
	in        fault.In // of the part that one of errors points at; "" for none
	pointer   string
	limit     int64 // that a body exceeds
}

// badWorld is a server with something of everything, in a state that time does not change.
type badWorld struct {
	*apitest.Client
	t      *testing.T
	server *apptest.Server
	spec   *openapi3.T
	params map[string]string // of paths
	mine   oapi.Claim        // of the execution in params
	other  oapi.Claim
	rows   map[string]int64
}

// TestBadInput: acceptance 9. Each request that is not as the contract says gets the right status, a stable code and a pointer,
// in a problem document that tells nothing of the inside; and nothing is changed.
func TestBadInput(t *testing.T) {
	t.Parallel()
	apptest.Databases(t, func(t *testing.T, s *apptest.Server) {
		w := newBadWorld(t, s)
		cases, n := map[string][]badCase{}, 0
		for _, c := range append(w.generated(), w.written()...) {
			cases[c.operation] = append(cases[c.operation], c)
			n++
		}
		if n < 60 {
			t.Errorf("%d cases", n)
		}
		for _, op := range w.operations() {
			if len(cases[op.id]) < 5 {
				t.Errorf("%d cases are about %s", len(cases[op.id]), op.id)
			}
		}
		for _, operation := range slices.Sorted(maps.Keys(cases)) {
			t.Run(operation, func(t *testing.T) {
				for _, c := range cases[operation] {
					t.Run(c.name, func(t *testing.T) { w.refuse(t, c) })
				}
				w.unchanged(t)
			})
		}
	})
}

func newBadWorld(t *testing.T, s *apptest.Server) *badWorld {
	t.Helper()
	spec, err := oapi.Spec()
	if err != nil {
		t.Fatal(err)
	}
	x := flowsOn(t, s, "default")
	e := x.workers("bad")
	f := x.running(`"tags":{"a.b":"c"}`)
	run := x.workflowRun().String()
	step := x.Post("/v1/runs/"+run+"/steps", `{"generation":0,"step_name":"s","role":"foreach","position":0}`).Want(http.StatusCreated).Str("id")
	x.insert(f.ID, `"run_id":"`+run+`"`).Want(http.StatusCreated)
	x.at("waiting")
	e.create("")
	e.create("")
	mine, other := e.claim(`"lease_ttl_ms":86400000`), e.claim(`"lease_ttl_ms":86400000`)
	e.create("")
	waitpoint := e.report(mine, "waitpoints", `"waitpoint_key":"k","expires_in_ms":2592000000`).Want(http.StatusCreated).Str("waitpoint_id")
	edge := x.Post(flowPath(f.ID, "graph"), `{"executions":[{"key":"a","lane":"idle"},{"key":"b","lane":"idle","needs":["a"]}]}`).Want(http.StatusCreated)
	edgeID := x.Post(flowPath(f.ID, "edges"), fmt.Sprintf(`{"upstream_execution_id":%q,"downstream_execution_id":%q}`, edge.Str("executions.a"), edge.Str("executions.b"))).Want(http.StatusOK).Str("edge.edge_id")
	budget := x.Post("/v1/budgets", `{"hard_limits":{"tokens":100}}`).Want(http.StatusCreated).Str("id")
	quota := x.Post("/v1/quotas", `{"max_concurrent":1}`).Want(http.StatusCreated).Str("id")
	job := x.Post("/v1/executions/bulk", `{"action":"cancel","filter":{"lane":"nothing"}}`).Want(http.StatusAccepted).Str("job_id")
	s.Advance(0) // it has ended
	token := x.Post("/v1/admin/tokens", `{"name":"eve","role":"viewer"}`).Want(http.StatusCreated).Str("token_id")
	return &badWorld{Client: s.For(t), t: t, server: s, spec: spec, mine: mine, other: other, rows: countRows(t, s), params: map[string]string{
		"flow_id": f.ID.String(), "id": f.ID.String(), "run_id": run, "step_id": step, "key": "a.b", "execution_id": mine.Execution.ID.String(), "token_id": token,
		"job_id": job, "lane": "bad", "worker_id": "w1", "worker_instance_id": "w1-a", "waitpoint_id": waitpoint, "attempt": "0", "edge_id": edgeID,
		"budget_id": budget, "quota_id": quota,
	}}
}

// insides are words, in lower case, that only somebody who knows the source has a use for.
var insides = []string{"sql", "pgx", "postgres", "kin-openapi", " kin ", "openapi3", ".go ", ".go:", "goroutine", "panic", "runtime.", "runtime error", "reflect", "strconv", "unmarshal",
	"jsontext", "github.com", "uuid.uuid", "oapi.", "map[", "interface {", "interface{", "0xc0", "no such table", "no such column", "constraint", "*json", "*time", "wire."}

// refuse sends one request and holds the answer to what is expected.
func (w *badWorld) refuse(t *testing.T, c badCase) {
	t.Helper()
	client := w.For(t)
	answer := client.Do(c.method, c.path, c.body, c.headers...).Problem(c.code)
	if got := answer.Header.Get("Content-Type"); got != "application/problem+json" {
		t.Errorf("Content-Type %q", got)
	}
	text := strings.ToLower(string(answer.Body))
	for _, word := range insides {
		if strings.Contains(text, word) {
			t.Errorf("the answer tells of the inside, %q: %s", word, answer.Body)
		}
	}
	if path, _, _ := strings.Cut(c.path, "?"); answer.Str("instance") != unescaped(path) {
		t.Errorf("instance is %q", answer.Str("instance"))
	}
	points := func(f fault.Field) bool { return f.In == c.in && f.Pointer == c.pointer && f.Detail != "" }
	if c.in != "" && !slices.ContainsFunc(answer.Fields(), points) {
		t.Errorf("nothing points at %s %q: %s", c.in, c.pointer, answer.Body)
	}
	switch c.code {
	case fault.CodeMethodNotAllowed:
		allowed := flowAs[struct{ Allowed []string }](answer).Allowed
		if got := answer.Header.Get("Allow"); len(allowed) == 0 || got != strings.Join(allowed, ", ") || slices.Contains(allowed, c.method) {
			t.Errorf("Allow %q, allowed %q", got, allowed)
		}
	case fault.CodePayloadTooLarge:
		if limit := answer.Int("limit_bytes"); limit != c.limit {
			t.Errorf("limit_bytes is %d, want %d", limit, c.limit)
		}
	case fault.CodeUnsupportedMediaType:
		if answer.Len("allowed") == 0 {
			t.Errorf("it does not say what is allowed: %s", answer.Body)
		}
	case fault.CodeUnauthenticated:
		if answer.Header.Get("WWW-Authenticate") != "Bearer" {
			t.Errorf("WWW-Authenticate %q", answer.Header.Get("WWW-Authenticate"))
		}
	}
	if len(answer.Body) > 16<<10 {
		t.Errorf("the answer has %d bytes", len(answer.Body))
	}
}

// unchanged checks that the tables are as they were when it was last called.
func (w *badWorld) unchanged(t *testing.T) {
	t.Helper()
	rows := countRows(t, w.server)
	if diff := cmp.Diff(w.rows, rows); diff != "" {
		t.Errorf("something was changed (-before +after):\n%s", diff)
	}
	w.rows = rows
}

func unescaped(path string) string {
	plain, err := url.PathUnescape(path)
	if err != nil {
		return path
	}
	return strings.ToValidUTF8(plain, "\ufffd")
}

// badOperation is one operation of the contract, with a request that is as it should be.
type badOperation struct {
	id, method, path string
	declared         *openapi3.Operation
	parameters       openapi3.Parameters
	query            url.Values
	headers          []string
	example          any                 // of a JSON body; nil for none
	schema           *openapi3.SchemaRef // of a JSON body
	limit            int64
}

// target is the operation's path and query, with some parameters changed.
func (op *badOperation) target(change ...string) string {
	q := maps.Clone(op.query)
	for i := 0; i+1 < len(change); i += 2 {
		q[change[i]] = append(q[change[i]], change[i+1])
	}
	if len(q) == 0 {
		return op.path
	}
	return op.path + "?" + q.Encode()
}

// operations returns every operation of the contract, by id.
func (w *badWorld) operations() []*badOperation {
	var all []*badOperation
	for path, item := range w.spec.Paths.Map() {
		for method, declared := range item.Operations() {
			op := &badOperation{id: declared.OperationID, method: method, path: w.fill(path), declared: declared, query: url.Values{}, limit: 64 << 10,
				parameters: append(slices.Clone(item.Parameters), declared.Parameters...)}
			if declared.Extensions["x-if-match"] != nil {
				op.headers = append(op.headers, ifMatch(1))
			}
			if limit, ok := declared.Extensions["x-body-limit"].(float64); ok {
				op.limit = int64(limit)
			}
			for _, p := range op.parameters {
				if p.Value.Required && p.Value.In == openapi3.ParameterInQuery {
					op.query.Set(p.Value.Name, "ci")
				}
			}
			if declared.RequestBody != nil {
				if media := declared.RequestBody.Value.Content.Get("application/json"); media != nil {
					op.example, op.schema = valuesOf(media)[0], media.Schema
				}
			}
			all = append(all, op)
		}
	}
	slices.SortFunc(all, func(a, b *badOperation) int { return strings.Compare(a.id, b.id) })
	return all
}

func (w *badWorld) fill(path string) string {
	for name, value := range w.params {
		path = strings.ReplaceAll(path, "{"+name+"}", value)
	}
	return path
}

// generated makes cases of what the contract says about each operation.
func (w *badWorld) generated() []badCase {
	var all []badCase
	for _, op := range w.operations() {
		cases := slices.Concat(w.ofOperation(op), w.ofParameters(op), w.ofBody(op))
		for i := range cases {
			cases[i].operation = op.id
			if cases[i].method == "" {
				cases[i].method = op.method
			}
			if cases[i].path == "" {
				cases[i].path = op.target()
			}
			if cases[i].body == nil && op.schema != nil && op.declared.RequestBody.Value.Required {
				cases[i].body = op.example
			}
			cases[i].headers = append(slices.Clone(op.headers), cases[i].headers...)
		}
		all = append(all, cases...)
	}
	return all
}

func (w *badWorld) ofOperation(op *badOperation) []badCase {
	return []badCase{
		{name: "unknown query parameter", path: op.target("bogus", "1"), code: fault.CodeValidationFailed, in: fault.InQuery, pointer: "bogus"},
		{name: "query that is not well formed", path: op.path + "?a=%zz", code: fault.CodeInvalidParameter, in: fault.InQuery},
		{name: "namespace that is none", headers: []string{"Flowapi-Namespace: not/one"}, code: fault.CodeInvalidParameter, in: fault.InHeader, pointer: "Flowapi-Namespace"},
		{name: "two namespaces", path: op.target("namespace", "a"), headers: []string{"Flowapi-Namespace: b"}, code: fault.CodeInvalidParameter, in: fault.InHeader, pointer: "Flowapi-Namespace"},
		{name: "token of nobody", headers: []string{"Authorization: Bearer fa_nobody_has_this_token"}, code: fault.CodeUnauthenticated},
		{name: "Authorization of another kind", headers: []string{"Authorization: Basic YTpi"}, code: fault.CodeUnauthenticated},
		{name: "method that the path does not have", method: "TRACE", code: fault.CodeMethodNotAllowed},
	}
}

// ofParameters breaks each parameter in each way that its schema knows.
func (w *badWorld) ofParameters(op *badOperation) []badCase {
	var all []badCase
	for _, ref := range op.parameters {
		p, s := ref.Value, ref.Value.Schema.Value
		if strings.Contains(strings.ToLower(p.Name), "namespace") && op.id != "getMeta" {
			continue // ofOperation has it, and nothing more is behind it
		}
		add := func(name, value string, code fault.Code) {
			c := badCase{name: p.In + " " + p.Name + " " + name, code: code, in: fault.In(p.In), pointer: p.Name}
			switch p.In {
			case openapi3.ParameterInPath:
				c.path = strings.Replace(op.target(), "/"+w.params[p.Name], "/"+url.PathEscape(value), 1)
			case openapi3.ParameterInHeader:
				c.headers = []string{p.Name + ": " + value}
			default:
				c.path = op.target(p.Name, value)
				if op.query.Has(p.Name) {
					changed := maps.Clone(op.query)
					changed.Set(p.Name, value)
					c.path = op.path + "?" + changed.Encode()
				}
			}
			all = append(all, c)
		}
		value := s
		if s.Type.Is(openapi3.TypeArray) {
			value = s.Items.Value
		} else if p.In == openapi3.ParameterInQuery {
			all = append(all, badCase{name: "query " + p.Name + " twice", path: op.target(p.Name, "1", p.Name, "2"), code: fault.CodeInvalidParameter, in: fault.InQuery, pointer: p.Name})
		}
		switch {
		case value.Format == "uuid":
			for _, bad := range []string{"01985c3e-7a10-7c3e-9b52-3f1d8e6a4bzz", "{01985c3e-7a10-7c3e-9b52-3f1d8e6a4b01}"} {
				add("that is no UUID: "+bad, bad, fault.CodeInvalidParameter)
			}
		case value.Type.Is(openapi3.TypeInteger):
			add("that is no number", "x", fault.CodeInvalidParameter)
			add("that is not whole", "1.5", fault.CodeInvalidParameter)
			if value.Min != nil {
				add("below its minimum", strconv.FormatInt(int64(*value.Min)-1, 10), fault.CodeValidationFailed)
			}
			if value.Max != nil {
				add("above its maximum", strconv.FormatInt(int64(*value.Max)+1, 10), fault.CodeValidationFailed)
			}
		case value.Type.Is(openapi3.TypeBoolean):
			add("that is no boolean", "maybe", fault.CodeInvalidParameter)
		case len(value.Enum) > 0:
			add("of no such value", "bogus", fault.CodeValidationFailed)
		case value.MaxLength != nil && value.Pattern == "":
			add("too long", strings.Repeat("x", int(*value.MaxLength)+1), fault.CodeValidationFailed)
		}
		switch p.Name {
		case "cursor":
			for _, bad := range []string{"x", "AAAA", "!!!!", strings.Repeat("A", 34), strings.Repeat("B", 500)} {
				add("that is none of ours: "+bad[:1], bad, fault.CodeInvalidCursor)
			}
		case "topic", "type", "tag":
			add("of another form", "NO WAY", fault.CodeInvalidParameter)
			add("that is empty", "", fault.CodeInvalidParameter)
		case "If-Match":
			add("that is no ETag", `"x"`, fault.CodeInvalidParameter)
			add("of two ETags", `"1", "2"`, fault.CodeInvalidParameter)
		case "Last-Event-ID":
			add("that is no id", "x", fault.CodeInvalidCursor)
			add("that is negative", "-1", fault.CodeInvalidCursor)
		case "Idempotency-Key":
			add("too long", strings.Repeat("k", 256), fault.CodeValidationFailed)
			add("that is not ASCII", "ké", fault.CodeInvalidParameter)
		}
	}
	return all
}

// ofBody breaks the body in each way that bytes can be broken, and each member in each way that its schema knows.
func (w *badWorld) ofBody(op *badOperation) []badCase {
	if op.declared.RequestBody == nil {
		return nil
	}
	all := []badCase{
		{name: "body too large", body: strings.Repeat(" ", int(op.limit)+1), code: fault.CodePayloadTooLarge, limit: op.limit},
		{name: "body that is compressed", body: "x", headers: []string{"Content-Encoding: gzip"}, code: fault.CodeUnsupportedMediaType},
		{name: "body of another type", body: "<a/>", headers: []string{"Content-Type: text/xml"}, code: fault.CodeUnsupportedMediaType},
	}
	if op.schema == nil {
		return all
	}
	broken := map[string]string{
		"body that ends early": `{"a":`, "two JSON values": `{} {}`, "a name twice": `{"bogus":1,"bogus":2}`, "body that is not UTF-8": "{\"bogus\":\"\xff\"}",
		"101 levels": `{"bogus":` + strings.Repeat("[", 100) + strings.Repeat("]", 100) + `}`,
	}
	if op.id == "createFlow" { // the reader is the same for all
		maps.Copy(broken, map[string]string{
			"body that is no JSON": `{a:1}`, "a value and a rest": `{}x`, "a name twice inside": `{"bogus":{"a":1,"a":2}}`, "half a surrogate": `{"bogus":"\ud800"}`,
			"a number of another form": `{"bogus":01}`, "not a number": `{"bogus":NaN}`, "a comma too many": `{"bogus":1,}`, "a comment": `{/**/}`, "a byte order mark": "\ufeff{}",
			"a control character": "{\"bogus\":\"\n\"}", "10,000 levels": strings.Repeat("[", 10000),
		})
	}
	for name, body := range broken {
		all = append(all, badCase{name: name, body: body, code: fault.CodeMalformedJSON})
	}
	if op.declared.RequestBody.Value.Required {
		all = append(all, badCase{name: "no body", body: " ", code: fault.CodeMalformedJSON})
	}
	all = append(all,
		badCase{name: "a NUL in a string", body: `{"bogus":["\u0000"]}`, code: fault.CodeValidationFailed, in: fault.InBody, pointer: "/bogus/0"},
		badCase{name: "a NUL in a name", body: `{"bo\u0000gus":1}`, code: fault.CodeValidationFailed, in: fault.InBody, pointer: "/bo\x00gus"},
	)
	for _, other := range []string{`[]`, `"text"`, `null`} {
		all = append(all, badCase{name: "body that is " + other, body: other, code: fault.CodeValidationFailed, in: fault.InBody})
	}
	depth := 0
	if op.id == "createExecutions" {
		depth = 3 // its items are those of createExecution
	}
	for _, m := range mutations(op.schema.Value, nil, depth) {
		body, ok := replaced(op.example, m.path, m.value)
		if !ok {
			continue
		}
		all = append(all, badCase{name: strings.Join(m.path, "/") + " " + m.name, body: body, code: fault.CodeValidationFailed, in: fault.InBody, pointer: "/" + strings.Join(m.path, "/")})
	}
	return all
}
