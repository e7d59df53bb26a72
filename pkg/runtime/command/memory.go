package command

import (
	"os"
	"runtime/debug"
	"strconv"
	"strings"
)

// memoryPercent is the share of the container's memory limit that Go's runtime is to use at most. The
// rest is for stacks of the system and mapped files.
const memoryPercent = 90

// limitFiles have the memory limit of this process's container: cgroups version 2, and 1.
var limitFiles = []string{"/sys/fs/cgroup/memory.max", "/sys/fs/cgroup/memory/memory.limit_in_bytes"}

// setMemoryLimit has the runtime collect garbage more often as the memory limit of the container
// comes near, instead of growing into it. GOMEMLIMIT in the environment takes precedence.
func setMemoryLimit() {
	if os.Getenv("GOMEMLIMIT") != "" {
		return
	}
	for _, file := range limitFiles {
		if text, err := os.ReadFile(file); err == nil {
			if limit, ok := memoryLimit(string(text)); ok {
				debug.SetMemoryLimit(limit)
			}
			return
		}
	}
}

// memoryLimit returns the limit of the runtime for a container with the limit that text has. ok is
// false for a container without one.
func memoryLimit(text string) (limit int64, ok bool) {
	bytes, err := strconv.ParseInt(strings.TrimSpace(text), 10, 64)
	if err != nil || bytes <= 0 || bytes > 1<<50 { // "max", or what version 1 has for none
		return 0, false
	}
	return bytes / 100 * memoryPercent, true
}
