package fleet

import (
	"fmt"
	"io"
	"strings"
	"time"

	"github.com/workwire/workwire/pkg/ctl/cli"
	"github.com/workwire/workwire/pkg/workstate"
	"github.com/workwire/workwire/pkg/workstate/explain"
)

// hopTexts say what a hop means.
var hopTexts = map[string]string{
	"accepted": "the hub saw the spec", "published": "the hub sent it", "acknowledged": "the broker took it",
	"received": "the agent received it", "applied": "the agent applied all manifests", "ready": "the objects are ready",
	"removed": "the objects are gone",
}

// WriteExplanation writes an explanation as text.
func WriteExplanation(w io.Writer, style cli.Style, now time.Time, e *explain.Explanation) error {
	var out strings.Builder
	fmt.Fprintf(&out, "Work %s of cluster %s, generation %d: %s\n\n", e.Name, e.Cluster, e.Generation, style.Paint(stateTone(&e.State), e.Word))
	for _, h := range e.Hops {
		mark, tone, at, took := "·", cli.Dim, "", ""
		switch h.Progress {
		case explain.Done:
			mark, tone = "✓", cli.Good
		case explain.NotReported:
			at = "not reported"
		}
		if h.Time != nil {
			at = h.Time.UTC().Format("2006-01-02 15:04:05.000")
		}
		if h.Took != nil {
			took = "+" + (time.Duration(*h.Took) * time.Millisecond).String()
		}
		line := fmt.Sprintf("  %s %-13s %-24s %-10s %s", style.Paint(tone, mark), h.Name, at, took, style.Paint(cli.Dim, hopTexts[h.Name]))
		out.WriteString(strings.TrimRight(line, " ") + "\n")
	}
	if b := e.Blocker; b != nil {
		tone := cli.Bad
		if !e.Blocked() {
			tone = cli.Warn
		}
		writeBlocker(&out, b, tone, style, now)
		others, more := head(b.Others, maxOthers)
		for i := range others {
			writeBlocker(&out, &others[i], tone, style, now)
		}
		if more > 0 {
			fmt.Fprintf(&out, "\nObjects of this work are blocked in %s: -o json has all of them.\n", cli.Plural(more, "more way", "more ways"))
		}
	}
	for i, note := range e.Notes {
		if i == 0 {
			out.WriteByte('\n')
		}
		fmt.Fprintf(&out, "%s %s\n", style.Paint(cli.Dim, "Note:"), note)
	}
	_, err := io.WriteString(w, out.String())
	return err
}

// maxOthers is how many causes beside the first one are shown.
const maxOthers = 5

func writeBlocker(out *strings.Builder, b *workstate.Blocker, tone cli.Tone, style cli.Style, now time.Time) {
	fmt.Fprintf(out, "\n%s %s", style.Paint(tone, string(b.Cause)+":"), cli.OneLine(b.Object))
	if b.Since != nil && !b.Since.IsZero() {
		fmt.Fprintf(out, ", for %s", Age(now, b.Since))
	}
	fmt.Fprintf(out, "\n  %s\n", cli.OneLine(b.Message))
	if b.More > 0 {
		fmt.Fprintf(out, "  So it is with %s of this work.\n", cli.Plural(b.More, "more object", "more objects"))
	}
	fmt.Fprintf(out, "%s\n  %s\n", style.Paint(cli.Bold, "What to do:"), cli.OneLine(b.Do))
}

func stateTone(s *workstate.State) cli.Tone {
	switch {
	case s.Blocked():
		return cli.Bad
	case s.Done() && s.Phase == workstate.PhaseReady:
		return cli.Good
	}
	return cli.Warn
}
