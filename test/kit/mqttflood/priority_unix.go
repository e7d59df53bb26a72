//go:build unix

package mqttflood

import "syscall"

// lowerPriority gives this process the lowest priority.
func lowerPriority() { _ = syscall.Setpriority(syscall.PRIO_PROCESS, 0, 19) }
