// Package call carries, through the context, who is asking and how: the facts of one request that every level needs and
// none should pass by hand. It holds values only.
package call

import (
	"context"
	"time"

	"github.com/flowapi/flowapi/internal/domain/access"
)

// Call is one request as the levels below HTTP see it.
type Call struct {
	Namespace string // whose resources it may see and change
	Actor     string // who is named in events: "token:<name>", "local", "engine"
	Token     string // id of the token, "" for an anonymous caller on the loopback interface
	Role      access.Role
	// AllNamespaces says that the caller may name any namespace.
	AllNamespaces bool
	RequestID     string       // also in the access log and in problem documents
	TraceID       string       // W3C trace id, "" when the caller sent none
	Target        string       // the request's path and query
	Base          string       // scheme and host under which the caller has reached the server
	Accept        string       // the media types that the caller takes, "" for any
	Key           *Idempotency // set when the request carries an Idempotency-Key
}

// Engine is the call of work that the server does on its own account.
func Engine(namespace string) Call {
	return Call{Namespace: namespace, Actor: "engine", Role: access.RoleAdmin}
}

// Idempotency is the promise that a request with this key has one effect and one answer.
// It is kept by the store, in the transaction of the mutation.
type Idempotency struct {
	Key  string
	Hash [32]byte // of method, path and body
	// Render turns the mutation's result into the answer that is stored and sent. The store calls it last in the
	// transaction, with the value that the mutation returned.
	Render func(result any) (Answer, error)
}

// Answer is a rendered response.
type Answer struct {
	Status   int
	Location string
	ETag     string
	Body     []byte
}

// Replayed is the error of a request whose key has been answered before: it carries that answer.
//
// An answer that was too large to be kept has no body; its Value, loaded again, is rendered anew.
type Replayed struct {
	Answer Answer
	Value  any
	At     time.Time
}

func (r *Replayed) Error() string { return "answered before, at " + r.At.Format(time.RFC3339) }

type key struct{}

// With returns a context that carries c.
func With(ctx context.Context, c Call) context.Context { return context.WithValue(ctx, key{}, c) }

// From returns the call that ctx carries. Without one it is the engine's, in the namespace "default".
func From(ctx context.Context) Call {
	if c, ok := ctx.Value(key{}).(Call); ok {
		return c
	}
	return Engine("default")
}
