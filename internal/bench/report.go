package bench

import (
	"fmt"
	"io"
	"math"
	"slices"
	"strconv"
	"strings"
	"text/tabwriter"
	"time"
)

// Report is what a run found.
type Report struct {
	At          time.Time `json:"at"`
	Go          string    `json:"go"`
	OS          string    `json:"os"`
	CPUs        int       `json:"cpus"`
	N           int       `json:"n"`
	Connections int       `json:"connections"`
	Batch       int       `json:"batch"`
	Rows        []Row     `json:"rows"`
}

// Row is one measurement.
type Row struct {
	Measure string  `json:"measure"`
	Stored  int     `json:"stored"` // executions in the database before it, -1 if unknown
	Value   float64 `json:"value"`
	Unit    string  `json:"unit"`
	P50     float64 `json:"p50_ms,omitempty"`
	P99     float64 `json:"p99_ms,omitempty"`
	CPU     float64 `json:"cpu_us,omitempty"` // of the server, for each execution
}

// value renders what was measured: shares and ratios are small numbers.
func (r Row) value() string {
	if r.Unit == unitRatio || r.Unit == unitShare {
		return strconv.FormatFloat(r.Value, 'f', 2, 64)
	}
	return thousands(r.Value)
}

const (
	unitRatio = "x"
	unitShare = "%"
)

const unknown = -1 // executions stored in a server that was not started here

func (r *Report) add(row Row) { r.Rows = append(r.Rows, row) }

// rate adds a row of calls for n executions that took t.
func (r *Report) rate(measure string, stored, n int, t timing) {
	r.add(Row{
		Measure: measure, Stored: stored, Value: float64(n) / t.elapsed.Seconds(), Unit: "/s",
		P50: ms(t.quantile(0.50)), P99: ms(t.quantile(0.99)), CPU: us(t.cpu) / float64(max(1, n)),
	})
}

// Table writes the report for people.
func (r Report) Table(w io.Writer) error {
	fmt.Fprintf(w, "%s, %s, %d CPUs, %d connections, %d executions each\n\n", r.Go, r.OS, r.CPUs, r.Connections, r.N)
	t := tabwriter.NewWriter(w, 0, 0, 2, ' ', tabwriter.AlignRight)
	fmt.Fprintln(t, "stored\tvalue\tunit\tp50 ms\tp99 ms\tserver CPU us\t  measure")
	for _, row := range r.Rows {
		stored, p50, p99, cpu := thousands(float64(row.Stored)), "", "", ""
		if row.Stored == unknown {
			stored = "?"
		}
		if row.P99 > 0 {
			p50, p99 = fmt.Sprintf("%.2f", row.P50), fmt.Sprintf("%.2f", row.P99)
		}
		if row.CPU > 0 {
			cpu = thousands(row.CPU)
		}
		fmt.Fprintf(t, "%s\t%s\t%s\t%s\t%s\t%s\t  %s\n", stored, row.value(), row.Unit, p50, p99, cpu, row.Measure)
	}
	return t.Flush()
}

// timing is how long n calls took, alone and together.
type timing struct {
	elapsed time.Duration
	sorted  []time.Duration
	cpu     time.Duration // of the server, meanwhile
}

func newTiming(elapsed time.Duration, each []time.Duration) timing {
	slices.Sort(each)
	return timing{elapsed: elapsed, sorted: each}
}

// with returns t and what came after it as one.
func (t timing) with(next timing) timing {
	all := newTiming(t.elapsed+next.elapsed, slices.Concat(t.sorted, next.sorted))
	all.cpu = t.cpu + next.cpu
	return all
}

// quantile returns the least duration that a share of q of the calls did not exceed.
func (t timing) quantile(q float64) time.Duration {
	if len(t.sorted) == 0 {
		return 0
	}
	return t.sorted[max(0, int(math.Ceil(q*float64(len(t.sorted))))-1)]
}

// mean returns what a call took on average.
func (t timing) mean() time.Duration {
	var sum time.Duration
	for _, d := range t.sorted {
		sum += d
	}
	return sum / time.Duration(max(1, len(t.sorted)))
}

func us(d time.Duration) float64 { return float64(d) / float64(time.Microsecond) }

func ms(d time.Duration) float64 { return float64(d) / float64(time.Millisecond) }

func mb(bytes int64) float64 { return float64(bytes) / (1 << 20) }

// thousands renders a number rounded to an integer, its digits grouped by commas.
func thousands(f float64) string {
	digits := strconv.FormatInt(int64(math.Round(f)), 10)
	var b strings.Builder
	for i, d := range digits {
		if i > 0 && d != '-' && digits[i-1] != '-' && (len(digits)-i)%3 == 0 {
			b.WriteByte(',')
		}
		b.WriteRune(d)
	}
	return b.String()
}
