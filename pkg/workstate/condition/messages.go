package condition

import (
	"fmt"
	"strings"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	workv1 "github.com/workwire/workwire/pkg/apis/work/v1"
)

const (
	// MaxMessage is the maximum length in bytes of a condition's message in the Kubernetes API.
	MaxMessage = 32768
	// maxMessages is the maximum length in bytes of the messages of the manifests of a work
	// together, as long as minMessage for each is no more.
	maxMessages = 256 << 10
	// maxEvaluated is the maximum length in bytes of what the rules of all manifests say together, before it is cut with
	// all other messages, and maxOfManifest that of the rules of one.
	maxEvaluated  = 1 << 20
	maxOfManifest = 64 << 10
	// minMessage is the length in bytes that every message may have.
	minMessage = 256
	// WindowWasOver says of the window of a work that not the agent missed it.
	WindowWasOver = "was over before the agent had the work as it is now"
)

// Cut returns message as valid UTF-8 of at most limit bytes, of which limit must be more than 40. A
// message that is cut says so at its end.
func Cut(message string, limit int) string {
	message = strings.ToValidUTF8(message, "")
	if len(message) <= limit {
		return message
	}
	note := fmt.Sprintf("… (cut, %d bytes)", len(message))
	return strings.ToValidUTF8(message[:limit-len(note)], "") + note
}

// Shorten returns text as at most limit bytes, of which limit must be more than 3. One that is cut ends with "…".
func Shorten(text string, limit int) string {
	if len(text) <= limit {
		return text
	}
	return strings.ToValidUTF8(text[:limit-len("…")], "") + "…"
}

// First joins the first texts, limit at most, and says how many more of total there are.
func First(texts []string, limit, total int, separator string) string {
	shown := texts[:min(len(texts), limit)]
	text := strings.Join(shown, separator)
	if more := total - len(shown); more > 0 {
		text += fmt.Sprintf(" and %d more", more)
	}
	return text
}

// CutEvaluated cuts the messages that the rules of one manifest have set, in a work with this number
// of manifests. It bounds what is kept until [WorkStatus].
func CutEvaluated(conditions []metav1.Condition, manifests int) {
	all := make([]*metav1.Condition, len(conditions))
	for i := range conditions {
		all[i] = &conditions[i]
	}
	cutTogether(all, min(maxOfManifest, maxEvaluated/max(manifests, 1)))
}

// cutTogether cuts the messages of conditions so that they have at most limit bytes together, and
// each at most MaxMessage: it cuts those that are longer than their share, unless all fit. A share is
// at least minMessage.
func cutTogether(conditions []*metav1.Condition, limit int) {
	total := 0
	for _, c := range conditions {
		c.Message = Cut(c.Message, MaxMessage)
		total += len(c.Message)
	}
	if total <= limit {
		return
	}
	share := max(minMessage, limit/len(conditions))
	for _, c := range conditions {
		c.Message = Cut(c.Message, share)
	}
}

// cutMessages cuts the messages of a work's manifests to the limits of a work.
func cutMessages(entries []workv1.ManifestCondition) {
	var all []*metav1.Condition
	for i := range entries {
		for j := range entries[i].Conditions {
			all = append(all, &entries[i].Conditions[j])
		}
	}
	cutTogether(all, maxMessages)
}
