//go:build !linux

package kit

import (
	"errors"
	"testing"
)

// Disk is a file system of its own that a test can fill.
type Disk struct{ Dir string }

// NewDisk skips the test.
func NewDisk(t testing.TB, _ int) *Disk {
	t.Helper()
	t.Skip("left out: needs Linux; it has a disk that can be filled")
	return nil
}

// MountDisk returns an error.
func MountDisk(testing.TB, int) (*Disk, error) {
	return nil, errors.New("a disk that can be filled needs Linux")
}

// Fill does nothing.
func (*Disk) Fill() (free func()) { return func() {} }

// SetReadOnly does nothing.
func (*Disk) SetReadOnly(bool) {}
