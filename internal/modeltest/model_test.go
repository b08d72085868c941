// Package modeltest holds the server to a model of executions: the same random operations go to a server on SQLite, to one on
// PostgreSQL and to the model, and after each of them the three must say the same.
//
// The model is written from the specification alone and calls nothing of the server's domain, so that it can disagree.
package modeltest

import (
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/google/uuid"
)

// instant is a time in milliseconds since the epoch, 0 for none.
type instant = int64

// vector is the state of an execution but for what is derived from it. executions.md 1.9.
type vector struct{ phase, owner, eligible, blocking, outcome, attempt string }

// The places where an execution stands. executions.md 1.9.2.
func waiting(attempt string) vector {
	return vector{"runnable", "unowned", "eligible_now", "waiting_for_worker", "none", attempt}
}

func delayed(reason, attempt string) vector {
	return vector{"runnable", "unowned", "not_eligible_until_time", reason, "none", attempt}
}

func forChildren() vector {
	return vector{"runnable", "unowned", "blocked_by_dependencies", "waiting_for_children", "none", "attempt_interrupted"}
}

func suspended(blocking string) vector {
	return vector{"suspended", "unowned", "not_applicable", blocking, "none", "attempt_interrupted"}
}

func leased() vector {
	return vector{"active", "leased", "not_applicable", "none", "none", "running_attempt"}
}

func lost(how string) vector {
	return vector{"active", how, "not_applicable", "waiting_for_worker", "none", "attempt_interrupted"}
}

func terminal(outcome, attempt string) vector {
	return vector{"terminal", "unowned", "not_applicable", "none", outcome, attempt}
}

// publicOf derives the public state. executions.md 1.9.3.
func publicOf(v vector) string {
	switch v.phase {
	case "terminal":
		if v.outcome == "success" {
			return "completed"
		}
		return v.outcome
	case "suspended", "active":
		return v.phase
	}
	switch v.eligible {
	case "not_eligible_until_time":
		return "delayed"
	case "blocked_by_dependencies":
		return "waiting_children"
	case "blocked_by_budget", "blocked_by_quota":
		return "rate_limited"
	default:
		return "waiting"
	}
}

// execution is what the model knows of one.
type execution struct {
	name     string
	id       uuid.UUID
	lane     string
	priority int
	needs    []string
	tags     map[string]string
	policy   policy
	vector

	created, started, completed instant
	delay                       instant // until when it is put off
	deadline                    instant // of the whole execution
	timeout                     instant // of the attempt
	left                        instant // of the attempt's time, when it was given back
	resumed                     bool    // what is under way has only what was left of its time

	attempts                   []*attempt
	current                    int // index of the current or last attempt, -1 before the first
	retries, replays, reclaims int
	epoch                      int64
	owner                      *owner // who holds it, or held it last
	expires                    instant
	ending                     *ending
	grant                      *grant
	cancellation               *cancellation
	failure                    *failure
	progress                   *progress
	result                     string
	revision                   int64
	events                     []string
	suspension                 *suspension // the present one, or the last
	waitpoints                 []*waitpoint
	signals                    []*signal
	suspendKeys                map[string]*suspendKey
}

// attempt is one try.
type attempt struct {
	kind, state      string
	worker, instance string
	epoch            int64
	started, ended   instant
	failure          *failure
	reclaim          string
	previous         int // -1 for none
}

// owner is one acquisition. Its number stands for lease id, attempt id and handle, which every server makes for itself.
type owner struct {
	number           int
	e                *execution
	index            int // of the attempt
	worker, instance string
	epoch            int64
	acquired         instant
}

// ending is how the last owner gave an execution back. executions.md 2.12.
type ending struct {
	op      string
	owner   *owner
	outcome string  // of a failure
	retry   instant // of a failure
}

type grant struct {
	number  int
	e       *execution
	kind    string
	worker  string
	expires instant
}

type cancellation struct {
	reason              string
	requested, deadline instant
}

type failure struct{ reason, category string }

type progress struct {
	pct     *int
	message *string
	at      instant
}

// laneState is a lane that was paused once.
type laneState struct {
	paused   bool
	reason   string
	changed  instant
	revision int64
}

// worker is a row of the register.
type worker struct {
	id                             string
	lanes, capabilities            []string
	ttl                            int64
	registered, heartbeat, expires instant
	draining                       instant
}

// model is one namespace.
type model struct {
	start, now instant
	executions []*execution
	owners     []*owner // by number, from 1
	grants     []*grant
	keys       map[string]keyed
	lanes      map[string]*laneState
	workers    map[string]*worker
	events     map[string][]string // of lanes and workers
	reached    map[string]int      // points that runs are to come by
}

// keyed is what an idempotency_key stands for.
type keyed struct {
	e       *execution
	expires instant
}

func newModel(now instant, reached map[string]int) *model {
	return &model{start: now, now: now, keys: map[string]keyed{}, lanes: map[string]*laneState{}, workers: map[string]*worker{},
		events: map[string][]string{}, reached: reached}
}

func (m *model) reach(point string) { m.reached[point]++ }

func (m *model) byID(id uuid.UUID) *execution {
	i := slices.IndexFunc(m.executions, func(e *execution) bool { return e.id == id })
	if i < 0 {
		return nil
	}
	return m.executions[i]
}

// change is one change of e: one revision, and the events that tell it.
func (e *execution) change(events ...string) {
	e.revision++
	e.events = append(e.events, events...)
}

// held says whether somebody owns e now.
func (m *model) held(e *execution) bool {
	return e.phase == "active" && e.vector.owner == "leased" && e.expires > m.now
}

// isLost says whether an owner has lost e, and that was noted.
func (e *execution) isLost() bool { return e.phase == "active" && e.vector.owner != "leased" }

// cancelling says whether e's owner was asked to end it.
func (e *execution) cancelling() bool { return e.phase == "active" && e.cancellation != nil }

// granted says whether a grant is good.
func (m *model) granted(e *execution) bool { return e.grant != nil && e.grant.expires > m.now }

func (m *model) paused(lane string) bool { return m.lanes[lane] != nil && m.lanes[lane].paused }

// live returns the registration of an instance that has not lapsed.
func (m *model) live(instance string) *worker {
	if w := m.workers[instance]; w != nil && w.expires > m.now {
		return w
	}
	return nil
}

func (m *model) draining(instance string) bool {
	w := m.live(instance)
	return w != nil && w.draining != 0
}

// within says whether all of need is in has.
func within(need, has []string) bool {
	return !slices.ContainsFunc(need, func(n string) bool { return !slices.Contains(has, n) })
}

// at shows a time as the model and the servers both can: as milliseconds since the run began.
func (m *model) at(t instant) string {
	if t == 0 {
		return ""
	}
	return fmt.Sprintf("%+dms", t-m.start)
}

func sortedTags(tags map[string]string) string {
	var all []string
	for _, key := range slices.Sorted(maps.Keys(tags)) {
		all = append(all, key+"="+tags[key])
	}
	return strings.Join(all, " ")
}
