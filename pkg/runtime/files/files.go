// Package files replaces files so that a reader, and a machine that loses its power, sees the former content or the new one.
//
//	err := files.Replace(dir, files.File{Name: "tls.key", Data: key, Mode: 0o600})
package files

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
)

// File is a file to write.
type File struct {
	Name  string
	Data  []byte
	Mode  os.FileMode
	Owner *Owner // nil means the process
}

// Owner is the owner of a file, by user and group id.
type Owner struct{ UID, GID int }

// Replace atomically replaces each of the files in dir. It syncs all files to disk first and then
// renames them in the given order, so that a reader rarely sees files that do not match.
func Replace(dir string, files ...File) (err error) {
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
			return fmt.Errorf("write %s: %w", filepath.Join(dir, f.Name), err)
		}
		written = append(written, path)
	}
	for i, f := range files {
		if err := os.Rename(written[i], filepath.Join(dir, f.Name)); err != nil {
			return fmt.Errorf("write %s: %w", filepath.Join(dir, f.Name), err)
		}
	}
	return Sync(dir)
}

func writeTemporary(dir string, f File) (path string, err error) {
	t, err := os.CreateTemp(dir, "."+f.Name+".*")
	if err != nil {
		return "", err
	}
	_, err = t.Write(f.Data)
	err = errors.Join(err, t.Chmod(f.Mode))
	if f.Owner != nil {
		err = errors.Join(err, t.Chown(f.Owner.UID, f.Owner.GID))
	}
	if err = errors.Join(err, t.Sync(), t.Close()); err != nil {
		return "", errors.Join(err, os.Remove(t.Name()))
	}
	return t.Name(), nil
}

// Sync makes renamed and removed files of a directory durable.
func Sync(dir string) error {
	d, err := os.Open(dir)
	if err != nil {
		return err
	}
	return errors.Join(d.Sync(), d.Close())
}
