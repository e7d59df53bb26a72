package dashboard

import (
	"net/url"
	"strings"
	"testing"

	"github.com/workwire/workwire/pkg/workstate"
)

func TestFilter(t *testing.T) {
	row := &workRow{Namespace: "c1", Name: "shop", State: workstate.PhaseFailed, Cause: "NotReady", Why: "Deployment web: Unschedulable", Labels: map[string]string{"env": "prod"}}
	for query, want := range map[string]bool{
		"":                                   true,
		"state=failed":                       true,
		"state=ready":                        false,
		"cluster=c1":                         true,
		"cluster=c":                          false,
		"cause=NotReady":                     true,
		"cause=Not":                          false,
		"q=SHOP":                             true,
		"q=unsched":                          true,
		"q=pay":                              false,
		"selector=env%3Dprod":                true,
		"selector=env+in+(prod,test),!debug": true,
		"selector=env!=prod":                 false,
		"state=failed&q=shop&cluster=c2":     false,
		"unknown=1":                          true,
		"state=nothing":                      false,
		"selector=env==%3D":                  false,
		"page=0":                             false,
		"page=x":                             false,
		"q=" + strings.Repeat("x", 600):      false,
	} {
		values, err := url.ParseQuery(query)
		if err != nil {
			t.Fatal(err)
		}
		f := parseFilter(values, workStates)
		if got := f.matchesWork(row); got != want {
			t.Errorf("%s: %t, %+v", query, got, f)
		}
		if problem := strings.HasPrefix(query, "page=") || strings.Contains(query, "nothing") || strings.Contains(query, "==") || len(query) > 600; problem != (f.Problem != "") {
			t.Errorf("%s: problem %q", query, f.Problem)
		}
	}
}

func TestPaginate(t *testing.T) {
	rows := make([]int, 2*pageSize+1)
	for n, want := range map[int]page[int]{
		1: {From: 1, To: 50, Page: 1, Next: "/x?page=2&q=a"},
		2: {From: 51, To: 100, Page: 2, Previous: "/x?q=a", Next: "/x?page=3&q=a"},
		3: {From: 101, To: 101, Page: 3, Previous: "/x?page=2&q=a"},
		9: {From: 101, To: 101, Page: 3, Previous: "/x?page=2&q=a"},
	} {
		p := paginate(rows, filter{Text: "a", Page: n}, "/x")
		if p.From != want.From || p.To != want.To || p.Page != want.Page || p.Previous != want.Previous || p.Next != want.Next || p.Pages != 3 || p.Total != 101 {
			t.Errorf("page %d: %+v", n, p)
		}
	}
	if p := paginate([]int{}, filter{Page: 1}, "/x"); p.From != 0 || p.To != 0 || p.Pages != 1 || p.Next != "" {
		t.Errorf("nothing: %+v", p)
	}
}

// FuzzFilter: any query has a filter, whose URL has the same filter.
func FuzzFilter(f *testing.F) {
	for _, seed := range []string{
		"", "state=failed&q=a+b&page=2", "selector=env+in+(a,b),!c", "cluster=%00&q=%ff", "page=-1", "selector=%3D%3D", "q=;&q=2", "state=ready&state=x",
	} {
		f.Add(seed)
	}
	f.Fuzz(func(t *testing.T, query string) {
		values, err := url.ParseQuery(query)
		if err != nil {
			return
		}
		first := parseFilter(values, workStates)
		if first.Page < 1 {
			t.Fatalf("page %d", first.Page)
		}
		if first.Problem != "" {
			return
		}
		again, err := url.ParseQuery(strings.TrimPrefix(first.query(first.Page), "?"))
		if err != nil {
			t.Fatal(err)
		}
		second := parseFilter(again, workStates)
		first.labels, second.labels = nil, nil
		if first != second {
			t.Errorf("%+v became %+v", first, second)
		}
	})
}

func TestLocalPath(t *testing.T) {
	for next, want := range map[string]string{
		"/works?q=a": "/works?q=a", "": "/", "//evil.example": "/", "https://evil.example": "/", "/\\evil.example": "/", "/a\nb": "/", "javascript:x": "/",
	} {
		if got := localPath(next); got != want {
			t.Errorf("%q: %q", next, got)
		}
	}
}
