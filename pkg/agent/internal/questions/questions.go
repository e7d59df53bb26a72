// Package questions decides what an agent asks of its sources, and when: for the specs that it has missed, again while nobody
// answers, for single works that differ, and by digests whether anything differs. It is pure: methods are told what has
// happened and what time it is, and [Questions.Due] returns what is to be done now.
//
//	q.Connected([]wire.SourceID{"hub1"}, now)
//	for _, action := range q.Due(now) { … }
//	wait until q.Next(now)
//
// A question for specs has a probe, a work that no source has: by the protocol the answer to it is its deletion, so that a
// source which has no works, or no news, answers as well (docs/protocol.md, Spec resync).
//
//	          Ask                  Due, connected
//	silent ─────────▶ to be asked ───────────────▶ asked ──┐ Due, after a pause that doubles
//	   ▲                   ▲                       │ │  ▲   │ (the same probe)
//	   │                   └──────────── Ask ──────┘ │  └───┘
//	   └──────────────────── Answered, Proved ───────┘
package questions

import (
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	"k8s.io/apimachinery/pkg/types"

	"github.com/workwire/workwire/pkg/wire"
)

const (
	// maxRetry is the longest pause before a silent source is asked again.
	maxRetry = 10 * time.Minute
	// maxLacking is the number of works that wait to be requested of one source. If there are more, it is asked for all.
	maxLacking = 20_000
	// batch is the number of works that are requested before it is the turn of another source.
	batch = 1_000
	// digestJitter is the share by which the time between digests varies at random.
	digestJitter = 0.1
	// AnswerWindow is for how long the works that a source disowns after requests of single works count as
	// one answer: a source that has lost its memory disowns them in many.
	AnswerWindow = 10 * time.Minute
	// ProbeDigits is the number of digits at the end of a probe that tell probes apart.
	ProbeDigits = 12
)

// Config configures [New]. All fields are required.
type Config struct {
	// Prefix of all probes: a UUID without its last [ProbeDigits] digits, of this agent since it started.
	Prefix string
	// Retry is the first pause before a silent source is asked again. It doubles, up to ten minutes.
	Retry time.Duration
	// Digest is the time between digests; 0 for none.
	Digest time.Duration
	// Random returns numbers in [0, 1).
	Random func() float64
}

// Action is what is to be done: [Ask], [Request], [SendDigests] or [Decide].
type Action interface{ action() }

// Ask asks a source for the specs that the agent does not hold; all sources if Source is empty.
type Ask struct {
	Source wire.SourceID
	Probe  types.UID
	// Expiry is when a question that is repeated is repeated next: the broker need not keep it any longer. 0 for the first.
	Expiry time.Duration
}

// Request requests works of a source that differ from those that the agent holds. First reports that the last such request
// is longer ago than [AnswerWindow].
type Request struct {
	Source   wire.SourceID
	Versions []wire.SpecVersion
	First    bool
}

// SendDigests sends a digest to each source. Heard are those that have sent something.
type SendDigests struct{ Heard []wire.SourceID }

// Decide has it decided what becomes of the works that a source does not know.
type Decide struct{ Source wire.SourceID }

func (Ask) action()         {}
func (Request) action()     {}
func (SendDigests) action() {}
func (Decide) action()      {}

// Questions is what is asked of all sources. It is not safe for concurrent use.
type Questions struct {
	config    Config
	connected bool
	probes    uint64 // that were made
	digest    time.Time
	sources   map[wire.SourceID]*source
}

// source is what is known of one source; of that with the empty name, of all of them.
type source struct {
	ask      time.Time // when it is to be asked; zero: it is not
	probe    types.UID // of the question that it has not answered; empty: none
	sent     time.Time // when that was asked last
	retries  int
	answered bool // since the agent started
	heard    bool
	decide   time.Time // when to decide about the works that it does not know; zero: not

	lacking   map[types.UID]wire.SpecVersion // works to request
	order     []types.UID                    // of lacking
	requested time.Time                      // last
}

// New returns Questions without a connection.
func New(config Config, now time.Time) *Questions {
	q := &Questions{config: config, sources: map[wire.SourceID]*source{}}
	if config.Digest > 0 {
		q.digest = now.Add(time.Duration(config.Random() * float64(config.Digest)))
	}
	return q
}

func (q *Questions) of(name wire.SourceID) *source {
	s := q.sources[name]
	if s == nil {
		s = &source{}
		q.sources[name] = s
	}
	return s
}

// Connected is to be called with the sources to ask when a connection was made.
func (q *Questions) Connected(ask []wire.SourceID, now time.Time) {
	q.connected = true
	for _, name := range ask {
		q.Ask(name, now)
	}
}

// Lost is to be called when the connection is lost. The next one asks for everything.
func (q *Questions) Lost() {
	q.connected = false
	for _, s := range q.sources {
		s.lacking, s.order = nil, nil
	}
}

// Ask has a source asked at a time, or earlier if it is to be asked earlier already.
func (q *Questions) Ask(name wire.SourceID, at time.Time) { setEarliest(&q.of(name).ask, at) }

// AskOnce has a source asked now that has no open question.
func (q *Questions) AskOnce(name wire.SourceID, now time.Time) {
	if s := q.of(name); s.probe == "" {
		setEarliest(&s.ask, now)
	}
}

// AskOverdue has a source asked now that has not answered a question for longer than the first pause.
func (q *Questions) AskOverdue(name wire.SourceID, now time.Time) {
	if s := q.sources[name]; s != nil && s.probe != "" && now.Sub(s.sent) > q.config.Retry {
		setEarliest(&s.ask, now)
	}
}

// Heard is to be called when a source has sent something.
func (q *Questions) Heard(name wire.SourceID) { q.of(name).heard = true }

// Lack has works requested of a source: all that the agent does not hold if too many wait. Its cost is linear in versions.
func (q *Questions) Lack(name wire.SourceID, versions []wire.SpecVersion, now time.Time) {
	s := q.of(name)
	if s.lacking == nil {
		s.lacking = map[types.UID]wire.SpecVersion{}
	}
	for _, version := range versions {
		if _, waits := s.lacking[version.UID]; !waits {
			s.order = append(s.order, version.UID)
		}
		if s.lacking[version.UID] = version; len(s.lacking) > maxLacking {
			s.lacking, s.order = nil, nil
			q.Ask(name, now)
			return
		}
	}
}

// Disowned has it decided at a time, or earlier if it is to be decided earlier already, what becomes of the works that a source
// does not know.
func (q *Questions) Disowned(name wire.SourceID, at time.Time) { setEarliest(&q.of(name).decide, at) }

// IsProbe reports whether spec answers a question. It may be called beside other methods.
func (q *Questions) IsProbe(spec *wire.Spec) bool {
	return spec.IsDeletion() && strings.HasPrefix(string(spec.UID), q.config.Prefix)
}

// Proved closes the question that a probe of a source answers, and has the source asked: what it has said before does not count.
func (q *Questions) Proved(name wire.SourceID, probe types.UID, now time.Time) {
	q.close(name, probe)
	q.Ask(name, now)
}

// Answered closes the question that a probe of a source answers, and reports whether it is the first answer of that source.
func (q *Questions) Answered(name wire.SourceID, probe types.UID) (first bool) {
	q.close(name, probe)
	s := q.of(name)
	first, s.answered = !s.answered, true
	return first
}

func (q *Questions) close(name wire.SourceID, probe types.UID) {
	for _, asked := range []wire.SourceID{name, ""} {
		if s := q.sources[asked]; s != nil && s.probe == probe {
			s.probe = ""
		}
	}
}

// HasAnswered reports whether a source has answered since the agent started; any source if name is empty.
func (q *Questions) HasAnswered(name wire.SourceID) bool {
	if name == "" {
		for _, s := range q.sources {
			if s.answered {
				return true
			}
		}
		return false
	}
	s := q.sources[name]
	return s != nil && s.answered
}

// Due returns what is to be done now, decisions first. It is done then, as far as Questions knows.
func (q *Questions) Due(now time.Time) (actions []Action) {
	names := slices.Sorted(maps.Keys(q.sources))
	for _, name := range names {
		if s := q.sources[name]; isDue(s.decide, now) {
			s.decide = time.Time{}
			actions = append(actions, Decide{Source: name})
		}
	}
	if isDue(q.digest, now) {
		q.digest = now.Add(time.Duration((1 + digestJitter*q.config.Random()) * float64(q.config.Digest)))
		if q.connected {
			names := slices.DeleteFunc(slices.Clone(names), func(name wire.SourceID) bool { return !q.sources[name].heard })
			actions = append(actions, SendDigests{Heard: names})
		}
	}
	if !q.connected {
		return actions
	}
	for _, name := range names {
		s := q.sources[name]
		switch {
		case isDue(s.ask, now):
			q.probes++
			s.probe = types.UID(fmt.Sprintf("%s%0*x", q.config.Prefix, ProbeDigits, q.probes))
			s.ask, s.sent, s.retries = time.Time{}, now, 0
			actions = append(actions, Ask{Source: name, Probe: s.probe})
		case s.probe != "" && isDue(q.again(s), now):
			s.retries++
			s.sent = now
			actions = append(actions, Ask{Source: name, Probe: s.probe, Expiry: q.pause(s)})
		}
		if request := s.request(name, now); request != nil {
			actions = append(actions, *request)
		}
	}
	return actions
}

// request removes and returns the next works to request, nil for none.
func (s *source) request(name wire.SourceID, now time.Time) *Request {
	if len(s.order) == 0 {
		return nil
	}
	r := &Request{Source: name, First: s.requested.IsZero() || now.Sub(s.requested) > AnswerWindow}
	n := min(batch, len(s.order))
	for _, uid := range s.order[:n] {
		r.Versions = append(r.Versions, s.lacking[uid])
		delete(s.lacking, uid)
	}
	if s.order = s.order[n:]; len(s.order) == 0 {
		s.lacking, s.order = nil, nil
	}
	s.requested = now
	return r
}

// Next returns when [Questions.Due] is to be called next if nothing happens before; zero for never.
func (q *Questions) Next(now time.Time) (next time.Time) {
	if !q.digest.IsZero() {
		setEarliest(&next, q.digest)
	}
	for _, s := range q.sources {
		if !s.decide.IsZero() {
			setEarliest(&next, s.decide)
		}
		if !q.connected {
			continue
		}
		if !s.ask.IsZero() {
			setEarliest(&next, s.ask)
		}
		if s.probe != "" {
			setEarliest(&next, q.again(s))
		}
		if len(s.order) > 0 {
			setEarliest(&next, now)
		}
	}
	return next
}

// again returns when the open question of a source is to be repeated.
func (q *Questions) again(s *source) time.Time { return s.sent.Add(q.pause(s)) }

// pause returns the time between the last question and the next.
func (q *Questions) pause(s *source) time.Duration {
	return min(q.config.Retry<<min(s.retries, 10), maxRetry)
}

func isDue(at, now time.Time) bool { return !at.IsZero() && !now.Before(at) }

// setEarliest sets t to at if t is zero or later.
func setEarliest(t *time.Time, at time.Time) {
	if t.IsZero() || at.Before(*t) {
		*t = at
	}
}
