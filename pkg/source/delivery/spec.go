package delivery

import (
	"hash/fnv"
	"maps"
	"slices"
	"strconv"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	workv1 "github.com/workwire/workwire/pkg/apis/work/v1"
	"github.com/workwire/workwire/pkg/wire"
)

// stamp tells apart the states of a work that an agent must be told of. The zero
// value stands for none.
type revision struct {
	generation wire.Generation
	deleting   bool
	metadata   uint64
}

func revisionOf(work *workv1.ManifestWork) revision {
	return revision{
		generation: wire.Generation(work.Generation),
		deleting:   work.DeletionTimestamp != nil,
		metadata:   metadataHash(&work.ObjectMeta),
	}
}

// metadataHash changes when labels or annotations that agents get do.
func metadataHash(m *metav1.ObjectMeta) uint64 {
	sum := fnv.New64a()
	for _, set := range []map[string]string{m.Labels, m.Annotations} {
		for _, key := range slices.Sorted(maps.Keys(set)) {
			if key == corev1.LastAppliedConfigAnnotation {
				continue
			}
			sum.Write([]byte(key))
			sum.Write([]byte{0})
			sum.Write([]byte(set[key]))
			sum.Write([]byte{0})
		}
		sum.Write([]byte{1})
	}
	return sum.Sum64()
}

// metadataFor is what of a work's metadata agents get: neither what is the
// hub's own nor what only makes the event longer.
func metadataFor(m *metav1.ObjectMeta) metav1.ObjectMeta {
	slim := metav1.ObjectMeta{
		Name:              m.Name,
		Namespace:         m.Namespace,
		UID:               m.UID,
		Generation:        m.Generation,
		ResourceVersion:   strconv.FormatInt(m.Generation, 10),
		CreationTimestamp: m.CreationTimestamp,
		Labels:            m.Labels,
		Annotations:       m.Annotations,
	}
	if _, ok := slim.Annotations[corev1.LastAppliedConfigAnnotation]; ok {
		slim.Annotations = maps.Clone(slim.Annotations)
		delete(slim.Annotations, corev1.LastAppliedConfigAnnotation)
	}
	return slim
}

// plan is what to do about a work whose turn has come: publish spec, or, when
// spec is nil, only note stamp.
type plan struct {
	spec     *wire.Spec
	revision revision
	// known reports that the agent has stamp although this Link did not publish it.
	known bool
	// more reports that another publish is due right after this one.
	more bool
}

// decide plans what c asks for. work is the work as it is, nil when there is
// none.
func planPublish(c attempt, work *workv1.ManifestWork, source wire.SourceID, now time.Time) plan {
	if work == nil {
		return planDeletion(c, source, now)
	}
	p := plan{revision: revisionOf(work)}
	if last := undeliveredSpec(c, work); last != (revision{}) {
		p.revision, p.more = last, true
	}
	switch {
	case c.refused != nil && c.refused.revision == p.revision:
		return p
	case p.revision.deleting && c.deleted && !c.force:
		return p
	case !c.force && c.published == p.revision:
		return p
	case !c.force && c.published == (revision{}) && !p.revision.deleting && max(c.confirmed, confirmedBy(work)) >= p.revision.generation:
		p.known = true
		return p
	}
	p.spec = &wire.Spec{
		UID:        work.UID,
		Generation: p.revision.generation,
		Source:     source,
		Cluster:    c.workKey.cluster,
		Action:     c.action(p.revision),
		Meta:       metadataFor(&work.ObjectMeta),
	}
	if p.more {
		p.spec.Meta.Generation, p.spec.Meta.ResourceVersion = int64(p.revision.generation), strconv.FormatInt(int64(p.revision.generation), 10)
	}
	if p.revision.deleting {
		p.spec.DeletionTimestamp = work.DeletionTimestamp
	} else {
		p.spec.Bundle = wire.NewBundle(&work.Spec)
	}
	return p
}

// lastWords gives the spec that an agent has to be told of before the deletion of
// work: the last one, if it never left. The agent deletes as its deleteOption
// says. A deletion is a generation of its own. It gives nothing when the agent
// knows of no spec at all, when it knows the last one, or when it knows of the
// deletion. An agent that asks may have missed what was published: then only its
// own word counts.
func undeliveredSpec(c attempt, work *workv1.ManifestWork) revision {
	told := max(c.confirmed, confirmedBy(work))
	if !c.resync {
		told = max(told, c.published.generation)
	}
	last := revisionOf(work)
	last.generation--
	if !last.deleting || c.deleted || told == 0 || told >= last.generation {
		return revision{}
	}
	last.deleting = false
	if c.refused != nil && c.refused.revision == last {
		return revision{}
	}
	return last
}

// decideGone plans the deletion of a work that the source does not have, or no
// longer.
func planDeletion(c attempt, source wire.SourceID, now time.Time) plan {
	if c.removed == nil {
		return plan{}
	}
	p := plan{revision: revision{generation: c.removed.generation, deleting: true}}
	if !c.force && c.published == p.revision {
		return p
	}
	at := c.removed.deletedAt
	if at == nil {
		at = &metav1.Time{Time: now}
	}
	p.spec = &wire.Spec{
		UID:               c.workKey.uid,
		Generation:        c.removed.generation,
		Source:            source,
		Cluster:           c.workKey.cluster,
		Action:            c.action(p.revision),
		DeletionTimestamp: at,
		NoMetadata:        c.removed.meta == nil,
	}
	if c.removed.meta != nil {
		p.spec.Meta = *c.removed.meta
	}
	return p
}

// confirmedBy is the generation that the agent has reported on, as the work's own
// status tells; 0 when it tells none.
func confirmedBy(work *workv1.ManifestWork) wire.Generation {
	applied := meta.FindStatusCondition(work.Status.Conditions, workv1.WorkApplied)
	if applied == nil || isRefusal(applied.Reason) {
		return 0
	}
	return wire.Generation(applied.ObservedGeneration)
}
