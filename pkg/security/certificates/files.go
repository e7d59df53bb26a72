package certificates

import (
	"bytes"
	"errors"
	"os"
	"path/filepath"

	"github.com/workwire/workwire/pkg/runtime/files"
)

// update replaces a file if its content differs.
func update(dir string, f files.File) (changed bool, err error) {
	data, err := os.ReadFile(filepath.Join(dir, f.Name))
	if err == nil && bytes.Equal(data, f.Data) {
		return false, nil
	}
	return true, files.Replace(dir, f)
}

func exists(path string) bool {
	_, err := os.Stat(path)
	return !errors.Is(err, os.ErrNotExist)
}
