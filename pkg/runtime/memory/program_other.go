//go:build !linux

package memory

// unmapProgram does nothing.
func unmapProgram() {}
