package flow

import (
	"bytes"
	"encoding/json"

	"github.com/flowapi/flowapi/internal/domain/merge"
	"github.com/flowapi/flowapi/internal/domain/wait"
)

// Merge says how a patch is applied to a document.
type Merge string

// The ways. Both work on the text of the documents: numbers keep their digits and members their order.
const (
	MergeShallow Merge = "shallow"
	MergeRFC7396 Merge = "rfc7396"
)

func (m Merge) apply(state, patch json.RawMessage) json.RawMessage {
	if m != MergeRFC7396 {
		return merge.Shallow(state, patch)
	}
	if null(patch) {
		return emptyObject // null removes the member: the state begins again
	}
	return merge.Patch(state, patch)
}

var emptyObject = json.RawMessage("{}")

func null(doc json.RawMessage) bool { return string(bytes.TrimSpace(doc)) == "null" }

// compact returns doc in the form in which documents are kept.
func compact(doc json.RawMessage) json.RawMessage { return wait.Compact(doc) }
