package handlers

import (
	"fmt"
	"mime"
	"slices"
	"strings"

	"github.com/getkin/kin-openapi/openapi3"
	"github.com/getkin/kin-openapi/routers"
	"github.com/prometheus/client_golang/prometheus"

	"github.com/flowapi/flowapi/internal/domain/access"
	"github.com/flowapi/flowapi/internal/domain/fault"
)

// defaultBodyLimit is the largest body, in bytes, of an operation without x-body-limit.
const defaultBodyLimit = 64 << 10

// decisionBodyLimit is that of the page behind an approval's link, and of decideApproval: a reason as long as it may be, as a form
// writes it, is longer than its characters.
const decisionBodyLimit = 256 << 10

// operation is what the contract says about one operation, computed once.
type operation struct {
	id           string
	route        *routers.Route
	public       bool          // security: [] — nobody is asked who they are
	roles        []access.Role // beside admin
	noStore      bool          // its answers have secrets, or tell of some
	stream       bool          // its answer may go on until somebody ends it
	onlyStream   bool          // it always does
	limit        int64         // of the body, in bytes
	needsIfMatch bool          // it happens at a revision that the caller has read, or not at all
	parameters   []*openapi3.Parameter
	query        map[string]bool // names it takes; true for those that may be repeated
	bodies       []body          // none when it takes no body
	bodyRequired bool
	duration     prometheus.Observer
}

// body is one media type that an operation takes.
type body struct {
	contentType string
	media       *openapi3.MediaType
	json        *document // nil for a body that is not JSON
}

// name is the operation's id; a request outside the contract has none.
func (op *operation) name() string {
	if op == nil {
		return ""
	}
	return op.id
}

// routeKey finds an operation by what chi matched.
type routeKey struct{ method, pattern string }

// operationsOf reads every operation of the contract. It returns an error for a contract that this server cannot keep.
func operationsOf(spec *openapi3.T) (map[routeKey]*operation, error) {
	forms := documents{}
	operations := map[routeKey]*operation{}
	for path, item := range spec.Paths.Map() {
		for method, declared := range item.Operations() {
			op, err := newOperation(forms, spec, item, declared)
			if err != nil {
				return nil, fmt.Errorf("contract: %s %s: %w", method, path, err)
			}
			op.route = &routers.Route{Spec: spec, Path: path, PathItem: item, Method: method, Operation: declared}
			operations[routeKey{method, path}] = op
		}
	}
	return operations, nil
}

func newOperation(forms documents, spec *openapi3.T, item *openapi3.PathItem, declared *openapi3.Operation) (*operation, error) {
	op := &operation{
		id:         declared.OperationID,
		limit:      defaultBodyLimit,
		parameters: parametersOf(item, declared),
		query:      map[string]bool{"namespace": false},
	}
	for _, p := range op.parameters {
		if p.In == openapi3.ParameterInQuery {
			op.query[p.Name] = p.Schema != nil && p.Schema.Value.Type.Is(openapi3.TypeArray)
		}
	}
	security := spec.Security
	if declared.Security != nil {
		security = *declared.Security
	}
	op.public = declared.Security != nil && len(security) == 0

	var err error
	if op.roles, err = rolesOf(declared.Extensions["x-roles"]); err != nil {
		return nil, err
	}
	if limit, ok := declared.Extensions["x-body-limit"]; ok {
		bytes, ok := limit.(float64)
		if !ok || bytes < 1 || bytes != float64(int64(bytes)) {
			return nil, fmt.Errorf("x-body-limit is %v, want a number of bytes", limit)
		}
		op.limit = int64(bytes)
	}
	op.noStore = declared.Extensions["x-no-store"] == true || !op.public && op.needs() == access.RoleAdmin
	if want, ok := declared.Extensions["x-if-match"]; ok {
		if want != "required" {
			return nil, fmt.Errorf("x-if-match is %v, want required", want)
		}
		op.needsIfMatch = true
	}
	if ok := declared.Responses.Value("200"); ok != nil {
		op.stream = ok.Value.Content["text/event-stream"] != nil
		op.onlyStream = op.stream && len(ok.Value.Content) == 1
	}
	if declared.RequestBody != nil {
		op.bodyRequired = declared.RequestBody.Value.Required
		op.bodies, err = bodiesOf(forms, declared.RequestBody.Value.Content)
	}
	return op, err
}

// parametersOf returns the operation's own parameters and those of its path that it does not override.
func parametersOf(item *openapi3.PathItem, declared *openapi3.Operation) []*openapi3.Parameter {
	var all []*openapi3.Parameter
	for _, ref := range item.Parameters {
		if declared.Parameters.GetByInAndName(ref.Value.In, ref.Value.Name) == nil {
			all = append(all, ref.Value)
		}
	}
	for _, ref := range declared.Parameters {
		all = append(all, ref.Value)
	}
	return all
}

func rolesOf(extension any) ([]access.Role, error) {
	if extension == nil {
		return nil, nil
	}
	names, ok := extension.([]any)
	if !ok {
		return nil, fmt.Errorf("x-roles is %v, want a list of roles", extension)
	}
	var roles []access.Role
	for _, name := range names {
		text, _ := name.(string)
		role := access.Role(text)
		if !slices.Contains(access.Roles(), role) {
			return nil, fmt.Errorf("x-roles has %v, want some of %v", name, access.Roles())
		}
		roles = append(roles, role)
	}
	return roles, nil
}

func bodiesOf(forms documents, content openapi3.Content) ([]body, error) {
	var bodies []body
	for contentType, media := range content {
		kind, _, err := mime.ParseMediaType(contentType)
		if err != nil {
			return nil, fmt.Errorf("content type %q: %w", contentType, err)
		}
		b := body{contentType: kind, media: media}
		if isJSON(kind) {
			b.json = forms.of(media.Schema)
		}
		bodies = append(bodies, b)
	}
	slices.SortFunc(bodies, func(a, b body) int { return strings.Compare(a.contentType, b.contentType) })
	return bodies, nil
}

func isJSON(contentType string) bool {
	return contentType == "application/json" || strings.HasSuffix(contentType, "+json")
}

// bodyOf returns the body that a request with this Content-Type header carries, and whether it was named in just that
// spelling. It is not ok when the operation takes no such body. A request that names no type, or the one that curl -d
// names, means JSON, or the only type there is.
func (op *operation) bodyOf(header string) (b body, named, ok bool) {
	kind, _, _ := strings.Cut(header, ";")
	kind = strings.TrimSpace(kind)
	if b, ok = op.takes(kind); ok {
		return b, true, true
	}
	lower := strings.ToLower(kind)
	if b, ok = op.takes(lower); ok {
		return b, false, true
	}
	if lower != "" && lower != "application/x-www-form-urlencoded" {
		return body{}, false, false
	}
	if len(op.bodies) == 1 {
		return op.bodies[0], false, true
	}
	b, ok = op.takes("application/json")
	return b, false, ok
}

func (op *operation) takes(contentType string) (body, bool) {
	for _, b := range op.bodies {
		if b.contentType == contentType {
			return b, true
		}
	}
	return body{}, false
}

// needs returns the least powerful role that may call the operation.
func (op *operation) needs() access.Role {
	for _, role := range access.Roles() {
		if slices.Contains(op.roles, role) {
			return role
		}
	}
	return access.RoleAdmin
}

// allows reports whether role may call the operation.
func (op *operation) allows(role access.Role) bool {
	if role == access.RoleAdmin {
		return true
	}
	for _, listed := range op.roles {
		if role == listed || role == access.RoleOperator && listed != access.RoleAdmin {
			return true
		}
	}
	return false
}

// placeOf says where the operation has the parameter of this name.
func (op *operation) placeOf(name string) fault.In {
	if op != nil {
		for _, p := range op.parameters {
			if p.Name == name {
				return fault.In(p.In)
			}
		}
	}
	return fault.InQuery
}
