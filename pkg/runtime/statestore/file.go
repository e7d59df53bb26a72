//go:build !wasip1

package statestore

import (
	"errors"
	"os"
	"syscall"
	"time"

	bbolterrors "go.etcd.io/bbolt/errors"
)

// lock locks file against other processes, for as long as it is open.
func lock(file *os.File, timeout time.Duration) error {
	for end := time.Now().Add(timeout); ; time.Sleep(20 * time.Millisecond) {
		err := syscall.Flock(int(file.Fd()), syscall.LOCK_EX|syscall.LOCK_NB)
		switch {
		case !errors.Is(err, syscall.EWOULDBLOCK):
			return err
		case time.Now().After(end):
			return bbolterrors.ErrTimeout
		}
	}
}

// mapped returns the first bytes of file, until unmap is called.
func mapped(file *os.File, size int) (data []byte, unmap func(), err error) {
	data, err = syscall.Mmap(int(file.Fd()), 0, size, syscall.PROT_READ, syscall.MAP_SHARED)
	return data, func() { _ = syscall.Munmap(data) }, err
}
