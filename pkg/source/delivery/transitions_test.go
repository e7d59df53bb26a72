package delivery

import (
	"strings"
	"testing"
	"time"
)

var (
	phaseNames   = strings.Split("idle queued inFlight awaitingAnswer awaitingContact backingOff refused paused", " ")
	triggerNames = strings.Split("wanted taken settled unanswered failed denied held again silence contact answer", " ")
)

// TestTransitions is the table of where each trigger moves a work of each phase; "-": it stays.
func TestTransitions(t *testing.T) {
	const table = `
                 wanted  taken     settled  unanswered      failed      denied   held    again   silence          contact         answer
idle             queued  -         -        -               -           -        -       -       -                -               -
queued           -       inFlight  -        -               -           -        -       -       -                -               -
inFlight         -       -         idle     awaitingAnswer  backingOff  refused  paused  queued  -                -               -
awaitingAnswer   queued  -         -        -               -           -        -       -       awaitingContact  -               idle
awaitingContact  queued  -         -        -               -           -        -       -       -                awaitingAnswer  idle
backingOff       queued  -         -        -               -           -        -       -       -                -               -
refused          queued  -         -        -               -           -        -       -       -                -               -
paused           queued  -         -        -               -           -        -       -       -                -               -`
	lines := strings.Split(strings.TrimSpace(table), "\n")
	if got := strings.Fields(lines[0]); strings.Join(got, " ") != strings.Join(triggerNames, " ") || len(got) != int(triggers) || len(lines) != int(phases)+1 {
		t.Fatalf("the table has the triggers %v and %d phases", got, len(lines)-1)
	}
	for from, line := range lines[1:] {
		cells := strings.Fields(line)
		if cells[0] != phaseNames[from] {
			t.Fatalf("row %d is %s", from, cells[0])
		}
		for by, want := range cells[1:] {
			if want == "-" {
				want = phaseNames[from]
			}
			d := testCore(0, time.Second, ClusterOpen)
			w := d.ensure(workKey{uid: "u", cluster: "c"})
			d.enter(w, phase(from))
			d.move(w, trigger(by))
			if got := phaseNames[w.phase]; got != want {
				t.Errorf("%s moves a work that is %s to %s, want %s", triggerNames[by], phaseNames[from], got, want)
			}
			if d.inPhase[w.phase] != 1 || w.cluster.silent.has(w) != (w.phase == awaitingContact) || (w.phase == queued) != (w.cluster.queue.Len() > 0) && from != int(queued) {
				t.Errorf("%s of %s: %v works by phase, silent %v, %d queued", triggerNames[by], phaseNames[from], d.inPhase, w.cluster.silent.has(w), w.cluster.queue.Len())
			}
		}
	}
}
