package shape

import (
	"strconv"
	"strings"
	"time"
)

// Limit is one limit as the RateLimit headers tell it.
type Limit struct {
	Name   string // letters, digits and what needs no escape between quotes
	Max    int64
	Left   int64
	Window time.Duration // zero without one of a fixed length
	MoreAt time.Time     // when there is more, zero where nobody knows
}

// maxInteger is the largest integer of a structured field, RFC 9651.
const maxInteger = 999_999_999_999_999

// RateLimit returns the headers RateLimit-Policy and RateLimit (draft-ietf-httpapi-ratelimit-headers) for some limits, nil for none.
func RateLimit(limits []Limit, now time.Time) (policy, left *string) {
	if len(limits) == 0 {
		return nil, nil
	}
	policies, lefts := make([]string, len(limits)), make([]string, len(limits))
	for i, l := range limits {
		policies[i], lefts[i] = `"`+l.Name+`";q=`+integer(l.Max), `"`+l.Name+`";r=`+integer(l.Left)
		if l.Window > 0 {
			policies[i] += ";w=" + seconds(l.Window)
		}
		if !l.MoreAt.IsZero() {
			lefts[i] += ";t=" + seconds(l.MoreAt.Sub(now))
		}
	}
	return new(strings.Join(policies, ", ")), new(strings.Join(lefts, ", "))
}

func integer(n int64) string { return strconv.FormatInt(min(max(n, 0), maxInteger), 10) }

// seconds returns d in whole seconds, of which the last has ended.
func seconds(d time.Duration) string { return integer(int64((d + time.Second - 1) / time.Second)) }
