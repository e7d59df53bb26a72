package expression

import "strings"

// maxFault is the maximum length in bytes of what Fault returns.
const maxFault = 256

// Fault returns what of the text of a failed evaluation is shown: its first line, 256 bytes of it at most.
func Fault(text string) string {
	text, _, _ = strings.Cut(text, "\n")
	return strings.ToValidUTF8(text[:min(len(text), maxFault)], "")
}
