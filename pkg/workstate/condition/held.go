package condition

import (
	"cmp"
	"fmt"
	"strings"

	"k8s.io/apimachinery/pkg/api/meta"

	workv1 "github.com/workwire/workwire/pkg/apis/work/v1"
)

const (
	deletingMessage = "ManifestWork is being deleted"
	heldDropped     = ", which the spec no longer has,"
	heldFinalizers  = " waits for its finalizers "
	heldRefused     = " cannot be deleted ("
	// maxHeld is how many objects the message of Deleting names.
	maxHeld = 3
	// maxHeldMessage is the maximum length in bytes of the message of Deleting.
	maxHeldMessage = 1024
)

// Held is an object of a work that is being deleted: its finalizers keep it, or its deletion was refused.
type Held struct {
	Meta       workv1.ManifestResourceMeta
	Dropped    bool // the spec no longer has it
	Finalizers []string
	Refused    string // the API server's reason; empty: Finalizers
}

// AddHeld adds the first objects of held, and how many of lower waves wait, to the message of Deleting in status. It
// changes nothing without any, or without Deleting.
func AddHeld(status *workv1.ManifestWorkStatus, held []Held, lower int) {
	c := meta.FindStatusCondition(status.Conditions, workv1.WorkDeleting)
	if c == nil || len(held)+lower == 0 {
		return
	}
	var message strings.Builder
	message.WriteString(deletingMessage)
	for _, h := range held[:min(len(held), maxHeld)] {
		name := h.Meta.Name
		if h.Meta.Namespace != "" {
			name = h.Meta.Namespace + "/" + name
		}
		if h.Dropped {
			name += heldDropped
		}
		why := heldFinalizers + strings.Join(h.Finalizers, ", ")
		if h.Refused != "" {
			why = heldRefused + h.Refused + "): the log of the agent says why"
		}
		fmt.Fprintf(&message, "; %s %s%s", cmp.Or(h.Meta.Kind, h.Meta.Resource), name, why)
	}
	if more := len(held) - maxHeld; more > 0 {
		fmt.Fprintf(&message, "; and %d more", more)
	}
	switch {
	case lower == 1:
		message.WriteString("; 1 object of lower waves waits")
	case lower > 1:
		fmt.Fprintf(&message, "; %d objects of lower waves wait", lower)
	}
	c.Message = Cut(message.String(), maxHeldMessage)
}

// FirstHeld returns what a message of [AddHeld] says beyond that the work is being deleted, and the kind, namespace and name of the object that it
// names first. Without a name it names none.
func FirstHeld(message string) (says string, object workv1.ManifestResourceMeta) {
	_, says, _ = strings.Cut(message, "; ")
	first := len(says)
	for _, end := range []string{heldDropped, heldFinalizers, heldRefused} {
		if i := strings.Index(says, end); i >= 0 {
			first = min(first, i)
		}
	}
	if first == len(says) {
		return says, object
	}
	kind, name, _ := strings.Cut(says[:first], " ")
	object.Kind, object.Name = kind, name
	if namespace, name, ok := strings.Cut(name, "/"); ok {
		object.Namespace, object.Name = namespace, name
	}
	return says, object
}
