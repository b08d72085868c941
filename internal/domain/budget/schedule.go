package budget

import (
	"slices"
	"strings"
	"time"

	"github.com/netresearch/go-cron"

	"github.com/flowapi/flowapi/internal/domain/fault"
)

// Schedule says when a budget is reset, by the clock of a time zone.
//
// A clock that is put forward skips times, and those that a schedule names come then, at once. A clock that is put back shows
// times twice; a schedule that names hours means the first, so that a daily budget is reset once a day. One for every hour
// goes on every hour. reference: cron(8).
type Schedule struct {
	Cron     string `json:"cron"`      // five fields, or one of Descriptors
	TimeZone string `json:"time_zone"` // IANA
}

// searchYears is how far ahead the next time is looked for: the same day of the week comes round on a leap day within it.
const searchYears = 40

// Descriptors returns the names that may stand for five fields.
func Descriptors() []string { return []string{"@hourly", "@daily", "@weekly", "@monthly"} }

// Next returns the first time of the schedule after now, in UTC. It returns CodeValidationFailed for what is no schedule, or
// names a time that never comes.
func (s Schedule) Next(now time.Time) (time.Time, error) {
	spec, err := s.parse()
	if err != nil {
		return time.Time{}, err
	}
	zone, err := s.zone()
	if err != nil {
		return time.Time{}, err
	}
	next := following(spec, now.In(zone))
	if next.IsZero() {
		return next, s.refuse("/cron", "%q names a time that never comes.", fault.Readable(s.Cron))
	}
	return next.UTC(), nil
}

func (Schedule) refuse(part, format string, args ...any) *fault.Error {
	return fault.Invalid(fault.CodeValidationFailed, "/schedule"+part, format, args...)
}

// parse reads the fields as cron(8) does: a day fits when it is a day of the month or a day of the week that is named, if both are.
func (s Schedule) parse() (*cron.SpecSchedule, error) {
	refused := s.refuse("/cron", "%q must have five fields (minute, hour, day of the month, month, day of the week), or be one of %s.",
		fault.Readable(s.Cron), strings.Join(Descriptors(), ", "))
	if strings.HasPrefix(s.Cron, "@") {
		if !slices.Contains(Descriptors(), s.Cron) {
			return nil, refused
		}
	} else if len(strings.Fields(s.Cron)) != 5 {
		return nil, refused
	}
	parser := cron.MustNewParser(cron.Minute | cron.Hour | cron.Dom | cron.Month | cron.Dow | cron.Descriptor | cron.DowOrDom)
	parsed, err := parser.WithMaxSearchYears(searchYears).Parse(s.Cron)
	if err != nil {
		return nil, refused.Because(err)
	}
	spec, ok := parsed.(*cron.SpecSchedule)
	if !ok {
		return nil, refused
	}
	spec.Location = time.UTC // the clock of the zone is read as if it were there: it never jumps
	return spec, nil
}

// zone returns the time zone. What depends on the machine is none.
func (s Schedule) zone() (*time.Location, error) {
	first, _, _ := strings.Cut(s.TimeZone, "/")
	switch strings.ToLower(first) {
	case "", "local", "localtime", "posix", "posixrules", "right":
	default:
		if zone, err := time.LoadLocation(s.TimeZone); err == nil {
			return zone, nil
		}
	}
	return nil, s.refuse("/time_zone", "%q must be a time zone of the IANA database, such as Europe/Berlin or UTC.", fault.Readable(s.TimeZone))
}

// stretch is a time within which the clock of a zone does not jump.
type stretch struct {
	from, to time.Time     // zero where it is without bounds
	east     time.Duration // of UTC
}

func stretchOf(at time.Time) stretch {
	from, to := at.ZoneBounds()
	_, east := at.Zone()
	return stretch{from, to, time.Duration(east) * time.Second}
}

// clock returns what the clock of the zone shows at a time, as a time in UTC.
func (s stretch) clock(at time.Time) time.Time { return at.UTC().Add(s.east) }

// instant returns when the clock of the zone shows a time: not before the stretch, which has skipped it then.
func (s stretch) instant(clock time.Time) time.Time {
	t := clock.Add(-s.east)
	if t.Before(s.from) {
		return s.from
	}
	return t
}

// following returns the first time of a schedule after now, whose location is the zone; zero when none comes.
func following(spec *cron.SpecSchedule, now time.Time) time.Time {
	const second = time.Second // schedules are in whole minutes
	everyHour := spec.Hour&(1<<24-1) == 1<<24-1
	s := stretchOf(now)
	shown := s.clock(now)
	if !everyHour && !s.from.IsZero() { // the last clock may have shown more already
		last := s.from.Add(-second)
		shown = latest(shown, stretchOf(last).clock(last))
	}
	for {
		clock := spec.Next(shown)
		if clock.IsZero() {
			return clock
		}
		at := s.instant(clock)
		if s.to.IsZero() || at.Before(s.to) {
			return at
		}
		last, next := s.to.Add(-second), stretchOf(s.to)
		if everyHour {
			shown = next.clock(last) // as if it had always been like that: what is skipped never comes, what is repeated comes twice
		} else {
			shown = s.clock(last)
		}
		s = next
	}
}

func latest(a, b time.Time) time.Time {
	if a.After(b) {
		return a
	}
	return b
}
