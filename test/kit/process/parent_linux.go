package process

import "syscall"

// endWithParent makes the process end when this one is killed or its tests take too long.
func endWithParent(attributes *syscall.SysProcAttr) { attributes.Pdeathsig = syscall.SIGTERM }
