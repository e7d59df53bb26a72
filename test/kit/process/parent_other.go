//go:build !linux

package process

import "syscall"

// endWithParent does nothing: only Linux has the means.
func endWithParent(*syscall.SysProcAttr) {}
