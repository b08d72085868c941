// Package tag holds the rules for the tags that clients hang on resources.
package tag

import (
	"maps"
	"regexp"

	"github.com/flowapi/flowapi/internal/domain/fault"
)

// Instance is the tag whose value stands on every event of its resource, for subscribers to filter by.
const Instance = "cairn.instance_id"

// Limits on the tags of one resource.
const (
	MaxCount = 64
	MaxValue = 1024
)

var key = regexp.MustCompile(`^[a-z][a-z0-9_]*\.[a-z0-9_][a-z0-9_.]*$`)

// Pair is one tag with its value.
type Pair struct {
	Key   string `json:"key"`
	Value string `json:"value"`
}

// CheckKey refuses a key that does not look like "area.name". Dotted keys are flat names, not nested paths.
func CheckKey(k, pointer string) error {
	if len(k) <= 256 && key.MatchString(k) {
		return nil
	}
	return fault.Invalid(fault.CodeInvalidTagKey, pointer, "The tag key %q must look like area.name: lower-case letters, digits and underscores, with a dot inside.", fault.Readable(k))
}

// CheckParameter is CheckKey for a key that stands in the path.
func CheckParameter(k string) error {
	return fault.MovedTo(CheckKey(k, "key"), fault.InPath, "")
}

// Set returns tags with one more, as a copy, and what it was before, nil for none: a key of the path, and a value of the body. It returns
// CodeInvalidTagKey, and CodeValidationFailed for a value that is too long or a tag too many.
func Set(tags map[string]string, key, value string) (next map[string]string, before *string, err error) {
	if err := CheckParameter(key); err != nil {
		return nil, nil, err
	}
	if len(value) > MaxValue {
		return nil, nil, fault.Invalid(fault.CodeValidationFailed, "/value", "The value has %d bytes; at most %d are kept.", len(value), MaxValue)
	}
	if old, had := tags[key]; had {
		before = &old
	}
	next = With(tags, key, value)
	return next, before, Check(next, "")
}

// With returns tags with one more, as a copy.
func With(tags map[string]string, key, value string) map[string]string {
	next := maps.Clone(tags)
	if next == nil {
		next = map[string]string{}
	}
	next[key] = value
	return next
}

// Check refuses a set of tags with a bad key, too many tags or a value that is too long. pointer is where the set stands in
// the request.
func Check(tags map[string]string, pointer string) error {
	if len(tags) > MaxCount {
		return fault.Invalid(fault.CodeValidationFailed, pointer, "There are %d tags; at most %d are kept.", len(tags), MaxCount)
	}
	for k, v := range tags {
		if err := CheckKey(k, pointer+"/"+fault.Part(k)); err != nil {
			return err
		}
		if len(v) > MaxValue {
			return fault.Invalid(fault.CodeValidationFailed, pointer+"/"+fault.Part(k), "The value of tag %s has %d bytes; at most %d are kept.", k, len(v), MaxValue)
		}
	}
	return nil
}
