package report_test

import (
	"regexp"
	"strings"
	"testing"

	"github.com/workwire/workwire/test/bench/report"
	"github.com/workwire/workwire/test/kit"
)

func samples(pairs ...float64) []report.Sample {
	var list []report.Sample
	for i := 0; i < len(pairs); i += 2 {
		list = append(list, report.Sample{Measured: pairs[i], Baseline: pairs[i+1]})
	}
	return list
}

func TestJudge(t *testing.T) {
	limit := func(x float64) *float64 { return &x }
	for name, c := range map[string]struct {
		row           report.Row
		median, ratio float64
		holds         string
	}{
		"median of the ratios":        {report.Row{Ratio: true, Least: limit(0.6), Samples: samples(60, 100, 10, 10, 50, 100)}, 50, 0.6, "yes"},
		"ratio too low":               {report.Row{Ratio: true, Least: limit(0.61), Samples: samples(60, 100)}, 60, 0.6, "no"},
		"ratio without a baseline":    {report.Row{Ratio: true, Most: limit(2), Samples: samples(60, 0)}, 60, 0, "no"},
		"value at its limit":          {report.Row{Most: limit(4), Samples: samples(4, 0, 3, 0, 9, 0)}, 4, 0, "yes"},
		"value above":                 {report.Row{Most: limit(4), Samples: samples(4, 0, 5, 0)}, 4.5, 0, "no"},
		"nothing to keep to":          {report.Row{Samples: samples(7, 0)}, 7, 0, "–"},
		"no figure is not a good one": {report.Row{Most: limit(4)}, 0, 0, "n/a"},
	} {
		j := c.row.Judge()
		if j.Median != c.median || j.MeasuredRatio != c.ratio || j.Holds != c.holds {
			t.Errorf("%s: median %v, ratio %v, holds %s", name, j.Median, j.MeasuredRatio, j.Holds)
		}
	}
}

func TestQuantile(t *testing.T) {
	values := []float64{4, 1, 3, 2}
	for q, want := range map[float64]float64{0: 1, 0.5: 2.5, 0.95: 3.85, 1: 4} {
		if got := report.Quantile(values, q); got < want-1e-9 || got > want+1e-9 {
			t.Errorf("the quantile %v is %v, want %v", q, got, want)
		}
	}
	if report.Quantile(nil, 0.5) != 0 {
		t.Error("there is a median of nothing")
	}
}

func TestTables(t *testing.T) {
	board := report.NewBoard(regexp.MustCompile("^a"), &report.Row{Name: "apples", Target: "≥ 1", Unit: "kg"}, &report.Row{Name: "ananas"}, &report.Row{Name: "pears"})
	board.Add("apples", report.Sample{Measured: 1234.5, Baseline: 1000})
	board.Add("pears", report.Sample{Measured: 1})
	board.Miss("ananas", "out of season")
	if !board.Wants("pears", "apples") || board.Wants("pears") {
		t.Error("the board does not know what is wanted")
	}
	r := &report.Report{Rows: board.Rows(), Runs: 1}
	var table, markdown strings.Builder
	kit.NoError(t, r.Table(&table))
	kit.NoError(t, r.Markdown(&markdown))
	if want := "| apples | ≥ 1 | 1234 kg | 1234–1234 | 1000 kg | 1.23 | – |\n| ananas |  | n/a | out of season |  |  | n/a |\n"; !strings.HasSuffix(markdown.String(), want) {
		t.Errorf("the table for documents is\n%s", markdown.String())
	}
	if strings.Contains(table.String(), "pears") || !strings.Contains(table.String(), "out of season") {
		t.Errorf("the table is\n%s", table.String())
	}
}
