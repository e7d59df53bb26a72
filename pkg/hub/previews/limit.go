package previews

import (
	"fmt"
	"strconv"
	"strings"
)

// Limit is how much a template may change on each cluster without an approval. A number below 0 is no limit.
type Limit struct{ Changed, Deleted int }

// maxLimit is more than a work can have objects.
const maxLimit = 100_000

// ParseLimit parses "changed=5,deleted=0": each once, in any order, and one of them may be left out.
func ParseLimit(text string) (Limit, error) {
	limit := Limit{-1, -1}
	for part := range strings.SplitSeq(text, ",") {
		name, value, _ := strings.Cut(part, "=")
		into := &limit.Changed
		if name == "deleted" {
			into = &limit.Deleted
		}
		number, err := strconv.Atoi(value)
		if name != "changed" && name != "deleted" || *into >= 0 || err != nil || strconv.Itoa(number) != value || number < 0 || number > maxLimit {
			return Limit{}, fmt.Errorf("%.100q must be such as changed=5,deleted=0, each with a number from 0 to %d", text, maxLimit)
		}
		*into = number
	}
	return limit, nil
}

// allows reports whether a preview has found no more than the limit.
func (l Limit) allows(r *Record) bool {
	return (l.Changed < 0 || r.Changed <= l.Changed) && (l.Deleted < 0 || r.Deleted <= l.Deleted)
}
