//go:build !linux

package controlplane

import "os/exec"

// endWithParent does nothing: only Linux has the means.
func endWithParent(*exec.Cmd) {}
