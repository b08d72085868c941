package wire

import (
	"encoding/json"
	"errors"
)

// Need is one entry of `needs`: a key, or an object that also asks for the result.
type Need struct {
	Key        string `json:"key"`
	PassResult bool   `json:"pass_result"`
}

// UnmarshalJSON reads both forms.
func (n *Need) UnmarshalJSON(b []byte) error {
	if len(b) > 0 && b[0] == '"' {
		return json.Unmarshal(b, &n.Key)
	}
	type object Need
	return json.Unmarshal(b, (*object)(n))
}

// Join says how many needs have to end well: all of them, any, or a quorum. The zero value is none given.
type Join struct {
	Word   string // all or any
	Quorum int
}

// errJoin is what the contract does not let through.
var errJoin = errors.New("wire: a join is all, any or an object with a quorum")

// UnmarshalJSON reads both forms.
func (j *Join) UnmarshalJSON(b []byte) error {
	if len(b) > 0 && b[0] == '"' {
		return json.Unmarshal(b, &j.Word)
	}
	var object struct {
		Quorum *int `json:"quorum"`
	}
	if err := json.Unmarshal(b, &object); err != nil {
		return err
	}
	if object.Quorum == nil {
		return errJoin
	}
	j.Quorum = *object.Quorum
	return nil
}

// ReplayFrom says which members run again: the failed ones, or those that are named.
type ReplayFrom struct {
	Failed bool
	Names  []string
}

// UnmarshalJSON reads both forms.
func (f *ReplayFrom) UnmarshalJSON(b []byte) error {
	if len(b) > 0 && b[0] == '"' {
		f.Failed = true
		return nil
	}
	return json.Unmarshal(b, &f.Names)
}
