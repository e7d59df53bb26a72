package memory

import (
	"bufio"
	"bytes"
	"os"
	"strconv"
	"strings"
	"syscall"
)

// unmapProgram removes the pages of the program's file from the memory of this process. A failure costs memory only.
func unmapProgram() {
	mappings, err := os.ReadFile("/proc/self/smaps")
	if err != nil {
		return
	}
	program, err := os.Readlink("/proc/self/exe")
	if err != nil {
		return
	}
	for _, m := range unchanged(mappings, program) {
		_, _, _ = syscall.Syscall(syscall.SYS_MADVISE, m.start, m.end-m.start, syscall.MADV_DONTNEED)
	}
}

// mapping is a range of addresses.
type mapping struct{ start, end uintptr }

// unchanged returns the mappings of a file in the text of /proc/PID/smaps that the file has all of: they cannot be written, and
// no page was written before, as by a loader that relocates.
func unchanged(smaps []byte, file string) []mapping {
	var found []mapping
	var last mapping
	candidate := false
	for lines := bufio.NewScanner(bytes.NewReader(smaps)); lines.Scan(); {
		fields := strings.Fields(lines.Text())
		if len(fields) < 2 {
			continue
		}
		if key, isField := strings.CutSuffix(fields[0], ":"); isField {
			if key == "Anonymous" && candidate && fields[1] == "0" {
				found = append(found, last)
			}
			continue
		}
		// start-end permissions offset device inode path
		candidate = len(fields) == 6 && fields[5] == file && !strings.Contains(fields[1], "w")
		from, to, _ := strings.Cut(fields[0], "-")
		start, errStart := strconv.ParseUint(from, 16, 64)
		end, errEnd := strconv.ParseUint(to, 16, 64)
		candidate = candidate && errStart == nil && errEnd == nil
		last = mapping{uintptr(start), uintptr(end)}
	}
	return found
}
