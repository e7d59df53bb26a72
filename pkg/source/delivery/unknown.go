package delivery

import (
	"fmt"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/workwire/workwire/pkg/wire"
)

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
	// RefuseUnknown ends [Engine.Run] with an [*UnknownWorksError]. None of the works of the
	// request is answered.
	RefuseUnknown
)

// UnknownWorksError is returned by [Engine.Run] when an agent holds works that prove that the
// source lost its memory, see [RefuseUnknown].
type UnknownWorksError struct {
	// Cluster is the cluster of the agent.
	Cluster wire.ClusterName
	// Works is the number of such works that it holds.
	Works int
}

// Error returns the cluster and the number of works.
func (e *UnknownWorksError) Error() string {
	return fmt.Sprintf("cluster %q holds %d works of this source that its store does not know; nothing was deleted", e.Cluster, e.Works)
}

// unknownDeletion is a deletion to publish; meta is nil if the source does not know the work.
type unknownDeletion struct {
	held wire.SpecVersion
	meta *metav1.ObjectMeta
}

// decideUnknown returns the deletions to publish for works that the source does not have, and those
// of the works that it has not deleted either, without probes; or an error if they prove that it lost its memory.
// Works that were removed here are deleted in any case.
func (e *Engine) decideUnknown(cluster wire.ClusterName, gone []wire.SpecVersion) (
	deletions []unknownDeletion, unknown []wire.SpecVersion, err error,
) {
	refused := 0
	decide := func(held wire.SpecVersion) {
		d := unknownDeletion{held: held}
		action := AnswerUnknown
		if removed := e.core.get(workKey{uid: held.UID, cluster: cluster}).removed; removed == nil || removed.unknown {
			if !held.Probe {
				unknown = append(unknown, held)
			}
			action = e.config.Works.Unknown(held)
		}
		switch action {
		case HoldUnknown:
			return
		case RefuseUnknown:
			refused++
		case DeleteUnknown:
			d.meta = &metav1.ObjectMeta{Name: string(held.UID), Namespace: string(cluster), UID: held.UID}
		}
		deletions = append(deletions, d)
	}
	inTurns(gone, func(part []wire.SpecVersion) {
		e.mu.Lock()
		defer e.mu.Unlock()
		for _, held := range part {
			decide(held)
		}
	})
	if refused > 0 {
		return nil, nil, &UnknownWorksError{Cluster: cluster, Works: refused}
	}
	return deletions, unknown, nil
}

// statusesOf lists the works among unknown that the agent keeps although it was told that the source
// does not know them, which it lists without a generation: the answer is their status.
func statusesOf(unknown []wire.SpecVersion) (list []wire.StatusVersion) {
	for _, held := range unknown {
		if held.Generation == 0 {
			list = append(list, wire.StatusVersion{UID: held.UID, Hash: wire.NoStatus})
		}
	}
	return list
}
