package stream

import "time"

// Stream is what is known of the stream of one attempt beside its frames.
type Stream struct {
	Count  int64 // frames that it has ever had
	Last   ID
	Kept   int64 // durable and summary frames that it has now
	Live   int64 // best-effort frames that it has now
	Rate   Rate  // of those
	Pace   Pace
	TrimAt time.Time // when frames are to go that nobody appends behind, zero for never

	Trimmed ID // the last durable frame that is not kept any more, Start before that
}

// trimStep is how many durable frames too many there may be where the policy names no length: they go together.
const trimStep = 250

// Append gives frames their ids and counts them. It returns CodeRateLimited, and s is as it was.
func (s *Stream) Append(frames []Frame, now time.Time) error {
	pace, err := s.Pace.admit(len(frames), now)
	if err != nil {
		return err
	}
	s.Pace = pace
	live, newest := 0, Live{}
	for i := range frames {
		f := &frames[i]
		f.ID = next(s.Last, now)
		s.Last = f.ID
		s.Count++
		if f.Mode != BestEffort {
			s.Kept++
			continue
		}
		f.Live = f.Live.normal()
		live, newest = live+1, f.Live
		if due := now.Add(max(minRest, f.Live.lifetime())); s.TrimAt.IsZero() || due.Before(s.TrimAt) {
			s.TrimAt = due
		}
	}
	if live > 0 {
		s.Live += int64(live)
		s.Rate = s.Rate.after(live, newest, now)
	}
	return nil
}

// ExpiresAt returns when a frame is too old to be kept, zero for one that is durable.
func (f *Frame) ExpiresAt(now time.Time) time.Time {
	if f.Mode != BestEffort {
		return time.Time{}
	}
	return now.Add(f.Live.lifetime())
}

// Trim says how many of the oldest frames of either sort are too many, and counts them out. length is how many durable ones
// are kept, exactly or about.
func (s *Stream) Trim(length int64, exactly bool) (kept, live int64) {
	if kept = s.Kept - length; kept < 0 || !exactly && kept <= trimStep {
		kept = 0
	}
	if s.Rate.Maxlen > 0 {
		live = max(0, s.Live-s.Rate.Maxlen)
	}
	s.Kept -= kept
	s.Live -= live
	return kept, live
}
