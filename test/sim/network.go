package sim

import (
	"fmt"
	"time"
)

// longOutage is how long something is away now and then, at most.
const longOutage = 15 * time.Minute

// longestOutage returns for how long at most something is away that fails now. After the faults, nothing is away for long.
func (w *World) longestOutage() time.Duration {
	if w.random.chance(5) && time.Now().Before(w.end) {
		return longOutage
	}
	return maxOutage
}

// afterOutage has do called when what fails now is to be well again: what fails at night is away until the morning.
func (w *World) afterOutage(do func()) {
	if time.Now().Before(w.morning) {
		w.timers = append(w.timers, timer{w.morning, do})
		return
	}
	w.later(w.longestOutage(), do)
}

// night has some programs be away for hours, once in a third of the seeds. A broker that lies delivers messages from before the night in it.
func (w *World) night() {
	if !w.morning.IsZero() || w.random.chance(40) {
		return
	}
	length := time.Hour + w.random.upTo(2*time.Hour)
	w.morning, w.end = time.Now().Add(length), w.end.Add(length)
	w.trace.note("night", fmt.Sprintf("what fails is away for %v", length.Round(time.Second)))
	if !w.o.Honest && !w.o.Tight {
		w.lieAbout(1+w.random.intN(40), length)
	}
	change := func() {
		[]func(*World){(*World).createWork, (*World).changeWork, (*World).changeWork, (*World).deleteWork, (*World).changeOwn}[w.random.intN(5)](w)
	}
	for range 2 + w.random.intN(3) {
		for range 4 {
			change()
			w.advance(w.random.upTo(5 * time.Second))
		}
		[]func(*World){(*World).killHub, (*World).killAgent, (*World).killSource, (*World).cut, (*World).part}[w.random.intN(5)](w)
	}
	w.liar.set(0, 0)
	for time.Now().Before(w.morning) {
		w.advance(w.random.upTo(time.Hour))
		change()
	}
}

// halfOpen has messages on the connection of a program be lost, in one direction or in both. Broker and program notice that after a while, half of
// the times one of them at once.
func (w *World) halfOpen() {
	p := w.anyClient()
	if p.running == nil || !p.running.is(&p.running.online) {
		return
	}
	direction := w.random.intN(3)
	sent, received := direction != 1, direction != 2
	atBroker, atProgram := w.random.upTo(maxOutage), w.random.upTo(maxOutage)
	switch w.random.intN(4) {
	case 0:
		atBroker = time.Millisecond
	case 1:
		atProgram = time.Millisecond
	}
	w.trace.note(p.name, fmt.Sprintf("has a half-open connection: what it sends is lost: %v, what it is sent: %v; the broker notices after %v, and it after %v",
		sent, received, atBroker.Round(time.Millisecond), atProgram.Round(time.Millisecond)))
	w.broker.Break(p.id, sent, received, atBroker, atProgram)
}

// maxReading is how long a slow reader takes for a message at most.
const maxReading = 5 * time.Second

// readSlowly has a program read its messages slowly, for some minutes.
func (w *World) readSlowly() {
	p := w.anyClient()
	w.trace.note(p.name, "reads its messages slowly")
	p.slow.Store(int64(w.random.upTo(maxReading)))
	w.later(3*maxOutage, func() {
		p.slow.Store(0)
		w.trace.note(p.name, "reads its messages at once again")
	})
}

// reading returns how long the program takes to read a message.
func (p *program) reading(message string) time.Duration {
	if most := time.Duration(p.slow.Load()); most > 0 {
		return p.world.liar.random.of("read" + message).upTo(most)
	}
	return 0
}
