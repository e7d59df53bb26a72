package statestore

import (
	"io"
	"os"
	"time"
)

// WebAssembly, in which simulations run (test/sim), has neither locks of files nor maps of them, and one process.

func lock(*os.File, time.Duration) error { return nil }

func mapped(file *os.File, size int) (data []byte, unmap func(), err error) {
	data = make([]byte, size)
	_, err = io.ReadFull(io.NewSectionReader(file, 0, int64(size)), data)
	return data, func() {}, err
}
