package certificates

import (
	"bytes"
	"errors"
	"fmt"
	"os"
	"path/filepath"
)

// file is a file to write.
type file struct {
	name  string
	data  []byte
	mode  os.FileMode
	owner *Owner // nil means the process
}

// replace atomically replaces each of the files in dir. It syncs all files to disk first and then
// renames them in the given order, so that a reader rarely sees files that do not match.
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
	if f.owner != nil {
		err = errors.Join(err, t.Chown(f.owner.UID, f.owner.GID))
	}
	if err = errors.Join(err, t.Sync(), t.Close()); err != nil {
		return "", errors.Join(err, os.Remove(t.Name()))
	}
	return t.Name(), nil
}

// update replaces a file if its content differs.
func update(dir string, f file) (changed bool, err error) {
	data, err := os.ReadFile(filepath.Join(dir, f.name))
	if err == nil && bytes.Equal(data, f.data) {
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
