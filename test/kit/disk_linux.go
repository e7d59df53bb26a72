package kit

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"syscall"
	"testing"
)

// Disk is a file system of its own, in memory, that a test can fill.
type Disk struct {
	Dir string
	t   testing.TB
}

// NewDisk mounts a file system of that many bytes until the end of the test. It leaves the test out
// where that is not allowed; as root, with the environment variable WORKWIRE_TEST_ALL, it fails it.
func NewDisk(t testing.TB, bytes int) *Disk {
	t.Helper()
	d, err := MountDisk(t, bytes)
	switch {
	case err == nil:
	case os.Getenv("WORKWIRE_TEST_ALL") != "" && os.Geteuid() == 0:
		t.Fatalf("make check fills disks; a container needs --privileged for it: %v", err)
	default:
		t.Skipf("left out: needs root; %v", err)
	}
	return d
}

// MountDisk is [NewDisk] for tests that can do without. It returns an error where mounting is not
// allowed.
func MountDisk(t testing.TB, bytes int) (*Disk, error) {
	t.Helper()
	d := &Disk{Dir: t.TempDir(), t: t}
	if err := syscall.Mount("tmpfs", d.Dir, "tmpfs", 0, fmt.Sprintf("size=%d", bytes)); err != nil {
		return nil, fmt.Errorf("mounting a tmpfs for a disk that can be filled needs root: %w", err)
	}
	t.Cleanup(func() { NoError(t, syscall.Unmount(d.Dir, syscall.MNT_DETACH)) })
	return d, nil
}

// Fill writes a file until the disk is full. free removes it.
func (d *Disk) Fill() (free func()) {
	d.t.Helper()
	path := filepath.Join(d.Dir, "fill")
	file, err := os.OpenFile(path, os.O_CREATE|os.O_WRONLY|os.O_APPEND, 0o600)
	NoError(d.t, err)
	defer func() { _ = file.Close() }()
	block := make([]byte, 4096)
	for err == nil {
		_, err = file.Write(block)
	}
	if !errors.Is(err, syscall.ENOSPC) {
		d.t.Fatal(err)
	}
	return func() { NoError(d.t, os.Remove(path)) }
}

// SetReadOnly makes the disk read-only, or writable again. No file may be open for writing.
func (d *Disk) SetReadOnly(readOnly bool) {
	d.t.Helper()
	flags := uintptr(syscall.MS_REMOUNT)
	if readOnly {
		flags |= syscall.MS_RDONLY
	}
	NoError(d.t, syscall.Mount("", d.Dir, "", flags, ""))
}
