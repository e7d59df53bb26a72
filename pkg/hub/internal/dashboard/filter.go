package dashboard

import (
	"fmt"
	"net/url"
	"slices"
	"strconv"
	"strings"

	"k8s.io/apimachinery/pkg/labels"
)

// Limits of a filter.
const (
	pageSize      = 50
	maxPage       = 1_000_000
	maxFilterText = 500 // bytes of each value
)

// filter is what the query of a URL selects of a list. All parts must match.
type filter struct {
	State    state
	Cluster  string // exact name
	Cause    string // of works: exact, as [workRow] has it
	Text     string // in the name, the cluster or the reason, without regard to case
	Selector string // label selector, as kubectl's -l
	Page     int    // from 1
	Problem  string // what is wrong with the query, "" if nothing is

	labels labels.Selector // nil: all
}

// parseFilter reads a filter from the query of a URL; states are those that the list knows. With a
// Problem nothing matches.
func parseFilter(query url.Values, states []state) filter {
	get := func(key string) string { return strings.TrimSpace(query.Get(key)) }
	f := filter{State: state(get("state")), Cluster: get("cluster"), Cause: get("cause"), Text: get("q"), Selector: get("selector"), Page: 1}
	for _, key := range []string{"state", "cluster", "cause", "q", "selector"} {
		if len(query.Get(key)) > maxFilterText {
			return filter{Page: 1, Problem: fmt.Sprintf("%s is longer than %d bytes", key, maxFilterText)}
		}
	}
	if f.State != "" && !slices.Contains(states, f.State) {
		f.Problem = fmt.Sprintf("there is no state %q", f.State)
	}
	if f.Selector != "" {
		var err error
		if f.labels, err = labels.Parse(f.Selector); err != nil {
			f.Problem = "the label selector is not one: " + err.Error()
		}
	}
	if raw := get("page"); raw != "" {
		n, err := strconv.Atoi(raw)
		if err != nil || n < 1 || n > maxPage {
			f.Problem = fmt.Sprintf("page must be 1 to %d", maxPage)
		} else {
			f.Page = n
		}
	}
	return f
}

// Empty reports whether everything matches.
func (f filter) Empty() bool {
	return f.State == "" && f.Cluster == "" && f.Cause == "" && f.Text == "" && f.Selector == "" && f.Problem == ""
}

// query returns the query of the URL with this filter and another page, "" for none.
func (f filter) query(page int) string {
	q := url.Values{}
	for key, value := range map[string]string{"state": string(f.State), "cluster": f.Cluster, "cause": f.Cause, "q": f.Text, "selector": f.Selector} {
		if value != "" {
			q.Set(key, value)
		}
	}
	if page > 1 {
		q.Set("page", strconv.Itoa(page))
	}
	if len(q) == 0 {
		return ""
	}
	return "?" + q.Encode()
}

// with returns the filter with another state and the first page.
func (f filter) with(s state) filter {
	f.State, f.Page = s, 1
	return f
}

func (f filter) matchesLabels(set map[string]string) bool {
	return f.labels == nil || f.labels.Matches(labels.Set(set))
}

// matchesText reports whether one of the values contains the text.
func (f filter) matchesText(values ...string) bool {
	if f.Text == "" {
		return true
	}
	want := strings.ToLower(f.Text)
	return slices.ContainsFunc(values, func(value string) bool { return strings.Contains(strings.ToLower(value), want) })
}

func (f filter) matchesWork(row *workRow) bool {
	return f.Problem == "" && (f.State == "" || f.State == row.State) && (f.Cluster == "" || f.Cluster == row.Namespace) && (f.Cause == "" || f.Cause == row.Cause) &&
		f.matchesLabels(row.Labels) && f.matchesText(row.Name, row.Namespace, row.Why)
}

func (f filter) matchesCluster(row *clusterRow) bool {
	return f.Problem == "" && (f.State == "" || f.State == row.State) && (f.Cluster == "" || f.Cluster == row.Name) &&
		f.matchesLabels(row.Labels) && f.matchesText(row.Name, row.Why)
}

// page is one page of a list.
type page[T any] struct {
	Rows        []T
	From, To    int // the numbers of the first and last row, from 1
	Total       int // rows of all pages
	Page, Pages int
	Previous    string // URL, "" if this is the first
	Next        string // URL, "" if this is the last
}

// paginate returns the page of rows that the filter asks for, or the last if there are fewer. path is
// that of the list.
func paginate[T any](rows []T, f filter, path string) page[T] {
	p := page[T]{Total: len(rows), Pages: max(1, (len(rows)+pageSize-1)/pageSize)}
	p.Page = min(f.Page, p.Pages)
	first := (p.Page - 1) * pageSize
	last := min(first+pageSize, len(rows))
	p.Rows, p.From, p.To = rows[first:last], min(first+1, last), last
	if p.Page > 1 {
		p.Previous = path + f.query(p.Page-1)
	}
	if p.Page < p.Pages {
		p.Next = path + f.query(p.Page+1)
	}
	return p
}
