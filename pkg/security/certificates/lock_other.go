//go:build !unix

package certificates

import (
	"errors"
	"fmt"
)

// lock refuses: an authority's directory can be changed on systems with flock(2) only. Simulations, which are
// WebAssembly, issue certificates from authorities in memory.
func lock(dir string) (unlock func() error, err error) {
	return nil, fmt.Errorf("lock the authority's directory %s: %w", dir, errors.ErrUnsupported)
}
