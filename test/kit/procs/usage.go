// Package procs reads what processes use from /proc, and takes profiles of them.
package procs

import (
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"time"
)

// tick is the unit of CPU times in /proc, which Linux fixes for programs.
const tick = 10 * time.Millisecond

// Usage is what a process uses.
type Usage struct {
	CPU  time.Duration // user and system, since its start, to 10 ms
	RSS  int64         // bytes of memory now
	Peak int64         // the most RSS there was
}

// Of reads the usage of a process.
func Of(pid int) (Usage, error) {
	fields, err := stat(pid)
	if err != nil {
		return Usage{}, err
	}
	usage := Usage{CPU: cpu(fields)}
	status, err := os.ReadFile(proc(pid, "status"))
	if err != nil {
		return Usage{}, err
	}
	for line := range strings.Lines(string(status)) {
		key, rest, _ := strings.Cut(line, ":")
		var field *int64
		switch key {
		case "VmRSS":
			field = &usage.RSS
		case "VmHWM":
			field = &usage.Peak
		default:
			continue
		}
		kilobytes, err := strconv.ParseInt(strings.TrimSuffix(strings.TrimSpace(rest), " kB"), 10, 64)
		if err != nil {
			return Usage{}, fmt.Errorf("/proc/%d/status: %s: %w", pid, key, err)
		}
		*field = kilobytes << 10
	}
	return usage, nil
}

// Below returns what the processes use together that this one has started and whose command line has text
// in it, and those that they have started. What has ended is left out.
func Below(text string) Usage { return below(os.Getpid(), text, "") }

// Program is [Below] of only those processes that were started as program (argv[0]).
func Program(text, program string) Usage { return below(os.Getpid(), text, program) }

func below(pid int, text, program string) (total Usage) {
	tasks, _ := filepath.Glob(proc(pid, "task/*/children"))
	for _, task := range tasks {
		list, _ := os.ReadFile(task) // else the thread has just ended
		for _, word := range strings.Fields(string(list)) {
			child, _ := strconv.Atoi(word)
			command, err := os.ReadFile(proc(child, "cmdline"))
			if err != nil || !strings.Contains(string(command), text) {
				continue
			}
			used := []Usage{below(child, "", program)}
			if name, _, _ := strings.Cut(string(command), "\x00"); program == "" || name == program {
				u, _ := Of(child)
				used = append(used, u)
			}
			for _, u := range used {
				total.CPU, total.RSS, total.Peak = total.CPU+u.CPU, total.RSS+u.RSS, total.Peak+u.Peak
			}
		}
	}
	return total
}

// stat gives the fields of /proc/<pid>/stat after the command's name.
func stat(pid int) ([]string, error) {
	text, err := os.ReadFile(proc(pid, "stat"))
	if err != nil {
		return nil, err
	}
	_, rest, _ := strings.Cut(string(text), ") ")
	fields := strings.Fields(rest)
	if len(fields) < 15 {
		return nil, fmt.Errorf("%s: %q is not what Linux writes", proc(pid, "stat"), text)
	}
	return fields, nil
}

// cpu is user and system time.
func cpu(fields []string) time.Duration {
	user, _ := strconv.ParseInt(fields[11], 10, 64)
	system, _ := strconv.ParseInt(fields[12], 10, 64)
	return time.Duration(user+system) * tick
}

func proc(pid int, file string) string { return fmt.Sprintf("/proc/%d/%s", pid, file) }
