//go:build !linux

package leader

import (
	"errors"
	"os"
)

// placeOf returns an error: this system does not tell its runs apart.
func placeOf(*os.File) (place, error) {
	return place{}, errors.New("not supported on this operating system")
}
