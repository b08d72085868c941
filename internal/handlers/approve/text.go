package approve

import (
	"encoding/json"
	"strconv"
	"strings"
	"time"

	"github.com/go-json-experiment/json/jsontext"
)

// moment is a time as people read it, in UTC: the page has no script that knows theirs.
type moment struct{ Text, Stamp string }

func momentOf(t time.Time) *moment {
	if t.IsZero() {
		return nil
	}
	t = t.UTC()
	return &moment{t.Format("Mon 2 Jan 2006, 15:04 UTC"), t.Format(time.RFC3339)}
}

// left is a duration as people say it.
func left(d time.Duration) string {
	say := func(n int, unit string) string {
		if n != 1 {
			unit += "s"
		}
		return "in " + strconv.Itoa(n) + " " + unit
	}
	const day = 24 * time.Hour
	switch {
	case d <= 0:
		return "now"
	case d < time.Minute:
		return "in less than a minute"
	case d < 2*time.Hour-time.Minute:
		return say(int(d.Round(time.Minute)/time.Minute), "minute")
	case d < 2*day-time.Hour:
		return say(int(d.Round(time.Hour)/time.Hour), "hour")
	}
	return say(int(d.Round(day)/day), "day")
}

// unseen are characters that change the order in which others are shown, so that a document would read otherwise than it is.
var unseen = strings.NewReplacer("\u061c", `\u061c`, "\u200e", `\u200e`, "\u200f", `\u200f`, "\u202a", `\u202a`, "\u202b", `\u202b`, "\u202c", `\u202c`, "\u202d", `\u202d`,
	"\u202e", `\u202e`, "\u2066", `\u2066`, "\u2067", `\u2067`, "\u2068", `\u2068`, "\u2069", `\u2069`)

// pretty is a document as people read it.
func pretty(doc json.RawMessage) string {
	if len(doc) == 0 || string(doc) == "null" {
		return ""
	}
	b, err := jsontext.AppendFormat(nil, doc, jsontext.Multiline(true), jsontext.WithIndent("  "), jsontext.SpaceAfterColon(true), jsontext.AllowDuplicateNames(true),
		jsontext.AllowInvalidUTF8(true))
	if err != nil {
		b = doc
	}
	return unseen.Replace(string(b))
}
