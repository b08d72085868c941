package app_test

import (
	"context"
	"fmt"
	"net/http"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/google/uuid"

	"github.com/flowapi/flowapi/internal/apitest"
	"github.com/flowapi/flowapi/internal/app"
	"github.com/flowapi/flowapi/internal/apptest"
	"github.com/flowapi/flowapi/internal/domain/execution"
	"github.com/flowapi/flowapi/internal/domain/fault"
	"github.com/flowapi/flowapi/internal/handlers/oapi"
	"github.com/flowapi/flowapi/internal/repo/store"
	"github.com/flowapi/flowapi/internal/storetest"
)

// rootToken is the admin token that the server is started with.
const rootToken = "root-token-of-the-tests"

// accessTest is a server that nobody may call without a token. Its flows are in the namespace red, and nothing happens on it by
// itself.
type accessTest struct {
	*flowTest
	callers []accessCaller
}

// accessCaller is who calls: nobody, or the bearer of a token with a role in a namespace.
type accessCaller struct{ name, token, role, namespace string }

// accessCall is a request that succeeds for whom it is allowed.
type accessCall struct {
	method, path string
	body         any
	headers      []string
}

func asked(method, path string, body any) accessCall {
	return accessCall{method: method, path: path, body: body}
}

// accessRow is one operation: who may call it, and how.
type accessRow struct {
	operation string
	roles     string // beside admin
	hidden    string // what of another namespace it is about, which is not found; "" for nothing
	call      func(a *accessTest) accessCall
}

const (
	readers   = "viewer operator"
	operators = "operator"
	workers   = "worker operator"
	everybody = "viewer worker operator"
	admins    = ""
	roots     = "*" // admins of all namespaces
)

// accessRows is every operation of the contract.
var accessRows = slices.Concat(flowAccessRows, executionAccessRows, runAccessRows, budgetAccessRows, serverAccessRows)

// allows says whether a caller may call the operation, in whatever namespace.
func (row *accessRow) allows(c accessCaller) bool {
	if row.roles == roots {
		return c.role == "admin" && c.namespace == "*"
	}
	return c.role == "admin" || slices.Contains(strings.Fields(row.roles), c.role)
}

// needs is the role that a refusal names.
func (row *accessRow) needs() string {
	if row.roles == admins || row.roles == roots {
		return "admin"
	}
	return strings.Fields(row.roles)[0]
}

// expects returns how a caller is refused who asks for what is in red, and names that namespace or not; "" when it is not.
func (row *accessRow) expects(c accessCaller, named bool) (fault.Code, map[string]any) {
	there := c.namespace == "red" || c.namespace == "*" && (named || row.hidden == "token") // who may name any namespace has all tokens
	switch {
	case c.role == "":
		return fault.CodeUnauthenticated, nil
	case named && c.namespace == "blue":
		return fault.CodeForbidden, map[string]any{"namespace": c.namespace}
	case !row.allows(c):
		return fault.CodeForbidden, map[string]any{"required_role": row.needs()}
	case row.hidden != "" && !there:
		return fault.CodeNotFound, map[string]any{"resource": row.hidden}
	}
	return "", nil
}

// TestAccess_Roles: each operation, for nobody, and for each role in its own, in another and in all namespaces. engine.md
// "Security"; http.md "Namespace", codes 401, 403 and 404; C5 NT-06, 07 and 16; D5 46.
func TestAccess_Roles(t *testing.T) {
	t.Parallel()
	declared, rows := accessDeclared(t), map[string]bool{}
	for _, row := range accessRows {
		rows[row.operation] = true
	}
	for operation := range declared {
		if !rows[operation] {
			t.Errorf("%s is never called", operation)
		}
	}
	accessDatabases(t, func(t *testing.T, a *accessTest) {
		a.invite()
		for _, row := range accessRows {
			t.Run(row.operation, func(t *testing.T) {
				if _, ok := declared[row.operation]; !ok {
					t.Fatal("it is not in the contract")
				}
				a.on(t).row(&row, declared[row.operation])
			})
		}
	})
}

// invite makes the tokens of all callers.
func (a *accessTest) invite() {
	a.t.Helper()
	gone := a.Post("/v1/admin/tokens", `{"name":"gone","role":"admin","namespace":"red"}`).Want(http.StatusCreated)
	a.Do(http.MethodDelete, gone.Header.Get("Location"), nil).Want(http.StatusNoContent)
	expired := a.token("admin", "red", `"expires_at":`+spelled(a.now().Add(time.Hour)))
	a.server.Advance(2 * time.Hour)
	a.callers = []accessCaller{{name: "nobody"}, {name: "a stranger", token: "fa_nobody-has-made-this-token"}, {name: "who was revoked", token: gone.Str("token")},
		{name: "who has expired", token: expired}, {"root", rootToken, "admin", "*"},
		{"an operator of all", a.token("operator", "*"), "operator", "*"}}
	for _, role := range []string{"viewer", "worker", "operator", "admin"} {
		for _, namespace := range []string{"red", "blue"} {
			a.callers = append(a.callers, accessCaller{role + " of " + namespace, a.token(role, namespace), role, namespace})
		}
	}
}

// row holds one operation to what is expected of it: first whoever is refused, which changes nothing, then whoever is not.
func (a *accessTest) row(row *accessRow, declared accessOperation) {
	a.t.Helper()
	c := row.call(a)
	declared.holds(a.t, row, c)
	before := countRows(a.t, a.server)
	for _, who := range a.callers {
		for i, spelling := range who.spellings(c) {
			if code, facts := row.expects(who, i > 0); code != "" {
				a.refuses(who, spelling, code, facts)
			}
		}
		if code, _ := row.expects(who, false); code == fault.CodeNotFound {
			a.hides(who, c)
		}
	}
	if diff := cmp.Diff(before, countRows(a.t, a.server)); diff != "" {
		a.t.Errorf("refused, and yet something was changed (-before +after):\n%s", diff)
	}
	for i, who := range a.callers {
		switch code, _ := row.expects(who, true); {
		case code != "" || who.token == rootToken && row.roles != roots:
		case i == 0:
			a.t.Errorf("nobody may call it")
		default:
			a.succeeds(who, row.call(a))
		}
	}
	if c.method == http.MethodGet && row.hidden == "" && row.roles != roots && !streams(c.path) && row.operation != "getMeta" { // the server has an id, too
		a.keepsApart(c)
	}
}

// spellings returns the call without a namespace, and where it matters with it, in each way in which it can be named.
func (who accessCaller) spellings(c accessCall) []accessCall {
	inQuery := c
	inQuery.path = withQuery(c.path, "namespace=red")
	switch {
	case who.role == "" || who.namespace == "red":
		return []accessCall{c}
	case who.role != "operator":
		return []accessCall{c, c.naming("red")}
	}
	return []accessCall{c, c.naming("red"), inQuery}
}

// refuses checks that a caller is refused.
func (a *accessTest) refuses(who accessCaller, c accessCall, code fault.Code, facts map[string]any) {
	a.t.Helper()
	answer := a.request(who.token, c)
	if answer.Status != fault.Lookup(code).Status || answer.Str("code") != string(code) {
		a.t.Errorf("%s: %s %s = %d %s, want %s", who.name, c.method, c.path, answer.Status, answer.Body, code)
		return
	}
	if facts != nil {
		a.facts(answer, facts)
	}
	if code == fault.CodeUnauthenticated && answer.Header.Get("WWW-Authenticate") != "Bearer" {
		a.t.Errorf("%s: %v", who.name, answer.Header)
	}
}

// hides checks that what a caller may not see is answered for as what does not exist, to the letter.
func (a *accessTest) hides(who accessCaller, c accessCall) {
	a.t.Helper()
	other, back := c.elsewhere()
	spelling := func(answer *apitest.Response) string {
		return strings.ReplaceAll(back.Replace(string(answer.Body)), answer.Str("request_id"), "")
	}
	if diff := cmp.Diff(spelling(a.request(who.token, other)), spelling(a.request(who.token, c))); diff != "" {
		a.t.Errorf("%s can tell it from what does not exist (-does not exist +hidden):\n%s", who.name, diff)
	}
}

// keepsApart checks that the same question by admins of two namespaces has nothing in its answers that is the same.
func (a *accessTest) keepsApart(c accessCall) {
	a.t.Helper()
	ids := func(name string) []string {
		i := slices.IndexFunc(a.callers, func(who accessCaller) bool { return who.name == name })
		return anyID.FindAllString(string(a.request(a.callers[i].token, c).Want(http.StatusOK).Body), -1)
	}
	theirs := ids("admin of blue")
	for _, id := range ids("admin of red") {
		if slices.Contains(theirs, id) {
			a.t.Errorf("%s is in both namespaces", id)
		}
	}
}

// naming returns the call with a namespace.
func (c accessCall) naming(namespace string) accessCall {
	c.headers = append(slices.Clone(c.headers), "Flowapi-Namespace: "+namespace)
	return c
}

var (
	anyID     = regexp.MustCompile(`[0-9a-f]{8}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{12}`)
	anyHandle = regexp.MustCompile(`"handle":"[^"]+"`)
)

// elsewhere returns the call about what does not exist, and what turns its ids into those of c.
func (c accessCall) elsewhere() (other accessCall, back *strings.Replacer) {
	ids, pairs := map[string]string{}, []string{}
	rename := func(id string) string {
		if ids[id] == "" {
			ids[id] = uuid.NewString()
			pairs = append(pairs, ids[id], id)
		}
		return ids[id]
	}
	c.path = anyID.ReplaceAllStringFunc(c.path, rename)
	if body, ok := c.body.(string); ok {
		body = anyID.ReplaceAllStringFunc(body, rename)
		c.body = anyHandle.ReplaceAllStringFunc(body, func(member string) string {
			fence, err := execution.ParseAnyHandle(member[len(`"handle":"`) : len(member)-1])
			if err != nil {
				return member
			}
			fence.ExecutionID = uuid.MustParse(rename(fence.ExecutionID.String()))
			return `"handle":"` + fence.Handle() + `"`
		})
	}
	return c, strings.NewReplacer(pairs...)
}

func withQuery(path, query string) string {
	if strings.Contains(path, "?") {
		return path + "&" + query
	}
	return path + "?" + query
}

func streams(path string) bool {
	return strings.HasSuffix(path, "/stream") || strings.Contains(path, "/subscriptions/")
}

// limited is a test that does not wait for an answer for ever: that of a stream which should have been refused has no end.
type limited struct {
	testing.TB
	ctx context.Context
}

// Context implements testing.TB.
func (l limited) Context() context.Context { return l.ctx }

// request sends a request with a bearer token; "" is none.
func (a *accessTest) request(token string, c accessCall) *apitest.Response {
	a.t.Helper()
	ctx, cancel := context.WithTimeout(a.t.Context(), apitest.Patience)
	defer cancel()
	return a.server.For(limited{a.t, ctx}).As(token).Do(c.method, c.path, c.body, c.headers...)
}

// succeeds checks that a caller who names red is answered with success. A stream is hung up when it has begun.
func (a *accessTest) succeeds(who accessCaller, c accessCall) {
	a.t.Helper()
	if streams(c.path) {
		a.server.For(a.t).As(who.token).In("red").Stream(c.path).Close()
		return
	}
	if answer := a.request(who.token, c.naming("red")); answer.Status >= 300 {
		a.t.Errorf("%s: %s %s = %d %s", who.name, c.method, c.path, answer.Status, answer.Body)
	}
}

// accessOperation is an operation as the contract has it.
type accessOperation struct {
	method string
	path   *regexp.Regexp
	roles  []string
}

// accessDeclared returns the operations of the contract.
func accessDeclared(t *testing.T) map[string]accessOperation {
	t.Helper()
	spec, err := oapi.Spec()
	if err != nil {
		t.Fatal(err)
	}
	declared := map[string]accessOperation{}
	parameter := regexp.MustCompile(`\{\w+\}`)
	for path, item := range spec.Paths.Map() {
		for method, operation := range item.Operations() {
			o := accessOperation{method: method, path: regexp.MustCompile("^" + parameter.ReplaceAllString(path, "[^/]+") + "$")}
			for _, role := range operation.Extensions["x-roles"].([]any) { //nolint:forcetypeassert // a panic fails the test
				o.roles = append(o.roles, fmt.Sprint(role))
			}
			if !slices.Contains(o.roles, "operator") && !slices.Contains(o.roles, "admin") {
				o.roles = append(o.roles, "operator") // may do what viewers and workers may
			}
			slices.Sort(o.roles)
			declared[operation.OperationID] = o
		}
	}
	return declared
}

// holds checks that a row has the roles of the contract, and that its request is of the operation that it says.
func (o accessOperation) holds(t *testing.T, row *accessRow, c accessCall) {
	t.Helper()
	if called, _, _ := strings.Cut(c.path, "?"); c.method != o.method || !o.path.MatchString(called) {
		t.Errorf("it is called as %s %s", c.method, c.path)
	}
	want := strings.Fields(row.roles)
	if row.needs() == "admin" {
		want = []string{"admin"}
	}
	slices.Sort(want)
	if diff := cmp.Diff(want, o.roles); diff != "" {
		t.Errorf("roles (-table +contract):\n%s", diff)
	}
}

// accessDatabases runs fn on servers that have an admin token.
func accessDatabases(t *testing.T, fn func(t *testing.T, a *accessTest)) {
	t.Helper()
	storetest.Databases(t, func(t *testing.T, url string) {
		s := apptest.Still(t, url, &store.Clock{}, func(c *app.Config) { c.Token = rootToken })
		x := flowsOn(t, s, "red")
		x.Client = x.As(rootToken)
		fn(t, &accessTest{flowTest: x})
	})
}

// token makes a token and returns its secret.
func (a *accessTest) token(role, namespace string, more ...string) string {
	a.t.Helper()
	members := joined(append([]string{fmt.Sprintf(`"name":"%s of %s","role":%q,"namespace":%q`, role, namespace, role, namespace)}, more...)...)
	return a.Post("/v1/admin/tokens", "{"+members+"}").Want(http.StatusCreated).Str("token")
}

// on returns the same test, reporting to a subtest.
func (a *accessTest) on(t *testing.T) *accessTest {
	t.Helper()
	x := *a.flowTest
	x.t, x.Client = t, a.For(t)
	return &accessTest{flowTest: &x, callers: a.callers}
}
