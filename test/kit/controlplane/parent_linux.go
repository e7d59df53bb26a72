package controlplane

import (
	"os/exec"
	"syscall"
)

// endWithParent makes the process end, as by Stop, when this one is killed or
// its tests take too long.
func endWithParent(command *exec.Cmd) {
	command.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGTERM}
}
