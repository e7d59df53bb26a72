package statestore

import (
	"errors"
	"os"
	"time"
)

// WebAssembly, in which simulations run (test/sim), has neither locks of files nor maps of them. Agents are simulated
// without a state directory.

func lock(*os.File, time.Duration) error { return errors.ErrUnsupported }

func mapped(*os.File, int) (data []byte, unmap func(), err error) {
	return nil, nil, errors.ErrUnsupported
}
