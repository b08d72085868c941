// Package access holds what a token is, and what its bearer may do.
package access

import (
	"time"

	"github.com/google/uuid"
)

// Token lets its bearer act in a role, in one namespace or in all.
type Token struct {
	ID         uuid.UUID
	Name       string
	Role       Role
	Namespace  string // AllNamespaces for all
	Secret     string // only in the answer to its making
	Prefix     string // the secret's beginning, which tells tokens apart
	CreatedAt  time.Time
	ExpiresAt  time.Time
	LastUsedAt time.Time
	RevokedAt  time.Time
}

// Identity is what a token says about its bearer.
type Identity struct {
	TokenID   string
	Name      string
	Role      Role
	Namespace string // AllNamespaces or one
}

// AllNamespaces is the namespace of a token that may name any.
const AllNamespaces = "*"

// Role is what a token may do.
type Role string

// The roles. An operator may do what a viewer and a worker may; an admin may do all.
const (
	RoleViewer   Role = "viewer"   // read
	RoleWorker   Role = "worker"   // claim and report, and read executions
	RoleOperator Role = "operator" // also create, cancel, replay, approve
	RoleAdmin    Role = "admin"    // also tokens, secrets, retention
)

// Operates says whether r may do what is an operator's.
func (r Role) Operates() bool { return r == RoleOperator || r == RoleAdmin }

// Roles returns all roles, the least powerful first.
func Roles() []Role { return []Role{RoleViewer, RoleWorker, RoleOperator, RoleAdmin} }
