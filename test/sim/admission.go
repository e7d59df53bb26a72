package sim

import (
	"fmt"
	"strings"
	"sync"
	"time"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"github.com/workwire/workwire/test/sim/kubeapi"
)

// admission changes ConfigMaps that are written, as mutating webhooks do, by the last character of their names and its mode: it sets a label,
// adds a field, writes another one as it likes it, or says when that was. It is safe for concurrent use.
type admission struct {
	mu   sync.Mutex
	mode int // 0: nothing is changed
}

func (a *admission) set(mode int) {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.mode = mode
}

func (a *admission) mutate(kind kubeapi.Kind, o *kubeapi.Object) {
	a.mu.Lock()
	defer a.mu.Unlock()
	if a.mode == 0 || kind.Kind != "ConfigMap" {
		return
	}
	switch name := o.GetName(); (a.mode + int(name[len(name)-1])) % 4 {
	case 0:
		setText(o, "x", "metadata", "labels", "example.com/team")
	case 1:
		setText(o, "small", "data", "size")
	case 2:
		if note, found, _ := unstructured.NestedString(o.Object, "data", "note"); found {
			setText(o, normal(note), "data", "note")
		}
	case 3:
		setText(o, time.Now().UTC().Format(time.RFC3339Nano), "metadata", "annotations", "example.com/admitted")
	}
}

func setText(o *kubeapi.Object, value string, fields ...string) {
	if err := unstructured.SetNestedField(o.Object, value, fields...); err != nil {
		panic(err)
	}
}

// normal returns a note as the webhook likes it.
func normal(note string) string { return strings.ToLower(strings.TrimSpace(note)) }

// mutateObjects has a webhook change all ConfigMaps that are written, for a while.
func (w *World) mutateObjects() {
	mode := 1 + w.random.intN(4)
	w.trace.note("webhook", fmt.Sprintf("changes the objects that are written, mode %d", mode))
	w.admission.set(mode)
	w.later(3*maxOutage, func() {
		w.trace.note("webhook", "changes no objects any more")
		w.admission.set(0)
	})
}
