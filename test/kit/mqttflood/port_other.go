//go:build !linux

package mqttflood

import "syscall"

// chooseLate does nothing: only on Linux an attack chooses its address.
func chooseLate(_, _ string, _ syscall.RawConn) error { return nil }
