package inbox

import (
	"time"

	"github.com/workwire/workwire/pkg/wire"
)

const (
	// EarlyQuestion is the time between two questions for the spec before an early deletion.
	EarlyQuestion = 10 * time.Second
	// MaxEarly is how long a deletion is put off because it is early. The source repeats it meanwhile, and the next one after
	// that is carried out: nobody can hold up deletions by keeping specs back.
	MaxEarly = 2 * time.Minute
)

// isEarly reports whether in, a deletion of held, follows a spec that the agent lacks, which may say that objects are to stay. A
// deletion has the generation after that of the last spec. A source sends the last spec first when it answers a question, if it can:
// what answers one is not early. A work without a generation, known from its AppliedManifestWork, has had the first spec at least.
func isEarly(held *Entry, in *wire.Spec) bool {
	return in.Action != wire.ResyncResponse && in.SourceIdentity != "" && in.Generation > max(latestGeneration(held), 1)+1
}

// early is what is remembered of a work with an early deletion. The zero value: it has none.
type early struct {
	since, asked time.Time
}

// putOff notes an early deletion. It returns the verdict on it, [Early] or [Deletion], and whether the source is to be asked for the
// spec before it.
func (e *early) putOff(now time.Time) (verdict Verdict, ask bool) {
	if e.since.IsZero() {
		e.since = now
	}
	if now.Sub(e.since) >= MaxEarly {
		return Deletion, false
	}
	if ask = now.Sub(e.asked) >= EarlyQuestion; ask {
		e.asked = now
	}
	return Early, ask
}
