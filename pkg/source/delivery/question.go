package delivery

import (
	"cmp"
	"maps"
	"slices"

	"k8s.io/apimachinery/pkg/types"

	"k8s.io/apimachinery/pkg/util/sets"

	"github.com/workwire/workwire/pkg/wire"
)

const (
	// resyncWorkers is the number of clusters that are resynced concurrently.
	resyncWorkers = 8
	// maxPending is the maximum number of works that the questions of a cluster that wait ask for together. If
	// they are more, all works of the cluster are sent.
	maxPending = 20_000
	// maxStatuses is the maximum number of works of a cluster whose statuses are requested whatever they are.
	maxStatuses = 1_000
	// freeQuestion is the number of works that a cluster may list without a pace, if the source has none for it.
	freeQuestion = 100
)

// question is what a cluster asks for, until it is answered: one or several spec resync requests. Its memory is
// that of one request, however many there were.
type question struct {
	// whole is a request that lists all works that the agent holds, or none; nil: there is no such request.
	whole *wire.SpecResync
	// partial is the newest partial request, and listed the works of all of them, as they were listed last.
	// They are nil beside whole: the next digest asks again.
	partial *wire.SpecResync
	listed  map[types.UID]wire.SpecVersion
}

func newQuestion(r *wire.SpecResync) question {
	switch {
	case !r.Partial:
		return question{whole: r}
	case len(r.Versions) > maxPending:
		return question{whole: everything(r)}
	default:
		return question{partial: r}
	}
}

// with returns the question that asks for what q and newer ask for. It may change q, and costs O(n) for what newer
// lists.
func (q question) with(newer question) question {
	switch {
	case newer.whole != nil, q.partial == nil && q.whole == nil:
		return newer
	case newer.partial == nil || q.whole != nil:
		return q
	}
	q.list(q.partial)
	maps.Copy(q.listed, newer.listed)
	q.partial = newer.partial
	q.list(q.partial)
	if len(q.listed) > maxPending {
		return question{whole: everything(q.partial)}
	}
	return q
}

// list adds the works of a request.
func (q *question) list(r *wire.SpecResync) {
	if q.listed == nil {
		q.listed = make(map[types.UID]wire.SpecVersion, len(r.Versions))
	}
	for _, version := range r.Versions {
		q.listed[version.UID] = version
	}
}

// everything returns the request for all works instead of r.
func everything(r *wire.SpecResync) *wire.SpecResync {
	all := *r
	all.Versions, all.Partial = nil, false
	return &all
}

// works returns how many works q lists, -1 if it asks for nothing.
func (q question) works() int {
	switch {
	case q.whole != nil:
		return len(q.whole.Versions)
	case q.listed != nil:
		return len(q.listed)
	case q.partial != nil:
		return len(q.partial.Versions)
	default:
		return -1
	}
}

// request returns the request to answer, nil if there is none.
func (q question) request() *wire.SpecResync {
	if q.whole != nil || q.listed == nil {
		return cmp.Or(q.whole, q.partial)
	}
	all := *q.partial
	all.Versions = slices.SortedFunc(maps.Values(q.listed), func(a, b wire.SpecVersion) int { return cmp.Compare(a.UID, b.UID) })
	return &all
}

// resyncTask is what to do for a cluster.
type resyncTask struct {
	question        question // answer it, if any
	requestStatuses bool
	statuses        sets.Set[types.UID] // of works whose statuses to request, whatever they are; at most maxStatuses
	probe           bool
	owed            bool         // the cluster had used up its quota: wait until it has not
	digest          *wire.Digest // compare it, if set
}

// mergeResyncTasks merges two tasks. It may change the older one, and costs O(n) for what the newer one lists.
func mergeResyncTasks(older, newer resyncTask) resyncTask {
	newer.question = older.question.with(newer.question)
	newer.digest = cmp.Or(newer.digest, older.digest)
	newer.requestStatuses = newer.requestStatuses || older.requestStatuses
	if len(older.statuses) > 0 {
		for uid := range newer.statuses {
			older.statuses.Insert(uid)
		}
		newer.statuses = older.statuses
	}
	if len(newer.statuses) > maxStatuses {
		newer.statuses, newer.requestStatuses = nil, true // of those that the source has; others are listed again
	}
	newer.probe = newer.probe || older.probe
	newer.owed = newer.owed || older.owed
	return newer
}
