package certificates

import (
	"bytes"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"syscall"
)

// file is one to be written.
type file struct {
	name string
	data []byte
	mode os.FileMode
	to   *Owner // nil for the process
}

// replace writes files into dir, each at once and whole: a reader sees the old
// content or the new. They are on disk first and renamed after that, one right
// after the other in the order given, so that a reader hardly ever sees one that
// does not fit the next.
func replace(dir string, files ...file) (err error) {
	written := make([]string, 0, len(files))
	defer func() {
		for _, path := range written {
			if e := os.Remove(path); e != nil && !errors.Is(e, os.ErrNotExist) {
				err = errors.Join(err, e)
			}
		}
	}()
	for _, f := range files {
		path, err := writeTemporary(dir, f)
		if err != nil {
			return fmt.Errorf("write %s: %w", filepath.Join(dir, f.name), err)
		}
		written = append(written, path)
	}
	for i, f := range files {
		if err := os.Rename(written[i], filepath.Join(dir, f.name)); err != nil {
			return fmt.Errorf("write %s: %w", filepath.Join(dir, f.name), err)
		}
	}
	return syncDirectory(dir)
}

func writeTemporary(dir string, f file) (path string, err error) {
	t, err := os.CreateTemp(dir, "."+f.name+".*")
	if err != nil {
		return "", err
	}
	_, err = t.Write(f.data)
	err = errors.Join(err, t.Chmod(f.mode))
	if f.to != nil {
		err = errors.Join(err, t.Chown(f.to.UID, f.to.GID))
	}
	if err = errors.Join(err, t.Sync(), t.Close()); err != nil {
		return "", errors.Join(err, os.Remove(t.Name()))
	}
	return t.Name(), nil
}

// update is replace for one file, unless it is as it should be.
func update(dir string, f file) (changed bool, err error) {
	held, err := os.ReadFile(filepath.Join(dir, f.name))
	if err == nil && bytes.Equal(held, f.data) {
		return false, nil
	}
	return true, replace(dir, f)
}

func syncDirectory(dir string) error {
	d, err := os.Open(dir)
	if err != nil {
		return err
	}
	return errors.Join(d.Sync(), d.Close())
}

func exists(path string) bool {
	_, err := os.Stat(path)
	return !errors.Is(err, os.ErrNotExist)
}

// lock keeps other processes from changing dir until the function that it gives is called.
func lock(dir string) (unlock func() error, err error) {
	f, err := os.OpenFile(filepath.Join(dir, ".lock"), os.O_CREATE|os.O_RDWR, 0o600)
	if err != nil {
		return nil, fmt.Errorf("lock the authority's directory: %w", err)
	}
	if err := syscall.Flock(int(f.Fd()), syscall.LOCK_EX); err != nil {
		return nil, errors.Join(fmt.Errorf("lock the authority's directory %s: %w", dir, err), f.Close())
	}
	return f.Close, nil // which unlocks
}
