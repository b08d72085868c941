// Package access holds what a token is.
package access

import (
	"time"

	"github.com/google/uuid"

	"github.com/flowapi/flowapi/internal/call"
)

// Token lets its bearer act in a role, in one namespace or in all.
type Token struct {
	ID         uuid.UUID
	Name       string
	Role       call.Role
	Namespace  string // call.AllNamespaces for all
	Secret     string // only in the answer to its making
	Prefix     string // the secret's beginning, which tells tokens apart
	CreatedAt  time.Time
	ExpiresAt  time.Time
	LastUsedAt time.Time
	RevokedAt  time.Time
}
