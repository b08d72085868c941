package store

import (
	"github.com/google/uuid"

	"github.com/flowapi/flowapi/internal/domain/fault"
)

// Once makes a record under an id that its creator may have chosen: the same create again finds the record, and changes nothing, also
// when both are under way at the same time. find returns CodeNotFound for a record that the caller's namespace does not have, create
// returns [Taken] when it has met one, and has written nothing then.
func Once[T any](id uuid.UUID, find, create func(id uuid.UUID) (T, error)) (it T, existing bool, err error) {
	if id == uuid.Nil {
		id = NewID()
	} else if it, err = find(id); fault.CodeOf(err) != fault.CodeNotFound {
		return it, err == nil, err
	}
	it, err = create(id)
	if fault.CodeOf(err) != fault.CodeAlreadyExists {
		return it, false, err
	}
	found, missing := find(id)
	if fault.CodeOf(missing) == fault.CodeNotFound { // it is elsewhere
		return it, false, err
	}
	return found, missing == nil, missing
}

// Taken refuses an id that another record has.
func Taken(id uuid.UUID) error {
	return fault.New(fault.CodeAlreadyExists, "The id %s is taken. Choose another one.", id)
}
