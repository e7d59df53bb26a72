//go:build !linux

package kubetest

import "os/exec"

// endWithParent does nothing: only Linux has the means.
func endWithParent(*exec.Cmd) {}
