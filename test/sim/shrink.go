package sim

import (
	"fmt"
	"hash/fnv"
	"math/rand/v2"
	"reflect"
	"runtime"
	"slices"
	"strconv"
	"strings"
	"time"

	cloudevents "github.com/cloudevents/sdk-go/v2/event"
)

// Numbers are numbers of decisions, as in "3,7-12".
type Numbers []int

// String returns them in order.
func (n Numbers) String() string {
	var parts []string
	sorted := slices.Compact(slices.Sorted(slices.Values(n)))
	for i := 0; i < len(sorted); {
		first, last := sorted[i], sorted[i]
		for i++; i < len(sorted) && sorted[i] == last+1; i++ {
			last++
		}
		part := strconv.Itoa(first)
		if last > first {
			part += "-" + strconv.Itoa(last)
		}
		parts = append(parts, part)
	}
	return strings.Join(parts, ",")
}

// Set reads what String has written; it is a [flag.Value].
func (n *Numbers) Set(text string) error {
	*n = nil
	for part := range strings.SplitSeq(text, ",") {
		if part == "" {
			continue
		}
		from, to, isRange := strings.Cut(part, "-")
		first, err := strconv.Atoi(from)
		last := first
		if err == nil && isRange {
			last, err = strconv.Atoi(to)
		}
		if err != nil || last < first || last > maxDecisions {
			return fmt.Errorf("numbers of decisions %q: want numbers and ranges, as in 3,7-12", text)
		}
		for i := first; i <= last; i++ {
			*n = append(*n, i)
		}
	}
	return nil
}

// maxDecisions is more than any run has.
const maxDecisions = 100_000

// decision is one thing that a seed has chosen to happen. They are numbered, from 1, and independent of each other, so
// that some can be left out and the others are the same.
type decision struct {
	Number int       `json:"number"`
	At     time.Time `json:"at"`
	Name   string    `json:"name"`  // of the function
	Fault  bool      `json:"fault"` // people change things, or something breaks
	Works  []string  `json:"works"` // whose objects people changed
	// LeftOut says that it did not happen.
	LeftOut bool `json:"leftOut"`
}

// changes are what people do on purpose. All else that happens is a fault.
var changes = []string{"createWork", "changeWork", "deleteWork", "deleteSoon", "createOwn", "changeOwn", "deleteOwn"}

// decide reports whether what was chosen as the number-th decision happens.
func (w *World) decide(number int, h happening) bool {
	name := runtime.FuncForPC(reflect.ValueOf(h.do).Pointer()).Name()
	name = strings.TrimSuffix(name[strings.LastIndex(name, ".")+1:], "-fm")
	d := &decision{
		Number: number, At: time.Now(), Name: name, Fault: !slices.Contains(changes, name), LeftOut: slices.Contains(w.o.LeaveOut, number),
	}
	w.trace.mu.Lock()
	defer w.trace.mu.Unlock()
	w.trace.decisions = append(w.trace.decisions, d)
	return !d.LeftOut
}

// concerns notes that the last decision concerns a work.
func (t *trace) concerns(work string) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if len(t.decisions) == 0 || work == "" {
		return
	}
	if d := t.decisions[len(t.decisions)-1]; !slices.Contains(d.Works, work) {
		d.Works = append(d.Works, work)
	}
}

// restart gives the n-th part of a run a randomness of its own: what is chosen in it does not hang on what happened before.
func (r *random) restart(seed uint64, n int) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.r = rand.New(rand.NewPCG(seed, uint64(n))) //nolint:gosec // a run is its seed
}

// of returns the randomness of something that happens now: it does not hang on what else happens, so that it is the same
// when other things are left out.
func (r *random) of(what string) *random {
	h := fnv.New64a()
	_, _ = h.Write([]byte(what))
	return &random{r: rand.New(rand.NewPCG(r.seed^h.Sum64(), uint64(time.Now().UnixNano())))} //nolint:gosec // a run is its seed
}

// identity names a message by what is the same when other things are left out: its id and those of works are not.
func identity(e cloudevents.Event) string {
	metadata, _ := e.Extensions()["metadata"].(string)
	return e.Type() + workIn.FindString(metadata)
}
