// Package report holds the figures of a benchmark and shows them: as a table for a terminal, as one
// for docs/performance.md, and as JSON.
package report

import (
	"fmt"
	"io"
	"math"
	"slices"
	"strings"
	"text/tabwriter"
	"time"
)

// Sample is one run's figure.
type Sample struct {
	// Measured is what was measured, and Baseline what the surroundings alone did in the same run,
	// in the same unit; 0 when there is none.
	Measured float64 `json:"measured"`
	Baseline float64 `json:"baseline,omitempty"`
	// Detail has more that was seen: seconds of CPU, counts and the like.
	Detail map[string]any `json:"detail,omitempty"`
}

// Row is one figure.
type Row struct {
	// Name of the figure, and the Target as the requirement words it.
	Name   string `json:"name"`
	Target string `json:"target,omitempty"`
	// Unit of Measured and Baseline.
	Unit string `json:"unit"`
	// Ratio judges measured/baseline rather than measured.
	Ratio bool `json:"ratio,omitempty"`
	// Least and Most are the limits that the median must keep to; nil: none.
	Least *float64 `json:"least,omitempty"`
	Most  *float64 `json:"most,omitempty"`
	// Samples, one a run.
	Samples []Sample `json:"samples"`
	// Why there are no samples, when they can not be had.
	Why string `json:"why,omitempty"`
}

// Judged is a row with its summary.
type Judged struct {
	*Row
	Median        float64 `json:"median"`
	Min           float64 `json:"min"`
	Max           float64 `json:"max"`
	BaselineOf    float64 `json:"baselineMedian,omitempty"`
	MeasuredRatio float64 `json:"ratioMedian,omitempty"`
	Holds         string  `json:"holds"` // yes, no, n/a, or – without a limit
}

// Judge sums a row up: medians over the runs, of the ratio too.
func (r *Row) Judge() Judged {
	j := Judged{Row: r, Holds: "n/a"}
	if len(r.Samples) == 0 {
		return j
	}
	var measured, bases, ratios []float64
	for _, s := range r.Samples {
		measured = append(measured, s.Measured)
		if s.Baseline != 0 {
			bases = append(bases, s.Baseline)
			ratios = append(ratios, s.Measured/s.Baseline)
		}
	}
	j.Median, j.Min, j.Max = Quantile(measured, 0.5), slices.Min(measured), slices.Max(measured)
	j.BaselineOf, j.MeasuredRatio = Quantile(bases, 0.5), Quantile(ratios, 0.5)
	judged := j.Median
	if r.Ratio {
		judged = j.MeasuredRatio
	}
	switch {
	case r.Least == nil && r.Most == nil:
		j.Holds = "–"
	case r.Least != nil && judged < *r.Least, r.Most != nil && judged > *r.Most, r.Ratio && len(ratios) == 0:
		j.Holds = "no"
	default:
		j.Holds = "yes"
	}
	return j
}

// Quantile gives the value below which the share q of values lies, interpolating; 0 for none.
func Quantile(values []float64, q float64) float64 {
	if len(values) == 0 {
		return 0
	}
	sorted := slices.Sorted(slices.Values(values))
	at := q * float64(len(sorted)-1)
	low := int(at)
	high := min(low+1, len(sorted)-1)
	return sorted[low] + (at-float64(low))*(sorted[high]-sorted[low])
}

// Machine is what the figures were measured on.
type Machine struct {
	CPU        string `json:"cpu"`
	Cores      int    `json:"cores"`
	Memory     string `json:"memory"`
	Kernel     string `json:"kernel"`
	Go         string `json:"go"`
	Kubernetes string `json:"kubernetes"`
	Broker     string `json:"broker"`
	Agent      string `json:"agent"`
	Load       string `json:"load"` // average at the start, over 1, 5 and 15 minutes
}

// Report is a whole benchmark.
type Report struct {
	Began   time.Time     `json:"began"`
	Took    time.Duration `json:"tookNanoseconds"`
	Machine Machine       `json:"machine"`
	Runs    int           `json:"runs"`
	Options any           `json:"options"`
	Rows    []*Row        `json:"-"`
}

// Summary is the report with every row judged, to be written as JSON.
func (r *Report) Summary() any {
	judged := make([]Judged, len(r.Rows))
	for i, row := range r.Rows {
		judged[i] = row.Judge()
	}
	return struct {
		*Report
		Rows []Judged `json:"rows"`
	}{r, judged}
}

var head = []string{"figure", "target", "median", "spread", "baseline", "ratio", "holds"}

// Table writes the report for a terminal.
func (r *Report) Table(w io.Writer) error {
	fmt.Fprintf(w, "\n%s\n\n", r.about())
	table := tabwriter.NewWriter(w, 0, 0, 2, ' ', 0)
	fmt.Fprintln(table, strings.Join(head, "\t"))
	for _, cells := range r.cells() {
		fmt.Fprintln(table, strings.Join(cells, "\t"))
	}
	return table.Flush()
}

// Markdown writes the report for a document.
func (r *Report) Markdown(w io.Writer) error {
	var text strings.Builder
	fmt.Fprintf(&text, "%s\n\n| %s |\n|%s\n", r.about(), strings.Join(head, " | "), strings.Repeat("---|", len(head)))
	for _, cells := range r.cells() {
		fmt.Fprintf(&text, "| %s |\n", strings.Join(cells, " | "))
	}
	_, err := io.WriteString(w, text.String())
	return err
}

func (r *Report) about() string {
	m := r.Machine
	return fmt.Sprintf("%s: %d cores (%s), %s of memory, Linux %s, %s, Kubernetes %s, broker %s, agent %s. %d runs in %s; load before %s.",
		r.Began.UTC().Format("2006-01-02 15:04 UTC"), m.Cores, m.CPU, m.Memory, m.Kernel, m.Go, m.Kubernetes, m.Broker, m.Agent,
		r.Runs, r.Took.Round(time.Second), m.Load)
}

func (r *Report) cells() [][]string {
	var all [][]string
	for _, row := range r.Rows {
		j := row.Judge()
		cells := []string{row.Name, row.Target, "n/a", row.Why, "", "", j.Holds}
		if len(row.Samples) > 0 {
			cells[2] = strings.TrimSpace(number(j.Median) + " " + row.Unit)
			cells[3] = number(j.Min) + "–" + number(j.Max)
			if j.BaselineOf != 0 {
				cells[4] = strings.TrimSpace(number(j.BaselineOf) + " " + row.Unit)
				cells[5] = number(j.MeasuredRatio)
			}
		}
		all = append(all, cells)
	}
	return all
}

// number shows about three digits.
func number(x float64) string {
	switch size := math.Abs(x); {
	case x == math.Trunc(x) && size < 1e6, size >= 100:
		return fmt.Sprintf("%.0f", x)
	case size >= 10:
		return fmt.Sprintf("%.1f", x)
	case size >= 0.1:
		return fmt.Sprintf("%.2f", x)
	default:
		return fmt.Sprintf("%.2g", x)
	}
}
