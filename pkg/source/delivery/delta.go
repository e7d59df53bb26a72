package delivery

import (
	"errors"
	"fmt"
	"time"

	"k8s.io/apimachinery/pkg/util/cache"
	"k8s.io/apimachinery/pkg/util/sets"

	workv1 "github.com/workwire/workwire/pkg/apis/work/v1"
	"github.com/workwire/workwire/pkg/runtime/compress"
	"github.com/workwire/workwire/pkg/runtime/quota"
	"github.com/workwire/workwire/pkg/wire"
)

const (
	// minRecent is the size in bytes of the data, which may be compressed, from which a status is kept for
	// the deltas that may follow. Agents send smaller ones whole.
	minRecent = 512
	// maxRecent, maxRecentSize, in bytes as it is kept, and recentFor bound what is kept: the WorkStore returns
	// a status soon after it was accepted.
	maxRecent     = 256
	maxRecentSize = 64 << 10
	recentFor     = time.Minute
)

// recentStatuses are the statuses that were accepted last, which the WorkStore may not return yet. It
// is safe for concurrent use.
type recentStatuses struct {
	codec compress.Codec
	byKey *cache.LRUExpireCache // of recentStatus
}

type recentStatus struct {
	hash    string
	encoded compress.Data
}

func newRecentStatuses() *recentStatuses {
	return &recentStatuses{byKey: cache.NewLRUExpireCache(maxRecent)}
}

// encode returns s in the form in which it is kept, false if it is not: no delta of it may follow. It costs an encoding.
func (r *recentStatuses) encode(s *wire.Status, as receivedAs) (recentStatus, bool) {
	if s.Session == "" || !as.delta && as.size < minRecent {
		return recentStatus{}, false
	}
	encoded, err := r.codec.Encode(&s.Status)
	return recentStatus{hash: s.Hash, encoded: encoded}, err == nil && len(encoded) <= maxRecentSize
}

// keep keeps a status, which is about to be stored.
func (r *recentStatuses) keep(k workKey, s recentStatus) { r.byKey.Add(k, s, recentFor) }

// get returns the status of k with this hash, nil if it is not kept.
func (r *recentStatuses) get(k workKey, hash string) *workv1.ManifestWorkStatus {
	kept, _ := r.byKey.Get(k)
	if recent, ok := kept.(recentStatus); ok && recent.hash == hash {
		var status workv1.ManifestWorkStatus
		r.codec.Decode(recent.encoded, &status)
		return &status
	}
	return nil
}

// resolveDelta returns the whole status of d. If it cannot, it asks the agent for it and returns false
// (docs/protocol.md, Deltas).
func (e *Engine) resolveDelta(from sender, d *wire.StatusDelta) (*wire.Status, bool) {
	s := d.Of
	stored, has := e.config.Works.Get(s.UID)
	if from.check(e.config.Source, s.Source, s.Cluster) != accepted || has && wire.ClusterName(stored.Work.Namespace) != s.Cluster {
		return &s, true // it is refused whatever it says
	}
	if !has {
		e.askWhole(&s, errors.New("the source does not have the work"))
		return nil, false
	}
	base, err := e.statusWith(stored, d.Base)
	if err == nil && base == nil {
		if base, err = e.statusWith(stored, s.Hash); base != nil {
			s.Status = *base // it was delivered before
			return &s, true
		}
	}
	if err == nil && base == nil {
		err = fmt.Errorf("no status with hash %.80q", d.Base)
	}
	var whole *wire.Status
	if err == nil {
		whole, err = d.Apply(base)
	}
	if err == nil {
		return whole, true
	}
	e.askWhole(&s, err)
	return nil, false
}

// askWhole asks the agent for the status of which s is the head of a delta that cannot be used.
func (e *Engine) askWhole(s *wire.Status, why error) {
	e.log.Debug("status delta cannot be used, asking for the status", "work", s.Meta.Name, "uid", s.UID, "cluster", s.Cluster, "error", why)
	e.step(asked{s.Cluster, resyncTask{statuses: sets.New(s.UID)}})
}

// statusWith returns the accepted status of a work with this hash, nil if there is none. The cluster
// pays for its size, since a delta says little of what it takes: a debt, for which messages that follow are dropped.
func (e *Engine) statusWith(stored StoredWork, hash string) (*workv1.ManifestWorkStatus, error) {
	status := e.recent.get(keyOf(stored.Work), hash)
	if status == nil {
		own, err := e.statusHash(stored.Work)
		if err != nil || own != hash {
			return nil, err
		}
		status = reported(&e.config.Works.Content(stored.Work).Status)
	}
	e.core.quotas.Reserve(wire.ClusterName(stored.Work.Namespace), quota.Cost{quota.Bytes: float64(memoryOf(status))}, time.Now())
	return status, nil
}
