// Package ask reads what the operations of all subjects may be asked: conditions on a revision, how long to wait, where a
// list goes on. It also says in an answer what was understood.
package ask

import (
	"context"
	"net/url"
	"strconv"
	"strings"
	"time"

	"github.com/flowapi/flowapi/internal/call"
	"github.com/flowapi/flowapi/internal/domain/fault"
	"github.com/flowapi/flowapi/internal/domain/page"
	"github.com/flowapi/flowapi/internal/domain/tag"
)

// MaxWait bounds Prefer: wait=N.
const MaxWait = 55 * time.Second

// Or returns what p points to, or otherwise.
func Or[T any](p *T, otherwise T) T {
	if p == nil {
		return otherwise
	}
	return *p
}

// ETag returns the entity tag of a revision.
func ETag(revision int64) string { return `"` + strconv.FormatInt(revision, 10) + `"` }

// Expected returns the revision that a change depends on, nil when it depends on none: If-Match as "7" or W/"7" (proxies
// weaken), or the query parameter revision. If-Match: * asks for any. It returns CodeInvalidParameter.
func Expected(ifMatch *string, revision *int64) (*int64, error) {
	if ifMatch == nil || strings.TrimSpace(*ifMatch) == "*" {
		return revision, nil
	}
	n, ok := parseTag(*ifMatch)
	if !ok {
		f := fault.New(fault.CodeInvalidParameter, `If-Match must be the ETag of one revision, such as "7".`)
		f.Fields = []fault.Field{{In: fault.InHeader, Pointer: "If-Match", Detail: "not an ETag of this server", Code: f.Code}}
		return nil, f
	}
	return &n, nil
}

// Unchanged says whether the caller has the revision already, by its If-None-Match.
func Unchanged(ifNoneMatch *string, revision int64) bool {
	if ifNoneMatch == nil {
		return false
	}
	for tag := range strings.SplitSeq(*ifNoneMatch, ",") {
		if n, ok := parseTag(tag); ok && n == revision {
			return true
		}
	}
	return false
}

func parseTag(s string) (int64, bool) {
	s = strings.TrimPrefix(strings.TrimSpace(s), "W/")
	s, quoted := strings.CutPrefix(s, `"`)
	s, ended := strings.CutSuffix(s, `"`)
	n, err := strconv.ParseInt(s, 10, 64)
	return n, err == nil && n >= 0 && quoted == ended
}

// Wait returns how long the caller is ready to wait (Prefer: wait=N), and what Preference-Applied says of it: nil when it
// did not ask.
func Wait(prefer *string) (time.Duration, *string) {
	if prefer == nil {
		return 0, nil
	}
	for part := range strings.FieldsFuncSeq(*prefer, func(r rune) bool { return r == ',' || r == ';' }) {
		name, value, _ := strings.Cut(strings.TrimSpace(part), "=")
		if !strings.EqualFold(strings.TrimSpace(name), "wait") {
			continue
		}
		n, err := strconv.Atoi(strings.Trim(strings.TrimSpace(value), `"`))
		if err != nil || n < 0 {
			return 0, nil // a preference that is not understood is ignored: RFC 7240
		}
		n = min(n, int(MaxWait/time.Second))
		return time.Duration(n) * time.Second, new("wait=" + strconv.Itoa(n))
	}
	return 0, nil
}

// Tags returns what tag filters of the form key:value ask for. It returns CodeValidationFailed and CodeInvalidTagKey.
func Tags(filters []string) ([]tag.Pair, error) {
	var all []tag.Pair
	for _, filter := range filters {
		key, value, ok := strings.Cut(filter, ":")
		if !ok {
			return nil, fault.MovedTo(fault.Invalid(fault.CodeValidationFailed, "tag", "The filter has the form tag=key:value."), fault.InQuery, "")
		}
		if err := tag.CheckKey(key, "tag"); err != nil {
			return nil, fault.MovedTo(err, fault.InQuery, "")
		}
		all = append(all, tag.Pair{Key: key, Value: value})
	}
	return all, nil
}

// Millis returns the time that a number of milliseconds is.
func Millis(ms int64) time.Duration { return time.Duration(ms) * time.Millisecond }

// Limit returns how many rows a page may have.
func Limit(limit *int) int { return Or(limit, page.DefaultLimit) }

// Next returns a list's next_cursor and its Link header, both nil at the end.
func Next(ctx context.Context, c page.Cursor) (cursor, header *string) {
	if c.IsZero() {
		return nil, nil
	}
	next := c.String()
	return &next, link(ctx, "cursor", next)
}

// NextName is Next of a list that is ordered by name.
func NextName(ctx context.Context, name string) (cursor, header *string) {
	if name == "" {
		return nil, nil
	}
	next := page.NameCursor(name)
	return &next, link(ctx, "cursor", next)
}

// NextAt is Next of a list whose cursors have a form of their own.
func NextAt(ctx context.Context, at string) (cursor, header *string) {
	return &at, link(ctx, "cursor", at)
}

// link returns the Link header for the request's own target with one parameter changed.
func link(ctx context.Context, name, value string) *string {
	target, err := url.Parse(call.From(ctx).Target)
	if err != nil {
		return nil
	}
	q := target.Query()
	q.Set(name, value)
	return new("<" + (&url.URL{Path: target.Path, RawQuery: q.Encode()}).String() + `>; rel="next"`)
}

// Text says whether the caller prefers plain text to JSON.
func Text(ctx context.Context) bool {
	accept := call.From(ctx).Accept
	return strings.Contains(accept, "text/plain") && !strings.Contains(accept, "application/json")
}

// EventStream says whether the caller prefers a stream of events to JSON.
func EventStream(ctx context.Context) bool {
	accept := call.From(ctx).Accept
	return strings.Contains(accept, "text/event-stream") && !strings.Contains(accept, "application/json")
}

// After returns the Link header of a list that goes on after an id.
func After(ctx context.Context, id int64) *string {
	return link(ctx, "after", strconv.FormatInt(id, 10))
}

// LastEventID reads the header that an EventSource sends when it connects again. It returns CodeInvalidCursor.
func LastEventID(value string) (int64, error) {
	id, err := strconv.ParseInt(strings.TrimSpace(value), 10, 64)
	if err != nil || id < 0 {
		f := fault.New(fault.CodeInvalidCursor, "Last-Event-ID must be the id of an event.")
		f.Fields = []fault.Field{{In: fault.InHeader, Pointer: "Last-Event-ID", Detail: "not an event id", Code: f.Code}}
		return 0, f
	}
	return id, nil
}

// Names returns the values of a parameter that may be repeated, and may have several values between commas.
func Names[T ~string](values []string) []T {
	var out []T
	for _, v := range values {
		for name := range strings.SplitSeq(v, ",") {
			out = append(out, T(strings.TrimSpace(name)))
		}
	}
	return out
}
