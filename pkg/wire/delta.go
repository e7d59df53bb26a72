package wire

import (
	"errors"
)

// Specs and statuses have a form of delta each, because they change in different ways: a spec delta says which manifests
// stay, so that not one byte of them can become another one; a status delta is a merge patch, because few small
// fields of a status change. What both have in common is here.

// checkDelta returns an error unless a delta names its base and the hash of what it stands for, and has a change.
func checkDelta(what string, base, hash string, changed bool) error {
	if len(base) > maxHash {
		return tooLong("base", base, maxHash)
	}
	if base == "" || hash == "" || !changed {
		return errors.New(what + " are required")
	}
	return nil
}
