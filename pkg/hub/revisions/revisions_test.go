package revisions

import (
	"errors"
	"fmt"
	"strings"
	"testing"

	workwirev1alpha1 "github.com/workwire/workwire/pkg/apis/workwire/v1alpha1"
)

// stored returns revisions from texts "NUMBER:HASH".
func stored(texts ...string) []Revision {
	var all []Revision
	for _, text := range texts {
		var r Revision
		number, hash, _ := strings.Cut(text, ":")
		_, _ = fmt.Sscan(number, &r.Revision)
		r.Name, r.Labels = text, map[string]string{workwirev1alpha1.TemplateHashLabelKey: hash}
		all = append(all, r)
	}
	return all
}

func TestDecide(t *testing.T) {
	for name, c := range map[string]struct {
		stored []Revision
		limit  int
		want   string // number, existing revision, deleted ones
	}{
		"the first":             {nil, 10, "1 - "},
		"a new template":        {stored("1:a", "2:b"), 10, "3 - "},
		"the current one":       {stored("1:a", "2:x"), 10, "2 2:x "},
		"an earlier one":        {stored("1:x", "2:b", "3:c"), 10, "4 1:x "},
		"more than the limit":   {stored("1:a", "2:b", "3:c"), 2, "4 - 1:a "},
		"an undo at the limit":  {stored("1:x", "2:b", "3:c"), 2, "4 1:x "},
		"a lower limit":         {stored("1:a", "2:b", "3:c", "4:x"), 1, "4 4:x 1:a 2:b "},
		"none but the current":  {stored("1:a", "2:b"), 0, "3 - 1:a 2:b "},
		"after others are gone": {stored("7:g"), 10, "8 - "},
	} {
		p := Decide(c.stored, "x", c.limit)
		got := fmt.Sprint(p.Number, " - ")
		if p.Existing != nil {
			got = fmt.Sprint(p.Number, " ", p.Existing.Name, " ")
		}
		for _, r := range p.Delete {
			got += r.Name + " "
		}
		if got != c.want {
			t.Errorf("%s: %q, want %q", name, got, c.want)
		}
	}
}

func TestChoose(t *testing.T) {
	for name, c := range map[string]struct {
		stored []Revision
		to     int64
		want   string
		err    error
	}{
		"the one before":          {stored("1:a", "2:b", "3:x"), 0, "2 of 3", nil},
		"not stored yet":          {stored("1:a", "2:b"), 0, "2 of 0", nil},
		"by its number":           {stored("1:a", "2:b", "3:x"), 1, "1 of 3", nil},
		"the template of before":  {stored("1:a", "2:x", "3:b"), 0, "3 of 2", nil},
		"nothing earlier":         {stored("3:x"), 0, "", ErrNoEarlier},
		"nothing at all":          {nil, 0, "", ErrNoEarlier},
		"a number that is not":    {stored("1:a", "3:x"), 2, "", ErrUnknown},
		"the current, by number":  {stored("1:a", "3:x"), 3, "", ErrCurrent},
		"a negative number":       {stored("1:a", "3:x"), -1, "", ErrUnknown},
		"by number before stored": {stored("1:a"), 1, "1 of 0", nil},
	} {
		chosen, from, err := Choose(c.stored, "x", c.to)
		got := ""
		if chosen != nil {
			got = fmt.Sprintf("%d of %d", chosen.Revision, from)
		}
		if got != c.want || !errors.Is(err, c.err) {
			t.Errorf("%s: %q %v, want %q %v", name, got, err, c.want, c.err)
		}
	}
}

func TestLimit(t *testing.T) {
	if limit, ok := Limit(nil); limit != DefaultLimit || !ok {
		t.Errorf("by default %d %t", limit, ok)
	}
	for text, want := range map[string]string{"0": "0 true", "3": "3 true", "100": "100 true", "101": "10 false", "-1": "10 false", "": "10 false", "x": "10 false"} {
		limit, ok := Limit(map[string]string{workwirev1alpha1.RevisionHistoryLimitAnnotationKey: text})
		if got := fmt.Sprint(limit, ok); got != want {
			t.Errorf("%q: %s, want %s", text, got, want)
		}
	}
}
