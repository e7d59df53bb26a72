package condition

import (
	"fmt"
	"strings"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// HeldBack is the warning about a manifest that has changed after it was complete.
const HeldBack = "the change is not applied, because the manifest is complete"

const (
	manifestComplete = "Apply manifest complete"
	workComplete     = "Apply manifest work complete"
	warningsFollow   = "; warnings: "
	seeManifests     = "see Applied of "
	// maxWarnings is the number of warnings in a message.
	maxWarnings = 10
	// maxWarning is the length of a warning in a message, in bytes.
	maxWarning = 512
)

// withWarnings returns message with warnings after it.
func withWarnings(message string, warnings []string) string {
	if len(warnings) == 0 {
		return message
	}
	shown := make([]string, 0, maxWarnings+1)
	for i, warning := range warnings {
		if i == maxWarnings {
			shown = append(shown, fmt.Sprintf("and %d more", len(warnings)-maxWarnings))
			break
		}
		shown = append(shown, Cut(warning, maxWarning))
	}
	return message + warningsFollow + strings.Join(shown, "; ")
}

// OwnWarnings returns those of [Warnings] of a work that are not about one of its manifests.
func OwnWarnings(c *metav1.Condition) string {
	own, _, _ := strings.Cut(Warnings(c), seeManifests)
	return strings.TrimSuffix(own, "; ")
}

// Warnings returns the warnings that a condition Applied, of a manifest or of a work, tells; empty if there are none.
func Warnings(c *metav1.Condition) string {
	if c == nil || c.Status != metav1.ConditionTrue {
		return ""
	}
	done, warnings, _ := strings.Cut(c.Message, warningsFollow)
	if done != manifestComplete && done != workComplete {
		return "" // of another agent
	}
	return warnings
}
