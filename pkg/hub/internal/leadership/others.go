package leadership

import (
	corev1 "k8s.io/api/core/v1"

	clusterv1 "github.com/workwire/workwire/pkg/apis/cluster/v1"
	"github.com/workwire/workwire/pkg/source/instances"
)

// OthersChanged records events about the hub's identity: other programs under its source id are noticed,
// or gone.
func (l *Leadership) OthersChanged(others []instances.Other) {
	if l.cfg.Recorder == nil {
		return
	}
	if len(others) == 0 {
		l.cfg.Recorder.Eventf(l.cfg.Identity, corev1.EventTypeNormal, clusterv1.EventOneProgram,
			"No other program publishes under the source id %s any more", l.cfg.Source)
	}
	for _, o := range others {
		l.cfg.Recorder.Eventf(l.cfg.Identity, corev1.EventTypeWarning, clusterv1.EventTwoPrograms,
			"Another program publishes under the source id %s since %s: %s. Stop all but one, or give each an id of its own: they delete and overwrite each other's works",
			l.cfg.Source, o.SinceText(), o.Program)
	}
}
