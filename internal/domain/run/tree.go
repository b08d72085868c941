package run

import (
	"cmp"
	"strconv"
	"strings"
	"time"

	"github.com/flowapi/flowapi/internal/domain/execution"
	"github.com/flowapi/flowapi/internal/domain/flow"
)

// Tree is what stands in one another: flow, runs, steps, executions, attempts.
type Tree struct {
	Root      Node
	Truncated bool // there is more than is shown
}

// MaxNodes bounds how much of a tree is shown.
const MaxNodes = 2000

// Node is one thing in a tree.
type Node struct {
	Type      NodeType
	ID        string // of an attempt its index
	Name      string
	Status    string // in its own words
	Class     Class  // in words that all have in common
	Why       string // why it is not running, "" when it is or has ended
	StartedAt time.Time
	EndedAt   time.Time
	Children  []Node
}

// NodeType says what a node is.
type NodeType string

// The types.
const (
	NodeFlow      NodeType = "flow"
	NodeRun       NodeType = "run"
	NodeStep      NodeType = "step"
	NodeExecution NodeType = "execution"
	NodeAttempt   NodeType = "attempt"
)

// Node returns the node of a run, without what is in it.
func (r *Run) Node(now time.Time) Node {
	n := Node{Type: NodeRun, ID: r.ID.String(), Name: r.Name(), Status: string(r.Status), Class: r.ClassOf(), StartedAt: r.StartedAt, EndedAt: r.EndedAt}
	switch {
	case r.Status == Pending:
		n.Why = "no engine has started it"
	case r.Status == NeedsResume:
		n.Why = "its engine has given it up: resume it"
	case r.Status == Cancelling:
		n.Why = "its engine was asked to end it"
	case r.Status == Waiting:
		on := r.On()
		n.Why = "it waits for " + words(on.Type)
		if on.GateName != "" {
			n.Why += " (" + on.GateName + ")"
		}
	case r.Status == Running && !r.Lease.Live(now):
		n.Why = "no engine holds its lease"
	}
	return n
}

// Node returns the node of a step, without what is in it.
func (s *Step) Node() Node {
	n := Node{Type: NodeStep, ID: s.ID.String(), Name: s.Name, Status: string(s.Status), Class: stepClasses[s.Status], StartedAt: s.StartedAt, EndedAt: s.EndedAt}
	switch {
	case s.Gate.Open():
		n.Why = "its gate (" + s.Gate.Type + ") waits for an answer until " + s.Gate.DeadlineAt.UTC().Format(time.RFC3339)
	case s.Status == StepWaiting && s.HasChild():
		n.Why = "what does its work waits"
	case s.Status == StepWaiting:
		n.Why = "its engine has parked it"
	case s.Status == StepPending && s.HasChild():
		n.Why = "nobody has begun its work"
	case s.Status == StepPending:
		n.Why = "its engine has not begun it"
	case s.Status == StepRunning && s.FanOut.Open() > 0:
		n.Why = strconv.Itoa(s.FanOut.Open()) + " of its " + strconv.Itoa(s.FanOut.Total()) + " items have not ended"
	}
	return n
}

// ExecutionNode returns the node of an execution with its attempts. name is what it is called where it works.
func ExecutionNode(w *execution.Worked, name string) Node {
	e := &w.Execution
	n := Node{Type: NodeExecution, ID: e.ID.String(), Name: cmp.Or(name, e.Key, e.Kind, e.Lane), Status: string(e.Public()), Class: cmp.Or(executionClasses[e.Public()], ClassOpen),
		StartedAt: e.StartedAt, EndedAt: e.CompletedAt}
	switch {
	case e.Lifecycle == execution.Terminal:
	case e.Lifecycle == execution.Active && e.Cancellation != nil:
		n.Class, n.Why = ClassCancelling, "its worker was asked to end it"
	case e.Public() != execution.PublicActive || e.Ownership != execution.Leased:
		n.Why = cmp.Or(e.BlockingDetail, words(string(e.Blocking)))
	}
	for _, a := range w.Attempts {
		n.Children = append(n.Children, Node{Type: NodeAttempt, ID: strconv.Itoa(a.Index), Name: a.WorkerID, Status: string(a.Stage), Class: attemptClasses[a.Stage],
			StartedAt: a.StartedAt, EndedAt: a.EndedAt})
	}
	return n
}

// FlowNode returns the node of a flow, without what is in it.
func FlowNode(f *flow.Flow) Node {
	n := Node{Type: NodeFlow, ID: f.ID.String(), Name: f.Goal, Status: string(f.Status), Class: flowClass(f), StartedAt: f.CreatedAt, EndedAt: f.EndedAt}
	switch {
	case f.Status.Terminal():
	case f.CancelRequested:
		n.Why = "its cancellation was requested"
	case f.Status == flow.Waiting:
		n.Why = "it waits for " + words(string(f.Wait.Condition.Kind))
	case f.Status == flow.Created:
		n.Why = "it has not been started"
	}
	return n
}

// words is a name as people say it.
func words(name string) string { return strings.ReplaceAll(name, "_", " ") }
