package delivery

import (
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/workwire/workwire/pkg/wire"
)

// maxUnknown is the maximum number of works of a cluster, of those that the source does not have, whose deletion waits to
// be published. Further ones wait for the next request.
const maxUnknown = 10_000

// UnknownAction is what happens to a work that an agent holds and the source does not have.
type UnknownAction int

const (
	// AnswerUnknown answers that the source does not know the work: a deletion without metadata.
	// The agent decides whether to believe it (docs/protocol.md, Source identity).
	AnswerUnknown UnknownAction = iota
	// DeleteUnknown deletes the work as if the source had recorded its deletion.
	DeleteUnknown
	// HoldUnknown answers nothing, so that the agent keeps the work.
	HoldUnknown
)

// resyncAnswer is how a work is answered that an agent lists in a spec resync request, or leaves out (docs/protocol.md, Spec
// resync); it is a metric label.
type resyncAnswer string

const (
	sendNothing       resyncAnswer = ""              // the agent has what it should have
	sendNewest        resyncAnswer = "sent"          // its newest state is published
	sendAuthoritative resyncAnswer = "authoritative" // the same, and the agent takes it in place of other content, or of a higher generation
	sendDeletion      resyncAnswer = "gone"          // the source does not have it
	letKeep           resyncAnswer = "held"          // the source does not have it, and the agent keeps it
	postpone          resyncAnswer = "postponed"     // too many deletions wait
)

// listedWork is a work of the source, and what an agent lists of it.
type listedWork struct {
	uid        types.UID
	name       string
	generation wire.Generation
	deleting   bool
	have       wire.SpecVersion // the zero value if it is left out
	hash       string           // of the content of the generation, if that counts
	answer     resyncAnswer     // set by step
}

// hashCounts reports whether the agent lists a content of the work's generation.
func (l *listedWork) hashCounts() bool {
	return l.have.ContentHash != "" && l.have.Generation == l.generation && !l.deleting
}

// isAhead reports whether the agent lists a higher generation, which is not overruled.
func (l *listedWork) isAhead() bool {
	return l.have.Generation > l.generation && l.answer != sendAuthoritative
}

// decide returns the answer. hashed reports whether the specs of the source have content hashes.
func (l *listedWork) decide(partial, hashed bool) resyncAnswer {
	switch have := &l.have; {
	case have.UID == "", l.deleting, l.generation == 0, l.generation > have.Generation:
		return sendNewest
	case hashed && have.ContentHash != "" && (have.Generation > l.generation || have.ContentHash != l.hash):
		return sendAuthoritative
	case hashed && have.ContentHash == "" && have.Generation == l.generation && partial:
		return sendNewest
	default:
		return sendNothing
	}
}

// intent returns what a publish of the newest state is for. The deletion of a work that the list leaves out answers nothing: an agent whose
// list does not fit, or that believes the source nothing yet, may hold an earlier spec, and asks for the last one.
func (l *listedWork) intent() intent {
	if l.deleting && l.have.UID == "" {
		return missed
	}
	return reply
}

// isHeld reports whether an agent that lists v in a request, a partial one or not, holds the work: a partial one also lists what it lacks.
func isHeld(v *wire.SpecVersion, partial bool) bool {
	return v.Generation != 0 || v.Recorded || !partial
}

// worksListed: an agent lists works of the source, or asks for all. It costs O(n) for n of them.
type worksListed struct {
	cluster         wire.ClusterName
	works           []listedWork
	partial, hashed bool
}

func (in *worksListed) apply(d *core, now time.Time) {
	if !d.serves(in.cluster) {
		return
	}
	for i := range in.works {
		l := &in.works[i]
		l.answer = l.decide(in.partial, in.hashed)
		k := workKey{uid: l.uid, cluster: in.cluster}
		if w := d.works[k]; w != nil && l.have.UID != "" {
			if w.recorded = l.have.Generation == 0 && isHeld(&l.have, in.partial); w.recorded && w.said == saidNothing {
				w.confirmed = 0 // it has lost what it held since
			}
			if in.partial {
				w.agentHoldsInstead(&l.have)
				w.asksWhole(&l.have, now)
			}
			if w.removed == nil && l.answer != sendAuthoritative && !l.isAhead() {
				d.confirm(w, l.have.Generation)
			}
		}
		if l.isAhead() {
			storeWanted{k, "", statusUpdate{name: l.name, agentGeneration: l.have.Generation}}.apply(d, now)
		}
		switch l.answer {
		case sendNewest:
			d.want(d.ensure(k), l.intent())
		case sendAuthoritative:
			workRestored{k, reply}.apply(d, now)
		}
	}
}

// missingWork is a work that an agent lists, and that the source does not have.
type missingWork struct {
	held    wire.SpecVersion
	unknown bool // the source has not deleted it either
	deleted bool // it is deleted as if the source had
	answer  resyncAnswer
}

// decideMissing decides about works that an agent lists in a request and the source does not have. policy decides about
// those that the source has not deleted either. In a partial request, the agent lists works that it holds, or that it
// is to report as deleted. Nothing is kept for a cluster that is not accepted: its agent asks again.
func (d *core) decideMissing(cluster wire.ClusterName, partial bool, listed []wire.SpecVersion, policy func(wire.SpecVersion) UnknownAction) (works []missingWork) {
	open := d.stateOf(cluster) == ClusterOpen
	for _, held := range listed {
		removed := d.peek(workKey{uid: held.UID, cluster: cluster}).removed
		if removed == nil && (!open || !isHeld(&held, partial)) {
			continue
		}
		u := missingWork{held: held, unknown: removed == nil || removed.unknown, answer: sendDeletion}
		if u.unknown {
			switch policy(held) {
			case DeleteUnknown:
				u.deleted = true
			case HoldUnknown:
				u.answer = letKeep
			}
		}
		works = append(works, u)
	}
	return works
}

// worksMissing: an agent lists works that the source does not have, which were decided about. It costs O(n) for n of them.
type worksMissing struct {
	cluster wire.ClusterName
	works   []missingWork // step postpones some
}

func (in worksMissing) apply(d *core, _ time.Time) {
	if !d.serves(in.cluster) {
		return
	}
	waiting := 0
	if c, ok := d.clusters[in.cluster]; ok {
		waiting = c.removed.len()
	}
	for i := range in.works {
		u := &in.works[i]
		if u.answer != sendDeletion {
			continue
		}
		k := workKey{uid: u.held.UID, cluster: in.cluster}
		if _, known := d.works[k]; !known {
			if waiting >= maxUnknown {
				u.answer = postpone
				continue
			}
			waiting++
		}
		var meta *metav1.ObjectMeta
		if u.deleted {
			meta = &metav1.ObjectMeta{Name: string(k.uid), Namespace: string(k.cluster), UID: k.uid}
		}
		d.deleteUnknown(k, u.held.Generation, meta)
	}
}

// deleteUnknown enqueues a deletion of a work that an agent holds and the source does not have;
// meta is nil if the source does not know it. A removed work keeps the metadata that it had.
func (d *core) deleteUnknown(k workKey, held wire.Generation, meta *metav1.ObjectMeta) {
	w := d.ensure(k)
	if w.removed == nil {
		w.setRemoved(&removedWork{generation: held, meta: meta, unknown: true})
	}
	w.said = min(w.said, saidDeleting)
	d.want(w, reply)
}
