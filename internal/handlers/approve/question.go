package approve

import (
	"context"
	"encoding/json"
	"strings"

	"github.com/google/uuid"

	"github.com/flowapi/flowapi/internal/domain/fault"
	"github.com/flowapi/flowapi/internal/domain/waitpoint"
	"github.com/flowapi/flowapi/internal/form"
)

// question is what a person is asked, as whoever has its link sees it. Where it is asked matters only to who makes it.
type question struct {
	Title     string
	Asker     string
	Since     *moment
	About     string // what waits for the answer, in words
	Subject   string // what ID is of
	ID        uuid.UUID
	Namespace string

	Prompt  string
	Payload json.RawMessage
	Asked   form.Form // to fill in
	Selects bool      // a selection may go with an approval
	Options []option  // to select from

	Deadline   *moment
	Left       string // until the deadline
	Then       string // what happens at the deadline
	Have, Need int    // approvals
	NotOwn     bool   // whoever asks may not decide
	Identified bool   // it matters who decides
	Kept       bool   // nobody waits yet

	Decisions []fact // the latest first
	Ending    *fact  // nil while it can be decided

	decide func(ctx context.Context, d decision) (receipt any, err error)
}

// option is what may be selected.
type option struct{ Value, Label string }

// fact is what has become of a question: a decision that was made, or how it has ended.
type fact struct {
	State     string // approved, rejected, noted; of an ending also expired, ended, closed
	Text      string // what that is, in words
	By, ByHow string // who it was, and how we know
	At        *moment
	Reason    string
	Selected  []string
	Note      string // what it did, where that is not what one expects
}

// decision is what somebody decides, once it is checked.
type decision struct {
	Decision   string
	By         string // an actor where it matters who decides, else a name that nobody has checked
	Reason     string
	Form       json.RawMessage
	Selections []string // nil when none was given
}

// The decisions, and the states that they lead to.
const (
	approved = "approved"
	rejected = "rejected"
)

// words say what was decided.
var words = map[string]string{approved: "Approved", rejected: "Rejected", "noted": "Noted"}

// The ends that no person has decided.
const (
	inTime  = "Nobody decided in time."
	noNeed  = "No decision is needed any more."
	wasLate = "This request expired"
	wasShut = "This request was closed"
)

// asTheySay is how we know whoever has only the link.
const asTheySay = "as they call themselves"

// ask returns the question that a link opens: at a waitpoint, or else at a gate. It returns CodeInvalidToken, the same whatever is wrong.
func (p *Page) ask(ctx context.Context, id uuid.UUID, token waitpoint.Token) (*question, error) {
	q, refused := p.atWaitpoint(ctx, id, token)
	if fault.CodeOf(refused) != fault.CodeInvalidToken {
		return q, refused
	}
	q, err := p.atGate(ctx, id, token)
	if fault.CodeOf(err) == fault.CodeInvalidToken {
		return nil, refused
	}
	return q, err
}

// Open says whether it can be decided.
func (q *question) Open() bool { return q.Ending == nil }

// actor returns how people know whoever acts under a name that we gave.
func actor(name string) (who, how string) {
	if name == "local" {
		return "somebody on the server’s own machine", ""
	}
	if token, ok := strings.CutPrefix(name, "token:"); ok {
		return token, "access token"
	}
	return name, ""
}
