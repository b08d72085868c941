package execution

import (
	"crypto/subtle"
	"encoding/base64"
	"encoding/binary"
	"strings"

	"github.com/google/uuid"

	"github.com/flowapi/flowapi/internal/domain/fault"
)

// Fence proves that its bearer owns an execution: a worker sends it with everything that it does.
type Fence struct {
	ExecutionID  uuid.UUID
	LeaseID      uuid.UUID
	AttemptID    uuid.UUID
	LeaseEpoch   int64
	AttemptIndex int
	Override     bool // an operator stands in for the owner, whoever that is
}

// Fence returns what proves the ownership of e's current holder.
func (e *Execution) Fence() Fence {
	return Fence{ExecutionID: e.ID, LeaseID: e.Lease.ID, AttemptID: e.Lease.AttemptID, LeaseEpoch: e.Lease.Epoch, AttemptIndex: e.AttemptIndex}
}

const (
	handleVersion = 1
	handleSize    = 1 + 3*16 + 8 + 4
)

// Handle returns the fence as the opaque string that workers keep.
func (f Fence) Handle() string {
	b := make([]byte, 0, handleSize)
	b = append(b, handleVersion)
	b = append(b, f.ExecutionID[:]...)
	b = append(b, f.LeaseID[:]...)
	b = append(b, f.AttemptID[:]...)
	b = binary.BigEndian.AppendUint64(b, uint64(f.LeaseEpoch))   //nolint:gosec // neither is negative: who reads them refuses that
	b = binary.BigEndian.AppendUint32(b, uint32(f.AttemptIndex)) //nolint:gosec // as above
	return base64.RawURLEncoding.EncodeToString(b)
}

// ParseHandle reads what Handle wrote, for the given execution. It returns CodeInvalidHandle.
func ParseHandle(handle string, id uuid.UUID) (Fence, error) {
	f, err := ParseAnyHandle(handle)
	if err == nil && f.ExecutionID != id {
		return Fence{}, fault.Invalid(fault.CodeInvalidHandle, "/handle", "The handle belongs to execution %s, not to %s. Report to the execution that it was given for.", f.ExecutionID, id)
	}
	return f, err
}

// ParseAnyHandle reads what Handle wrote, for whatever execution. It returns CodeInvalidHandle.
func ParseAnyHandle(handle string) (Fence, error) {
	b, err := base64.RawURLEncoding.Strict().DecodeString(handle)
	if err != nil || len(b) != handleSize || b[0] != handleVersion || strings.ContainsAny(handle, "\r\n") { // which base64 passes over
		return Fence{}, fault.Invalid(fault.CodeInvalidHandle, "/handle", "The handle is not one of ours. Send the handle of the claim answer unchanged.")
	}
	var f Fence
	copy(f.ExecutionID[:], b[1:17])
	copy(f.LeaseID[:], b[17:33])
	copy(f.AttemptID[:], b[33:49])
	epoch, index := binary.BigEndian.Uint64(b[49:57]), binary.BigEndian.Uint32(b[57:61])
	if epoch > 1<<62 || index > 1<<30 {
		return Fence{}, fault.Invalid(fault.CodeInvalidHandle, "/handle", "The handle is not one of ours. Send the handle of the claim answer unchanged.")
	}
	f.LeaseEpoch, f.AttemptIndex = int64(epoch), int(index)
	return f, nil
}

// AnyAttempt stands for the attempt index in a fence that was sent without one: lease and attempt id tell it.
const AnyAttempt = -2

// equal compares in constant time: the attempt id is a secret.
func (f Fence) equal(g Fence) bool {
	return f.ExecutionID == g.ExecutionID && f.LeaseID == g.LeaseID && f.LeaseEpoch == g.LeaseEpoch &&
		(f.AttemptIndex == AnyAttempt || f.AttemptIndex == g.AttemptIndex) &&
		subtle.ConstantTimeCompare(f.AttemptID[:], g.AttemptID[:]) == 1
}
