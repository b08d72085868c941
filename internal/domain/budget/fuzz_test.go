package budget_test

import (
	"errors"
	"strings"
	"testing"
	"time"

	"github.com/flowapi/flowapi/internal/domain/budget"
	"github.com/flowapi/flowapi/internal/domain/fault"
)

// FuzzSchedule: a schedule that is taken names a whole minute that comes, and another one after that.
func FuzzSchedule(f *testing.F) {
	for _, seed := range []string{"* * * * *", "0 6 * * *", "@daily", "@every 1s", "TZ=UTC 0 0 * * *", "0 0 30 2 *", "0 0 29 2 1", "*/7 1-5 ? JAN-DEC MON", "59 23 31 12 *", "60 * * * *", "1-0 * * * *",
		"0 2 29 3 *", "*/0 * * * *", "0,0 * * * *", "L * * * *", "* * L * *", "* * * * MON#2"} {
		f.Add(seed, "Europe/Berlin", int64(1774746000))
	}
	f.Add("30 1 * * *", "America/New_York", int64(1793510999))
	f.Add("0 0 * * *", "../../etc/passwd", int64(0))
	f.Add("0 0 * * *", "Local", int64(0))
	f.Fuzz(func(t *testing.T, cron, zone string, at int64) {
		now := time.Unix(at%(1<<33), 0).UTC()
		s := budget.Schedule{Cron: cron, TimeZone: zone}
		for range 3 {
			next, err := s.Next(now)
			if err != nil {
				f, ok := errors.AsType[*fault.Error](err)
				if !ok || f.Code != fault.CodeValidationFailed || len(f.Fields) != 1 || !strings.HasPrefix(f.Fields[0].Pointer, "/schedule/") {
					t.Fatalf("refused with %#v", err)
				}
				return
			}
			if !next.After(now) || next.Location() != time.UTC {
				t.Fatalf("after %s comes %s", now, next)
			}
			now = next
		}
	})
}
