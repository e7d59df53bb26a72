package main

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"
)

// included returns the numbers of a list such as 3,7-12.
func included(t *testing.T, text string) map[int]bool {
	numbers := map[int]bool{}
	for part := range strings.SplitSeq(text, ",") {
		if part == "" {
			continue
		}
		from, to, _ := strings.Cut(part, "-")
		first, err := strconv.Atoi(from)
		if err != nil {
			t.Error(err)
		}
		last := first
		if to != "" {
			if last, err = strconv.Atoi(to); err != nil {
				t.Error(err)
			}
		}
		for n := first; n <= last; n++ {
			numbers[n] = true
		}
	}
	return numbers
}

// What remains is what the failure needs, and nothing else.
func TestShrink(t *testing.T) {
	start := time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC)
	first := &result{Wrong: []wrong{{start.Add(100 * time.Second), "work cluster1/work3 of generation 5 is not Applied: [{...}]", []string{"cluster1/work3"}}}}
	for n := 1; n <= 150; n++ {
		first.Decisions = append(first.Decisions, decision{
			Number: n, At: start.Add(time.Duration(n) * time.Second), Name: fmt.Sprint("kind", n%7), Fault: n%3 == 0, Works: []string{fmt.Sprint("cluster1/work", n%5)}[:n%2],
		})
	}
	for _, needed := range [][]int{{}, {33}, {7, 19, 66}, {1, 2, 3, 98, 99, 100}} {
		s := newShrinker(func(_ context.Context, tr trial) (*result, error) {
			left := included(t, tr.leaveOut)
			if slices.ContainsFunc(needed, func(n int) bool { return left[n] }) {
				return &result{Wrong: []wrong{{At: start, Text: "something else"}}}, nil
			}
			return &result{Wrong: []wrong{{At: start, Text: "work cluster2/work7 of generation 31 is not Applied: [{other}]"}}}, nil
		}, 7, first)
		if err := s.search(t.Context(), first.Wrong[0].At); err != nil {
			t.Fatal(err)
		}
		var kept []int
		for _, d := range s.kept {
			kept = append(kept, d.Number)
		}
		if !slices.Equal(kept, needed) {
			t.Errorf("decisions %v remain, want %v", kept, needed)
		}
		left := included(t, s.leftOut(s.kept))
		if len(left) != 150-len(needed) {
			t.Errorf("%d decisions are left out, want %d", len(left), 150-len(needed))
		}
	}
}

func TestCorpus(t *testing.T) {
	file := filepath.Join(t.TempDir(), "corpus")
	for text, want := range map[string]string{
		"# a comment\n57 - found this\n26 3,7-12 and that\n": "[SEED=57 SEED=26 LEAVE_OUT=3,7-12]", "": "[]", "x - y\n": "error", "57\n": "error",
	} {
		if err := os.WriteFile(file, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
		trials, err := readCorpus(file)
		got := fmt.Sprint(trials)
		if err != nil {
			got = "error"
		}
		if got != want {
			t.Errorf("corpus %q is %s, want %s", text, got, want)
		}
	}
}
