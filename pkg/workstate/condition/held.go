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

// Held is an object that is being deleted and that its finalizers keep.
type Held struct {
	Meta       workv1.ManifestResourceMeta
	Finalizers []string
}

// AddHeld adds the first objects of held and their finalizers to the message of Deleting in status. It
// changes nothing without such objects, or without Deleting.
func AddHeld(status *workv1.ManifestWorkStatus, held []Held) {
	c := meta.FindStatusCondition(status.Conditions, workv1.WorkDeleting)
	if c == nil || len(held) == 0 {
		return
	}
	var message strings.Builder
	message.WriteString(deletingMessage)
	for _, h := range held[:min(len(held), maxHeld)] {
		name := h.Meta.Name
		if h.Meta.Namespace != "" {
			name = h.Meta.Namespace + "/" + name
		}
		fmt.Fprintf(&message, "; %s %s waits for its finalizers %s", h.Meta.Kind, name, strings.Join(h.Finalizers, ", "))
	}
	if more := len(held) - maxHeld; more > 0 {
		fmt.Fprintf(&message, "; and %d more", more)
	}
	c.Message = Cut(message.String(), maxHeldMessage)
}
