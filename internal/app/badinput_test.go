package app_test

import (
	"bytes"
	"encoding/json"
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

// mutation puts a value where it may not stand.
type mutation struct {
	path  []string
	name  string
	value any
}

// absent stands for a member that is taken away.
type absent struct{}

// mutations returns what a schema forbids, member by member.
func mutations(s *openapi3.Schema, at []string, depth int) []mutation {
	var all []mutation
	add := func(path []string, name string, value any) {
		all = append(all, mutation{slices.Clone(path), name, value})
	}
	if s.AdditionalProperties.Has != nil && !*s.AdditionalProperties.Has {
		add(append(at, "bogus"), "that is not known", 1)
	}
	for _, name := range s.Required {
		add(append(at, name), "that is missing", absent{})
	}
	for _, name := range slices.Sorted(maps.Keys(s.Properties)) {
		member, path := s.Properties[name].Value, append(slices.Clone(at), name)
		for what, value := range forbidden(member) {
			add(path, what, value)
		}
		if depth < 4 && member.Type.Is(openapi3.TypeObject) {
			all = append(all, mutations(member, path, depth+1)...)
		}
		if depth < 4 && member.Type.Is(openapi3.TypeArray) {
			item := append(slices.Clone(path), "0")
			for what, value := range forbidden(member.Items.Value) {
				add(item, what, value)
			}
			all = append(all, mutations(member.Items.Value, item, depth+1)...)
		}
	}
	return all
}

// forbidden returns values that a schema does not allow, by what is wrong with them.
func forbidden(s *openapi3.Schema) map[string]any {
	bad := map[string]any{}
	if len(s.Type.Slice()) > 0 && !s.Nullable {
		bad["that is null"] = nil
	}
	switch {
	case s.Type.Is(openapi3.TypeString):
		bad["that is no string"] = 7
		switch {
		case s.Format == "uuid":
			bad["that is a UUID in another spelling"] = "{01985c3e-7a10-7c3e-9b52-3f1d8e6a4b01}"
		case s.Format == "date-time":
			bad["that is no time"] = "tomorrow"
			bad["that is a time without its zone"] = "2026-11-22T09:30:00"
		case len(s.Enum) > 0:
			bad["of no such value"] = "bogus"
		}
		if s.MaxLength != nil && s.Format == "" {
			bad["that is too long"] = strings.Repeat("x", int(*s.MaxLength)+1)
		}
		if s.MinLength > 0 {
			bad["that is empty"] = ""
		}
	case s.Type.Is(openapi3.TypeInteger), s.Type.Is(openapi3.TypeNumber):
		bad["that is no number"] = "x"
		if s.Type.Is(openapi3.TypeInteger) {
			bad["that is not whole"] = 1.5
			bad["beyond all integers"] = json.RawMessage("1e30")
		}
		if s.Min != nil {
			bad["below its minimum"] = *s.Min - 1
		}
		if s.Max != nil {
			bad["above its maximum"] = *s.Max + 1
		}
		if s.Format == "int32" {
			bad["beyond 32 bits"] = int64(1) << 31
		}
	case s.Type.Is(openapi3.TypeBoolean):
		bad["that is no boolean"] = "yes"
	case s.Type.Is(openapi3.TypeArray):
		bad["that is no list"] = map[string]any{}
		if s.MaxItems != nil {
			bad["with too many items"] = slices.Repeat([]any{"x"}, int(*s.MaxItems)+1)
		}
		if s.MinItems > 0 {
			bad["without items"] = []any{}
		}
	case s.Type.Is(openapi3.TypeObject):
		bad["that is no object"] = []any{}
		if s.MaxProps != nil {
			many := map[string]any{}
			for i := range int(*s.MaxProps) + 1 {
				many[fmt.Sprint("a.k", i)] = "x"
			}
			bad["with too many members"] = many
		}
	}
	return bad
}

// replaced returns a copy of a document with another value at a path. It makes the objects and lists on the way there, unless
// the path is to be taken away.
func replaced(document any, path []string, value any) (any, bool) {
	if len(path) == 0 {
		return value, true
	}
	if i, err := strconv.Atoi(path[0]); err == nil {
		list, _ := document.([]any)
		list = slices.Clone(list)
		if len(list) <= i {
			list = append(list, nil)
		}
		inner, ok := replaced(list[i], path[1:], value)
		list[i] = inner
		return list, ok
	}
	object, _ := document.(map[string]any)
	object = maps.Clone(object)
	if object == nil {
		object = map[string]any{}
	}
	if _, gone := value.(absent); gone && len(path) == 1 {
		delete(object, path[0])
		return object, true
	}
	inner, ok := replaced(object[path[0]], path[1:], value)
	object[path[0]] = inner
	return object, ok
}

// written are the cases that no schema knows.
func (w *badWorld) written() []badCase {
	flow, execution := "/v1/flows/"+w.params["flow_id"], "/v1/executions/"+w.params["execution_id"]
	all := []badCase{
		{operation: "listFlows", name: "query with a NUL", method: "GET", path: "/v1/flows?kind=a%00b", code: fault.CodeInvalidParameter, in: fault.InQuery, pointer: "kind"},
		{operation: "listFlows", name: "query that is not UTF-8", method: "GET", path: "/v1/flows?kind=a%ff", code: fault.CodeInvalidParameter, in: fault.InQuery, pointer: "kind"},
		{name: "a path that nobody has", method: "GET", path: "/v1/nothing", code: fault.CodeNotFound},
		{name: "a path with a slash too many", method: "GET", path: "/v1/flows/", code: fault.CodeNotFound},
		{name: "a method that nobody knows", method: "BREW", path: "/v1/flows", code: fault.CodeMethodNotAllowed},
		{name: "a method that nobody knows, nowhere", method: "BREW", path: "/v1/nothing", code: fault.CodeNotFound},
		{operation: "createFlow", name: "from a page of another origin", method: "POST", path: "/v1/flows", body: `{"goal":"x"}`, headers: []string{"Sec-Fetch-Site: cross-site"}, code: fault.CodeCrossOrigin},
		{operation: "getFlowStep", name: "a run id that is not UTF-8", method: "GET", path: flow + "/steps/%ff", code: fault.CodeInvalidParameter, in: fault.InPath, pointer: "run_id"},
		{operation: "getFlowStep", name: "a run id with a NUL", method: "GET", path: flow + "/steps/a%00b", code: fault.CodeInvalidParameter, in: fault.InPath, pointer: "run_id"},
		{operation: "waitFlow", name: "a timer in the past", method: "POST", path: flow + "/wait", body: `{"condition":{"kind":"timer","at":"2001-01-01T00:00:00Z"}}`, code: fault.CodeTimerOutOfRange, in: fault.InBody, pointer: "/condition/at"},
		{operation: "waitFlow", name: "a condition of no kind", method: "POST", path: flow + "/wait", body: `{"condition":{"kind":"any","of":[{"kind":"x"}]}}`, code: fault.CodeBadWaitCondition, in: fault.InBody, pointer: "/condition/of/0/kind"},
		{operation: "createFlow", name: "a tag's key", method: "POST", path: "/v1/flows", body: `{"goal":"x","tags":{"Team":"x"}}`, code: fault.CodeInvalidTagKey, in: fault.InBody, pointer: "/tags/Team"},
		{operation: "createFlow", name: "a tag's key of half a megabyte", method: "POST", path: "/v1/flows", body: `{"goal":"x","tags":{"` + strings.Repeat("X", 1<<19) + `":"x"}}`, code: fault.CodeInvalidTagKey},
		{operation: "createFlow", name: "an unknown member of half a megabyte", method: "POST", path: "/v1/flows", body: `{"goal":"x","` + strings.Repeat("x", 1<<19) + `":"x"}`, code: fault.CodeValidationFailed},
		{operation: "createFlow", name: "a name twice of half a megabyte", method: "POST", path: "/v1/flows", body: fmt.Sprintf(`{"%[1]s":1,"%[1]s":1}`, strings.Repeat("x", 1<<18)), code: fault.CodeMalformedJSON},
		{operation: "createFlow", name: "ten thousand unknown members", method: "POST", path: "/v1/flows", body: manyMembers(10000), code: fault.CodeValidationFailed},
		{operation: "createFlow", name: "a budget that is not there", method: "POST", path: "/v1/flows", body: `{"goal":"x","budget_ids":["` + w.params["flow_id"] + `"]}`, code: fault.CodeNotFound},
		{operation: "setFlowTag", name: "a key that is none", method: "PUT", path: flow + "/tags/Team", body: `{"value":"x"}`, code: fault.CodeInvalidTagKey, in: fault.InPath, pointer: "key"},
		{operation: "replaceFlow", name: "without a revision, and not JSON", method: "PUT", path: flow, body: `{`, code: fault.CodePreconditionRequired},
		{operation: "patchFlow", name: "a merge patch that is not UTF-8", method: "PATCH", path: flow, body: "{\"state\":\"\xc3\x28\"}", headers: []string{"Content-Type: application/merge-patch+json"}, code: fault.CodeMalformedJSON, in: fault.InBody, pointer: "/state"},
		{operation: "patchFlow", name: "a state of 101 levels", method: "PATCH", path: flow, body: `{"state":` + strings.Repeat(`{"a":`, 100) + `1` + strings.Repeat(`}`, 100) + `}`, code: fault.CodeMalformedJSON, in: fault.InBody, pointer: "/state" + strings.Repeat("/a", 99)},
		{operation: "patchFlow", name: "a state with a name twice", method: "PATCH", path: flow, body: `{"state":{"a":{"b":1,"b":2}}}`, code: fault.CodeMalformedJSON, in: fault.InBody, pointer: "/state/a/b"},
		{operation: "createExecution", name: "capabilities with a comma", method: "POST", path: "/v1/executions", body: `{"lane":"ci","required_capabilities":["a,b"]}`, code: fault.CodeInvalidCapabilities},
		{operation: "createExecution", name: "a delay twice", method: "POST", path: "/v1/executions", body: `{"lane":"ci","delay_ms":1,"delay_until":"2099-01-01T00:00:00Z"}`, code: fault.CodeValidationFailed, in: fault.InBody, pointer: "/delay_ms"},
		{operation: "createExecution", name: "a key without a flow", method: "POST", path: "/v1/executions", body: `{"lane":"ci","key":"a"}`, code: fault.CodeValidationFailed, in: fault.InBody, pointer: "/key"},
		{operation: "createExecutions", name: "one bad item of many", method: "POST", path: "/v1/executions/batch", body: `{"executions":[{"lane":"ci"},{"lane":""}]}`, code: fault.CodeValidationFailed, in: fault.InBody, pointer: "/executions/1/lane"},
		{operation: "claimExecutions", name: "no lane", method: "POST", path: "/v1/claims", body: `{"worker_id":"w"}`, code: fault.CodeValidationFailed, in: fault.InBody, pointer: "/lane"},
		{operation: "claimExecutions", name: "lane and lanes", method: "POST", path: "/v1/claims", body: `{"worker_id":"w","lane":"a","lanes":["b"]}`, code: fault.CodeValidationFailed, in: fault.InBody, pointer: "/lanes"},
		{operation: "claimExecutions", name: "a worker with a space", method: "POST", path: "/v1/claims", body: `{"worker_id":"a b","lane":"a"}`, code: fault.CodeValidationFailed, in: fault.InBody, pointer: "/worker_id"},
		{operation: "createToken", name: "an expiry in the past", method: "POST", path: "/v1/admin/tokens", body: `{"name":"x","role":"viewer","expires_at":"2001-01-01T00:00:00Z"}`, code: fault.CodeTimerOutOfRange, in: fault.InBody, pointer: "/expires_at"},
		{operation: "createToken", name: "a namespace that is none", method: "POST", path: "/v1/admin/tokens", body: `{"name":"x","role":"viewer","namespace":"**"}`, code: fault.CodeValidationFailed, in: fault.InBody, pointer: "/namespace"},
		{operation: "completeExecution", name: "bytes without a handle", method: "POST", path: execution + "/complete", body: "x", headers: []string{"Content-Type: application/octet-stream"}, code: fault.CodeValidationFailed},
		{operation: "completeExecution", name: "bytes with a handle that is none", method: "POST", path: execution + "/complete", body: "x", headers: []string{"Content-Type: application/octet-stream", "Flowapi-Handle: x"}, code: fault.CodeInvalidHandle},
	}
	all = append(all, w.ofOperators(execution)...)
	all = append(all, w.ofSuspensions(execution)...)
	all = append(all, w.ofBudgets()...)
	all = append(all, ofStreams(execution, `"handle":"`+w.mine.Handle+`"`)...)
	for verb, id := range map[string]string{"frames": "appendFrames", "renew": "renewExecution", "progress": "reportProgress", "complete": "completeExecution", "fail": "failExecution", "release": "releaseExecution",
		"delay": "delayExecution", "wait-children": "waitForChildren", "cancel": "cancelHeldExecution", "suspend": "suspendExecution", "waitpoints": "createWaitpoint"} {
		reason := map[string]string{"fail": `,"reason":"x"`, "delay": `,"delay_ms":1`, "frames": `,"frames":[{"payload":"x"}]`, "suspend": "," + waitForGo, "waitpoints": `,"waitpoint_key":"x"`}[verb]
		fence, _ := json.Marshal(w.mine.Fence)
		for name, tt := range map[string]struct {
			members string
			code    fault.Code
		}{
			"no handle":                     {`"x":1`, fault.CodeValidationFailed},
			"neither handle nor fence":      {"", fault.CodeValidationFailed},
			"handle and fence":              {`"handle":"` + w.mine.Handle + `","fence":` + string(fence), fault.CodeValidationFailed},
			"a handle that is none":         {`"handle":"x"`, fault.CodeInvalidHandle},
			"a handle of another execution": {`"handle":"` + w.other.Handle + `"`, fault.CodeInvalidHandle},
			"a handle that was cut":         {`"handle":"` + w.mine.Handle[:len(w.mine.Handle)-4] + `"`, fault.CodeInvalidHandle},
			"a handle with a rest":          {`"handle":"` + w.mine.Handle + `AAAA"`, fault.CodeInvalidHandle},
		} {
			all = append(all, badCase{operation: id, name: name, method: "POST", path: execution + "/" + verb, body: "{" + strings.TrimPrefix(tt.members+reason, ",") + "}", code: tt.code, in: fault.InBody,
				pointer: map[bool]string{true: "/x"}[name == "no handle"]})
			if name != "no handle" {
				all[len(all)-1].in = "" // which of the two it points at is left open
			}
		}
	}
	return all
}

// ofOperators are the cases that no schema knows of what operators ask for, of grants and of lists.
func (w *badWorld) ofOperators(execution string) []badCase {
	handle := `"handle":"` + w.mine.Handle + `"`
	all := []badCase{
		{operation: "delayExecution", name: "no time", method: "POST", path: execution + "/delay", body: "{" + handle + "}", code: fault.CodeValidationFailed, in: fault.InBody, pointer: "/delay_ms"},
		{operation: "delayExecution", name: "two times", method: "POST", path: execution + "/delay", body: "{" + handle + `,"delay_ms":1,"delay_until":"2099-01-01T00:00:00Z"}`, code: fault.CodeValidationFailed, in: fault.InBody, pointer: "/delay_ms"},
		{operation: "startBulk", name: "no filter", method: "POST", path: "/v1/executions/bulk", body: `{"action":"cancel","filter":{}}`, code: fault.CodeValidationFailed, in: fault.InBody, pointer: "/filter"},
		{operation: "startBulk", name: "a tag without a value", method: "POST", path: "/v1/executions/bulk", body: `{"action":"cancel","filter":{"tag":["x"]}}`, code: fault.CodeValidationFailed, in: fault.InBody, pointer: "/filter/tag/0"},
		{operation: "startBulk", name: "no priority", method: "POST", path: "/v1/executions/bulk", body: `{"action":"priority","filter":{"lane":"x"}}`, code: fault.CodeValidationFailed, in: fault.InBody, pointer: "/priority"},
		{operation: "startBulk", name: "a priority of nothing", method: "POST", path: "/v1/executions/bulk", body: `{"action":"replay","priority":1,"filter":{"lane":"x"}}`, code: fault.CodeValidationFailed, in: fault.InBody, pointer: "/priority"},
		{operation: "setExecutionTag", name: "a key that is none", method: "PUT", path: execution + "/tags/Team", body: `{"value":"x"}`, code: fault.CodeInvalidTagKey, in: fault.InPath, pointer: "key"},
		{operation: "getExecutionTag", name: "a key that is none", method: "GET", path: execution + "/tags/Team", code: fault.CodeInvalidTagKey, in: fault.InPath, pointer: "key"},
		{operation: "explainExecution", name: "two workers", method: "GET", path: execution + "/explain?worker_instance_id=w&capability=go", code: fault.CodeValidationFailed, in: fault.InQuery, pointer: "capability"},
		{operation: "explainExecution", name: "a capability with a comma", method: "GET", path: execution + "/explain?capability=a%2Cb", code: fault.CodeInvalidCapabilities, in: fault.InQuery, pointer: "capability"},
		{operation: "grantClaim", name: "capabilities with a comma", method: "POST", path: "/v1/workers/w1/claim-grants", body: `{"lane":"bad","worker_instance_id":"w","grant_ttl_ms":1,"capabilities":["a,b"]}`, code: fault.CodeInvalidCapabilities, in: fault.InBody, pointer: "/capabilities"},
		{operation: "grantClaim", name: "a worker with a space", method: "POST", path: "/v1/workers/a%20b/claim-grants", body: `{"lane":"bad","worker_instance_id":"w","grant_ttl_ms":1}`, code: fault.CodeInvalidParameter, in: fault.InPath, pointer: "worker_id"},
		{operation: "grantReclaim", name: "capabilities with a comma", method: "POST", path: execution + "/reclaim-grants", body: `{"worker_id":"w","worker_instance_id":"w","grant_ttl_ms":1,"capabilities":["a,b"]}`, code: fault.CodeInvalidCapabilities, in: fault.InBody, pointer: "/capabilities"},
		{operation: "pauseLane", name: "a lane that is not ASCII", method: "POST", path: "/v1/lanes/%C3%BC/pause", code: fault.CodeInvalidParameter, in: fault.InPath, pointer: "lane"},
		{operation: "pauseLane", name: "a lane that is too long", method: "POST", path: "/v1/lanes/" + strings.Repeat("x", 65) + "/pause", code: fault.CodeValidationFailed, in: fault.InPath, pointer: "lane"},
		{operation: "listExecutions", name: "created after no time", method: "GET", path: "/v1/executions?created_after=yesterday", code: fault.CodeInvalidParameter, in: fault.InQuery, pointer: "created_after"},
		{operation: "listLeases", name: "expired as of no time", method: "GET", path: "/v1/leases?expired_as_of=2026-11-22T09%3A30%3A00", code: fault.CodeInvalidParameter, in: fault.InQuery, pointer: "expired_as_of"},
	}
	for _, op := range []string{"completeExecution complete", "failExecution fail", "delayExecution delay", "waitForChildren wait-children"} {
		id, verb, _ := strings.Cut(op, " ")
		more := map[string]string{"fail": `,"reason":"x"`, "delay": `,"delay_ms":1`}[verb]
		all = append(all,
			badCase{operation: id, name: "override beside a handle", method: "POST", path: execution + "/" + verb, body: "{" + handle + `,"override":true` + more + "}", code: fault.CodeValidationFailed, in: fault.InBody, pointer: "/override"},
			badCase{operation: id, name: "no override and no handle", method: "POST", path: execution + "/" + verb, body: `{"override":false` + more + "}", code: fault.CodeValidationFailed, in: fault.InBody, pointer: "/handle"})
	}
	return all
}

// ofSuspensions are the cases that no schema knows of what executions wait for.
func (w *badWorld) ofSuspensions(execution string) []badCase {
	handle := `{"handle":"` + w.mine.Handle + `",`
	closing := execution + "/waitpoints/" + w.params["waitpoint_id"] + "/close"
	fence, _ := json.Marshal(w.mine.Fence)
	var all []badCase
	suspend := func(name, members string, code fault.Code, pointer string) {
		all = append(all, badCase{operation: "suspendExecution", name: name, method: "POST", path: execution + "/suspend", body: handle + members + "}", code: code, in: fault.InBody, pointer: pointer})
	}
	suspend("a condition of another form", waitOn(`{"Single":7}`, "a"), fault.CodeInvalidCondition, "/resume_condition/Single")
	suspend("a condition of half a megabyte", waitOn(`"`+strings.Repeat("x", 1<<19)+`"`, "a"), fault.CodeInvalidCondition, "/resume_condition")
	suspend("a name of half a megabyte", waitOn(onSignal("a", byName(strings.Repeat("x", 1<<19))), "a"), fault.CodeInvalidCondition, "/resume_condition/Single/matcher/ByName")
	suspend("a key of half a megabyte", waitOn(onSignal(strings.Repeat("x", 1<<19), wildcard), "a"), fault.CodeInvalidCondition, "/resume_condition/Single/waitpoint_key")
	suspend("a member of half a megabyte", waitOn(`{"Single":{"waitpoint_key":"a","matcher":"Wildcard","`+strings.Repeat("x", 1<<19)+`":1}}`, "a"), fault.CodeInvalidCondition, "/resume_condition/Single")
	suspend("a condition of thirty levels", waitOn(nested(30, operatorOnly), "a"), fault.CodeInvalidCondition, "/resume_condition"+strings.Repeat("/Composite/members/0", 4)+"/Composite")
	suspend("a count that is not whole", waitOn(strings.Replace(countOf(1, "Signals", "", "a"), `"n":1`, `"n":1.5`, 1), "a"), fault.CodeInvalidCondition, "/resume_condition/Composite/n")
	suspend("a count beyond all integers", waitOn(strings.Replace(countOf(1, "Signals", "", "a"), `"n":1`, `"n":1e30`, 1), "a"), fault.CodeInvalidCondition, "/resume_condition/Composite/n")
	suspend("a pending waitpoint that is not there", waitAt(operatorOnly, `{"use_pending":"`+w.params["flow_id"]+`"}`), fault.CodeNotFound, "/waitpoints/0/use_pending")
	suspend("a form that is none", waitAt("", `{"waitpoint_key":"a","approval":{"title":"x","form":{"type":"string"}}}`), fault.CodeValidationFailed, "/waitpoints/0/approval/form/type")
	for name, body := range map[string]string{"a handle that is none": `{"handle":"x"}`, "a handle of another execution": `{"handle":"` + w.other.Handle + `"}`} {
		all = append(all, badCase{operation: "closeWaitpoint", name: name, method: "POST", path: closing, body: body, code: fault.CodeInvalidHandle})
	}
	return append(all,
		badCase{operation: "closeWaitpoint", name: "handle and fence", method: "POST", path: closing, body: handle + `"fence":` + string(fence) + "}", code: fault.CodeValidationFailed, in: fault.InBody, pointer: "/fence"},
		badCase{operation: "deliverSignal", name: "a token that is none", method: "POST", path: execution + "/signals", body: `{"waitpoint_id":"` + w.params["waitpoint_id"] + `","signal_name":"x","token":"x"}`, code: fault.CodeInvalidToken},
		badCase{operation: "deliverSignal", name: "a payload with a name twice", method: "POST", path: execution + "/signals", body: `{"waitpoint_id":"` + w.params["waitpoint_id"] + `","signal_name":"x","token":"x","payload":{"a":1,"a":2}}`,
			code: fault.CodeMalformedJSON, in: fault.InBody, pointer: "/payload/a"},
		badCase{operation: "decideApproval", name: "a waitpoint that is not there", method: "POST", path: execution + "/approvals", body: `{"waitpoint_id":"` + w.params["flow_id"] + `","decision":"approved"}`, code: fault.CodeNotFound},
	)
}

// ofStreams are the cases that no schema knows of frames and their places.
func ofStreams(execution, handle string) []badCase {
	summary := func(name, payload string) badCase {
		return badCase{operation: "appendFrames", name: name, method: "POST", path: execution + "/frames", body: "{" + handle + `,"frames":[{"payload":"{}"},{"mode":"summary","payload":` + payload + `}]}`,
			code: fault.CodeValidationFailed, in: fault.InBody, pointer: "/frames/1/payload"}
	}
	at := func(operation, route, parameter, value string) badCase {
		return badCase{operation: operation, name: parameter + " " + value, method: "GET", path: execution + "/attempts/0/stream" + route + "?" + parameter + "=" + value,
			code: fault.CodeInvalidCursor, in: fault.InQuery, pointer: parameter}
	}
	all := []badCase{
		{operation: "appendFrames", name: "a payload that is too large", method: "POST", path: execution + "/frames", body: "{" + handle + `,"frames":[{"payload":"x"},{"payload":"` + strings.Repeat("x", 65537) + `"}]}`,
			code: fault.CodePayloadTooLarge, in: fault.InBody, pointer: "/frames/1/payload", limit: 65536},
		{operation: "appendFrames", name: "bytes that are too many", method: "POST", path: execution + "/frames", body: "{" + handle + `,"frames":[{"encoding":"base64","payload":"` + strings.Repeat("AAAA", 21846) + `"}]}`,
			code: fault.CodePayloadTooLarge, in: fault.InBody, pointer: "/frames/0/payload", limit: 65536},
		{operation: "appendFrames", name: "no base64", method: "POST", path: execution + "/frames", body: "{" + handle + `,"frames":[{"encoding":"base64","payload":"YQ"}]}`,
			code: fault.CodeValidationFailed, in: fault.InBody, pointer: "/frames/0/payload"},
		summary("a summary that is no JSON", `"{"`), summary("a summary of two values", `"{}{}"`), summary("a summary that is no object", `"[1]"`), summary("a summary that is a text", `"\"x\""`),
		summary("a summary that is too deep", `"`+strings.Repeat(`{\"a\":`, 16)+"[]"+strings.Repeat("}", 16)+`"`),
		at("readStream", "", "cursor", "1-1"), at("readStream", "", "cursor", "1/1-1"), at("readStream", "", "cursor", "0/end"),
		{operation: "readStream", name: "Last-Event-ID of another attempt", method: "GET", path: execution + "/attempts/0/stream", headers: []string{"Accept: text/event-stream", "Last-Event-ID: 1/5-0"},
			code: fault.CodeInvalidCursor, in: fault.InHeader, pointer: "Last-Event-ID"},
		{operation: "readStream", name: "Last-Event-ID of events", method: "GET", path: execution + "/attempts/current/stream", headers: []string{"Accept: text/event-stream", "Last-Event-ID: 5"},
			code: fault.CodeInvalidCursor, in: fault.InHeader, pointer: "Last-Event-ID"},
		{operation: "readStream", name: "follow after what is no place", method: "GET", path: execution + "/attempts/0/stream?after=end", headers: []string{"Accept: text/event-stream"},
			code: fault.CodeInvalidCursor, in: fault.InQuery, pointer: "after"},
		{operation: "readStream", name: "follow from what is no place", method: "GET", path: execution + "/attempts/0/stream?from=x", headers: []string{"Accept: text/event-stream"},
			code: fault.CodeInvalidCursor, in: fault.InQuery, pointer: "from"},
		{operation: "readStream", name: "no such attempt", method: "GET", path: execution + "/attempts/7/stream", code: fault.CodeNotFound},
		{operation: "tailStream", name: "no such attempt", method: "GET", path: execution + "/attempts/7/stream/tail?block_ms=30000", code: fault.CodeNotFound},
		{operation: "readSummary", name: "no such attempt", method: "GET", path: execution + "/attempts/7/summary", code: fault.CodeNotFound},
		{operation: "readSummary", name: "none was written", method: "GET", path: execution + "/attempts/0/summary", code: fault.CodeNotFound},
	}
	for _, value := range []string{"-", "%2B", "x", "-1", "%2B1-0", "1-", "-1-0", "1-0-0", "1.0", "1-x", "%D9%A1", "START"} {
		all = append(all, at("readStream", "", "from", value), at("readStream", "", "to", value), at("tailStream", "/tail", "after", value))
	}
	return append(all, at("tailStream", "/tail", "after", "start"), at("tailStream", "/tail", "after", "end"))
}

func manyMembers(n int) string {
	var b bytes.Buffer
	b.WriteString(`{"goal":"x"`)
	for i := range n {
		fmt.Fprintf(&b, `,"m%d":1`, i)
	}
	b.WriteString("}")
	return b.String()
}
