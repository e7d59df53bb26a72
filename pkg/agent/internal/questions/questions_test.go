package questions

import (
	"fmt"
	"math/rand/v2"
	"reflect"
	"strings"
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/workwire/workwire/pkg/wire"
)

var start = time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC)

const prefix = "1b4e28ba-2fa1-11d2-883f-"

func started(digest time.Duration) *Questions {
	return New(Config{Prefix: prefix, Retry: time.Minute, Digest: digest, Random: func() float64 { return 0.5 }}, start)
}

// asks returns the questions among actions.
func asks(actions []Action) (asks []Ask) {
	for _, action := range actions {
		if ask, ok := action.(Ask); ok {
			asks = append(asks, ask)
		}
	}
	return asks
}

// TestQuestionsAreRepeated: each question is repeated, with growing pauses, until its own answer.
func TestQuestionsAreRepeated(t *testing.T) {
	q, now := started(0), start
	if q.Connected(nil, now); len(q.Due(now.Add(time.Hour))) != 0 || !q.Next(now).IsZero() {
		t.Fatal("a source that was not asked is asked")
	}
	q.Ask("hub1", now)
	former := asks(q.Due(now))[0].Probe
	q.Ask("hub1", now)
	probe := asks(q.Due(now))[0].Probe
	if probe == former || !strings.HasPrefix(string(probe), prefix) || len(probe) != 36 || q.HasAnswered("hub1") || q.HasAnswered("") {
		t.Fatalf("probes %s and %s, or answered already", former, probe)
	}
	if q.AskOnce("hub1", now); len(q.Due(now)) != 0 {
		t.Error("a source with an open question is asked once more")
	}
	if q.AskOverdue("hub1", now.Add(time.Minute)); len(q.Due(now)) != 0 {
		t.Error("a question is overdue after a minute")
	}
	if got := q.Next(now); !got.Equal(now.Add(time.Minute)) {
		t.Errorf("the first pause ends at %v", got)
	}
	waited := time.Duration(0)
	for range 12 {
		now = q.Next(now)
		got := asks(q.Due(now))
		if len(got) != 1 || got[0].Probe != probe || got[0].Expiry < waited || got[0].Expiry > maxRetry || !q.Next(now).Equal(now.Add(got[0].Expiry)) {
			t.Fatalf("asked %+v, next at %v, after a pause of %v", got, q.Next(now), waited)
		}
		waited = got[0].Expiry
	}
	if waited != maxRetry {
		t.Errorf("the longest pause is %v", waited)
	}
	if !q.Answered("hub1", former) || q.Next(now).IsZero() || !q.HasAnswered("hub1") || !q.HasAnswered("") || q.HasAnswered("hub2") {
		t.Error("the answer to a former question closed this one, or did not count")
	}
	if q.Answered("hub1", probe) || !q.Next(now).IsZero() {
		t.Error("the answer did not close the question, or counts as the first")
	}
	q.Ask("", now)
	if all := asks(q.Due(now)); !q.Answered("hub2", all[0].Probe) || !q.Next(now).IsZero() {
		t.Error("the answer of any source did not close the question to all")
	}
}

// TestOverdue: whoever is heard of again after a question was overdue is asked with a new probe.
func TestOverdue(t *testing.T) {
	q := started(0)
	q.Connected([]wire.SourceID{"hub1"}, start)
	probe := asks(q.Due(start))[0].Probe
	late := start.Add(time.Minute + 1)
	q.AskOverdue("hub2", late) // was never asked
	q.AskOverdue("hub1", late)
	if got := asks(q.Due(late)); len(got) != 1 || got[0].Source != "hub1" || got[0].Probe == probe || got[0].Expiry != 0 {
		t.Errorf("asked %+v", got)
	}
}

// TestIsProbe: the deletion of a work is no answer.
func TestIsProbe(t *testing.T) {
	q, now := started(0), metav1.Now()
	for uid, want := range map[types.UID]bool{prefix + "000000000001": true, "work": false} {
		if got := q.IsProbe(&wire.Spec{UID: uid, DeletionTimestamp: &now}); got != want {
			t.Errorf("the deletion of %s is an answer: %v", uid, got)
		}
	}
	if q.IsProbe(&wire.Spec{UID: prefix + "000000000001"}) {
		t.Error("a spec is an answer")
	}
}

// TestWithoutConnection: nothing is asked, and everything that was to be asked is asked by the next connection.
func TestWithoutConnection(t *testing.T) {
	q := started(time.Hour)
	q.Ask("hub1", start)
	q.Ask("hub2", start.Add(time.Minute))
	q.Lack("hub3", []wire.SpecVersion{{UID: "a"}}, start)
	q.Disowned("hub1", start)
	if got := q.Due(start.Add(2 * time.Hour)); !reflect.DeepEqual(got, []Action{Decide{Source: "hub1"}}) {
		t.Errorf("due %+v", got)
	}
	q.Connected(nil, start)
	if got := q.Due(start); len(got) != 2 || got[0].(Ask).Source != "hub1" || got[1].(Request).Source != "hub3" {
		t.Errorf("due %+v", got)
	}
	q.Lack("hub3", []wire.SpecVersion{{UID: "a"}}, start)
	q.Lost()
	q.Connected([]wire.SourceID{"hub3"}, start)
	if got := q.Due(start); len(got) != 1 || got[0].(Ask).Source != "hub3" {
		t.Errorf("due %+v, want one question for all", got)
	}
	if got := asks(q.Due(start.Add(time.Minute))); len(got) != 3 || got[1].Source != "hub2" || got[1].Expiry != 0 {
		t.Errorf("due %+v, want all of them: two for the second time", got)
	}
}

// TestProved: a source that proved that it does not repeat what it said earlier is asked at once.
func TestProved(t *testing.T) {
	q := started(0)
	q.Connected([]wire.SourceID{"hub1"}, start)
	probe := asks(q.Due(start))[0].Probe
	q.Proved("hub1", probe, start)
	if got := asks(q.Due(start)); len(got) != 1 || got[0].Probe == probe || q.HasAnswered("hub1") {
		t.Errorf("asked %+v, answered %v", got, q.HasAnswered("hub1"))
	}
}

// TestDigests: after half of the interval here, and then after the interval with half of its jitter.
func TestDigests(t *testing.T) {
	q := started(time.Hour)
	q.Heard("hub2")
	q.Ask("hub1", start)
	q.Connected(nil, start)
	q.Due(start)
	q.Answered("hub1", asks(q.Due(start.Add(time.Minute)))[0].Probe)
	for _, after := range []time.Duration{30 * time.Minute, 93 * time.Minute} {
		if got := q.Next(start); !got.Equal(start.Add(after)) {
			t.Errorf("the digest is due at %v, want %v after the start", got, after)
		}
		if got := q.Due(start.Add(after)); !reflect.DeepEqual(got, []Action{SendDigests{Heard: []wire.SourceID{"hub2"}}}) {
			t.Errorf("due %+v", got)
		}
	}
}

// TestRequests: the works to request are merged by work, requested in turns, and dropped if they are too many, which
// does not concern other sources.
func TestRequests(t *testing.T) {
	list := func(from, n int, generation wire.Generation) (versions []wire.SpecVersion) {
		for i := range n {
			versions = append(versions, wire.SpecVersion{UID: types.UID(fmt.Sprint(from + i)), Generation: generation})
		}
		return versions
	}
	q := started(0)
	q.Connected(nil, start)
	for i := range 100 {
		q.Lack("a", list(0, batch+1, wire.Generation(i)), start)
	}
	first, last := q.Due(start)[0].(Request), q.Due(start)[0].(Request)
	if len(first.Versions) != batch || !first.First || len(last.Versions) != 1 || last.First || last.Versions[0].Generation != 99 || !q.Next(start).IsZero() {
		t.Errorf("requested %d, first %v; then %+v", len(first.Versions), first.First, last)
	}
	q.Lack("b", list(0, 1, 1), start)
	q.Lack("a", list(0, maxLacking, 1), start)
	if got := q.Due(start); len(got) != 2 || len(asks(got)) != 0 {
		t.Errorf("due %v, want a turn of both", got)
	}
	q.Lack("b", list(0, 1, 1), start)
	q.Lack("a", list(maxLacking, batch+1, 1), start)
	if got := q.Due(start.Add(AnswerWindow + 1)); len(got) != 2 || len(asks(got)) != 1 || asks(got)[0].Source != "a" || !got[1].(Request).First {
		t.Errorf("due %v, want a question to a, and a request of b", got)
	}
}

// TestRandom steps Questions at random beside a model that knows only whom to ask, and checks that nothing is asked without a connection,
// nobody is forgotten, no probe comes twice, and time passes.
func TestRandom(t *testing.T) {
	for seed := range uint64(200) {
		random := rand.New(rand.NewPCG(seed, 0))
		q := New(Config{Prefix: prefix, Retry: time.Second, Digest: time.Hour, Random: random.Float64}, start)
		now, connected := start, false
		open, wanted, probes := map[wire.SourceID]types.UID{}, map[wire.SourceID]bool{}, map[types.UID]bool{}
		for step := range 500 {
			name := wire.SourceID(fmt.Sprint("hub", random.IntN(4)))
			switch random.IntN(8) {
			case 0:
				q.Connected([]wire.SourceID{name}, now)
				connected, wanted[name] = true, true
			case 1:
				q.Lost()
				connected = false
			case 2:
				q.Ask(name, now)
				wanted[name] = true
			case 3:
				if q.AskOnce(name, now); open[name] == "" {
					wanted[name] = true
				}
			case 4:
				if open[name] != "" {
					q.Answered(name, open[name])
					delete(open, name)
				}
			case 5:
				q.Lack(name, []wire.SpecVersion{{UID: types.UID(fmt.Sprint(step))}}, now)
			default:
				if next := q.Next(now); !next.IsZero() && next.After(now) {
					now = next
				}
			}
			if random.IntN(2) == 0 {
				continue
			}
			for _, action := range q.Due(now) {
				switch action := action.(type) {
				case Ask:
					right := wanted[action.Source] && !probes[action.Probe]
					if action.Expiry > 0 {
						right = open[action.Source] == action.Probe
					}
					if !connected || !right {
						t.Fatalf("seed %d, step %d: %+v, connected %v, open %v, wanted %v", seed, step, action, connected, open, wanted)
					}
					open[action.Source], probes[action.Probe] = action.Probe, true
					delete(wanted, action.Source)
				case Request, SendDigests:
					if !connected {
						t.Fatalf("seed %d, step %d: %+v without a connection", seed, step, action)
					}
				}
			}
			if next := q.Next(now); connected && (len(wanted) > 0 || len(open) > 0 && next.IsZero() || next.Before(now) && !next.IsZero()) {
				t.Fatalf("seed %d, step %d: next at %v, now %v, open %v, wanted %v", seed, step, next, now, open, wanted)
			}
		}
	}
}

// TestNext: what is due first is next; without a connection, only decisions are due.
func TestNext(t *testing.T) {
	q := started(0)
	q.Connected(nil, start)
	next := func(want time.Duration) {
		t.Helper()
		if got := q.Next(start); !got.Equal(start.Add(want)) {
			t.Errorf("next at %s, want %s", got.Sub(start), want)
		}
	}
	for i := range 9 {
		q.Disowned(wire.SourceID(fmt.Sprint(i)), start.Add(time.Duration(10-i)*time.Second))
	}
	next(2 * time.Second)
	q.Ask("asked", start.Add(time.Second))
	next(time.Second)
	q.Lack("lacks", []wire.SpecVersion{{UID: "u"}}, start)
	next(0)
	q.Lost()
	next(2 * time.Second)
}
