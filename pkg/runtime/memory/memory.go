// Package memory returns memory to the operating system.
package memory

import "runtime/debug"

// Return returns what a program at rest does not need: free memory of its heap, and, on Linux, the pages of its own file.
// Most of those were used by the start only, and count as resident memory for as long as they are mapped. What is used
// again is mapped again, from the page cache as a rule. It takes some milliseconds.
func Return() {
	debug.FreeOSMemory()
	unmapProgram()
}
