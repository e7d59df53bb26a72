package report

import (
	"os"
	"runtime"
	"strings"
)

// ThisMachine tells what the benchmark runs on, as far as Linux says.
func ThisMachine() Machine {
	kernel, _ := os.ReadFile("/proc/sys/kernel/osrelease")
	load, _ := os.ReadFile("/proc/loadavg")
	averages := strings.Fields(string(load))
	return Machine{
		CPU: field("/proc/cpuinfo", "model name"), Cores: runtime.NumCPU(), Memory: field("/proc/meminfo", "MemTotal"),
		Kernel: strings.TrimSpace(string(kernel)), Go: runtime.Version(), Load: strings.Join(averages[:min(3, len(averages))], " "),
	}
}

// field gives the value of the first line "name: value" of a file, empty without one.
func field(path, name string) string {
	text, _ := os.ReadFile(path)
	for line := range strings.Lines(string(text)) {
		if key, value, ok := strings.Cut(line, ":"); ok && strings.TrimSpace(key) == name {
			return strings.TrimSpace(value)
		}
	}
	return ""
}
