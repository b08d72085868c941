package approve

import (
	"errors"
	"net/http"
	"strings"

	"github.com/flowapi/flowapi/internal/domain/fault"
)

// wrong is what is wrong with a decision, part by part, in the order of the page.
type wrong struct {
	parts []part
	cause error // whose status the answer has; nil for what was filled in
}

// part is what is wrong with one field of the page; with its name "", with the whole.
type part struct{ field, detail string }

func (b *wrong) none() bool { return b == nil || len(b.parts) == 0 }

func (b *wrong) add(field, detail string) { b.parts = append(b.parts, part{field, detail}) }

// refuse adds a refusal by its own words.
func (b *wrong) refuse(field string, err error) {
	if f, ok := errors.AsType[*fault.Error](err); ok {
		b.add(field, f.Message)
		b.cause = err
	}
}

// of returns what is wrong with a field.
func (b *wrong) of(field string) string {
	if b != nil {
		for _, p := range b.parts {
			if p.field == field {
				return p.detail
			}
		}
	}
	return ""
}

// refusal returns how the page shows a decision that was refused, nil when it is no refusal of the decision but an error of another kind.
func refusal(err error) *wrong {
	b := &wrong{}
	switch fault.CodeOf(err) {
	case fault.CodeSelfApproval:
		b.refuse("token", err)
	case fault.CodeInvalidSelection:
		b.refuse("selections", err)
	case fault.CodeWaitpointClosed, fault.CodeTargetNotSignalable, fault.CodeGateAlreadyResolved, fault.CodeRunTerminal, fault.CodeIllegalTransition:
		b.add("", "Your decision came too late, and was not recorded.")
		b.cause = err
	case fault.CodeSignalLimitExceeded:
		b.refuse("", err)
	default:
		return nil
	}
	return b
}

func (b *wrong) status() int {
	if b.cause == nil {
		return http.StatusUnprocessableEntity
	}
	return fault.Lookup(fault.CodeOf(b.cause)).Status
}

// fault returns what is wrong as a refusal.
func (b *wrong) fault() error {
	if b.cause != nil {
		return b.cause
	}
	f := fault.New(fault.CodeValidationFailed, "%s", b.parts[0].detail)
	for _, p := range b.parts {
		pointer := "/" + fault.Part(p.field)
		if name, ok := strings.CutPrefix(p.field, fieldPrefix); ok {
			pointer = "/form/" + fault.Part(name)
		}
		f.Fields = append(f.Fields, fault.Field{In: fault.InBody, Pointer: pointer, Detail: p.detail, Code: f.Code})
	}
	return f
}
