package execution

import (
	"slices"
	"strings"

	"github.com/flowapi/flowapi/internal/domain/fault"
)

// Limits on a set of capabilities, both inclusive.
const (
	maxCapabilities     = 256
	maxCapabilitiesSize = 4096
)

// Capabilities is a sorted set of tokens. A worker may have an execution if its set contains what the execution requires;
// tokens are compared byte by byte.
type Capabilities []string

// NewCapabilities returns the set of tokens, or a refusal that names side ("required" or "worker") and what is wrong.
// reference: executions.md 1.7.
func NewCapabilities(tokens []string, side, pointer string) (Capabilities, error) {
	refuse := func(what string) error {
		return fault.Invalid(fault.CodeInvalidCapabilities, pointer, "%s:%s", side, what)
	}
	for _, t := range tokens {
		switch {
		case t == "":
			return nil, refuse("empty_token")
		case strings.ContainsRune(t, ','):
			return nil, refuse("comma_in_token")
		case strings.ContainsFunc(t, func(r rune) bool { return r <= 0x20 || r == 0x7f }):
			return nil, refuse("control_or_whitespace")
		}
	}
	set := slices.Compact(slices.Sorted(slices.Values(tokens)))
	switch {
	case len(set) > maxCapabilities:
		return nil, refuse("too_many_tokens")
	case len(strings.Join(set, ",")) > maxCapabilitiesSize:
		return nil, refuse("too_many_bytes")
	}
	return set, nil
}

// Cover says whether a worker with c may have what requires need.
func (c Capabilities) Cover(need Capabilities) bool {
	for _, t := range need {
		if _, ok := slices.BinarySearch(c, t); !ok {
			return false
		}
	}
	return true
}

// String returns the canonical spelling, which [ParseCapabilities] reads.
func (c Capabilities) String() string { return strings.Join(c, ",") }

// ParseCapabilities reads what String wrote.
func ParseCapabilities(s string) Capabilities {
	if s == "" {
		return nil
	}
	return strings.Split(s, ",")
}
