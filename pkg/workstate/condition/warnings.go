package condition

import (
	"fmt"
	"strings"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

const (
	manifestComplete = "Apply manifest complete"
	warningsFollow   = "; warnings: "
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

// hasWarnings reports whether c is the condition Applied of a manifest that was applied with
// warnings.
func hasWarnings(c *metav1.Condition) bool {
	return c.Status == metav1.ConditionTrue && strings.HasPrefix(c.Message, manifestComplete+warningsFollow)
}
