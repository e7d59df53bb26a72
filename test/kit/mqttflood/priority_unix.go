//go:build unix

package mqttflood

import (
	"os"
	"runtime"
	"syscall"
)

// lowest is the lowest priority.
const lowest = 19

// lowerPriority gives this process the lowest priority. On Linux a priority is that of a thread, and Go has several when
// main begins: so the process begins once more, on the thread that has it. Call it before anything is read.
func lowerPriority() error {
	if os.Getenv(variable) == lowered {
		return nil
	}
	runtime.LockOSThread()
	if err := syscall.Setpriority(syscall.PRIO_PROCESS, 0, lowest); err != nil {
		return err
	}
	program, err := os.Executable()
	if err != nil {
		return err
	}
	if err := os.Setenv(variable, lowered); err != nil {
		return err
	}
	return syscall.Exec(program, os.Args, os.Environ())
}
