package agent

import (
	"context"
	"log/slog"
	"sync"
	"time"

	"github.com/google/uuid"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/workwire/workwire/pkg/agent/applied"
	workv1 "github.com/workwire/workwire/pkg/apis/work/v1"
	"github.com/workwire/workwire/pkg/wire"
)

// answers says which sources have answered a request for specs since the agent
// started. Only then is a record without a work a record of no work. Each request
// names the probe, a work that no source has: by the protocol the answer to that
// is a deletion of it, so that also a source which owns nothing, and one that has
// nothing new, is heard (docs/protocol.md, Spec resync). It is safe for
// concurrent use.
type answers struct {
	probe types.UID

	mu       sync.Mutex
	asked    map[wire.SourceID]asking
	answered map[wire.SourceID]struct{}
}

// asking is how often a source that has not answered was asked for that, and when
// last.
type asking struct {
	times int
	last  time.Time
}

// longestAsking is the longest wait before a silent source is asked again.
const longestAsking = 10 * time.Minute

func newAnswers() *answers {
	return &answers{
		probe: types.UID(uuid.NewString()), asked: map[wire.SourceID]asking{}, answered: map[wire.SourceID]struct{}{},
	}
}

// ask gives what a request to source has to name besides what the agent holds,
// and notes that it is being asked.
func (s *answers) ask(source wire.SourceID) []wire.SpecVersion {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.asked[source] = asking{times: s.asked[source].times, last: time.Now()}
	if _, done := s.answered[source]; done {
		return nil
	}
	return []wire.SpecVersion{{UID: s.probe}}
}

// repeat says how long to wait before source, which has not answered, is asked
// again; 0: now. A request is lost when the source was not yet there. The wait
// begins with first and doubles.
func (s *answers) repeat(source wire.SourceID, first time.Duration, now time.Time) time.Duration {
	s.mu.Lock()
	defer s.mu.Unlock()
	asked := s.asked[source]
	pause := min(first<<min(asked.times, 10), longestAsking)
	if left := asked.last.Add(pause).Sub(now); left > 0 {
		return left
	}
	s.asked[source] = asking{times: asked.times + 1, last: now}
	return 0
}

// take notes the answer that spec is, if it is one, and reports whether it is the
// first of its source.
func (s *answers) take(spec *wire.Spec) bool {
	if spec.UID != s.probe || !spec.IsDeletion() {
		return false
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	_, before := s.answered[spec.Source]
	s.answered[spec.Source] = struct{}{}
	return !before
}

// of reports whether source has answered; any source, where none is given.
func (s *answers) of(source wire.SourceID) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	if source == "" {
		return len(s.answered) > 0
	}
	_, done := s.answered[source]
	return done
}

// unclaimed deals with a name that no work goes by. A record of that name which
// is the agent's own is given a grace period, since its source may be about to
// send the work, and then goes, with its objects.
func (a *Agent) unclaimed(ctx context.Context, logger *slog.Logger, name string) (time.Duration, error) {
	record, exists := a.records.Get(name)
	if !exists || record.Spec.AgentID != a.config.AgentID {
		a.release(name)
		return 0, nil
	}
	if record.DeletionTimestamp != nil {
		return a.clearUnclaimed(ctx, logger, name, record)
	}
	a.release(name)
	source := a.sourceOf(record)
	decision, wait := applied.DecideEviction(record, applied.EvictionRule{
		AgentID: a.config.AgentID, Grace: a.config.EvictionGrace, Answered: a.answers.of(source), Now: time.Now(),
	})
	var err error
	switch decision {
	case applied.Mark:
		now := metav1.Now()
		logger.Warn("no work stands behind an AppliedManifestWork: it is evicted after the grace period, unless its work comes",
			"grace", a.config.EvictionGrace)
		_, err = a.records.SetEviction(ctx, record, &now)
	case applied.Clear:
		_, err = a.records.SetEviction(ctx, record, nil)
	case applied.Evict:
		logger.Warn("no work has stood behind an AppliedManifestWork for the grace period: it goes, with its objects",
			"since", record.Status.EvictionStartTime)
		going, err := a.records.Delete(ctx, record)
		if err != nil || going == nil {
			return 0, ignoreNotFound(err)
		}
		return a.clearUnclaimed(ctx, logger, name, going)
	case applied.None: // as long as the source has not answered
		if source == "" || a.answers.of(source) {
			break
		}
		if wait = a.answers.repeat(source, a.config.SyncInterval, time.Now()); wait == 0 {
			a.asks.Add(source)
			wait = a.config.SyncInterval
		}
	}
	return wait, err
}

// clearUnclaimed removes what a record names that goes without a work.
func (a *Agent) clearUnclaimed(ctx context.Context, logger *slog.Logger, name string, record *workv1.AppliedManifestWork) (time.Duration, error) {
	cleared, err := a.clear(ctx, logger, name, record, nil)
	if err != nil {
		return 0, err
	}
	if !cleared {
		return a.unwatched(a.following(record)), nil
	}
	a.release(name)
	return 0, nil
}

func ignoreNotFound(err error) error {
	if apierrors.IsNotFound(err) {
		return nil
	}
	return err
}

// answered looks again at the records that no work stands behind, now that their
// source has said which works there are.
func (a *Agent) answered() {
	for record := range a.records.All() {
		if record.Spec.AgentID == a.config.AgentID && len(a.holders.of(record.Name)) == 0 {
			a.queue.Add(record.Name)
		}
	}
}
