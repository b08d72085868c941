package execution

// Directive is what the server asks of a worker in every answer.
type Directive string

// The directives.
const (
	DirectiveCancel Directive = "cancel" // end the execution
	DirectiveDrain  Directive = "drain"  // take no more work, end what you hold, and stop
	// DirectiveBudgetLow says that little is left of a budget.
	DirectiveBudgetLow Directive = "budget_low"
	// DirectiveSuspend says that the execution was suspended: stop, a later claim goes on with it.
	DirectiveSuspend Directive = "suspend"
)

// Directives returns what is asked of e's worker.
func (e *Execution) Directives(draining bool) []Directive {
	var all []Directive
	if e.cancelling() {
		all = append(all, DirectiveCancel)
	}
	if draining {
		all = append(all, DirectiveDrain)
	}
	return all
}
