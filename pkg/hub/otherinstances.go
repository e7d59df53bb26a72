package hub

import (
	"cmp"

	corev1 "k8s.io/api/core/v1"

	"github.com/workwire/workwire/pkg/runtime/leader"
	"github.com/workwire/workwire/pkg/source/instances"
)

// Reasons of the events about other programs under the hub's source id.
const (
	reasonTwoPrograms = "TwoProgramsOneSource"
	reasonOneProgram  = "OneProgramOneSource"
)

// otherInstances records events about the hub's identity: other programs under its source id are noticed,
// or gone.
func (h *Hub) otherInstances(others []instances.Other) {
	about := &corev1.ObjectReference{
		APIVersion: "v1", Kind: "ConfigMap", Name: IdentityConfigMap, Namespace: cmp.Or(h.cfg.Election.Namespace, leader.DefaultNamespace),
	}
	if len(others) == 0 {
		h.events.Eventf(about, corev1.EventTypeNormal, reasonOneProgram, "No other program publishes under the source id %s any more", h.cfg.Source)
	}
	for _, o := range others {
		h.events.Eventf(about, corev1.EventTypeWarning, reasonTwoPrograms,
			"Another program publishes under the source id %s since %s: %s. Stop all but one, or give each an id of its own: they delete and overwrite each other's works",
			h.cfg.Source, o.SinceText(), o.Program)
	}
}
