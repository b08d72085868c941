package stream

import (
	"fmt"
	"math"
	"strconv"
	"strings"
	"time"

	"github.com/flowapi/flowapi/internal/domain/fault"
)

// ID is the place of a frame in the stream of its attempt: the millisecond of its append, and its number within that. It is
// written as ms-seq. The order of ids is that of the appends.
type ID int64

// Places around all frames.
const (
	Start ID = 0
	End   ID = math.MaxInt64
)

// SeqBits are the bits of an id that number it within its millisecond, with room for a million frames; more than that go into the
// next one. The rest lasts until 2248.
const SeqBits = 20

// next returns the id of a frame that is appended at now after the frame last. The clock may go backwards, ids do not.
func next(last ID, now time.Time) ID { return max(ID(now.UnixMilli()<<SeqBits), last+1) }

// Next returns the first place after id.
func (id ID) Next() ID {
	if id == End {
		return End
	}
	return id + 1
}

// At returns when the frame was appended.
func (id ID) At() time.Time { return time.UnixMilli(int64(id) >> SeqBits).UTC() }

func (id ID) String() string {
	return strconv.FormatInt(int64(id)>>SeqBits, 10) + "-" + strconv.FormatInt(int64(id)&(1<<SeqBits-1), 10)
}

// ParseID reads a concrete place: <ms>-<seq>, or <ms> for its first one. It returns CodeInvalidCursor.
func ParseID(text string) (ID, error) {
	ms, seq, two := strings.Cut(text, "-")
	at, ok := digits(ms)
	n, fits := digits(seq)
	if !ok || two && !fits {
		return 0, fault.Invalid(fault.CodeInvalidCursor, "", "%q is no place in a stream. Give the id of a frame, such as 1763718600000-0.", fault.Readable(text))
	}
	if at >= math.MaxInt64>>SeqBits || n > math.MaxInt64-at<<SeqBits {
		return End, nil
	}
	return ID(at<<SeqBits + n), nil
}

// ParseBound is ParseID of a bound, which may also be start or end.
func ParseBound(text string) (ID, error) {
	switch text {
	case "start":
		return Start, nil
	case "end":
		return End, nil
	}
	return ParseID(text)
}

// digits returns the number that a text of nothing but digits stands for; one too large is the largest.
func digits(text string) (n int64, ok bool) {
	if text == "" || strings.Trim(text, "0123456789") != "" {
		return 0, false
	}
	n, err := strconv.ParseInt(text, 10, 64)
	if err != nil {
		n = math.MaxInt64
	}
	return n, true
}

// Place is the place of a frame among all attempts at an execution. It is written as attempt/ms-seq.
type Place struct {
	Attempt int
	ID      ID
}

func (p Place) String() string { return fmt.Sprintf("%d/%s", p.Attempt, p.ID) }

// ParsePlace reads what String wrote. It returns CodeInvalidCursor.
func ParsePlace(text string) (Place, error) {
	attempt, id, _ := strings.Cut(text, "/")
	n, ok := digits(attempt)
	if !ok || n > math.MaxInt32 {
		return Place{}, fault.Invalid(fault.CodeInvalidCursor, "", "%q is no place in the streams of an execution. Give one as it was answered.", fault.Readable(text))
	}
	at, err := ParseID(id)
	return Place{int(n), at}, err
}
