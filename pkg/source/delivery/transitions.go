package delivery

// phase is where the delivery of a work is.
type phase uint8

const (
	idle            phase = iota // there is nothing to do
	queued                       // it waits for its turn
	inFlight                     // an attempt to publish it is under way
	awaitingAnswer               // it was published, and it is looked at again when it is due
	awaitingContact              // the same, and its cluster has sent no message since it was published
	backingOff                   // the last attempt failed, and the next one is due
	refused                      // its newest state cannot be published, see workRecord.refused
	paused                       // its newest spec must not be published, see StoredWork.Paused
	phases
)

// trigger moves a work to another phase.
type trigger uint8

const (
	wanted     trigger = iota // something is to be published, see intent
	taken                     // it is its turn
	settled                   // the attempt has ended: the agent has what it should have
	unanswered                // the attempt has ended: the agent has to confirm what was published
	failed                    // the attempt has failed
	denied                    // the attempt has failed, and a retry cannot succeed
	held                      // the attempt has ended: the work is paused
	again                     // the attempt has ended somehow, and something is wanted since it began
	silence                   // it is due, and its cluster has sent no message since it was published
	contact                   // its cluster has sent a message
	answer                    // the agent has confirmed what was published
	triggers
)

// transitions is the table of all moves. A trigger that a phase does not name leaves the work where it is.
var transitions = map[phase]map[trigger]phase{
	idle:   {wanted: queued},
	queued: {taken: inFlight},
	inFlight: {
		settled: idle, unanswered: awaitingAnswer, failed: backingOff, denied: refused, held: paused, again: queued,
	},
	awaitingAnswer:  {wanted: queued, silence: awaitingContact, answer: idle},
	awaitingContact: {wanted: queued, contact: awaitingAnswer, answer: idle},
	backingOff:      {wanted: queued},
	refused:         {wanted: queued},
	paused:          {wanted: queued},
}

// intent is what is to be published of a work. A later one includes those before it. That of a work in
// flight is what is wanted since its attempt began; that of one that is backing off or paused waits for
// its next attempt.
type intent uint8

const (
	nothing intent = iota
	newest         // its newest state, unless that was published
	repeat         // its newest state, although it may have been published
	missed         // the same, to an agent that may have missed earlier publishes
	reply          // the same, as the answer to its resync request
)

// move moves w by t.
func (d *core) move(w *workRecord, t trigger) {
	if to, ok := transitions[w.phase][t]; ok {
		d.enter(w, to)
	}
}

// enter ends the phase of w and begins another one.
func (d *core) enter(w *workRecord, to phase) {
	d.due.Remove(w)
	w.cluster.silent.remove(w)
	d.inPhase[w.phase]--
	d.inPhase[to]++
	w.phase = to
	switch to {
	case queued:
		w.cluster.queue.Push(w)
		d.enterRoundRobin(w.cluster)
	case awaitingContact:
		w.cluster.silent.add(w)
	}
}

// want has at least i published of w.
func (d *core) want(w *workRecord, i intent) {
	w.intent = max(w.intent, i)
	d.move(w, wanted)
}
