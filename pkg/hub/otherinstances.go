package hub

import (
	"cmp"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/client-go/tools/record"

	"github.com/workwire/workwire/pkg/runtime/leader"
	"github.com/workwire/workwire/pkg/source/instances"
)

// Reasons of the events about other programs under the hub's source id.
const (
	reasonTwoPrograms = "TwoProgramsOneSource"
	reasonOneProgram  = "OneProgramOneSource"
)

// otherInstances returns what records an event about the hub's identity whenever other programs
// under its source id are noticed or gone.
func (h *Hub) otherInstances(recorder record.EventRecorder) func([]instances.Other) {
	if recorder == nil {
		return nil
	}
	about := &corev1.ObjectReference{
		APIVersion: "v1", Kind: "ConfigMap", Name: IdentityConfigMap, Namespace: cmp.Or(h.cfg.Election.Namespace, leader.DefaultNamespace),
	}
	return func(others []instances.Other) {
		if len(others) == 0 {
			recorder.Eventf(about, corev1.EventTypeNormal, reasonOneProgram, "No other program publishes under the source id %s any more", h.cfg.Source)
		}
		for _, o := range others {
			recorder.Eventf(about, corev1.EventTypeWarning, reasonTwoPrograms,
				"Another program publishes under the source id %s since %s: %s. Stop all but one, or give each an id of its own: they delete and overwrite each other's works",
				h.cfg.Source, o.SinceText(), o.Program)
		}
	}
}
