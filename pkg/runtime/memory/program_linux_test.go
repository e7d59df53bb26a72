package memory

import (
	"bytes"
	"os"
	"slices"
	"strconv"
	"syscall"
	"testing"
)

// TestUnchanged: only what the file has all of may be unmapped. The rest would be lost.
func TestUnchanged(t *testing.T) {
	const smaps = `00400000-00c00000 r-xp 00000000 fe:00 12 /bin/agent
Rss:                4096 kB
Anonymous:             0 kB
VmFlags: rd ex mr mw me
00c00000-01000000 r--p 00800000 fe:00 12 /bin/agent
Anonymous:             8 kB
01000000-01100000 rw-p 00c00000 fe:00 12 /bin/agent
Anonymous:             0 kB
01100000-01200000 r--p 00000000 fe:00 13 /lib/other
Anonymous:             0 kB
c000000000-c000400000 rw-p 00000000 00:00 0
Anonymous:             0 kB
7ffd00000000-7ffd00021000 r--p 00000000 00:00 0 [stack]
Anonymous:             0 kB
02000000-02100000 r--p 01200000 fe:00 12 /bin/agent
Anonymous:             0 kB
03000000-03100000 r--p 01200000 fe:00 12 /bin/agent (deleted)
Anonymous:             0 kB
`
	want := []mapping{{0x400000, 0xc00000}, {0x2000000, 0x2100000}}
	if got := unchanged([]byte(smaps), "/bin/agent"); !slices.Equal(got, want) {
		t.Errorf("unchanged %x, want %x", got, want)
	}
}

// TestReturn: the pages of the file are not resident any more, but for those that are used at once.
func TestReturn(t *testing.T) {
	const populateRead = 22 // MADV_POPULATE_READ: all that is mapped becomes resident
	program, err := os.Readlink("/proc/self/exe")
	if err != nil {
		t.Fatal(err)
	}
	mappings, err := os.ReadFile("/proc/self/smaps")
	if err != nil {
		t.Fatal(err)
	}
	for _, m := range unchanged(mappings, program) {
		if _, _, errno := syscall.Syscall(syscall.SYS_MADVISE, m.start, m.end-m.start, populateRead); errno != 0 {
			t.Logf("this kernel does not read all pages: %v", errno)
		}
	}
	before := resident(t)
	giveBack()
	after := resident(t)
	t.Logf("%d KB of files were resident, %d are", before, after)
	if after > before*3/4 {
		t.Errorf("%d KB of files are resident after %d", after, before)
	}
}

// resident returns how much of files is mapped and resident, in KB.
func resident(t *testing.T) int {
	status, err := os.ReadFile("/proc/self/status")
	if err != nil {
		t.Fatal(err)
	}
	_, rest, _ := bytes.Cut(status, []byte("RssFile:"))
	number, _, _ := bytes.Cut(bytes.TrimSpace(rest), []byte(" "))
	n, err := strconv.Atoi(string(number))
	if err != nil {
		t.Fatal(err)
	}
	return n
}
