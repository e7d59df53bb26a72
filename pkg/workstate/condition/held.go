package condition

import (
	"fmt"
	"strings"

	"k8s.io/apimachinery/pkg/api/meta"

	workv1 "github.com/workwire/workwire/pkg/apis/work/v1"
)

const (
	deletingMessage = "ManifestWork is being deleted"
	// maxHeld is how many objects the message of Deleting names.
	maxHeld = 3
	// maxHeldMessage is the maximum length in bytes of the message of Deleting.
	maxHeldMessage = 1024
)

// Held is an object of a work that is being deleted: its finalizers keep it, or its deletion was refused.
type Held struct {
	Meta       workv1.ManifestResourceMeta
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
		why := "waits for its finalizers " + strings.Join(h.Finalizers, ", ")
		if h.Refused != "" {
			why = "cannot be deleted (" + h.Refused + "): the log of the agent says why"
		}
		fmt.Fprintf(&message, "; %s %s %s", h.Meta.Kind, name, why)
	}
	if more := len(held) - maxHeld; more > 0 {
		fmt.Fprintf(&message, "; and %d more", more)
	}
	if lower > 0 {
		fmt.Fprintf(&message, "; %d objects of lower waves wait", lower)
	}
	c.Message = Cut(message.String(), maxHeldMessage)
}
